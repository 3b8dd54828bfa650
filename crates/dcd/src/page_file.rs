//! Pages and pictures that take the place of an earlier one, but of nothing else: a mistyped name
//! of a trace must not cost the trace.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use dcd_sim::trace::is_standard;
use rustix::fs::{Access, access};

use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::stdout::print;

/// A file of drawings, or the standard output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlotFile {
    /// Its name.
    pub path: PathBuf,
    /// A page with numbers, too; else one SVG.
    pub is_html: bool,
}

/// `--out` and `--plot`.
pub fn parse_plot_file(text: &str) -> Result<PlotFile, &'static str> {
    let path = PathBuf::from(text);
    if is_standard(&path) {
        return Ok(PlotFile { path, is_html: true });
    }
    let is_html = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => true,
        Some("svg") => false,
        _ => return Err("expected a name that ends in .html or .svg, or - for HTML on stdout"),
    };
    Ok(PlotFile { path, is_html })
}

/// A page that is going to be written.
pub struct PageFile<'a> {
    path: &'a Path,
    maker: &'static str,
    beginning: &'static str,
}

impl<'a> PageFile<'a> {
    /// Whether a page of `maker`, which all begin so, may be written there: asked before an hour is
    /// spent on it.
    pub fn check(
        path: &'a Path,
        maker: &'static str,
        beginning: &'static str,
    ) -> Result<PageFile<'a>, CommandError> {
        if is_standard(path) {
            return Ok(PageFile { path, maker, beginning });
        }
        match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new("."));
                let allowed = access(folder, Access::WRITE_OK | Access::EXEC_OK);
                allowed.map_err(|source| CommandError::file("write", path)(source.into()))?;
            }
            found => {
                let mut begins = Vec::new();
                let read = found
                    .and_then(|file| file.take(beginning.len() as u64).read_to_end(&mut begins));
                read.map_err(CommandError::file("read", path))?;
                if !begins.is_empty() && begins != beginning.as_bytes() {
                    return Err(CommandError::Lab(LabError::OtherPage {
                        path: path.to_owned(),
                        maker,
                    }));
                }
                let allowed = access(path, Access::WRITE_OK);
                allowed.map_err(|source| CommandError::file("write", path)(source.into()))?;
            }
        }
        Ok(PageFile { path, maker, beginning })
    }

    /// Writes it, unless something else has come there meanwhile: what is recorded first may have
    /// the same name.
    pub fn write(self, text: &str) -> Result<(), CommandError> {
        if is_standard(self.path) {
            return print(text);
        }
        PageFile::check(self.path, self.maker, self.beginning)?;
        std::fs::write(self.path, text).map_err(|source| {
            if std::fs::metadata(self.path).is_ok_and(|it| it.is_file()) {
                // Half a page would look like a whole one, and its beginning like somebody else's.
                let _ = std::fs::remove_file(self.path);
            }
            CommandError::file("write", self.path)(source)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_pages_are_replaced_and_half_of_one_does_not_stay() {
        let path = std::env::temp_dir().join(format!("dcd-page-{}.html", std::process::id()));
        let page_file = || PageFile::check(&path, "us", "<!-- us -->");
        let (first, second) = (page_file().unwrap(), page_file().unwrap());
        first.write("<!-- us --> 1").unwrap();
        page_file().unwrap().write("<!-- us --> 2").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "<!-- us --> 2");
        std::fs::write(&path, "t_us,op").unwrap();
        assert!(page_file().is_err() && second.write("<!-- us --> 3").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "t_us,op");
        std::fs::remove_file(&path).unwrap();
        // A device that is full stays.
        let full = PageFile::check(Path::new("/dev/full"), "us", "").unwrap();
        assert!(full.write("<!-- us -->").is_err() && Path::new("/dev/full").exists());
    }
}
