//! Traces that are objects of a bucket: brought here as they are needed, and gone at the end. In
//! builds without object stores there are none.

#[cfg(not(feature = "s3"))]
pub use absent::ObjectTraces;
#[cfg(feature = "s3")]
pub use objects::ObjectTraces;

#[cfg(not(feature = "s3"))]
mod absent {
    use dcd_study::traces::Fetching;

    /// Nobody brings any.
    pub struct ObjectTraces;

    impl ObjectTraces {
        pub fn new() -> ObjectTraces {
            ObjectTraces
        }

        pub fn fetching(&self) -> Option<Fetching<'_>> {
            None
        }
    }
}

#[cfg(feature = "s3")]
mod objects {
    use std::cell::Cell;
    use std::fs::DirBuilder;
    use std::io;
    use std::os::unix::fs::DirBuilderExt;
    use std::path::{Path, PathBuf};

    use dcd_protocol::store::StoreFailure;
    use dcd_study::traces::{Fetching, TraceStore};

    /// A folder for them, which is made for the first one and goes with this.
    pub struct ObjectTraces {
        folder: PathBuf,
        is_made: Cell<bool>,
    }

    impl ObjectTraces {
        /// Nothing is asked of anybody yet.
        pub fn new() -> ObjectTraces {
            let name = format!("dcd-traces-{}", std::process::id());
            ObjectTraces { folder: std::env::temp_dir().join(name), is_made: Cell::new(false) }
        }

        /// Who brings them.
        pub fn fetching(&self) -> Option<Fetching<'_>> {
            Some(Fetching { store: self, folder: self.folder.clone() })
        }

        /// For nobody else. One that is there already is somebody's who may know our number.
        fn make_folder(&self) -> io::Result<()> {
            if !self.is_made.get() {
                DirBuilder::new().mode(0o700).create(&self.folder)?;
                self.is_made.set(true);
            }
            Ok(())
        }
    }

    impl Drop for ObjectTraces {
        fn drop(&mut self) {
            if self.is_made.get() {
                // What stays in the folder for temporary files does no harm.
                let _ = std::fs::remove_dir_all(&self.folder);
            }
        }
    }

    fn words(failure: StoreFailure) -> (String, Option<String>) {
        (failure.problem, failure.hint)
    }

    impl TraceStore for ObjectTraces {
        fn list(&self, name: &str) -> Result<Vec<String>, (String, Option<String>)> {
            dcd_store::files::list(name).map_err(words)
        }

        fn fetch(&self, object: &str, to: &Path) -> Result<(), (String, Option<String>)> {
            self.make_folder().map_err(|error| {
                let problem = format!("cannot make {}: {error}", self.folder.display());
                (problem, Some("TMPDIR names another folder; one that is there is not used".into()))
            })?;
            dcd_store::files::fetch(object, to).map_err(words)
        }
    }
}
