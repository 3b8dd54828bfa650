//! `fstrim` of the mount, again and again, beside whatever else is done there.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::harness::{Site, search_path};

/// Until it is stopped.
pub struct Trimmer(Child);

impl Trimmer {
    pub fn start(site: &Site) -> Trimmer {
        let child = Command::new("sh")
            .args(["-c", "while fstrim mnt; do echo; sleep 0.02; done"])
            .current_dir(site.path(""))
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Trimmer(child)
    }

    /// How often it went well. The disk is gone, so what is under way ends.
    pub fn stop(mut self) -> u64 {
        let _ = self.0.kill();
        let mut said = String::new();
        self.0.stdout.take().expect("piped").read_to_string(&mut said).unwrap();
        self.0.wait().unwrap();
        said.lines().count() as u64
    }
}
