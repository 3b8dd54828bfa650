//! A cache served for real: two disks, the engine, NBD, the control socket, and the ways to end.
//!
//! What is proved: what was written is read again after an end in order, after `kill -9` (from the
//! memory that outlives the process, before any flush), and from the data-disk alone after a
//! detach; the control socket answers, tells progress, and refuses nonsense; wrong disks are
//! refused with words that help.
//!
//! The daemon to be killed is this test program itself, started again (see `child_daemon`).

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dcd_daemon::control::client::{ControlClient, ControlError};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::TakeOver;
use dcd_daemon::event_loop::submitter::{StopKind, Submitter};
use dcd_daemon::frontend::nbd::listen::NbdAddress;
use dcd_daemon::pair::{DataDiskSize, PairOptions};
use dcd_daemon::serve::offline::{OfflineTask, run_offline};
use dcd_daemon::serve::{Outcome, ServeError, ServeOptions, serve};
use dcd_engine::{Buffer, Lba, LbaRange, Operation};
use dcd_protocol::Command as ControlCommand;

use support::make_disks;

const CACHE_BYTES: u64 = 32 << 20;
const DATA_BYTES: u64 = 64 << 20;
/// Set for the child that is a daemon.
const CHILD: &str = "DCD_TEST_CHILD_DIRECTORY";

/// A directory with a new pair of disks.
struct Pair {
    directory: PathBuf,
}

impl Pair {
    fn new(name: &str) -> Pair {
        let directory = std::env::temp_dir().join(format!("dcd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let pair = Pair { directory };
        let mut uuid = [0; 16];
        uuid[4..].copy_from_slice(&name.as_bytes().repeat(12)[..12]);
        make_disks(&pair.directory, uuid, CACHE_BYTES, DATA_BYTES);
        pair
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn options(&self) -> ServeOptions {
        options(&self.directory)
    }

    fn pair_options(&self) -> PairOptions {
        let options = self.options();
        PairOptions {
            cache_disks: options.cache_disks,
            data_disks: options.data_disks,
            take_over: TakeOver::No,
            not_for_volumes: None,
            engine: options.engine,
            one_disk: options.one_disk,
            memory_directory: options.memory_directory,
            memory_lost: options.memory_lost,
            nvram: None,
            nvram_lost: false,
            size: DataDiskSize::Same,
            memory: None,
            pairs: dcd_daemon::pair::book::PairBook::default(),
            quiet: true,
        }
    }

    fn has_memory(&self) -> bool {
        let mut files = std::fs::read_dir(&self.directory).unwrap();
        files.any(|file| file.unwrap().file_name().to_string_lossy().ends_with(".segments"))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn options(directory: &Path) -> ServeOptions {
    ServeOptions {
        nbd: vec![NbdAddress::Unix(directory.join("nbd"))],
        control: Some(directory.join("control")),
        ..support::options(directory)
    }
}

/// A daemon on a thread of this process.
struct Served {
    submitter: Submitter,
    thread: thread::JoinHandle<Result<Outcome, ServeError>>,
}

impl Served {
    fn start(options: ServeOptions) -> Served {
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            serve(options, &mut |ready| {
                assert_eq!(ready.size_bytes, DATA_BYTES);
                sender.send(ready.submitter.clone()).unwrap();
            })
        });
        let submitter = match receiver.recv() {
            Ok(submitter) => submitter,
            Err(_) => panic!("{:?}", thread.join().unwrap()),
        };
        Served { submitter, thread }
    }

    fn write(&self, block: u64, byte: u8, length: usize) {
        let data = Buffer::copy_of(&vec![byte; length]);
        let reply = self.submitter.run(Operation::Write { start: Lba(block), data }, false);
        assert_eq!(reply.result, Ok(()));
    }

    fn read(&self, block: u64, length: usize) -> Vec<u8> {
        let range = LbaRange::new(block, length as u64 / 512);
        let reply = self.submitter.run(Operation::read(range), false);
        assert_eq!(reply.result, Ok(()));
        reply.buffer.unwrap().bytes().to_vec()
    }

    fn stop(self, kind: StopKind) -> Outcome {
        self.submitter.stop(kind, |_| {});
        self.thread.join().unwrap().unwrap()
    }
}

#[test]
fn what_was_written_is_there_after_an_end_in_order() {
    let pair = Pair::new("order");
    let served = Served::start(pair.options());
    served.write(8, 1, 4096);
    served.write(16, 2, 512);
    assert!(pair.has_memory());
    assert_eq!(served.stop(StopKind::Shutdown), Outcome::ShutDown);
    assert!(!pair.has_memory(), "removed after an end in order");
    assert!(!pair.path("nbd").exists() && !pair.path("control").exists());

    let served = Served::start(pair.options());
    assert_eq!(served.read(8, 4096), [1; 4096]);
    assert_eq!(served.read(16, 512), [2; 512]);
    assert_eq!(served.read(0, 512), [0; 512]);
    assert_eq!(served.stop(StopKind::Shutdown), Outcome::ShutDown);
}

#[test]
fn after_a_detach_the_data_disk_stands_alone() {
    let pair = Pair::new("detach");
    let served = Served::start(pair.options());
    for line in 0..100u8 {
        served.write(u64::from(line) * 64, line, 4096);
    }
    let mut client = ControlClient::connect(&pair.path("control")).unwrap();
    let answer = client.request(ControlCommand::Detach, &mut |progress| {
        assert!(progress.done <= progress.total);
    });
    assert_eq!(answer.unwrap()["ok"], true);
    assert_eq!(served.thread.join().unwrap().unwrap(), Outcome::Detached);
    assert!(!pair.has_memory());
    let data = std::fs::read(pair.path("data")).unwrap();
    for line in 0..100u8 {
        let at = usize::from(line) * 64 * 512;
        assert!(data[at..at + 4096].iter().all(|byte| *byte == line), "line {line}");
    }
}

#[test]
fn a_pair_can_be_detached_offline() {
    let pair = Pair::new("offline");
    let served = Served::start(pair.options());
    served.write(0, 7, 4096);
    served.stop(StopKind::Shutdown);
    assert_eq!(std::fs::read(pair.path("data")).unwrap()[0], 0, "still in the cache only");
    let options = pair.pair_options();
    let report = run_offline(&options, OfflineTask::Detach, &mut |_| {}, &mut |_| false).unwrap();
    assert_eq!(report.lines_moved, 1);
    assert_eq!(std::fs::read(pair.path("data")).unwrap()[..4096], [7; 4096]);
    assert!(!pair.has_memory());
}

#[test]
fn the_control_socket_answers() {
    use std::io::{BufRead, BufReader, Write};
    let pair = Pair::new("control");
    let served = Served::start(pair.options());
    served.write(0, 1, 8192);
    let mut client = ControlClient::connect(&pair.path("control")).unwrap();
    client.request(ControlCommand::Ping, &mut |_| {}).unwrap();
    client.request(ControlCommand::Flush, &mut |_| {}).unwrap();
    let status = client.status().unwrap();
    assert_eq!(status.pid, std::process::id());
    assert_eq!(status.counters.writes, 1);
    assert_eq!(status.volume_bytes, DATA_BYTES);
    assert_eq!(status.response_times.writes.count, 1);
    assert_eq!(status.response_times.flushes.count, 1);
    assert!(status.response_times.writes.max > 0.0);
    client.request(ControlCommand::Drain, &mut |_| {}).unwrap();
    assert_eq!(client.status().unwrap().dirty_bytes, 0);

    let mut stream = std::os::unix::net::UnixStream::connect(pair.path("control")).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for nonsense in ["{}", "status", "{\"command\":\"format\"}", "\u{0}"] {
        stream.write_all(format!("{nonsense}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        assert!(answer.contains("\"ok\":false") && answer.contains("hint"), "{answer}");
    }
    let _ = stream.write_all(&vec![b'x'; 100_000]);
    let mut answer = String::new();
    let _ = reader.read_line(&mut answer);
    assert!(answer.contains("too long"), "{answer}");

    let answer = client.request(ControlCommand::Shutdown, &mut |_| {});
    assert_eq!(answer.unwrap()["ok"], true);
    assert_eq!(served.thread.join().unwrap().unwrap(), Outcome::ShutDown);
    assert!(matches!(
        ControlClient::connect(&pair.path("control")),
        Err(ControlError::Connect { .. })
    ));
}

#[test]
fn wrong_disks_are_refused_with_words_that_help() {
    let pair = Pair::new("wrong");
    let refused = |options: ServeOptions| match serve(options, &mut |_| panic!("served")) {
        Ok(outcome) => panic!("{outcome:?}"),
        Err(error) => error,
    };
    let mut swapped = pair.options();
    std::mem::swap(&mut swapped.cache_disks.disks, &mut swapped.data_disks.disks);
    let error = refused(swapped);
    assert!(matches!(error, ServeError::Swapped { .. }), "{error}");

    let mut same = pair.options();
    same.data_disks = same.cache_disks.disks[0].clone().into();
    let error = refused(same);
    assert!(matches!(error, ServeError::SameDisk { .. }), "{error}");

    let mut other = pair.options();
    std::fs::File::create(pair.path("other")).unwrap().set_len(CACHE_BYTES).unwrap();
    other.cache_disks = DeviceSpec::Plain(pair.path("other")).into();
    let error = refused(other);
    assert!(matches!(error, ServeError::NoCache { .. }), "{error}");
    assert!(error.hint().unwrap().contains("dcd create"));

    let served = Served::start(pair.options());
    let error = refused(pair.options());
    assert!(matches!(error, ServeError::Device { role: "cache-disk", .. }), "{error}");
    assert!(error.to_string().contains("locked by another program"), "{error}");
    served.stop(StopKind::Shutdown);
}

/// Not a test: the daemon of the tests below, in a process of its own.
#[test]
fn child_daemon() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let outcome = serve(options(Path::new(&directory)), &mut |_| {
        std::fs::write(Path::new(&directory).join("ready"), "").unwrap();
    });
    std::fs::write(Path::new(&directory).join("outcome"), format!("{outcome:?}")).unwrap();
}

fn start_child(pair: &Pair) -> Child {
    let _ = std::fs::remove_file(pair.path("ready"));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_daemon", "--test-threads=1"])
        .env(CHILD, &pair.directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !pair.path("ready").exists() {
        let outcome = std::fs::read_to_string(pair.path("outcome")).unwrap_or_default();
        assert!(Instant::now() < until && outcome.is_empty(), "the child serves: {outcome}");
        thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Runs code with an NBD handle `h`; false if there is no nbdsh.
fn nbdsh(pair: &Pair, code: &str) -> bool {
    let uri = NbdAddress::Unix(pair.path("nbd")).uri();
    // nbdsh takes the first python3 of the path, which may be one without the module `nbd`.
    let path = format!("/usr/bin:/bin:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("nbdsh").args(["-u", &uri, "-c", code]).env("PATH", path).output();
    let Ok(output) = output else {
        eprintln!("skipped: nbdsh is not installed");
        return false;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("No module named") {
        eprintln!("skipped: {text}");
        return false;
    }
    assert!(output.status.success(), "{text}");
    true
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let pair = Pair::new("kill");
    for round in 0..5u8 {
        let mut child = start_child(&pair);
        // No flush: the last of these are in the segment memory only when the daemon dies.
        let write =
            format!("for i in range(300): h.pwrite(bytes([{round} + i % 200]) * 4096, i * 12288)");
        let check = "\
for i in range(300):
    b = h.pread(4096, i * 12288)
    assert b == bytes([b[0]]) * 4096 and b[0] == ROUND + i % 200, (i, b[0])
";
        if round > 0 {
            nbdsh(&pair, &check.replace("ROUND", &(round - 1).to_string()));
        }
        let is_written = nbdsh(&pair, &write);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pair.has_memory(), "the memory outlives the process");
        if !is_written {
            return;
        }
    }
    let served = Served::start(pair.options());
    for i in 0..300u64 {
        assert_eq!(served.read(i * 24, 4096), [4 + (i % 200) as u8; 4096], "line {i}");
    }
    let status = served.submitter.status().unwrap();
    assert!(status.recovery.records_from_memory > 0, "{:?}", status.recovery);
    served.stop(StopKind::Shutdown);
}

#[test]
fn a_signal_ends_it_in_order() {
    let pair = Pair::new("signal");
    let mut child = start_child(&pair);
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    // The test harness runs `serve` on a second thread, whose mask the signal does not respect if
    // another thread takes it; a real daemon calls `serve` on its first.
    let status = child.wait().unwrap();
    if status.success() {
        let outcome = std::fs::read_to_string(pair.path("outcome")).unwrap();
        assert_eq!(outcome, "Ok(ShutDown)");
        assert!(!pair.has_memory());
    }
}
