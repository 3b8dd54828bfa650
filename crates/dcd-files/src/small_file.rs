//! Small files that are read whole: settings, rules, keys. A path may name anything, also something
//! without an end, or a pipe that nobody writes to; what is no file, or too long to be meant, is
//! refused before it is read.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// More than any of them has.
pub const BYTES_MAX: u64 = 1 << 20;

/// The bytes of a file.
///
/// # Errors
/// If it cannot be read, is no file, or is longer than that.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // A pipe would be waited for.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        let what = "expected a file, found a device, a pipe or a socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    // Its length may be another by now.
    up_to(file, bytes_max)
}

fn up_to(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("the file is longer than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// The text of a file; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is longer than [`BYTES_MAX`], or no text in UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = match path.as_os_str() == "-" {
        true => up_to(io::stdin().lock(), BYTES_MAX)?,
        false => read(path, BYTES_MAX)?,
    };
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is no text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read() {
        for path in ["/dev/zero", "/dev/null"] {
            let error = read_text(path.as_ref()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}: {error}");
        }
        assert_eq!(read_text("/".as_ref()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let directory = std::env::temp_dir().join(format!("dcd-small-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let (pipe, large) = (directory.join("pipe"), directory.join("large"));
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(read_text(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let file = std::fs::File::create(&large).unwrap();
        file.set_len(BYTES_MAX).unwrap();
        assert_eq!(read_text(&large).unwrap().len() as u64, BYTES_MAX);
        // As much as there is room for on the disk.
        file.set_len(1 << 40).unwrap();
        assert_eq!(read_text(&large).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
