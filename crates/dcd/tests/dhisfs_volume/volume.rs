//! A volume of four members, dhisfs on it, and everything that can be killed or lose power.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::harness::random::Random;
use crate::harness::volatile::VolatileDisks;
use crate::harness::{Daemon, Site, assert_no_panic};

/// Cache-disk first.
const DISKS: [&str; 5] = ["c", "m0", "m1", "m2", "m3"];

/// An extent of the file system is one pointer at least.
const CONFIG: &str = "extent = \"4k\"\ntemporary = \"10%\"\npointers = 200000\n\
    [[set]]\nlevel = 1\nshare = \"40%\"\ncopies = 2\n\
    [[set]]\nlevel = 5\nshare = \"20%\"\n\
    [[set]]\nlevel = 0\n";

const RULES: &str = "[[rule]]\nmatch = [\"*.c\", \"*.h\"]\nset = \"important\"\n\
    [[rule]]\nmatch = [\"*.o\", \"*.a\"]\nset = \"temporary\"\n";

/// The sockets of the daemon.
const SOCKETS: &str = "--control ctl --nbd sock";

pub struct Volume {
    pub site: Site,
    /// None: the disks are files.
    volatile: Option<VolatileDisks>,
    daemon: Option<Daemon>,
    mount: Option<Daemon>,
}

impl Volume {
    /// With an empty file system, served and not mounted. With `is_volatile` its disks can lose
    /// power.
    pub fn new(cache: &str, member_bytes: u64, is_volatile: bool) -> Volume {
        let site = Site::empty();
        for member in &DISKS[1..] {
            site.folder.disk(member, member_bytes);
        }
        fs::write(site.path("v.toml"), CONFIG).unwrap();
        fs::write(site.path("rules.toml"), RULES).unwrap();
        fs::create_dir(site.path("mnt")).unwrap();
        let members = DISKS[1..].iter().map(|member| format!(" --data-disk {member}"));
        let members = members.collect::<String>();
        site.dcd(&format!("create --cache-disk c --cache-size {cache}{members} --volume v.toml"))
            .ok();
        let volatile = is_volatile.then(|| VolatileDisks::new(&site, &DISKS));
        let mut volume = Volume { site, volatile, daemon: None, mount: None };
        volume.serve();
        volume.site.dcd(&format!("dhisfs mkfs {SOCKETS}")).ok();
        volume
    }

    /// `dcd serve`, not yet ready.
    fn start(&mut self) -> Daemon {
        let disks = match &mut self.volatile {
            Some(disks) => disks.devices(&self.site),
            None => DISKS.map(str::to_owned).to_vec(),
        };
        let members = disks[1..].iter().map(|member| format!(" --data-disk {member}"));
        let members = members.collect::<String>();
        for socket in ["ctl", "sock"] {
            let _ = fs::remove_file(self.site.path(socket));
        }
        self.site.start_line(&format!(
            "serve --cache-disk {}{members} --nbd unix:sock --control ctl --memory-directory . \
             --quiet --idle-max 20ms {}",
            disks[0],
            // The boot is the same after what stands for a power cut, and would be refused without
            // the memory.
            if self.volatile.is_some() { "--memory-lost" } else { "" }
        ))
    }

    /// Serves it, unless it is.
    pub fn serve(&mut self) {
        if self.daemon.is_none() {
            let daemon = self.start().ready();
            self.daemon = Some(daemon);
        }
    }

    /// A start that is killed somewhere.
    pub fn crash_in_recovery(&mut self, random: &mut Random, wait: impl FnOnce(&mut Random)) {
        self.daemon = Some(self.start());
        wait(random);
        let crash = Crash { mount: false, daemon: true, power: self.volatile.is_some() };
        self.kill(crash, random);
        self.clear_away(crash);
    }

    fn start_mount(&self, more: &str) -> Daemon {
        self.site.start_line(&format!("dhisfs mount {SOCKETS} --rules rules.toml {more} mnt"))
    }

    pub fn mount(&mut self, more: &str) {
        self.mount = Some(self.start_mount(more).says("mounted on "));
    }

    /// A mount that is killed somewhere.
    pub fn crash_in_mount(&mut self, random: &mut Random, wait: impl FnOnce(&mut Random)) {
        self.mount = Some(self.start_mount(""));
        wait(random);
        let crash = Crash { mount: true, daemon: false, power: false };
        self.kill(crash, random);
        self.clear_away(crash);
    }

    /// Where it is mounted.
    pub fn mnt(&self) -> PathBuf {
        self.site.path("mnt")
    }

    /// Checks it while it is not mounted; nothing may be wrong. What fsck says.
    pub fn fsck(&self) -> String {
        let outcome = self.site.dcd(&format!("dhisfs fsck {SOCKETS}"));
        assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
        outcome.stdout
    }

    /// SIGTERM to the mount, which makes everything durable.
    pub fn unmount(&mut self) {
        self.mount.take().unwrap().stop();
    }

    /// kill -9 at one instant. What is left of a mount stays until [`Volume::clear_away`], so that
    /// who uses it gets errors and does not go on in the directory below.
    pub fn kill(&mut self, crash: Crash, random: &mut Random) {
        if crash.power {
            self.volatile.as_mut().expect("volatile disks").cut(random);
        }
        let is_killed = [(&self.daemon, crash.daemon), (&self.mount, crash.mount)];
        for (process, _) in is_killed.into_iter().filter(|(_, is_killed)| *is_killed) {
            if let Some(process) = process {
                process.signal(Signal::KILL);
            }
        }
        if crash.daemon {
            self.daemon = None;
        }
    }

    /// What is left after a crash goes.
    pub fn clear_away(&mut self, crash: Crash) {
        // A mount without its daemon refuses everything, and ends when it is told to.
        if let Some(mut mount) = self.mount.take() {
            if !crash.mount {
                mount.signal(Signal::TERM);
            }
            mount.wait_code();
            mount.assert_no_panic();
        }
        if crash.power {
            self.volatile.as_mut().expect("volatile disks").forget_devices();
            for entry in fs::read_dir(self.site.path("")).unwrap().flatten() {
                if entry.file_name().to_string_lossy().ends_with(".segments") {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
        }
        if crash.power {
            self.site.unmount_all();
        } else {
            // The disks keep their power.
            while self.site.try_tool("umount", &["-l", "mnt"]).status.success() {}
        }
    }

    /// Runs a script in the directory where it is mounted; every line must succeed. Its stdout.
    pub fn sh(&self, script: &str) -> String {
        let script = format!("set -e\ncd mnt\n{script}");
        let output = self.site.tool("sh", &["-c", &script]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Unmounts, checks, and ends the daemon.
    pub fn finish(mut self) {
        if self.mount.is_some() {
            self.unmount();
        }
        self.fsck();
        self.end();
    }

    /// Ends the daemon.
    pub fn end(mut self) {
        let daemon = self.daemon.take().unwrap();
        let log = daemon.log();
        daemon.stop();
        assert_no_panic(&log);
    }
}

/// What dies.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// `dcd dhisfs mount`.
    pub mount: bool,
    /// `dcd serve`.
    pub daemon: bool,
    /// All disks.
    pub power: bool,
}
