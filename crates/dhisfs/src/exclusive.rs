//! One at a time: two mounts of the same file system would each undo what the other does.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use crate::error::{FsError, FsResult};

/// The right to use the file system of a volume, until it is dropped or the process ends.
///
/// It is a socket without a file, named after the control socket of the daemon: the kernel removes
/// it with the process, however that ends, and a daemon that was started again has another control
/// socket, with which no older mount can work.
pub struct Exclusive(#[expect(dead_code, reason = "it is held")] UnixListener);

impl Exclusive {
    /// Takes it, unless somebody else has it.
    pub fn take(control_socket: &Path) -> FsResult<Exclusive> {
        let system = |source| FsError::Lock { source };
        let socket = std::fs::metadata(control_socket).map_err(system)?;
        let name = format!("dhisfs-{}-{}", socket.dev(), socket.ino());
        let address = SocketAddr::from_abstract_name(name).map_err(system)?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Exclusive(listener)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(FsError::Busy),
            Err(error) => Err(system(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_waits_for_the_first() {
        let path = std::env::temp_dir().join(format!("dhisfs-exclusive-{}", std::process::id()));
        let socket = UnixListener::bind(&path).unwrap();
        let first = Exclusive::take(&path).unwrap();
        assert!(matches!(Exclusive::take(&path), Err(FsError::Busy)));
        drop(first);
        Exclusive::take(&path).unwrap();
        drop(socket);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Exclusive::take(&path), Err(FsError::Lock { .. })));
    }
}
