//! Real clients against a small server of threads and blocking I/O: `nbdinfo`, `nbdcopy`, `nbdsh`
//! and `qemu-img`. A client that is not installed is skipped.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use super::*;

const SIZE: u64 = 16 << 20;

/// Serves one disk on a socket until the test's process ends.
struct Server {
    directory: PathBuf,
    disk: Arc<Mutex<MemoryDisk>>,
}

impl Server {
    fn start(name: &str, export: Export) -> Server {
        let directory = std::env::temp_dir().join(format!("dcd-nbd-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let disk = Arc::new(Mutex::new(MemoryDisk::new(&export)));
        let server = Server { directory, disk };
        let listener = UnixListener::bind(server.socket()).unwrap();
        let disk = server.disk.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (disk, export) = (disk.clone(), export.clone());
                std::thread::spawn(move || serve(stream.unwrap(), export, &disk));
            }
        });
        server
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The whole life of a connection.
fn serve(mut stream: UnixStream, export: Export, disk: &Mutex<MemoryDisk>) {
    let mut connection = Connection::new(export);
    loop {
        loop {
            let slices: Vec<IoSlice> = connection.transmit().take(64).map(IoSlice::new).collect();
            if slices.is_empty() {
                break;
            }
            match stream.write_vectored(&slices) {
                Ok(count) => connection.transmitted(count),
                Err(_) => return,
            }
        }
        if connection.is_finished() {
            return;
        }
        match stream.read(connection.receive_space()) {
            Ok(0) | Err(_) => return,
            Ok(count) => connection.received(count),
        }
        let how = disk.lock().unwrap().serve(&mut connection);
        assert!(matches!(how, None | Some(None)), "the client breaks the protocol: {how:?}");
    }
}

/// Runs a client, unless it is missing, and returns what it printed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let path = Path::new("/usr/bin").join(program);
    if !path.exists() {
        eprintln!("skipped: {} is not installed", path.display());
        return None;
    }
    // nbdsh finds its Python module only with the Python of the system.
    let output = Command::new(&path).args(arguments).env("PATH", "/usr/bin:/bin").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    if program == "nbdsh" && complaints.contains("No module named") {
        eprintln!("skipped: python3-libnbd is not installed");
        return None;
    }
    assert!(output.status.success(), "{program} {arguments:?}: {printed} {complaints}");
    Some(printed)
}

#[test]
fn nbdinfo_describes_the_export() {
    let server = Server::start("info", export(SIZE));
    server.disk.lock().unwrap().bytes[4096..8192].fill(1);
    let uri = server.uri();
    let Some(printed) = run("nbdinfo", &[&uri]) else { return };
    for expected in [
        "newstyle-fixed",
        "export-size: 16777216",
        "a disk for tests",
        "base:allocation",
        "can_df: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "can_fast_zero: true",
        "can_cache: true",
        "can_multi_conn: true",
        "is_read_only: false",
        "block_size_minimum: 512",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(printed.contains(expected), "{expected} is not in {printed}");
    }
    let map = run("nbdinfo", &["--map", &uri]).unwrap();
    assert_eq!(map.lines().count(), 3, "{map}");
    assert!(run("nbdinfo", &["--list", &uri]).unwrap().contains("a disk for tests"));
}

#[test]
fn nbdcopy_copies_in_and_out() {
    let server = Server::start("copy", export(SIZE));
    let content: Vec<u8> = (0..SIZE as u32).map(|i| (i >> 12) as u8 ^ (i as u8)).collect();
    std::fs::write(server.file("in"), &content).unwrap();
    let (input, output) = (server.file("in"), server.file("out"));
    let uri = server.uri();
    let arguments = ["--flush", "--connections=4", input.to_str().unwrap(), &uri];
    if run("nbdcopy", &arguments).is_none() {
        return;
    }
    assert!(server.disk.lock().unwrap().bytes == content);
    assert!(server.disk.lock().unwrap().flushes > 0);
    std::fs::write(&output, vec![1; SIZE as usize]).unwrap();
    run("nbdcopy", &["--synchronous", &uri, output.to_str().unwrap()]);
    assert!(std::fs::read(&output).unwrap() == content);
    let huge = ["--request-size=33554432", "--queue-size=67108864"];
    run("nbdcopy", &[huge[0], huge[1], &uri, output.to_str().unwrap()]);
    assert!(std::fs::read(&output).unwrap() == content);
}

#[test]
fn nbdsh_tries_everything() {
    for structured in ["True", "False"] {
        let server = Server::start(&format!("sh-{structured}"), export(SIZE));
        let script = format!(
            r#"
import errno
h.set_request_structured_replies({structured})
h.set_strict_mode(0)
if {structured}:
    h.add_meta_context("base:allocation")
h.connect_uri("{uri}")
assert h.get_size() == {SIZE}
assert h.get_structured_replies_negotiated() == {structured}
h.pwrite(b"x" * 1024, 1024)
h.pwrite(b"y" * 512, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(2048, 512) == bytes(512) + b"x" * 1024 + bytes(512)
h.flush()
h.zero(512, 1024, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
h.trim(512, 4096, nbd.CMD_FLAG_FUA)
h.cache(4096, 0)
assert h.pread(8192, 0) == bytes(1536) + b"x" * 512 + bytes(6144)
big = bytes(range(256)) * 4 * 4096
h.pwrite(big, 65536)
assert h.pread(len(big), 65536) == big
def fails(what, code):
    try:
        what()
    except nbd.Error as error:
        assert error.errnum == code, error
    else:
        raise AssertionError("no error")
fails(lambda: h.pread(512, {SIZE}), errno.EINVAL)
fails(lambda: h.pread(511, 0), errno.EINVAL)
fails(lambda: h.pwrite(bytes(512), {SIZE}), errno.ENOSPC)
fails(lambda: h.pwrite(bytes(512), 1), errno.EINVAL)
fails(lambda: h.zero(512, {SIZE}), errno.ENOSPC)
fails(lambda: h.trim(512, {SIZE}), errno.EINVAL)
fails(lambda: h.flush(nbd.CMD_FLAG_DF), errno.EINVAL)
if {structured}:
    seen = []
    def extent(context, offset, entries, error):
        seen.append((context, offset, list(entries)))
    h.block_status(8192, 0, extent)
    assert seen == [("base:allocation", 0, [1536, 2, 512, 0, 6144, 2])], seen
    seen.clear()
    h.block_status(8192, 0, extent, nbd.CMD_FLAG_REQ_ONE)
    assert seen == [("base:allocation", 0, [1536, 2])], seen
    assert h.pread_structured(512, 1536, lambda *a: 0, nbd.CMD_FLAG_DF) == b"x" * 512
cookies = [h.aio_pwrite(bytes([i]) * 4096, i * 4096) for i in range(128)]
while cookies:
    h.poll(-1)
    cookies = [c for c in cookies if not h.aio_command_completed(c)]
assert h.pread(4096, 77 * 4096) == bytes([77]) * 4096
h.shutdown()
print("all good")
"#,
            uri = server.uri()
        );
        let Some(printed) = run("nbdsh", &["-c", &script]) else { return };
        assert!(printed.contains("all good"));
    }
}

#[test]
fn qemu_img_sees_the_same() {
    let server = Server::start("qemu", Export { minimum_block: 4096, ..export(SIZE) });
    let content: Vec<u8> = (0..SIZE as u32).map(|i| (i >> 20) as u8).collect();
    std::fs::write(server.file("in"), &content).unwrap();
    let input = server.file("in");
    let (uri, input) = (server.uri(), input.to_str().unwrap());
    if run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", input, &uri]).is_none() {
        return;
    }
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", input, &uri]);
    assert!(server.disk.lock().unwrap().bytes == content);
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &uri]).unwrap();
    assert!(map.contains("\"zero\": true"), "{map}");
}
