//! The directories that the kernel goes through on its way to a file.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links that are followed on one way, as the kernel does.
const LINKS_MAX: usize = 40;

/// Whether the way to `path` leads through `directory`, which may have several names: a bind mount
/// or a link. What is not there yet, as a socket, lies on the way as far as that is there.
pub(crate) fn leads_through(path: &Path, directory: &Path) -> bool {
    // A directory under a dead mount has no number that can be asked for, but it has a name.
    let name = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let number = fs::metadata(directory).ok().map(|found| (found.dev(), found.ino()));
    let mut is_on_the_way = false;
    let _ = walk(path, &mut |place| {
        let found = fs::symlink_metadata(place);
        let found_number = found.as_ref().ok().map(|found| (found.dev(), found.ino()));
        is_on_the_way |= place == name || number.is_some() && number == found_number;
        found
    });
    is_on_the_way
}

/// Calls `look` for all that is on the way to `path`, links included, in order.
fn walk(path: &Path, look: &mut dyn FnMut(&Path) -> io::Result<fs::Metadata>) -> io::Result<()> {
    let mut place = PathBuf::from("/");
    look(&place)?;
    // A link may lead back to where it begins from.
    let mut left = steps(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(step) = left.pop_front() {
        if step == ".." {
            place.pop();
            continue;
        }
        place.push(&step);
        if look(&place)?.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let target = fs::read_link(&place)?;
            match target.is_absolute() {
                true => place = PathBuf::from("/"),
                false => drop(place.pop()),
            }
            let mut steps = steps(&target);
            steps.append(&mut left);
            left = steps;
        }
    }
    Ok(())
}

fn steps(path: &Path) -> VecDeque<OsString> {
    let steps = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_way_leads_through_a_directory_whatever_its_names_are() {
        let folder = std::env::temp_dir().join(format!("dcd-way-{}", std::process::id()));
        let at = |name: &str| folder.join(name);
        fs::create_dir_all(at("v/below")).unwrap();
        fs::create_dir_all(at("other")).unwrap();
        fs::write(at("other/disk"), "").unwrap();
        fs::write(at("v/below/disk"), "").unwrap();
        symlink("v", at("link")).unwrap();
        symlink("../other/disk", at("v/out")).unwrap();
        symlink("../v/below/disk", at("other/in")).unwrap();
        symlink("round", at("round")).unwrap();
        for name in [
            "v",
            "v/not-there",
            "v/below/disk",
            "v/below/../not-there",
            "other/../v/below/disk",
            "link/not-there",
            "v/out",
            "other/in",
            "v/../other/disk",
        ] {
            assert!(leads_through(&at(name), &at("v")), "{name}");
            assert!(leads_through(&at(name), &at("link")), "{name}");
            assert!(leads_through(&at(name), &folder), "{name}");
        }
        for name in ["other/disk", "other/not-there", "not-there/v", "round", "", "v2"] {
            assert!(!leads_through(&at(name), &at("v")), "{name}");
        }
        assert!(!leads_through(&at("v/below"), &at("not-there")));
        fs::remove_dir_all(folder).unwrap();
    }
}
