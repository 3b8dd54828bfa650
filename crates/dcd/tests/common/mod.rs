//! What the whole-program tests share: a folder of their own, and running `dcd`.

#![allow(dead_code)] // each test program uses its own part

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub mod nbd;

/// How long a daemon may take to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder that is removed at the end of the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dcd-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where the record of pairs is: below `state`, if the test has made that; else none is kept,
    /// because tests put disks back as they like.
    pub fn state_directory(&self) -> PathBuf {
        let state = self.path("state");
        if state.exists() { state } else { PathBuf::new() }
    }

    /// A file of zeroes.
    pub fn disk(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// Runs `dcd` in the folder; the words of `line` are its arguments.
    pub fn dcd(&self, line: &str) -> Outcome {
        let output = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(line.split_whitespace())
            .current_dir(&self.0)
            .env("DCD_STATE_DIRECTORY", self.state_directory())
            .env_remove("RUST_BACKTRACE")
            .output()
            .unwrap();
        Outcome::of(line, output)
    }
}

/// A `dcd` that serves.
pub struct Served {
    child: Option<Child>,
    /// The line it said when it was ready.
    pub ready: String,
}

impl Folder {
    /// Starts `dcd serve` (or another verb that serves) with this line and waits until it is
    /// ready. Its memory directory is the folder, so that nothing is left behind.
    pub fn serve(&self, line: &str) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(line.split_whitespace())
            .args(stop_timeout(line))
            .current_dir(&self.0)
            .env("DCD_STATE_DIRECTORY", self.state_directory())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut ready).unwrap();
        let served = Served { child: Some(child), ready };
        let is_ready =
            |line: &str| line.starts_with("ready ") || line.contains("\"state\":\"ready\"");
        if !is_ready(&served.ready) {
            panic!("dcd {line}: {}", served.kill().stderr);
        }
        served
    }
}

/// All that it said.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Who waits for the end of a daemon may have left a client connected.
pub fn stop_timeout(line: &str) -> Option<&'static str> {
    let is_said = line.contains("--stop-timeout") || line.contains("--null");
    (line.starts_with("serve ") && !is_said).then_some("--stop-timeout=0s")
}

impl Served {
    /// kill -9.
    pub fn kill(mut self) -> Outcome {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        Outcome::of("serve", child.wait_with_output().unwrap())
    }

    /// SIGTERM, and how it ended.
    pub fn stop(self) -> Outcome {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }

    /// A signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// How it ended by itself. One that does not end fails the test instead of holding it up.
    pub fn wait(mut self) -> Outcome {
        let mut child = self.child.take().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                let outcome = Outcome::of("serve", child.wait_with_output().unwrap());
                panic!("dcd serve does not end: {}", outcome.stderr);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Outcome::of("serve", child.wait_with_output().unwrap())
    }
}

impl Drop for Served {
    /// A test that fails leaves no daemon behind.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a command ended.
pub struct Outcome {
    pub line: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub fn of(line: &str, output: Output) -> Outcome {
        Outcome {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// It succeeded; its stdout.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "dcd {}: {}", self.line, self.stderr);
        self.stdout
    }

    /// It failed with this exit code and, on stderr, one line of error that contains `error` and
    /// one line of hint that contains `hint` (if that is empty, whatever it says).
    pub fn fails(self, code: i32, error: &str, hint: &str) {
        let Outcome { line, stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "dcd {line}: {stderr}");
        // A slow machine is told of progress first.
        let is_progress = |line: &&str| line.ends_with(" s left") && !line.contains("error: ");
        let lines: Vec<&str> = stderr.lines().filter(|line| !is_progress(line)).collect();
        let first = lines.first().copied().unwrap_or_default();
        assert!(first.starts_with("dcd: error: "), "dcd {line}: {stderr}");
        assert!(first.contains(error), "dcd {line}: expected `{error}` in: {stderr}");
        if hint.is_empty() {
            assert!(lines.len() <= 2, "dcd {line}: {stderr}");
        } else {
            assert_eq!(lines.len(), 2, "dcd {line}: {stderr}");
            assert!(lines[1].starts_with("dcd: hint: "), "dcd {line}: {stderr}");
            assert!(lines[1].contains(hint), "dcd {line}: expected `{hint}` in: {stderr}");
        }
        assert!(!stderr.contains("this is a bug"), "dcd {line}: {stderr}");
    }
}
