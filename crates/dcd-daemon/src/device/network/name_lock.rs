//! No two processes of a machine use one network disk under one name.
//!
//! There is no file to be locked. A name in the abstract namespace of unix sockets belongs to one
//! socket at a time, and goes with its process, however that ends. It binds nobody on other
//! machines, nor who names the server in another way.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use super::NbdUri;

/// Locks the name until the descriptor is closed. `None`: somebody has it.
///
/// # Errors
/// If the system refuses.
pub(crate) fn lock_name(uri: &NbdUri) -> Result<Option<OwnedFd>, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    // Names may be longer than the room for one.
    let disk = uri.absolute().without_tls().to_string();
    let name = format!("dcd-nbd-{:016x}", fnv(disk.as_bytes()));
    match bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// FNV-1a: the same in each version of dcd.
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_locked_once() {
        let uri: NbdUri = format!("nbd://192.0.2.1/lock-{}", std::process::id()).parse().unwrap();
        let held = lock_name(&uri).unwrap().expect("nobody has it");
        assert!(lock_name(&uri).unwrap().is_none());
        let secured = uri.to_string().replace("nbd://", "nbds://") + "?tls-certificates=pki";
        assert!(lock_name(&secured.parse().unwrap()).unwrap().is_none(), "it is the same disk");
        drop(held);
        assert!(lock_name(&uri).unwrap().is_some());
    }
}
