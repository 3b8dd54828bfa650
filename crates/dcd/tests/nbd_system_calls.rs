//! How often the loop asks the kernel for something, counted by strace: a request is worth so many
//! system calls and no more. On disks in memory, where each has the same number of them each time.

mod harness;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::nbd::Client;
use harness::{Site, skipped, until};
use rustix::process::{Pid, Signal};

const PAIRS: u64 = 200;

/// A directory in memory.
struct Memory(PathBuf);

impl Memory {
    fn new() -> Option<Memory> {
        let path = PathBuf::from(format!("/dev/shm/dcd-calls-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Memory(path))
    }

    fn disk(&self, name: &str, size: u64) -> String {
        let path = self.0.join(name);
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What strace has written.
struct Calls(String);

impl Calls {
    fn of(&self, name: &str) -> u64 {
        let begin = format!("{name}(");
        self.0.lines().filter(|line| line.contains(&begin)).count() as u64
    }
}

/// The calls that `daemon` makes while something is done, if they can be counted.
fn calls_of(site: &Site, daemon: Pid, act: impl FnOnce()) -> Option<Calls> {
    let log = site.path("calls");
    let mut tracer = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&log)
        .args(["-e", "trace=io_uring_enter,recvfrom,sendmsg,pwritev2,fdatasync", "-p"])
        .arg(daemon.as_raw_nonzero().to_string())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", daemon.as_raw_nonzero());
    let is_traced = until("strace has attached, or given up", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let is_traced = !status.contains("TracerPid:\t0");
        (is_traced || tracer.try_wait().unwrap().is_some()).then_some(is_traced)
    });
    if !is_traced {
        return None;
    }
    act();
    rustix::process::kill_process(Pid::from_child(&tracer), Signal::INT).unwrap();
    tracer.wait().unwrap();
    Some(Calls(std::fs::read_to_string(log).unwrap()))
}

/// The receive of each, and nothing else: what the flush asks of the cache-disk is done by then.
#[test]
fn a_write_and_a_flush_take_two_calls_of_the_ring() {
    let test = "a_write_and_a_flush_take_two_calls_of_the_ring";
    skip_without!(test, "strace");
    let Some(memory) = Memory::new() else { return skipped(test, "there is no /dev/shm") };
    let (cache, data) = (memory.disk("c", 32 << 20), memory.disk("d", 64 << 20));
    let site = Site::empty();
    site.dcd(&format!("create --cache-disk {cache} --data-disk {data}")).ok();
    let daemon = site.serve_disks(&cache, &data, "--quiet --busy-poll 0");
    let mut client = Client::connect(&site.socket());
    client.write(0, &[1; 4096]).unwrap();
    let calls = calls_of(&site, daemon.pid(), || {
        for pair in 0..PAIRS {
            client.write(pair * 4096, &[pair as u8; 4096]).unwrap();
            client.flush().unwrap();
        }
    });
    let Some(calls) = calls else { return skipped(test, "nobody may be traced here") };
    // Each flush is one durable write of the log.
    let (written, sent) = (calls.of("pwritev2"), calls.of("sendmsg"));
    assert!(written >= PAIRS && sent == 2 * PAIRS, "{written} writes, {sent} replies");
    // A timer now and then, and the first and the last.
    let entered = calls.of("io_uring_enter");
    assert!(entered <= 2 * PAIRS + PAIRS / 10, "{entered} calls of the ring for {PAIRS} pairs");
    daemon.stop();
}

/// The data of a long write is not fetched in many pieces, nor by a turn of the loop for each.
#[test]
fn a_long_write_takes_few_calls() {
    let test = "a_long_write_takes_few_calls";
    skip_without!(test, "strace");
    let site = Site::new("32M", 64 << 20);
    let daemon = site.serve("--quiet --busy-poll 0");
    let mut client = Client::connect(&site.socket());
    let data = vec![7; 128 << 10];
    // Until there is memory for it that can be used again.
    (0..4).for_each(|at| client.write(at << 17, &data).unwrap());
    let writes = 50;
    let calls = calls_of(&site, daemon.pid(), || {
        (0..writes).for_each(|at| client.write(at << 17, &data).unwrap());
    });
    let Some(calls) = calls else { return skipped(test, "nobody may be traced here") };
    let (entered, received) = (calls.of("io_uring_enter"), calls.of("recvfrom"));
    assert!(entered <= 4 * writes, "{entered} calls of the ring for {writes} writes of 128 KiB");
    assert!(received <= 4 * writes, "{received} receives for {writes} writes of 128 KiB");
    assert!(client.read(0, data.len()).unwrap() == data);
    daemon.stop();
}
