//! What a trace is like: mix, sizes, bursts, pace, overwrites, working set. Request by request, in
//! memory that does not grow with the trace.

use std::collections::BTreeMap;

use serde::Serialize;

use super::working_set::{LINES_MAX, WorkingSet, WorkingSetFacts};
use super::{Flags, Operation, Request};
use crate::distribution::{Distribution, Percentiles};

/// Disks that are told apart.
const DEVICES_MAX: usize = 65_536;
const SECOND_NS: u64 = 1_000_000_000;

/// How many, and how much.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Amount {
    /// Requests.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a disk was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceFacts {
    /// Its number, as `--device` takes it.
    pub device: u32,
    /// What people call it, where that is known.
    pub name: Option<String>,
    /// Reads.
    pub reads: Amount,
    /// Writes.
    pub writes: Amount,
    /// Discards and flushes.
    pub others: u64,
}

/// Requests of a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SizeClass {
    /// Larger than half of this and at most this: a power of two; 512 takes all smaller.
    pub up_to_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Requests that follow one another closely.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bursts {
    /// A longer silence ends a burst.
    pub gap_ms: f64,
    /// How many there are.
    pub count: u64,
    /// Requests in each.
    pub requests: Option<Percentiles>,
    /// Bytes written in each.
    pub written_bytes: Option<Percentiles>,
    /// Silence between two.
    pub silence_ms: Option<Percentiles>,
}

/// Requests and bytes in a second.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Rates {
    /// Requests.
    pub requests_per_second: f64,
    /// Bytes read.
    pub read_bytes_per_second: f64,
    /// Bytes written.
    pub written_bytes_per_second: f64,
}

/// What a trace is like.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceSummary {
    /// All requests.
    pub requests: u64,
    /// From the first to the last.
    pub duration_s: f64,
    /// All times are multiples of so much: the clock of whoever recorded it has no finer ticks,
    /// as far as is known. None if all requests come at once.
    pub clock_ns: Option<u64>,
    /// How many disks; 65,536 if more.
    pub devices: u64,
    /// Each of them, by number.
    pub by_device: Vec<DeviceFacts>,
    /// The smallest disk that has all addresses.
    pub end_bytes: u64,
    /// Reads.
    pub reads: Amount,
    /// Writes.
    pub writes: Amount,
    /// Discards.
    pub discards: Amount,
    /// Flushes that are requests of their own.
    pub flushes: u64,
    /// Writes that somebody waits for, as far as the trace says.
    pub sync_writes: u64,
    /// Writes with FUA, or a flush before them.
    pub fua_writes: u64,
    /// Reads and writes that begin where the one before, on the same disk, ended.
    pub sequential_percent: f64,
    /// Reads and writes by size.
    pub sizes: Vec<SizeClass>,
    /// Time from request to request.
    pub inter_arrival_ms: Option<Percentiles>,
    /// Recorded times of reads, from request to answer.
    pub read_latency_ms: Option<Percentiles>,
    /// Recorded times of writes.
    pub write_latency_ms: Option<Percentiles>,
    /// Groups of requests.
    pub bursts: Bursts,
    /// Over the whole trace; of one shorter than a second, as if it took one.
    pub mean: Rates,
    /// Each the highest in a second.
    pub peak: Rates,
    /// What is touched and written again.
    pub working_set: WorkingSetFacts,
}

/// Takes requests in order of time.
pub struct Summarizer {
    burst_gap_ns: u64,
    counted: [Amount; 4],
    sync_writes: u64,
    fua_writes: u64,
    sequential: u64,
    end_bytes: u64,
    /// Where the last read or write of each disk ended.
    ends: BTreeMap<u32, u64>,
    /// Reads, writes, and how many others.
    devices: BTreeMap<u32, ([Amount; 2], u64)>,
    /// Reads and writes by power of two.
    sizes: BTreeMap<u64, [u64; 2]>,
    last_ns: Option<u64>,
    /// Greatest common divisor of the times; 0 of none.
    clock_ns: u64,
    inter_arrival: Distribution,
    latency: [Distribution; 2],
    burst: Amount,
    burst_count: u64,
    burst_requests: Distribution,
    burst_written: Distribution,
    silence: Distribution,
    second: u64,
    /// Requests, bytes read, bytes written in this second, and the most of each in any before.
    in_second: [u64; 3],
    peak: [u64; 3],
    working_set: WorkingSet,
}

impl Summarizer {
    /// For bursts that end with so long a silence.
    pub fn new(burst_gap_ns: u64) -> Summarizer {
        Summarizer {
            burst_gap_ns,
            counted: [Amount::default(); 4],
            sync_writes: 0,
            fua_writes: 0,
            sequential: 0,
            end_bytes: 0,
            ends: BTreeMap::new(),
            devices: BTreeMap::new(),
            sizes: BTreeMap::new(),
            last_ns: None,
            clock_ns: 0,
            inter_arrival: Distribution::default(),
            latency: Default::default(),
            burst: Amount::default(),
            burst_count: 0,
            burst_requests: Distribution::default(),
            burst_written: Distribution::default(),
            silence: Distribution::default(),
            second: 0,
            in_second: [0; 3],
            peak: [0; 3],
            working_set: WorkingSet::new(LINES_MAX),
        }
    }

    /// Counts a request.
    ///
    /// # Panics
    /// If it is earlier than the one before.
    pub fn add(&mut self, request: &Request) {
        let size_bytes = request.size_bytes;
        let amount = &mut self.counted[request.operation as usize];
        amount.count += 1;
        amount.bytes = amount.bytes.saturating_add(size_bytes);
        self.count_device(request);
        self.count_time(request);
        match request.operation {
            Operation::Read => self.count_data(request, 0),
            Operation::Write => {
                self.count_data(request, 1);
                self.burst.bytes += size_bytes;
                let flags = request.flags;
                let fua = flags.contains(Flags::FUA) || flags.contains(Flags::PREFLUSH);
                self.sync_writes += u64::from(flags.contains(Flags::SYNC));
                self.fua_writes += u64::from(fua);
            }
            Operation::Discard | Operation::Flush => {}
        }
        self.working_set.add(request);
    }

    fn count_device(&mut self, request: &Request) {
        let is_full = self.devices.len() >= DEVICES_MAX;
        if is_full && !self.devices.contains_key(&request.device) {
            return;
        }
        let (data, others) = self.devices.entry(request.device).or_default();
        let amount = match request.operation {
            Operation::Read => &mut data[0],
            Operation::Write => &mut data[1],
            Operation::Discard | Operation::Flush => {
                *others += 1;
                return;
            }
        };
        amount.count += 1;
        amount.bytes = amount.bytes.saturating_add(request.size_bytes);
    }

    /// Pace and bursts.
    fn count_time(&mut self, request: &Request) {
        let now_ns = request.time_ns;
        if let Some(last_ns) = self.last_ns {
            assert!(now_ns >= last_ns, "requests come in order of time");
            let gap_ns = now_ns - last_ns;
            self.inter_arrival.add(gap_ns);
            if gap_ns > self.burst_gap_ns {
                self.silence.add(gap_ns);
                self.end_burst();
            }
        }
        self.last_ns = Some(now_ns);
        self.clock_ns = common_divisor(self.clock_ns, now_ns);
        self.burst.count += 1;
        if now_ns / SECOND_NS != self.second {
            self.end_second();
            self.second = now_ns / SECOND_NS;
        }
        self.in_second[0] += 1;
    }

    /// Time from request to request, in nanoseconds.
    pub(super) fn inter_arrival(&self) -> &Distribution {
        &self.inter_arrival
    }

    /// Requests in each burst that has ended.
    pub(super) fn burst_requests(&self) -> &Distribution {
        &self.burst_requests
    }

    pub(super) fn working_set(&self) -> &WorkingSet {
        &self.working_set
    }

    /// A burst ends with a silence, or with the trace.
    pub(super) fn end_burst(&mut self) {
        let burst = std::mem::take(&mut self.burst);
        if burst.count > 0 {
            self.burst_count += 1;
            self.burst_requests.add(burst.count);
            self.burst_written.add(burst.bytes);
        }
    }

    fn end_second(&mut self) {
        for (peak, in_second) in self.peak.iter_mut().zip(&mut self.in_second) {
            *peak = (*peak).max(std::mem::take(in_second));
        }
    }

    /// A read (0) or a write (1).
    fn count_data(&mut self, request: &Request, direction: usize) {
        let Request { device, offset_bytes, size_bytes, .. } = *request;
        let end_bytes = offset_bytes + size_bytes;
        self.end_bytes = self.end_bytes.max(end_bytes);
        self.in_second[1 + direction] += size_bytes;
        let class = size_bytes.max(512).next_power_of_two();
        self.sizes.entry(class).or_default()[direction] += 1;
        self.sequential += u64::from(self.ends.get(&device) == Some(&offset_bytes));
        if self.devices.contains_key(&device) {
            self.ends.insert(device, end_bytes);
        }
        if let Some(latency_ns) = request.latency_ns {
            self.latency[direction].add(latency_ns);
        }
    }

    /// What has come out; none of no requests.
    pub fn finish(mut self) -> Option<TraceSummary> {
        let duration_ns = self.last_ns?;
        self.end_burst();
        self.end_second();
        let [reads, writes, discards, flushes] = self.counted;
        let requests = reads.count + writes.count + discards.count + flushes.count;
        let seconds = (duration_ns as f64 / 1e9).max(1.0);
        let data = (reads.count + writes.count).max(1);
        let size_class = |(up_to_bytes, [reads, writes]): (u64, [u64; 2])| SizeClass {
            up_to_bytes,
            reads,
            writes,
        };
        Some(TraceSummary {
            requests,
            duration_s: duration_ns as f64 / 1e9,
            clock_ns: (self.clock_ns > 0).then_some(self.clock_ns),
            devices: self.devices.len() as u64,
            by_device: self.devices.into_iter().map(device_facts).collect(),
            end_bytes: self.end_bytes,
            reads,
            writes,
            discards,
            flushes: flushes.count,
            sync_writes: self.sync_writes,
            fua_writes: self.fua_writes,
            sequential_percent: 100.0 * self.sequential as f64 / data as f64,
            sizes: self.sizes.into_iter().map(size_class).collect(),
            inter_arrival_ms: self.inter_arrival.percentiles(1e6),
            read_latency_ms: self.latency[0].percentiles(1e6),
            write_latency_ms: self.latency[1].percentiles(1e6),
            bursts: Bursts {
                gap_ms: self.burst_gap_ns as f64 / 1e6,
                count: self.burst_count,
                requests: self.burst_requests.percentiles(1.0),
                written_bytes: self.burst_written.percentiles(1.0),
                silence_ms: self.silence.percentiles(1e6),
            },
            mean: Rates {
                requests_per_second: requests as f64 / seconds,
                read_bytes_per_second: reads.bytes as f64 / seconds,
                written_bytes_per_second: writes.bytes as f64 / seconds,
            },
            peak: Rates {
                requests_per_second: self.peak[0] as f64,
                read_bytes_per_second: self.peak[1] as f64,
                written_bytes_per_second: self.peak[2] as f64,
            },
            working_set: self.working_set.facts(),
        })
    }
}

fn device_facts((device, (data, others)): (u32, ([Amount; 2], u64))) -> DeviceFacts {
    let [reads, writes] = data;
    DeviceFacts { device, name: None, reads, writes, others }
}

/// Greatest common divisor. Nearly always `divisor` it is, after one division.
fn common_divisor(mut divisor: u64, mut number: u64) -> u64 {
    while divisor > 0 {
        (divisor, number) = (number % divisor, divisor);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::reader_tests::read;

    fn summary(text: &str) -> TraceSummary {
        let mut summarizer = Summarizer::new(100_000_000);
        let text = format!("t_us,op,off,len,fl,lat_us\n{text}");
        read(&text, None).iter().for_each(|request| summarizer.add(request));
        summarizer.finish().unwrap()
    }

    #[test]
    fn mix_and_sizes_are_counted() {
        let found = summary(
            "0,R,0,512,0,1000\n1,W,512,513,1,\n2,W,1025,4096,3,3000\n3,D,0,99999,0,\n4,F,0,0,0,\n\
             2000004,W,8192,0,4,\n",
        );
        assert_eq!((found.requests, found.flushes, found.discards.bytes), (6, 1, 99_999));
        assert_eq!(found.writes, Amount { count: 3, bytes: 4609 });
        assert_eq!((found.sync_writes, found.fua_writes), (2, 2));
        assert_eq!((found.sequential_percent, found.end_bytes), (50.0, 8192));
        let sizes: Vec<_> =
            found.sizes.iter().map(|s| (s.up_to_bytes, s.reads, s.writes)).collect();
        assert_eq!(sizes, [(512, 1, 1), (1024, 0, 1), (4096, 0, 1)]);
        assert_eq!(found.read_latency_ms.unwrap().max, 1.0);
        assert_eq!(found.write_latency_ms.unwrap().mean, 3.0);
        assert_eq!(found.duration_s, 2.000_004);
    }

    /// ```text
    /// ms     0 10 110      300   2000
    ///        1  2   3        1      1     silence of 190 and 1700
    /// ```
    #[test]
    fn bursts_end_with_a_silence() {
        let found = summary(
            "0,W,0,512,0,\n10000,W,0,512,0,\n110000,W,0,512,0,\n300000,R,0,512,0,\n2000000,R,0,512,0,\n",
        );
        assert_eq!(found.bursts.count, 3);
        assert_eq!(found.bursts.requests.unwrap().max, 3.0);
        assert_eq!(found.bursts.written_bytes.unwrap().max, 1536.0);
        assert_eq!(found.bursts.silence_ms.unwrap().max, 1700.0);
        let peak = Rates {
            requests_per_second: 4.0,
            read_bytes_per_second: 512.0,
            written_bytes_per_second: 1536.0,
        };
        assert_eq!(found.peak, peak);
        assert_eq!(found.mean.requests_per_second, 2.5);
        assert_eq!(found.inter_arrival_ms.unwrap().max, 1700.0);
    }

    #[test]
    fn disks_are_told_apart_and_the_clock_is_found() {
        let mut summarizer = Summarizer::new(1);
        let text = "t_us,op,dev,off,len\n0,R,7,0,512\n3000000,W,8388608,0,1024\n5000000,R,7,0,512\n\
                    9000000,F,7,0,0\n";
        read(text, None).iter().for_each(|request| summarizer.add(request));
        let found = summarizer.finish().unwrap();
        let facts: Vec<_> = found
            .by_device
            .iter()
            .map(|d| (d.device, d.reads.bytes, d.writes.count, d.others))
            .collect();
        assert_eq!(facts, [(7, 1024, 0, 1), (8 << 20, 0, 1, 0)]);
        assert_eq!((found.devices, found.clock_ns), (2, Some(1_000_000_000)));
        assert_eq!(summary("5,R,0,512,0,\n5,R,0,512,0,\n").clock_ns, None);
        assert_eq!(summary("5,R,0,512,0,\n17.004,R,0,512,0,\n23,R,0,512,0,\n").clock_ns, Some(4));
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        assert!(Summarizer::new(1).finish().is_none());
    }
}
