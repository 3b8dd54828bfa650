//! One drive with an arm, one command at a time: controller, buffer, bus and mechanism together.
//!
//! A read that the buffer cannot answer: overhead, then the mechanism; data goes out over the bus
//! as soon as the profile allows, beside the media transfer. Afterwards the drive reads ahead until
//! its buffer is full or another command comes. A write: data comes in while the arm moves; it is
//! reported when it is on the platters or, with immediate report, when the buffer has it.
//!
//! Nothing is stepped sector by sector: a transfer below one head is a straight line over time, and
//! of two lines only the ends count. Reading ahead is caught up with when the next command asks.

use std::collections::VecDeque;

use super::cache::Cache;
use super::geometry::{Destination, Geometry, Run};
use super::mechanism::{Mechanism, MechanismTimes, Transfer};
use super::profile::{CacheProfile, FieldProblem, MechanicalProfile, ReadAheadEnd, ReadStart};
use super::seek::SeekCurve;

/// Longest time of a controller or bus that a profile may have.
const OVERHEAD_MS_MAX: f64 = 10_000.0;

/// A drive.
#[derive(Clone, Debug)]
pub struct Drive {
    mechanism: Mechanism,
    cache: Cache,
    controller: Controller,
    bus: Bus,
    read_ahead: Option<ReadAhead>,
    /// When the mechanism has done what was reported before.
    media_free_ns: u64,
    /// Ends of the writes that were reported and are not on the platters.
    pending_writes: VecDeque<u64>,
    last_was_write: bool,
    transfers: Vec<Transfer>,
}

/// Times of the controller in nanoseconds; of a pair, the second is that after a write.
#[derive(Clone, Copy, Debug)]
struct Controller {
    read_miss: [u64; 2],
    read_hit: [u64; 2],
    write: [u64; 2],
    read_ready: u64,
    write_ready: u64,
    read_completion: u64,
    write_completion: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bus {
    sector_ns: u64,
    acquisition_ns: u64,
    read_start: ReadStart,
    read_fraction: f64,
}

/// Reading that goes on behind a request.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    next: u64,
    /// The mechanism is free from then on.
    at_ns: u64,
    /// Where it ends.
    limit: u64,
}

impl Drive {
    /// The drive that a profile describes, the platters turned by `phase_ns` at time 0.
    ///
    /// # Errors
    /// When no drive can be like that; the problem names the field.
    pub fn new(profile: &MechanicalProfile, phase_ns: u64) -> Result<Drive, FieldProblem> {
        let geometry = Geometry::new(&profile.geometry)?;
        let seek = SeekCurve::new(&profile.seek, geometry.cylinders())?;
        let times = MechanismTimes {
            head_switch_ns: nanoseconds("seek.head_switch_ms", profile.seek.head_switch_ms)?,
            settle_ns: nanoseconds("seek.settle_ms", profile.seek.settle_ms)?,
            write_settle_ns: nanoseconds("seek.write_settle_ms", profile.seek.write_settle_ms)?,
            zero_latency: [profile.seek.zero_latency_reads, profile.seek.zero_latency_writes],
        };
        let controller = Controller::new(profile)?;
        let bus = Bus::new(profile, geometry.sector_bytes())?;
        let cache = &profile.cache;
        if cache.segments > 0 && cache.segment_sectors == 0 {
            let message = "a segment holds at least one sector".to_owned();
            return Err(FieldProblem::new("cache.segment_sectors", message));
        }
        if cache.segments > 65_536 {
            let message = format!("{} are more than 65536", cache.segments);
            return Err(FieldProblem::new("cache.segments", message));
        }
        if cache.read_ahead_sectors > 0 && cache.segments == 0 {
            let message = "there is no segment to read ahead into".to_owned();
            return Err(FieldProblem::new("cache.read_ahead_sectors", message));
        }
        if cache.immediate_report && cache.immediate_writes == 0 {
            let message = "immediate report needs room for at least one write".to_owned();
            return Err(FieldProblem::new("cache.immediate_writes", message));
        }
        let queue = &profile.queue;
        if !(1..=65_536).contains(&queue.depth) {
            return Err(FieldProblem::new(
                "queue.depth",
                format!("{} is not 1 to 65536", queue.depth),
            ));
        }
        nanoseconds("queue.age_max_ms", queue.age_max_ms / 1e3)?;
        Ok(Drive {
            mechanism: Mechanism::new(geometry, seek, times, phase_ns),
            cache: Cache::new(profile.cache),
            controller,
            bus,
            read_ahead: None,
            media_free_ns: 0,
            pending_writes: VecDeque::new(),
            last_was_write: false,
            transfers: Vec::new(),
        })
    }

    /// Arm, heads and platters.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Time from `now_ns` to a first sector there, if that command came next and the buffer were
    /// empty.
    pub fn access_ns(&self, now_ns: u64, to: &Destination, write: bool) -> u64 {
        let overhead = self.overhead(if write { Kind::Write } else { Kind::ReadMiss });
        let at = (now_ns + overhead).max(self.media_free_ns);
        self.mechanism.start_of(at, to, write, 0) - now_ns
    }

    /// Reads `count` sectors from `first` on; the command comes at `at_ns`. The time at which the
    /// host has them all.
    pub fn read(&mut self, at_ns: u64, first: u64, count: u64) -> u64 {
        self.catch_up(at_ns);
        let end = first + count;
        let held = self.cache.use_segment(first);
        let completed = match held {
            Some(segment) if segment.end >= end => self.read_hit(at_ns, end, count, segment.end),
            Some(segment) => self.read_rest(at_ns, end, count, segment.end - first),
            None => self.read_miss(at_ns, first, count),
        };
        self.last_was_write = false;
        completed + self.controller.read_completion
    }

    /// All of it is in the buffer; reading ahead goes on, or begins again where it ended.
    fn read_hit(&mut self, at_ns: u64, end: u64, count: u64, held_until: u64) -> u64 {
        let profile = *self.cache.profile();
        match &mut self.read_ahead {
            Some(ahead) if ahead.next == held_until => {
                let limit = Self::limit(&self.mechanism.geometry, &profile, end);
                ahead.limit = ahead.limit.max(limit);
            }
            _ if profile.read_ahead_on_hit => {
                // The arm leaves what it was reading ahead for another segment.
                self.begin_read_ahead(at_ns.max(self.media_free_ns), held_until, end);
            }
            _ => {}
        }
        at_ns + self.overhead(Kind::ReadHit) + self.bus.acquisition_ns + count * self.bus.sector_ns
    }

    /// The first `held` sectors are in the buffer; the others are just being read ahead, or must be
    /// fetched.
    fn read_rest(&mut self, at_ns: u64, end: u64, count: u64, held: u64) -> u64 {
        let next = end - (count - held);
        let (start_ns, media_ns) = match self.read_ahead.take() {
            Some(ahead) if ahead.next == next => {
                (at_ns + self.overhead(Kind::ReadHit), ahead.at_ns)
            }
            _ => {
                let start_ns = at_ns + self.overhead(Kind::ReadMiss);
                (start_ns, start_ns.max(self.media_free_ns))
            }
        };
        let mut transfers = std::mem::take(&mut self.transfers);
        transfers.clear();
        if held > 0 {
            transfers.push(Transfer { start_ns: at_ns, end_ns: at_ns, sectors: held });
        }
        let media_end = self.pass(media_ns, 0, next, end - next, &mut transfers);
        self.cache.extend_first(end);
        self.begin_read_ahead(media_end, end, end);
        let completed = self.bus.read_out(&transfers, count, start_ns);
        self.transfers = transfers;
        completed
    }

    fn read_miss(&mut self, at_ns: u64, first: u64, count: u64) -> u64 {
        self.read_ahead = None;
        let start_ns = at_ns + self.overhead(Kind::ReadMiss);
        let mut transfers = std::mem::take(&mut self.transfers);
        transfers.clear();
        let ready_ns = at_ns + self.controller.read_ready;
        let media_ns = start_ns.max(self.media_free_ns);
        let media_end = self.pass(media_ns, ready_ns, first, count, &mut transfers);
        self.cache.begin_segment(first);
        self.cache.extend_first(first + count);
        self.begin_read_ahead(media_end, first + count, first + count);
        let completed = self.bus.read_out(&transfers, count, start_ns);
        self.transfers = transfers;
        completed
    }

    /// Writes `count` sectors from `first` on; the command comes at `at_ns`. The time at which the
    /// host is told that it is done.
    pub fn write(&mut self, at_ns: u64, first: u64, count: u64) -> u64 {
        self.catch_up(at_ns);
        self.read_ahead = None;
        self.cache.overwrite(first, first + count);
        let profile = *self.cache.profile();
        while self.pending_writes.front().is_some_and(|end| *end <= at_ns) {
            self.pending_writes.pop_front();
        }
        let mut command_ns = at_ns;
        if profile.immediate_report
            && self.pending_writes.len() >= profile.immediate_writes as usize
            && let Some(end) = self.pending_writes.pop_front()
        {
            command_ns = command_ns.max(end);
        }
        let start_ns = command_ns + self.overhead(Kind::Write);
        let data_ns = start_ns + self.bus.acquisition_ns;
        let (mut at, mut next, mut done) = (start_ns.max(self.media_free_ns), first, 0);
        while done < count {
            let run = self.mechanism.geometry.run(next, count - done);
            let media_sector = self.mechanism.geometry.transfer_ns(run.place, 1);
            // The last sector must have come when the head is there, as well as the first.
            let first_there = data_ns + (done + 1) * self.bus.sector_ns;
            let last_there = data_ns + (done + run.sectors) * self.bus.sector_ns;
            let data = first_there
                .max(last_there.saturating_sub((run.sectors - 1) * media_sector))
                .max(command_ns + self.controller.write_ready);
            at = self.mechanism.transfer(at, &run, true, data).end_ns;
            next += run.sectors;
            done += run.sectors;
        }
        self.media_free_ns = at;
        if profile.keeps_writes {
            self.cache.begin_segment(first);
            self.cache.extend_first(first + count);
        }
        self.last_was_write = true;
        let reported = if profile.immediate_report {
            self.pending_writes.push_back(at);
            data_ns + count * self.bus.sector_ns
        } else {
            at
        };
        reported + self.controller.write_completion
    }

    /// The time at which everything that was written is on the platters.
    pub fn flush(&mut self, at_ns: u64) -> u64 {
        self.catch_up(at_ns);
        let written = self.pending_writes.drain(..).next_back();
        (at_ns + self.overhead(Kind::Write)).max(written.unwrap_or(0))
    }

    /// Lets `count` sectors pass from `first` on, none before `ready_ns`, and adds the transfers;
    /// the end of the last.
    fn pass(
        &mut self,
        at_ns: u64,
        ready_ns: u64,
        first: u64,
        count: u64,
        transfers: &mut Vec<Transfer>,
    ) -> u64 {
        let (mut at, mut done) = (at_ns, 0);
        while done < count {
            let run = self.mechanism.geometry.run(first + done, count - done);
            let transfer = self.mechanism.transfer(at, &run, false, ready_ns);
            transfers.push(transfer);
            at = transfer.end_ns;
            done += run.sectors;
        }
        self.media_free_ns = self.media_free_ns.max(at);
        at
    }

    /// Reads ahead from `next` on, when the mechanism is free.
    fn begin_read_ahead(&mut self, at_ns: u64, next: u64, requested_end: u64) {
        let limit = Self::limit(&self.mechanism.geometry, self.cache.profile(), requested_end);
        self.read_ahead = (next < limit).then_some(ReadAhead { next, at_ns, limit });
    }

    fn limit(geometry: &Geometry, profile: &CacheProfile, requested_end: u64) -> u64 {
        let ahead = u64::from(profile.read_ahead_sectors);
        let limit = (requested_end + ahead).min(geometry.sectors());
        if profile.read_ahead_end == ReadAheadEnd::None || requested_end >= limit {
            return limit;
        }
        let last = geometry.place(requested_end.saturating_sub(1));
        let mut end = requested_end;
        while end < limit {
            let run = geometry.run(end, limit - end);
            let same_track =
                run.place.head == last.head || profile.read_ahead_end == ReadAheadEnd::Cylinder;
            if run.place.cylinder != last.cylinder || !same_track {
                return end;
            }
            end += run.sectors;
        }
        limit
    }

    /// What has been read ahead by `now_ns`.
    fn catch_up(&mut self, now_ns: u64) {
        let Some(mut ahead) = self.read_ahead else { return };
        while ahead.next < ahead.limit && ahead.at_ns < now_ns {
            let run = self.mechanism.geometry.run(ahead.next, ahead.limit - ahead.next);
            let to = self.mechanism.geometry.destination(run.place);
            let start = self.mechanism.start_of(ahead.at_ns, &to, false, 0);
            if start >= now_ns {
                // The head is on its way, or waits over the track.
                self.mechanism.hover(&run);
                break;
            }
            let sector = self.mechanism.geometry.transfer_ns(run.place, 1).max(1);
            let passed = ((now_ns - start) / sector).min(run.sectors);
            let run = Run { sectors: passed, ..run };
            self.mechanism.hover(&run);
            ahead.at_ns = start + self.mechanism.geometry.transfer_ns(run.place, passed);
            ahead.next += passed;
            if passed == 0 {
                break;
            }
        }
        self.cache.extend_first(ahead.next);
        self.read_ahead = (ahead.next < ahead.limit).then_some(ahead);
    }

    fn overhead(&self, kind: Kind) -> u64 {
        let times = match kind {
            Kind::ReadMiss => self.controller.read_miss,
            Kind::ReadHit => self.controller.read_hit,
            Kind::Write => self.controller.write,
        };
        times[usize::from(self.last_was_write)]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    ReadMiss,
    ReadHit,
    Write,
}

impl Controller {
    fn new(profile: &MechanicalProfile) -> Result<Controller, FieldProblem> {
        let controller = &profile.controller;
        let pair = |name: &str, ms: f64, after_write_name: &str, after_write_ms: Option<f64>| {
            let first = nanoseconds(&format!("controller.{name}"), ms)?;
            let field = format!("controller.{after_write_name}");
            let second = after_write_ms.map_or(Ok(first), |ms| nanoseconds(&field, ms))?;
            Ok([first, second])
        };
        let after_write = controller.read_after_write_ms;
        let hit_ms = controller.read_hit_ms.unwrap_or(controller.read_ms);
        let hit_after_write = controller.read_hit_after_write_ms;
        let write_after_write = controller.write_after_write_ms;
        Ok(Controller {
            read_miss: pair("read_ms", controller.read_ms, "read_after_write_ms", after_write)?,
            read_hit: pair("read_hit_ms", hit_ms, "read_hit_after_write_ms", hit_after_write)?,
            write: pair(
                "write_ms",
                controller.write_ms,
                "write_after_write_ms",
                write_after_write,
            )?,
            read_ready: nanoseconds("controller.read_ready_ms", controller.read_ready_ms)?,
            write_ready: nanoseconds("controller.write_ready_ms", controller.write_ready_ms)?,
            read_completion: nanoseconds(
                "controller.read_completion_ms",
                controller.read_completion_ms,
            )?,
            write_completion: nanoseconds(
                "controller.write_completion_ms",
                controller.write_completion_ms,
            )?,
        })
    }
}

impl Bus {
    fn new(profile: &MechanicalProfile, sector_bytes: u32) -> Result<Bus, FieldProblem> {
        let bus = &profile.bus;
        if !(1e3..=1e12).contains(&bus.bytes_per_second) {
            let message = format!("{} is not 1e3 to 1e12", bus.bytes_per_second);
            return Err(FieldProblem::new("bus.bytes_per_second", message));
        }
        if !(0.0..=1.0).contains(&bus.read_fraction) {
            let message = format!("{} is not 0 to 1", bus.read_fraction);
            return Err(FieldProblem::new("bus.read_fraction", message));
        }
        Ok(Bus {
            sector_ns: (f64::from(sector_bytes) * 1e9 / bus.bytes_per_second).round() as u64,
            acquisition_ns: nanoseconds("bus.acquisition_ms", bus.acquisition_ms)?,
            read_start: bus.read_start,
            read_fraction: bus.read_fraction,
        })
    }

    /// When the last of `count` sectors is out that come in by `transfers`; none goes before
    /// `ready_ns`.
    fn read_out(&self, transfers: &[Transfer], count: u64, ready_ns: u64) -> u64 {
        let there = |index: u64| {
            let mut before = 0;
            for transfer in transfers {
                if index < before + transfer.sectors {
                    let duration = transfer.end_ns - transfer.start_ns;
                    let passed = index - before + 1;
                    return transfer.start_ns + duration * passed / transfer.sectors;
                }
                before += transfer.sectors;
            }
            transfers.last().map_or(ready_ns, |last| last.end_ns)
        };
        let begin = match self.read_start {
            ReadStart::FirstSector => there(0),
            ReadStart::Fraction => {
                let wanted = (count as f64 * self.read_fraction).ceil() as u64;
                there(wanted.clamp(1, count) - 1)
            }
            ReadStart::Crossing => transfers.first().map_or(ready_ns, |first| first.end_ns),
            ReadStart::All => there(count - 1),
        };
        let mut out = begin.max(ready_ns) + self.acquisition_ns;
        for transfer in transfers {
            let duration = transfer.end_ns - transfer.start_ns;
            let first_there = transfer.start_ns + duration / transfer.sectors;
            let all = transfer.sectors * self.sector_ns;
            // Each sector goes out after it came in and after the one before: the time of the last
            // is the latest over all where the bus may have waited, and that is at an end of the
            // line.
            out = (out + all).max(first_there + all).max(transfer.end_ns + self.sector_ns);
        }
        out
    }
}

/// A time of a profile.
fn nanoseconds(field: &str, ms: f64) -> Result<u64, FieldProblem> {
    if !(0.0..=OVERHEAD_MS_MAX).contains(&ms) {
        return Err(FieldProblem::new(field, format!("{ms} is not 0 to {OVERHEAD_MS_MAX}")));
    }
    Ok((ms * 1e6).round() as u64)
}
