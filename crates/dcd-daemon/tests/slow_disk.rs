//! A disk served over NBD for real, and real clients (nbdinfo, nbdsh, fio) that talk to it.
//!
//! What is proved: bytes written by one client are read by another and are in the file; slowness is
//! as configured, for each request and not in parallel; faults reach the client as errors and end
//! nothing; broken and idle clients do no harm; the end is in order and leaves no socket behind.
//! A client program that is not installed skips its test with a word.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dcd_daemon::event_loop::submitter::{StopKind, Submitter};
use dcd_daemon::frontend::nbd::listen::{NbdAddress, NbdOptions};
use dcd_daemon::serve::Outcome;
use dcd_daemon::serve::slow_disk::{SlowDiskOptions, slow_disk};

/// A disk that is served until this is dropped.
struct Served {
    directory: PathBuf,
    address: NbdAddress,
    submitter: Submitter,
    thread: Option<thread::JoinHandle<Outcome>>,
}

const SIZE: u64 = 16 << 20;

impl Served {
    /// Serves `spec`, in which IMAGE and CONTROL stand for files in a new directory.
    fn start(name: &str, spec: &str) -> Served {
        let directory = std::env::temp_dir().join(format!("dcd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let image = directory.join("image");
        std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
        let spec = spec
            .replace("IMAGE", image.to_str().unwrap())
            .replace("CONTROL", directory.join("control").to_str().unwrap());
        let options = SlowDiskOptions {
            disk: spec.parse().unwrap(),
            nbd: vec![NbdAddress::Unix(directory.join("socket"))],
            nbd_options: NbdOptions::default(),
            fuse: None,
            ublk: None,
            vhost_user: None,
            loop_device: false,
            control: None,
            read_only: false,
            pairs: dcd_daemon::pair::book::PairBook::default(),
            processor: None,
            busy_poll: dcd_daemon::ring::busy_poll::BusyPollMax::Auto,
            give_up_rights: true,
            quiet: true,
        };
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            slow_disk(options, &mut |ready| {
                assert_eq!(ready.size_bytes, SIZE);
                sender.send((ready.nbd[0].clone(), ready.submitter.clone())).unwrap();
            })
            .unwrap()
        });
        let (address, submitter) = receiver.recv().expect("the disk is served");
        Served { directory, address, submitter, thread: Some(thread) }
    }

    fn uri(&self) -> String {
        self.address.uri()
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    fn image(&self) -> Vec<u8> {
        std::fs::read(self.directory.join("image")).unwrap()
    }

    /// Writes the rules of a faulty disk, and waits until they are in force.
    fn set_faults(&self, rules: &str) {
        std::fs::write(self.directory.join("control"), rules).unwrap();
        thread::sleep(Duration::from_millis(60));
    }

    fn stop(mut self) {
        self.submitter.stop(StopKind::Shutdown, |_| {});
        let outcome = self.thread.take().unwrap().join().unwrap();
        assert_eq!(outcome, Outcome::ShutDown);
        assert!(!self.socket().exists(), "the socket is removed");
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Runs a program; `None` if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    // nbdsh takes the first python3 of the path, which may be one without the module `nbd`.
    let path = format!("/usr/bin:/bin:{}", std::env::var("PATH").unwrap_or_default());
    match Command::new(program).args(arguments).env("PATH", path).output() {
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text += &String::from_utf8_lossy(&output.stderr);
            Some((output.status.success(), text))
        }
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

fn nbdsh(uri: &str, code: &str) -> Option<String> {
    let (success, text) = run("nbdsh", &["--base-allocation", "-u", uri, "-c", code])?;
    if text.contains("No module named") {
        eprintln!("skipped: {text}");
        return None;
    }
    assert!(success, "{text}");
    Some(text)
}

#[test]
fn nbdinfo_sees_the_disk() {
    let served = Served::start("nbdinfo", "IMAGE");
    if let Some((success, text)) = run("nbdinfo", &[&served.uri()]) {
        assert!(success, "{text}");
        assert!(text.contains("export-size: 16777216"), "{text}");
        assert!(text.contains("can_fua: true"), "{text}");
        assert!(text.contains("can_multi_conn: true"), "{text}");
    }
    served.stop();
}

#[test]
fn bytes_go_to_the_file_and_come_back() {
    let served = Served::start("bytes", "IMAGE");
    let code = "\
h.pwrite(b'\\x01' * 8192, 4096)
h.pwrite(b'\\x02' * 512, 512, nbd.CMD_FLAG_FUA)
h.zero(4096, 8192)
h.pwrite(b'\\x03' * (3 << 20), 8 << 20)
h.trim(1 << 20, 9 << 20)
h.flush()
b = h.pread(16384, 0)
assert b[512:1024] == b'\\x02' * 512
assert b[4096:8192] == b'\\x01' * 4096
assert b[8192:] == bytes(8192)
b = h.pread(3 << 20, 8 << 20)
assert b[:1 << 20] == b'\\x03' * (1 << 20)
assert b[1 << 20:2 << 20] == bytes(1 << 20)
assert b[2 << 20:] == b'\\x03' * (1 << 20)
";
    if nbdsh(&served.uri(), code).is_some() {
        let image = served.image();
        assert_eq!(image[511..513], [0, 2]);
        assert_eq!(image[4095..4097], [0, 1]);
        assert_eq!(image[(11 << 20) - 1], 3);
    }
    served.stop();
}

#[test]
fn a_slow_disk_is_as_slow_as_it_says() {
    let served = Served::start("slow", "slow:IMAGE,read=5ms,write=10ms,flush=0ms");
    let code = "\
import time
start = time.monotonic()
for i in range(20):
    h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(4096)), i * 4096)
while h.aio_in_flight() > 0:
    h.poll(100)
took = time.monotonic() - start
assert 0.2 <= took < 0.5, took
start = time.monotonic()
h.pread(4096, 0)
took = time.monotonic() - start
assert 0.005 <= took < 0.05, took
";
    // One client asks for twenty writes at once; the arm does them one after another.
    nbdsh(&served.uri(), code);
    served.stop();
}

#[test]
fn faults_reach_the_client_and_end_nothing() {
    let served = Served::start("faulty", "faulty:IMAGE,control=CONTROL");
    let uri = served.uri();
    let failing = "\
import errno
for (f, expected) in [(lambda: h.pread(4096, 0), 'EIO'), (lambda: h.pwrite(bytes(4096), 0), 'ENOSPC')]:
    try:
        f()
        assert False, 'no error'
    except nbd.Error as e:
        assert e.errno == expected, e.errno
h.pread(4096, 8192)
";
    served.set_faults("read eio 0-4096\nwrite enospc\n");
    nbdsh(&uri, failing);
    served.set_faults("");
    nbdsh(&uri, "h.pwrite(bytes(4096), 0); h.pread(4096, 0)");
    served.stop();
}

#[test]
fn clients_that_break_or_idle_do_no_harm() {
    let served = Served::start("broken", "slow:IMAGE,read=1ms,write=1ms");
    let mut idle: Vec<UnixStream> = Vec::new();
    for round in 0..100 {
        let mut stream = UnixStream::connect(served.socket()).unwrap();
        match round % 4 {
            0 => drop(stream),
            1 => {
                let _ = stream.write_all(&[0xff; 4096]);
            }
            2 => {
                let mut greeting = [0; 18];
                stream.read_exact(&mut greeting).unwrap();
                // Half an option, then gone.
                stream.write_all(&[0, 0, 0, 3, b'I', b'H', b'A']).unwrap();
            }
            _ => idle.push(stream),
        }
    }
    // A client that goes away with requests under way.
    let code = "\
import os
for i in range(100):
    h.aio_pread(nbd.Buffer(65536), i * 65536)
for i in range(10):
    h.poll(0)
os._exit(0)
";
    let _ = run("nbdsh", &["-u", &served.uri(), "-c", code]);
    nbdsh(&served.uri(), "h.pwrite(b'x' * 512, 0); assert h.pread(512, 0) == b'x' * 512");
    drop(idle);
    served.stop();
}

/// Negotiates for the export without a name; what it is told of that, or that it is turned away.
fn enter(stream: &mut UnixStream) -> std::io::Result<[u8; 10]> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    // No zeroes behind the answer; NBD_OPT_EXPORT_NAME.
    stream.write_all(&[0, 0, 0, 3])?;
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
    let mut export = [0; 10];
    stream.read_exact(&mut export)?;
    Ok(export)
}

#[test]
fn too_many_clients_are_turned_away_and_others_stay() {
    let served = Served::start("many", "IMAGE");
    let connect = || UnixStream::connect(served.socket()).unwrap();
    let mut streams: Vec<UnixStream> = (0..128).map(|_| connect()).collect();
    let exports: Vec<[u8; 10]> = streams.iter_mut().map(|stream| enter(stream).unwrap()).collect();
    let error = enter(&mut connect()).unwrap_err();
    assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    // One that goes makes room for the next.
    streams.pop();
    let until = Instant::now() + Duration::from_secs(10);
    let late = loop {
        match enter(&mut connect()) {
            Ok(export) => break export,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    assert!(exports.iter().all(|export| *export == late));
    served.stop();
}

#[test]
fn fio_verifies_many_requests_at_once() {
    let served = Served::start("fio", "IMAGE");
    let uri = format!("--uri={}", served.uri());
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bsrange=512-64k",
        "--iodepth=32",
        "--size=16m",
        "--verify=crc32c",
        "--fsync=64",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--output-format=terse",
    ];
    if let Some((success, text)) = run("fio", &arguments) {
        let no_engine = text.contains("engine nbd not loadable");
        assert!(success || no_engine, "{text}");
    }
    served.stop();
}

#[test]
fn requests_of_other_threads_are_answered() {
    use dcd_engine::{Buffer, Lba, LbaRange, Operation, RequestError};
    let served = Served::start("threads", "IMAGE");
    let threads: Vec<_> = (0..8u64)
        .map(|number| {
            let submitter = served.submitter.clone();
            thread::spawn(move || {
                for round in 0..200u64 {
                    let start = Lba(number * 1024 + round);
                    let data = Buffer::copy_of(&[number as u8; 512]);
                    let reply = submitter.run(Operation::Write { start, data }, false);
                    assert_eq!(reply.result, Ok(()));
                    let range = LbaRange { start, blocks: 1 };
                    let reply = submitter.run(Operation::read(range), false);
                    assert!(reply.buffer.unwrap().bytes().iter().all(|b| *b == number as u8));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    // Memory of an earlier request brings nothing of it along.
    let read = |range| Operation::Read { range, buffer: Buffer::copy_of(&[7; 512]) };
    for range in [LbaRange::new(SIZE / 512, 1), LbaRange::new(u64::MAX, 2)] {
        let reply = served.submitter.run(read(range), false);
        assert_eq!(reply.result, Err(RequestError::Io), "outside of the disk");
        assert!(reply.buffer.unwrap().is_empty());
    }
    let reply = served.submitter.run(read(LbaRange::new(0, 0)), false);
    assert_eq!(reply.result, Ok(()));
    assert!(reply.buffer.unwrap().is_empty());
    let reply = served.submitter.run(read(LbaRange::new(0, 2)), false);
    assert_eq!(reply.buffer.unwrap().len(), 1024);
    served.stop();
}

#[test]
fn the_end_waits_for_what_is_under_way() {
    let served = Served::start("end", "slow:IMAGE,read=1ms,write=100ms");
    use dcd_engine::{Buffer, Lba, Operation};
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    for number in 0..3 {
        let sender = sender.clone();
        let data = Buffer::copy_of(&[9; 512]);
        served.submitter.submit(
            Operation::Write { start: Lba(number), data },
            false,
            move |reply| {
                sender.send(reply.result).unwrap();
            },
        );
    }
    let image = served.directory.join("image");
    let copy = image.with_extension("copy");
    std::fs::hard_link(&image, &copy).unwrap();
    let copy_moved = std::env::temp_dir().join(format!("dcd-end-copy-{}", std::process::id()));
    std::fs::rename(&copy, &copy_moved).unwrap();
    served.stop();
    assert!(start.elapsed() >= Duration::from_millis(300));
    let results: Vec<_> = receiver.try_iter().collect();
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
    assert_eq!(read_start(&copy_moved), [9; 1536]);
    std::fs::remove_file(copy_moved).unwrap();
}

fn read_start(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()[..1536].to_vec()
}
