//! Waiting until both disks are there (`--wait`): a service may be started before its disks, and
//! must neither fail nor hold up anybody. A leg that the others can do without, because it counted
//! no more or the witness says so, is waited for as long as disks take to come up, and then no longer.
//! So is a disk of a volume of which all members are there, or which may be served degraded: a
//! spare may have taken its place.
//!
//! A disk is there when its name can be looked up. Names are looked up every half second: whatever
//! makes them (udev, a mount, a person) needs to know nothing of us. Meanwhile the service manager
//! and `dcd status` are told what is missing, and a signal ends it.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use dcd_client::server::Until;
use dcd_engine::volume::format::label::Standing;
use dcd_protocol::Code;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use crate::control::answers::{failure, write_line};
use crate::control::{check_peer, read_command};
use crate::device::device_spec::DeviceSpec;
use crate::device::network::is_network;
use crate::device::shares::disk_of;
use crate::pair::legs::can_do_without_others;
use crate::pair::{CacheDisks, DataDisks, replaced};
use crate::process::service_manager::Notifier;
use crate::process::signals::{Signal, Signals};
use crate::serve::unlocked::{member_label_of, volume_of};

/// How often names are looked up.
const INTERVAL: Duration = Duration::from_millis(500);
/// A client that has not asked or taken its answer by then is left.
const CLIENT_PATIENCE: Duration = Duration::from_millis(200);

/// How long a leg is waited for that the others can do without.
const LEG_PATIENCE: Duration = Duration::from_secs(10);
/// How long a disk of a volume is: it may be turning up to speed.
const MEMBER_PATIENCE: Duration = Duration::from_secs(30);

/// What is waited for.
pub(crate) struct Awaited<'a> {
    pub(crate) cache_disks: &'a CacheDisks,
    pub(crate) data_disks: Vec<&'a DeviceSpec>,
    /// A volume may be served without members.
    degraded: bool,
    /// Since when only disks are missing that the others can do without.
    dispensable_since: Option<Instant>,
}

impl<'a> Awaited<'a> {
    pub(crate) fn new(cache_disks: &'a CacheDisks, data_disks: &'a DataDisks) -> Self {
        let degraded = data_disks.degraded;
        let data_disks = data_disks.disks.iter().chain(replaced(data_disks)).collect();
        Awaited { cache_disks, data_disks, degraded, dispensable_since: None }
    }

    /// What is missing, in words; `None`: nothing.
    fn missing(&mut self) -> Option<String> {
        let is_there = |disk: &&DeviceSpec| {
            // Whether a server serves it is found out by connecting.
            is_network(disk.path()) || disk_of(disk.path()).exists()
        };
        let (there, cache_disks): (Vec<_>, Vec<_>) = self.cache_disks.all().partition(is_there);
        let (members, data_disks): (Vec<&DeviceSpec>, Vec<_>) =
            self.data_disks.iter().copied().partition(is_there);
        let legs: Vec<&Path> = there.iter().map(|disk| disk.path()).collect();
        // The witness itself is not waited for while all legs are there; else its word is.
        let witness = self.cache_disks.witness.as_ref().map(DeviceSpec::path);
        let is_dispensable = (cache_disks.is_empty()
            || can_do_without_others(&legs, witness, &self.cache_disks.without))
            && (data_disks.is_empty() || volume_is_there(&legs, &members, self.degraded))
            && !(cache_disks.is_empty() && data_disks.is_empty());
        let patience = if data_disks.is_empty() { LEG_PATIENCE } else { MEMBER_PATIENCE };
        self.dispensable_since = match is_dispensable {
            true => self.dispensable_since.or(Some(Instant::now())),
            false => None,
        };
        if self.dispensable_since.is_some_and(|since| since.elapsed() >= patience) {
            return None;
        }
        let words = cache_disks.iter().map(|disk| format!("the cache-disk {disk}"));
        let words = words.chain(data_disks.iter().map(|disk| format!("the data-disk {disk}")));
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| format!("waiting for {}", words.join(" and ")))
    }
}

/// Whether these legs are of a volume, and these disks have all its members by their labels. Those
/// that a spare has replaced may be among them: then the start says which one it lacks.
fn volume_is_there(legs: &[&Path], disks: &[&DeviceSpec], degraded: bool) -> bool {
    let Some((uuid, count)) = legs.iter().find_map(|leg| volume_of(leg)) else { return false };
    let labels = disks.iter().filter_map(|disk| member_label_of(disk.path()));
    let has_all = [Standing::Member, Standing::SpareMember];
    let ours = labels.filter(|label| label.uuid == uuid && has_all.contains(&label.standing));
    let members: BTreeSet<u8> = ours.map(|label| label.member.0).collect();
    degraded || members.len() >= count
}

/// Waits until all disks are there. False if a signal came first.
pub(crate) fn wait_for_disks(
    mut awaited: Awaited<'_>,
    control: Option<&UnixListener>,
    signals: &Signals,
    notifier: &Notifier,
    quiet: bool,
) -> bool {
    let mut told = None;
    while let Some(words) = awaited.missing() {
        if told.as_ref() != Some(&words) {
            notifier.status(&words);
            if !quiet {
                eprintln!("dcd: {words}");
            }
            told = Some(words.clone());
        }
        let until = Instant::now() + INTERVAL;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let mut events = vec![PollFd::new(signals, PollFlags::IN)];
            events.extend(control.map(|control| PollFd::new(control, PollFlags::IN)));
            let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut events, Some(&left));
            match signals.take() {
                // They are read when it starts; the file may have changed since.
                Some(Signal::ReadSettings) => {
                    eprintln!("dcd: SIGHUP: settings change while serving")
                }
                Some(Signal::Stop | Signal::Restart) => return false,
                None => {}
            }
            if events.get(1).is_some_and(|event| !event.revents().is_empty())
                && let Some(control) = control
            {
                let hint =
                    "it begins to serve as soon as the disk is there; `lsblk` shows what there is";
                answer_client(control, &words, hint);
            }
        }
    }
    if told.is_some() {
        notifier.status("opening");
    }
    true
}

/// Tells one client, which is then left. Whoever is slow is left, too.
pub(super) fn answer_client(control: &UnixListener, words: &str, hint: &str) {
    let Ok((stream, _)) = control.accept() else { return };
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_write_timeout(Some(CLIENT_PATIENCE));
    if let Err(refusal) = check_peer(&stream) {
        let _ = write_line(&stream, &refusal);
        return;
    }
    let mut reader = BufReader::new(&stream);
    let mut until = Until::new(&mut reader, Instant::now() + CLIENT_PATIENCE);
    if let Ok(Some(_)) = read_command(&mut until) {
        let mut answer = failure(Code::Waiting, words, hint);
        answer["waiting"] = json!(true);
        let _ = write_line(&stream, &answer);
    }
}
