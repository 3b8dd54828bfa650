//! Traces that are objects of a bucket: brought here as they are needed, and gone at the end. In
//! builds without object stores there are none.

use std::path::PathBuf;

use dcd_study::traces::Fetching;

/// A folder for them, which goes with this.
pub struct ObjectTraces {
    #[cfg_attr(not(feature = "s3"), allow(dead_code))]
    folder: PathBuf,
}

impl ObjectTraces {
    /// Nothing is asked of anybody yet, and there is no folder.
    pub fn new() -> ObjectTraces {
        let name = format!("dcd-traces-{}", std::process::id());
        ObjectTraces { folder: std::env::temp_dir().join(name) }
    }

    /// Who brings them.
    #[cfg(feature = "s3")]
    pub fn fetching(&self) -> Option<Fetching<'static>> {
        Some(Fetching { store: &objects::Objects, folder: self.folder.clone() })
    }

    /// Nobody brings them.
    #[cfg(not(feature = "s3"))]
    pub fn fetching(&self) -> Option<Fetching<'static>> {
        None
    }
}

impl Drop for ObjectTraces {
    fn drop(&mut self) {
        // What stays in the folder for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(feature = "s3")]
mod objects {
    use std::path::Path;

    use dcd_protocol::store::StoreFailure;
    use dcd_study::traces::TraceStore;

    pub(super) struct Objects;

    fn words(failure: StoreFailure) -> (String, Option<String>) {
        (failure.problem, failure.hint)
    }

    impl TraceStore for Objects {
        fn list(&self, name: &str) -> Result<Vec<String>, (String, Option<String>)> {
            dcd_store::files::list(name).map_err(words)
        }

        fn fetch(&self, object: &str, to: &Path) -> Result<(), (String, Option<String>)> {
            if let Some(folder) = to.parent() {
                let failed = |error: std::io::Error| {
                    (format!("cannot make {}: {error}", folder.display()), None)
                };
                std::fs::create_dir_all(folder).map_err(failed)?;
            }
            dcd_store::files::fetch(object, to).map_err(words)
        }
    }
}
