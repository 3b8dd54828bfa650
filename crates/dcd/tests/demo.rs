//! Proves that nothing of `dcd demo` stays, however it ends in its first seconds: by a signal, with
//! its terminal, or killed, either of its two processes. What it shows, `make demo` shows.

mod harness;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use harness::{Site, until};
use rustix::process::{Pid, Signal, kill_process};

/// A demonstration that has a file system mounted, on a loop device over a file of FUSE. Killed at
/// the end of a test that fails, as well as that goes.
struct Demo {
    guard: Child,
    worker: u32,
}

impl Demo {
    fn start(site: &Site) -> Demo {
        let guard = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(["demo", "--quick", "--directory", "demo"])
            .current_dir(site.path(""))
            .env("PATH", harness::search_path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(site.path("said")).unwrap())
            .spawn()
            .unwrap();
        let mut demo = Demo { guard, worker: 0 };
        let said = || fs::read_to_string(site.path("said")).unwrap_or_default();
        until("something is mounted", || {
            assert!(demo.guard.try_wait().unwrap().is_none(), "it has ended: {}", said());
            let children = format!("/proc/{0}/task/{0}/children", demo.guard.id());
            let children = fs::read_to_string(children).unwrap_or_default();
            let worker = children.split_whitespace().next()?;
            demo.worker = worker.parse().ok()?;
            let place = format!("dcd-demo-{worker}/mount ");
            fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&place).then_some(())
        });
        demo
    }
}

impl Demo {
    /// What was written by then has to get to a modelled disk of 8 ms before that is unmounted: beside
    /// other tests that has taken more than a minute.
    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(600);
        loop {
            if let Some(status) = self.guard.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.guard), Signal::TERM);
        let _ = self.guard.wait();
    }
}

/// What there still is of it: mounts, loop devices, processes, folders.
fn left(site: &Site, worker: u32) -> Vec<String> {
    let name = format!("dcd-demo-{worker}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(&name)).map(str::to_owned);
    let entries = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten();
    let loops = entries("/sys/block").filter_map(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        file.contains(&name).then_some(file)
    });
    let processes = entries("/proc").filter_map(|process| {
        let words = fs::read(process.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        words.contains(&name).then_some(words)
    });
    let here = site.path("demo");
    let folders = [here.as_path(), Path::new("/dev/shm")].map(|it| it.display().to_string());
    let folders = folders.iter().flat_map(|directory| entries(directory));
    let folders = folders.map(|it| it.path().display().to_string()).filter(|it| it.contains(&name));
    mounts.chain(loops).chain(processes).chain(folders).collect()
}

/// Under `nohup` a closed terminal ends nobody, and what is started there neither.
fn ignores_hup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(ignored, 16).unwrap() & 1 != 0
}

#[test]
fn nothing_of_a_demonstration_stays_however_it_ends() {
    let test = "nothing_of_a_demonstration_stays_however_it_ends";
    skip_without!(test, "root", "fuse", "loop", "kernel-ext4", "mkfs.ext4", "fusermount3");
    let site = Site::empty();
    for (signal, is_for_worker, code, what) in [
        (Signal::HUP, false, Some(1), "its terminal is closed"),
        (Signal::TERM, false, Some(1), "it is ended"),
        (Signal::KILL, true, Some(1), "who works is killed"),
        (Signal::KILL, false, None, "who guards is killed"),
    ] {
        if signal == Signal::HUP && ignores_hup() {
            eprintln!("skipped: {test}: that its terminal is closed, which nohup hides");
            continue;
        }
        let mut demo = Demo::start(&site);
        let worker = Pid::from_raw(demo.worker as i32).unwrap();
        let guard = Pid::from_child(&demo.guard);
        kill_process(if is_for_worker { worker } else { guard }, signal).unwrap();
        let ended = demo.ended();
        let said = fs::read_to_string(site.path("said")).unwrap();
        assert_eq!(ended.code(), code, "{what}: {said}");
        // Who outlives the other needs a moment.
        until(&format!("nothing is left behind: {what}"), || {
            let is_gone = fs::read(format!("/proc/{}/cmdline", demo.worker)).is_err();
            (is_gone && left(&site, demo.worker).is_empty()).then_some(())
        });
    }
}
