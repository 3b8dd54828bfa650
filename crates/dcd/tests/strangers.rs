//! Proves what other users of the machine get of a daemon: nothing. Each tries as `nobody`, in a
//! thread that has become that user.

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use common::Folder;
use common::nbd::Nbd;

/// As this user, who may enter the folder.
fn as_nobody<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let become_and_do = move || {
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        what()
    };
    std::thread::spawn(become_and_do).join().unwrap()
}

#[test]
fn no_door_is_open_to_another_user() {
    if !rustix::process::getuid().is_root() {
        return println!("skipped: only root can be another user");
    }
    let folder = Folder::new();
    // Where everybody can go.
    let open = std::env::temp_dir().join(format!("dcd-strangers-{}", std::process::id()));
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    let at = |name: &str| open.join(name);
    let _served = folder.serve(&format!(
        "serve --cache-disk c --data-disk d --nbd unix:{} --control {} --vhost-user {} --memory-directory {} --quiet",
        at("nbd").display(),
        at("ctl").display(),
        at("vhost").display(),
        open.display(),
    ));
    let files: Vec<PathBuf> =
        std::fs::read_dir(&open).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 4, "three sockets and the memory: {files:?}");
    for path in &files {
        let path = path.clone();
        let kind = as_nobody(move || {
            if path.extension().is_some_and(|it| it == "segments") {
                std::fs::File::open(&path).map(drop).unwrap_err().kind()
            } else {
                UnixStream::connect(&path).map(drop).unwrap_err().kind()
            }
        });
        assert_eq!(kind, ErrorKind::PermissionDenied, "{files:?}");
    }
    // Somebody has opened the doors, or the file system keeps no modes: control asks the kernel who
    // it is.
    std::fs::set_permissions(at("ctl"), std::fs::Permissions::from_mode(0o666)).unwrap();
    for asked in ["status", "drain", "stop", "detach"] {
        let control = at("ctl");
        let said = as_nobody(move || {
            let mut stream = UnixStream::connect(control).unwrap();
            let _ = writeln!(stream, "{{\"command\":\"{asked}\"}}");
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            line
        });
        assert!(said.contains("only root and the daemon's own user"), "{asked}: {said}");
    }
    assert_eq!(Nbd::connect(&at("nbd")).write(0, &[1; 4096]), 0, "it goes on");
    std::fs::remove_dir_all(&open).unwrap();
}
