//! Proves that `dcd detach --wipe` leaves none of what was written on the cache-disk, wipes nothing
//! before the detach is complete, and can be killed at any moment and repeated: the data-disk has
//! everything each time.

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::Folder;
use common::nbd::Nbd;

const SERVE: &str = "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --memory-directory . \
                     --quiet --idle-max 1h --idle-min 1h";
const DETACH: &str = "detach --cache-disk c --data-disk d --memory-directory . --wipe";
const SECRET: &[u8] = b"what nobody may find";
const BLOCK: u64 = 4096;

/// A pair whose cache-disk has `blocks` secrets.
fn pair(size: &str, blocks: u64, more: &str) -> (Folder, common::Served) {
    let folder = Folder::new();
    folder.disk("d", 256 << 20);
    folder.dcd(&format!("create --cache-disk c --cache-size {size} --data-disk d {more}")).ok();
    let served = folder.serve(SERVE);
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for block in 0..blocks {
        assert_eq!(nbd.write(block * BLOCK * 3, &secret(block)), 0);
    }
    (folder, served)
}

fn secret(block: u64) -> Vec<u8> {
    let mut bytes = SECRET.repeat(BLOCK as usize / SECRET.len() + 1);
    bytes.truncate(BLOCK as usize);
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

fn is_on(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks(BLOCK as usize).any(|chunk| chunk.windows(SECRET.len()).any(|it| it == SECRET))
}

fn is_zero(path: &Path) -> bool {
    std::fs::read(path).unwrap().iter().all(|byte| *byte == 0)
}

/// Where the payload of the data-disk begins.
fn assert_has_all(folder: &Folder, blocks: u64, begins: u64) {
    let file = std::fs::File::open(folder.path("d")).unwrap();
    for block in 0..blocks {
        let mut bytes = vec![0; BLOCK as usize];
        file.read_exact_at(&mut bytes, begins + block * BLOCK * 3).unwrap();
        assert_eq!(bytes, secret(block), "block {block}");
    }
}

#[test]
fn nothing_is_left_on_the_cache_disk() {
    for (through_daemon, more, begins) in [
        (true, "", 0),
        (false, "", 0),
        (true, "--labelled", 1 << 20),
        (false, "--labelled", 1 << 20),
    ] {
        let (folder, served) = pair("16M", 300, more);
        folder.dcd("flush --control ctl").ok();
        assert!(is_on(&folder.path("c")));
        let said = if through_daemon {
            let said = folder.dcd("detach --control ctl --wipe --force").ok();
            served.wait();
            said
        } else {
            assert_eq!(served.stop().code, Some(0));
            folder.dcd(DETACH).ok()
        };
        assert!(said.contains("detached") && said.contains("wiped: "), "{said}");
        assert!(is_zero(&folder.path("c")));
        assert_has_all(&folder, 300, begins);
        // A disk as any other.
        folder.dcd(&format!("create --cache-disk c --data-disk d {more}")).ok();
    }
}

/// A cache before it had more of the disk.
#[test]
fn a_detached_cache_is_only_wiped() {
    let (folder, served) = pair("16M", 100, "");
    assert_eq!(served.stop().code, Some(0));
    folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    assert!(is_on(&folder.path("c")), "a detach alone leaves it");
    // The data-disk is used without dcd meanwhile.
    let data_disk = std::fs::File::options().write(true).open(folder.path("d")).unwrap();
    data_disk.write_all_at(b"newer", 0).unwrap();
    let said = folder.dcd(DETACH).ok();
    assert!(said.starts_with("wiped: ") && is_zero(&folder.path("c")), "{said}");
    let mut bytes = [0; 5];
    std::fs::File::open(folder.path("d")).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"newer");
    folder.dcd(DETACH).fails(1, "is not a dcd cache", "");
}

/// Nothing is missed that a wipe has overwritten so far.
#[test]
fn a_wipe_that_was_ended_is_told_from_damage() {
    let (folder, served) = pair("16M", 100, "");
    assert_eq!(served.stop().code, Some(0));
    folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    let cache = std::fs::File::options().write(true).open(folder.path("c")).unwrap();
    cache.write_all_at(&[0; 1 << 20], 128 << 10).unwrap();
    let serve = "serve --cache-disk c --data-disk d --nbd unix:s --memory-directory .";
    folder.dcd(serve).fails(1, "of a cache that is detached", "--wipe");
    let checked = folder.dcd("check --cache-disk c");
    assert!(checked.stdout.contains("nothing depends on it"), "{}", checked.stdout);
    folder.dcd(DETACH).ok();
    assert!(is_zero(&folder.path("c")));
}

#[test]
fn nothing_is_wiped_without_a_detach() {
    let (folder, served) = pair("16M", 100, "");
    folder.dcd("flush --control ctl").ok();
    // In use.
    let client = Nbd::connect(&folder.path("sock"));
    folder.dcd("detach --control ctl --wipe").fails(1, "in use", "");
    assert!(is_on(&folder.path("c")));
    drop(client);
    folder.dcd(DETACH).fails(1, "locked", "");
    assert!(is_on(&folder.path("c")));
    assert_eq!(served.stop().code, Some(0));
    // Of another cache, as far as the daemon's word goes; and one that is damaged.
    folder.dcd("detach --cache-disk d --data-disk c --memory-directory . --wipe").fails(
        1,
        "not a dcd cache",
        "",
    );
    let file = std::fs::File::options().write(true).read(true).open(folder.path("c")).unwrap();
    let mut whole = Vec::new();
    std::io::Read::read_to_end(&mut &file, &mut whole).unwrap();
    let at = whole.windows(SECRET.len()).position(|it| it == SECRET).unwrap();
    file.write_all_at(b"damaged", at as u64).unwrap();
    let refused = folder.dcd(DETACH);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(is_on(&folder.path("c")));
    // Given up in so many words, it is a detach.
    folder.dcd(&format!("{DETACH} --accept-damage")).ok();
    assert!(is_zero(&folder.path("c")));
    let block = u64::from_le_bytes(whole[at - at % 4096..][..8].try_into().unwrap());
    assert!(block < 100, "{block}");
    let mut bytes = vec![1; BLOCK as usize];
    let data_disk = std::fs::File::open(folder.path("d")).unwrap();
    for other in (0..100).filter(|other| *other != block) {
        data_disk.read_exact_at(&mut bytes, other * BLOCK * 3).unwrap();
        assert_eq!(bytes, secret(other), "block {other}");
    }
}

/// `kill -9` at moments all over a detach and a wipe, then again, to its end.
#[test]
fn it_is_killed_at_any_moment_and_repeated() {
    let mut wiped_at_once = 0;
    for round in 0..12u64 {
        let (folder, served) = pair("64M", 400, if round % 2 == 0 { "" } else { "--labelled" });
        assert_eq!(served.stop().code, Some(0));
        let begins = if round % 2 == 0 { 0 } else { 1 << 20 };
        let mut child = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(DETACH.split(' '))
            .current_dir(folder.path("."))
            .env("DCD_STATE_DIRECTORY", folder.state_directory())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(round * round * 3));
        let _ = child.kill();
        wiped_at_once += u32::from(child.wait().unwrap().success());
        let again = folder.dcd(DETACH);
        let is_done = again.stderr.contains("is not a dcd cache") && is_zero(&folder.path("c"));
        assert!(again.code == Some(0) || is_done, "round {round}: {}", again.stderr);
        assert!(is_zero(&folder.path("c")), "round {round}");
        assert_has_all(&folder, 400, begins);
    }
    println!("{wiped_at_once} of 12 were not caught");
}

/// Zeroes are written to a device whose discards promise nothing.
#[test]
fn a_block_device_is_wiped() {
    let (folder, served) = pair("16M", 300, "");
    assert_eq!(served.stop().code, Some(0));
    let attach = Command::new("losetup").args(["--find", "--show"]).arg(folder.path("c")).output();
    let device = match attach {
        Ok(output) if output.status.success() => {
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }
        other => return println!("skipped: no loop device: {other:?}"),
    };
    let said = folder
        .dcd(&format!("detach --cache-disk {device} --data-disk d --memory-directory . --wipe"));
    let _ = Command::new("losetup").args(["--detach", &device]).status();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(is_zero(&folder.path("c")));
    assert_has_all(&folder, 300, 0);
}
