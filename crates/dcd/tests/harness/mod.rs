//! What the tests on the whole running program share: a folder that cleans up after itself (mounts,
//! loop devices, processes), a `dcd serve` that can be killed and started again, and outside tools.
//!
//! A test that cannot run here says why and is counted: see [`skip_without!`]. Nothing waits for a
//! fixed time; [`until`] polls a condition up to a deadline.

#![allow(dead_code)] // each test program uses its own part

pub mod ceph;
#[path = "../common/mod.rs"]
pub mod common;
pub mod machine;
pub mod model;
pub mod nbd;
pub mod pages;
pub mod random;
pub mod server;
pub mod shares;
pub mod volatile;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

pub use common::{Folder, Outcome};
use rustix::process::{Pid, Signal};
pub use serde_json::Value;

/// Longest wait for anything that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Longest run of an outside tool.
const TOOL_SECONDS: &str = "240";

/// Waits until `condition` gives something; panics with `what` after [`PATIENCE`].
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(2)); // the pace of polling
    }
}

/// Seed of this run: `DCD_SEED`, or always the same. Failures print it.
pub fn seed() -> u64 {
    std::env::var("DCD_SEED").map_or(1999, |text| text.parse().expect("DCD_SEED is a number"))
}

/// How many cycles: `DCD_CYCLES` for a long run, of which a test gets `share` of a thousand. The
/// shares of all tests of pairs with kill -9 make a thousand, and so do those with power cuts;
/// dhisfs and lost cache-disks come on top.
pub fn cycles(default: u64, share: u64) -> u64 {
    match std::env::var("DCD_CYCLES") {
        Ok(text) => {
            let all: u64 = text.parse().expect("DCD_CYCLES is a number");
            (all * share).div_ceil(1000).max(1)
        }
        Err(_) => default,
    }
}

/// Tells that a test is skipped, past the capture of cargo, and notes it for the sum of `make
/// test`.
pub fn skipped(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(log) = std::env::var_os("DCD_SKIPPED_LOG") {
        let log = File::options().create(true).append(true).open(log);
        log.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// Whether a program is installed.
pub fn has(program: &str) -> bool {
    search_path().split(':').any(|directory| Path::new(directory).join(program).exists())
}

/// System directories first: `nbdsh` needs the system's python3, and `mkfs.*` live in sbin.
pub fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("/usr/bin:/bin:/usr/sbin:/sbin:{path}")
}

/// What a test needs besides programs.
pub fn missing_rights(need: &str) -> Option<String> {
    let usable = |path: &str| File::options().read(true).write(true).open(path).is_ok();
    match need {
        "fuse" if !usable("/dev/fuse") => Some("/dev/fuse cannot be opened".into()),
        "loop" if !usable("/dev/loop-control") => Some("/dev/loop-control cannot be opened".into()),
        "root" if !rustix::process::geteuid().is_root() => Some("not root, cannot mount".into()),
        "tracefs" if !Path::new("/sys/kernel/tracing/instances").exists() => {
            Some("tracefs is not mounted".into())
        }
        "root" | "fuse" | "loop" | "tracefs" => None,
        fs if fs.starts_with("kernel-") => {
            let name = &fs["kernel-".len()..];
            let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            let module = format!("modprobe -q {name}");
            let known = known.lines().any(|line| line.split_whitespace().last() == Some(name))
                || Command::new("sh").args(["-c", &module]).status().is_ok_and(|s| s.success());
            (!known).then(|| format!("the kernel has no {name}"))
        }
        program => (!has(program)).then(|| format!("{program} is not installed")),
    }
}

/// Returns from the test, with the reason printed and counted, unless everything named is there.
#[macro_export]
macro_rules! skip_without {
    ($test:expr, $($need:expr),+ $(,)?) => {
        for need in [$($need),+] {
            if let Some(reason) = $crate::harness::missing_rights(need) {
                $crate::harness::skipped($test, &reason);
                return;
            }
        }
    };
}

/// A folder with a data-disk `d`, perhaps a cache-disk `c`, and everything that lives on them.
/// At the end, also of a test that fails, nothing of it is left.
pub struct Site {
    pub folder: Folder,
    /// What `dcd` finds in its environment beside the usual.
    pub variables: Vec<(String, String)>,
}

impl Site {
    /// An empty one.
    pub fn empty() -> Site {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(sweep_left_behind);
        Site { folder: Folder::new(), variables: Vec::new() }
    }

    /// With a data-disk of zeroes and a cache for it.
    pub fn new(cache: &str, data_bytes: u64) -> Site {
        Site::with(cache, data_bytes, "")
    }

    /// The same with more flags for `create`.
    pub fn with(cache: &str, data_bytes: u64, create: &str) -> Site {
        let site = Site::empty();
        site.folder.disk("d", data_bytes);
        site.dcd(&format!("create --cache-disk c --cache-size {cache} --data-disk d {create}"))
            .ok();
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// Runs `dcd` in the folder; the words of `line` are its arguments. A `serve` that ought to be
    /// refused and is not ends with code 137 after a while.
    pub fn dcd(&self, line: &str) -> Outcome {
        let mut arguments = vec![env!("CARGO_BIN_EXE_dcd")];
        arguments.extend(line.split_whitespace());
        let seconds = if line.starts_with("serve") { "30" } else { TOOL_SECONDS };
        Outcome::of(line, self.try_tool_for(seconds, arguments[0], &arguments[1..]))
    }

    pub fn socket(&self) -> PathBuf {
        self.path("sock")
    }

    /// Starts `dcd serve` on `c` and `d` over NBD with more flags, and waits until it is ready.
    pub fn serve(&self, flags: &str) -> Daemon {
        self.serve_disks("c", "d", flags)
    }

    pub fn serve_disks(&self, cache: &str, data: &str, flags: &str) -> Daemon {
        self.start_disks(cache, data, flags).ready()
    }

    /// Starts it and does not wait.
    pub fn start(&self, flags: &str) -> Daemon {
        self.start_disks("c", "d", flags)
    }

    pub fn start_disks(&self, cache: &str, data: &str, flags: &str) -> Daemon {
        self.start_line(&format!(
            "serve --cache-disk {cache} --data-disk {data} --nbd unix:sock --control ctl \
             --memory-directory . {flags}"
        ))
    }

    /// Starts `dcd` with any line, in a process group of its own.
    pub fn start_line(&self, line: &str) -> Daemon {
        let log = self.path("dcd.log");
        let child = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(line.split_whitespace())
            .args(common::stop_timeout(line))
            .current_dir(self.path(""))
            .env("DCD_STATE_DIRECTORY", self.folder.state_directory())
            .envs(self.variables.iter().cloned())
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(&log).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        Daemon { child, line: line.to_owned(), log, ready: String::new() }
    }

    /// Runs a tool in the folder; it must succeed.
    pub fn tool<S: AsRef<OsStr>>(&self, program: &str, arguments: &[S]) -> Output {
        let output = self.try_tool(program, arguments);
        assert!(
            output.status.success(),
            "{program} {:?}: {}\n{}{}",
            arguments.iter().map(|a| a.as_ref().to_string_lossy()).collect::<Vec<_>>(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    /// Runs a tool in the folder.
    pub fn try_tool<S: AsRef<OsStr>>(&self, program: &str, arguments: &[S]) -> Output {
        self.try_tool_for(TOOL_SECONDS, program, arguments)
    }

    fn try_tool_for<S: AsRef<OsStr>>(
        &self,
        seconds: &str,
        program: &str,
        arguments: &[S],
    ) -> Output {
        // A disk that hangs must fail the test, not hold it.
        Command::new("timeout")
            .args(["--signal=KILL", seconds, program])
            .args(arguments)
            .current_dir(self.path(""))
            .env("PATH", search_path())
            .env("DCD_STATE_DIRECTORY", self.folder.state_directory())
            .envs(self.variables.iter().cloned())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// Runs a line of words; it must succeed. Its stdout.
    pub fn run(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = self.tool(words[0], &words[1..]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same of one that may fail, and is not waited for.
    #[allow(dead_code)] // Not every suite does that.
    pub fn start_tool(&self, line: &str) -> std::process::Child {
        Command::new("timeout")
            .args(["--signal=KILL", TOOL_SECONDS])
            .args(line.split_whitespace())
            .current_dir(self.path(""))
            .env("PATH", search_path())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Makes a file system. mkfs.btrfs looks at all mounted loop devices, and fails at one whose
    /// file is served by a daemon that is gone. That of another test is back in a moment. One that
    /// a killed run has left stays, so it is taken out of sight then.
    #[allow(dead_code)] // Not every suite makes one.
    pub fn make_file_system(&self, make: &str, device: &str) {
        // Of a mount namespace of its own: nobody else sees the unmounting.
        let unseen = "grep ^/dev/loop /proc/self/mounts | cut -d ' ' -f 2 | xargs -r umount --lazy; exec \"$@\"";
        let alone = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", unseen, "sh"];
        let make: Vec<&str> = make.split_whitespace().chain([device]).collect();
        let until = Instant::now() + Duration::from_secs(10);
        let mut is_last = false;
        loop {
            let words: Vec<&str> = match is_last {
                true => alone.iter().chain(&make).copied().collect(),
                false => make.clone(),
            };
            let output = self.try_tool(words[0], &words[1..]);
            if output.status.success() {
                return;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            let disturbing = ["Transport endpoint is not connected", "connection abort"];
            let is_disturbed = disturbing.iter().any(|words| said.contains(words));
            assert!(is_disturbed && !is_last, "{words:?}: {said}");
            std::thread::sleep(Duration::from_millis(100));
            is_last = Instant::now() > until;
        }
    }

    /// `nbd+unix` address of the export, for libnbd and qemu.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.dcd("status --control ctl --json").ok()).unwrap()
    }

    /// Detaches without a daemon and returns what the data-disk then holds.
    pub fn detach(&self) -> Vec<u8> {
        self.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
        fs::read(self.path("d")).unwrap()
    }

    /// Turns over some bits of a byte of a file.
    pub fn flip(&self, name: &str, offset: u64, bits: u8) {
        let file = File::options().read(true).write(true).open(self.path(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ bits], offset).unwrap();
    }

    /// Sums of both disks: what must not change when something is refused.
    pub fn disks(&self) -> (u64, u64) {
        (random::sum_of_file(&self.path("c")), random::sum_of_file(&self.path("d")))
    }

    /// Certificates of an authority, a server and a client in a directory, by the recipe of
    /// docs/nbd.md as it stands there. Needs `openssl`.
    #[allow(dead_code)] // Not every suite has TLS.
    pub fn make_certificates(&self, directory: &str) {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nbd.md");
        let document = fs::read_to_string(document).unwrap();
        let recipe =
            document.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert!(recipe.contains("openssl"));
        fs::create_dir_all(self.path(directory)).unwrap();
        self.tool("sh", &["-c", &format!("cd {directory} && set -e\n{recipe}")]);
    }

    /// Sets the rules of a `faulty:` disk. The next request of that disk sees them, whole; those
    /// that hang see them within 50 ms.
    pub fn faults(&self, control: &str, rules: &str) {
        let new = self.path("faults.new");
        fs::write(&new, rules).unwrap();
        fs::rename(new, self.path(control)).unwrap();
    }

    /// Everything that is mounted below the folder.
    pub fn unmount_all(&self) {
        clean_up(&self.path(""), false);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        clean_up(&self.path(""), true);
    }
}

/// A running `dcd serve`.
pub struct Daemon {
    child: Child,
    line: String,
    log: PathBuf,
    ready: String,
}

impl Daemon {
    /// Waits for the line that begins with `ready`.
    pub fn ready(self) -> Daemon {
        self.says("ready ")
    }

    /// Waits for its first line, which begins with this.
    pub fn says(mut self, begin: &str) -> Daemon {
        let stdout = self.child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut self.ready).unwrap();
        assert!(self.ready.starts_with(begin), "dcd {}: {}", self.line, self.log());
        self
    }

    /// Waits until it is ready, which is true, or has ended.
    pub fn wait_ready_or_end(&mut self) -> bool {
        let stdout = self.child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut self.ready).unwrap();
        self.ready.starts_with("ready ")
    }

    /// The value of a word `name=value` of the ready line.
    pub fn told(&self, name: &str) -> Option<&str> {
        self.ready.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// All that it has said on stderr, also before a restart.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// kill -9 of the process.
    pub fn kill(mut self) {
        self.signal_and_wait(Signal::KILL, false);
    }

    /// kill -9 of its process group.
    pub fn kill_group(mut self) {
        self.signal_and_wait(Signal::KILL, true);
    }

    fn signal_and_wait(&mut self, signal: Signal, group: bool) {
        // A process that was waited for has no number any more: it may be somebody else's.
        if self.child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        let pid = self.pid();
        if group {
            let _ = rustix::process::kill_process_group(pid, signal);
        } else {
            let _ = rustix::process::kill_process(pid, signal);
        }
        let _ = self.child.wait();
    }

    /// Sends the signal and does not wait.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// SIGTERM; it must end with 0.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let code = self.wait_code();
        assert_eq!(code, Some(0), "dcd {}: {}", self.line, self.log());
    }

    /// Waits for the end. The exit code.
    pub fn wait_code(&mut self) -> Option<i32> {
        let status = until("dcd has ended", || self.child.try_wait().unwrap());
        if let Some(signal) = status.signal() {
            assert!(signal == 9 || signal == 15, "dcd died of signal {signal}: {}", self.log());
        }
        status.code()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// No panic has been seen on stderr.
    pub fn assert_no_panic(&self) {
        assert_no_panic(&self.log());
    }
}

pub fn assert_no_panic(text: &str) {
    for word in ["panicked", "this is a bug", "RUST_BACKTRACE"] {
        assert!(!text.contains(word), "{text}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal_and_wait(Signal::KILL, true);
    }
}

/// A helper (a server of a disk), killed at the end.
pub struct Helper(pub Child);

impl Helper {
    pub fn start(command: &mut Command) -> Helper {
        let child = command.env("PATH", search_path()).stdin(Stdio::null()).spawn();
        Helper(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Sends kill -9 and does not wait, so that several die at one instant.
    pub fn kill_now(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        let _ = rustix::process::kill_process(Pid::from_child(&self.0), Signal::KILL);
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill_now();
        let _ = self.0.wait();
    }
}

/// Ends processes, mounts and loop devices of a folder.
fn clean_up(folder: &Path, with_processes: bool) {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    if with_processes {
        end_processes_in(&folder);
    }
    // Loop devices first: under a file system that is gone their files have no name any more.
    // One that is mounted goes when it is unmounted.
    for (name, file) in loop_devices() {
        if Path::new(file.trim_end_matches(" (deleted)")).starts_with(&folder) {
            let device = format!("/dev/{name}");
            let _ = Command::new("losetup").args(["-d", &device]).stderr(Stdio::null()).status();
        }
    }
    // Last mounted, first unmounted; lazily, because the server may be dead.
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for line in mounts.lines().rev() {
        let point = line.split(' ').nth(1).unwrap_or_default();
        if Path::new(point).starts_with(&folder) {
            let _ = Command::new("umount").args(["-l", point]).stderr(Stdio::null()).status();
        }
    }
}

/// Loop devices in use and their files.
fn loop_devices() -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter_map(|name| {
            let file = format!("/sys/block/{name}/loop/backing_file");
            let file = fs::read_to_string(file).ok()?;
            Some((name, file.trim().to_owned()))
        })
        .collect()
}

/// Kills whatever has its working directory in `folder`: only this test starts such processes.
fn end_processes_in(folder: &Path) {
    let Ok(entries) = fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let home = fs::read_link(entry.path().join("cwd"));
        if home.is_ok_and(|home| home.starts_with(folder))
            && pid != rustix::process::getpid().as_raw_nonzero().get()
            && let Some(pid) = Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// What test programs that were killed have left behind.
fn sweep_left_behind() {
    let Ok(entries) = fs::read_dir(env!("CARGO_TARGET_TMPDIR")) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Some(pid) = name.strip_prefix("dcd-").and_then(|rest| rest.split('-').next()) else {
            continue;
        };
        if pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists() {
            clean_up(&entry.path(), true);
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
