//! A machine with a pair of disks, and the two ways in which it crashes: `kill -9` of dcd, after
//! which disks and memory are as they were, and a power cut, after which of the disks only what was
//! flushed is sure and the memory is empty. After either the same `serve` line brings it back.

use std::fs;
use std::time::{Duration, Instant};

use super::random::Random;
use super::volatile::{PAIR, VolatileDisks};
use super::{Daemon, Site};

/// How the machine crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// kill -9 of dcd; the disks are files.
    Kill,
    /// dcd and both disks at one instant.
    PowerCut,
}

impl Crash {
    pub fn name(self) -> &'static str {
        match self {
            Crash::Kill => "kill -9",
            Crash::PowerCut => "power cut",
        }
    }
}

/// How often the machine has crashed, and while what.
#[derive(Clone, Copy, Default, Debug)]
pub struct Crashes {
    pub under_load: u64,
    pub in_recovery: u64,
    pub in_detach: u64,
}

impl Crashes {
    /// The line that `scripts/crash-cycles.sh` adds up.
    pub fn tell(&self, what: &str, crash: Crash, seed: u64, checked: &str) {
        let Crashes { under_load, in_recovery, in_detach } = self;
        let all = under_load + in_recovery + in_detach;
        eprintln!(
            "\ncrashes: {all} ({}, {what}, DCD_SEED={seed}): {under_load} under load, {in_recovery} in \
             recovery, {in_detach} in detach; {checked}",
            crash.name()
        );
    }
}

pub struct Machine {
    pub site: Site,
    pub crashes: Crashes,
    /// None: the disks are the files `c` and `d`.
    volatile: Option<VolatileDisks>,
}

impl Machine {
    /// With a new cache for a data-disk of zeroes; `create` are more flags for `dcd create`.
    pub fn new(crash: Crash, cache: &str, data_bytes: u64, create: &str) -> Machine {
        let site = Site::with(cache, data_bytes, create);
        let volatile = (crash == Crash::PowerCut).then(|| VolatileDisks::new(&site, &PAIR));
        Machine { site, crashes: Crashes::default(), volatile }
    }

    /// Cache-disk and data-disk, under power.
    pub fn disks(&mut self) -> [String; 2] {
        match &mut self.volatile {
            Some(disks) => disks.devices(&self.site).try_into().expect("a pair"),
            None => PAIR.map(str::to_owned),
        }
    }

    /// `dcd serve`, not yet ready.
    pub fn start(&mut self, flags: &str) -> Daemon {
        let [cache, data] = self.disks();
        let lost = self.memory_lost();
        self.site.start_disks(&cache, &data, &format!("{flags} {lost}"))
    }

    pub fn serve(&mut self, flags: &str) -> Daemon {
        self.start(flags).ready()
    }

    /// The boot is the same after what stands for a power cut, and would be refused without the
    /// memory.
    fn memory_lost(&self) -> &'static str {
        if self.volatile.is_some() { "--memory-lost" } else { "" }
    }

    fn detach_line(&mut self) -> String {
        let [cache, data] = self.disks();
        let lost = self.memory_lost();
        format!("detach --cache-disk {cache} --data-disk {data} --memory-directory . {lost}")
    }

    /// `dcd detach` without a daemon; then what the data-disk holds.
    pub fn detach(&mut self) -> Vec<u8> {
        let line = self.detach_line();
        self.site.dcd(&line).ok();
        match &self.volatile {
            Some(disks) => {
                assert!(disks.flushes() > 0, "a disk was never flushed");
                disks.data()
            }
            None => fs::read(self.site.path("d")).unwrap(),
        }
    }

    /// A block device of the data-disk alone, without dcd.
    pub fn data_device(&mut self) -> String {
        match &mut self.volatile {
            Some(disks) => disks.devices(&self.site)[1].clone(),
            None => self.site.run("losetup --find --show d").trim().to_owned(),
        }
    }

    /// The instant. Whoever uses the volume sees errors from now on; then comes
    /// [`Machine::clear_away`].
    pub fn crash(&mut self, daemon: Daemon, random: &mut Random) {
        if let Some(disks) = &mut self.volatile {
            disks.cut(random);
        }
        daemon.kill();
    }

    /// After a crash: dead mounts and loop devices go, and after a power cut the memory, too.
    pub fn clear_away(&mut self) {
        if let Some(disks) = &mut self.volatile {
            disks.forget_devices();
            for entry in fs::read_dir(self.site.path("")).unwrap().flatten() {
                if entry.file_name().to_string_lossy().ends_with(".segments") {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
        }
        self.site.unmount_all();
    }

    /// Now and then further crashes before anybody uses the volume again: while dcd recovers, and
    /// while it detaches. A detach that was faster has ended, and what follows begins anew.
    pub fn crash_again(&mut self, flags: &str, random: &mut Random) {
        while random.once_in(4) {
            let daemon = if random.once_in(3) {
                self.crashes.in_detach += 1;
                let line = self.detach_line();
                self.site.start_line(&line)
            } else {
                self.crashes.in_recovery += 1;
                self.start(flags)
            };
            // Starting takes some milliseconds, recovery as long, detaching longer.
            let most = [3_000, 15_000, 60_000][random.below(3) as usize];
            random_instant(random, Duration::from_micros(most));
            self.crash(daemon, random);
            self.clear_away();
            let _ = fs::remove_file(self.site.path("sock"));
        }
    }
}

/// Spins for a random part of `most`: an instant for a crash, not a wait for anything.
pub fn random_instant(random: &mut Random, most: Duration) {
    let end = Instant::now() + Duration::from_micros(random.below(most.as_micros() as u64 + 1));
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
