//! A bucket behind a log: what `dcd store-keeper` makes of the windows that come to it
//! (`docs/s3.md`).
//!
//! ```text
//! write   -> memory, at once; what makes up an object of 8 MiB is uploaded; more than eight that
//!            are on their way hold writes up
//! flush   -> the open object is uploaded as it is; when all are there, a row of the map
//! commit  -> a batch of the map
//! read    -> memory, or a GET of the range for each run of lines that lie together in an object
//! ```
//! Each is what the keeper does, its requests counted one by one; how long one takes is the
//! bucket's, a device of channels and latencies like others. Lines that were never written here lie
//! in objects as if the disk had been written in sequence. The places of lines are kept, so memory
//! grows with what is written in different places.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::price::Traffic;
use super::simple::SimpleDevice;

// As in `dcd-store`: `format.rs`, `disk.rs`, `map.rs`, `collect.rs`.
const LINE_BYTES: u64 = 4096;
const OBJECT_LINES: usize = 2048;
/// Of an object, before its lines, ...
const HEADER_BYTES: u64 = 32;
/// ... and for each of them.
const ENTRY_BYTES: u64 = 12;
const UPLOADS_MAX: usize = 8;
/// Batches behind which a table of the map is begun.
const TABLE_BATCHES: u64 = 32;
const GARBAGE_PERCENT: u64 = 25;
const COLLECT_OBJECTS: usize = 4;
const COLLECT_EVERY_NS: u64 = 10_000_000_000;
// Counted with versitygw (SlateDB 0.x): bytes of a line in a row, in a batch, in a table.
const ROW_LINE_BYTES: u64 = 28;
const BATCH_LINE_BYTES: u64 = 41;
const TABLE_LINE_BYTES: u64 = 57;
const BATCH_BYTES: u64 = 300;

/// What came of a bucket.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct StoreFacts {
    /// PUTs: of data objects, of rows, batches and tables of the map.
    pub puts: u64,
    /// Their bytes.
    pub put_bytes: u64,
    /// GETs, without those by which an open store looks for news.
    pub gets: u64,
    /// Their bytes.
    pub get_bytes: u64,
    /// Of the PUTs, data objects.
    pub data_objects: u64,
    /// Share of the lines in objects that is not in use at the end.
    pub garbage_percent: f64,
    /// Memory for the places of lines, about.
    #[serde(skip)]
    pub memory_bytes: u64,
}

impl StoreFacts {
    /// What there was of it since then; room and garbage as they are.
    pub fn since(&self, before: &StoreFacts) -> StoreFacts {
        StoreFacts {
            puts: self.puts - before.puts,
            put_bytes: self.put_bytes - before.put_bytes,
            gets: self.gets - before.gets,
            get_bytes: self.get_bytes - before.get_bytes,
            data_objects: self.data_objects - before.data_objects,
            ..*self
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Store {
    bucket: SimpleDevice,
    /// Lines in memory, in no object yet.
    open: BTreeSet<u64>,
    /// When objects that are on their way will be there.
    uploads: Vec<u64>,
    /// Lines in objects that no row names.
    unnamed_lines: u64,
    /// Lines in rows that no window has.
    staged_lines: u64,
    /// Since the last table was begun.
    table_lines: u64,
    /// One flush, commit or collection at a time.
    order_free_ns: u64,
    batches: u64,
    places: HashMap<u64, Place>,
    objects: Vec<Object>,
    lines: u64,
    live: u64,
    collected_ns: u64,
    facts: StoreFacts,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    object: u32,
    index: u32,
}

#[derive(Clone, Debug)]
struct Object {
    lines: Vec<u64>,
    live: u32,
    /// Until then it is read from memory.
    there_ns: u64,
}

/// Where a line is to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Memory,
    In(Place),
    /// Where the disk had it before, in objects of their own.
    Before(u64),
}

impl Store {
    /// In that bucket.
    pub fn new(bucket: SimpleDevice) -> Store {
        Store {
            bucket,
            open: BTreeSet::new(),
            uploads: Vec::new(),
            unnamed_lines: 0,
            staged_lines: 0,
            table_lines: 0,
            order_free_ns: 0,
            batches: 0,
            places: HashMap::new(),
            objects: Vec::new(),
            lines: 0,
            live: 0,
            collected_ns: 0,
            facts: StoreFacts::default(),
        }
    }

    /// What came of it so far.
    pub fn facts(&self) -> StoreFacts {
        let garbage = (self.lines - self.live) as f64 / self.lines.max(1) as f64;
        let place = size_of::<(u64, Place)>() + 1;
        let objects = self.objects.len() * size_of::<Object>() + self.lines as usize * 8;
        let memory_bytes = (self.places.capacity() * place + objects) as u64;
        StoreFacts { garbage_percent: 100.0 * garbage, memory_bytes, ..self.facts }
    }

    /// Its requests.
    pub fn traffic(&self) -> Traffic {
        let StoreFacts { puts, put_bytes, gets, get_bytes, .. } = self.facts;
        Traffic { reads: gets, read_bytes: get_bytes, writes: puts, write_bytes: put_bytes }
    }

    /// When a read that comes at `at_ns` is done.
    pub fn read(&mut self, at_ns: u64, offset_bytes: u64, size_bytes: u64) -> u64 {
        self.collect(at_ns);
        let end = (offset_bytes + size_bytes).div_ceil(LINE_BYTES);
        self.read_lines(at_ns, offset_bytes / LINE_BYTES, end)
    }

    /// When a write is taken.
    pub fn write(&mut self, at_ns: u64, offset_bytes: u64, size_bytes: u64) -> u64 {
        self.collect(at_ns);
        self.uploads.retain(|end| *end > at_ns);
        let mut taken_ns = at_ns;
        if self.uploads.len() >= UPLOADS_MAX {
            self.uploads.sort_unstable();
            taken_ns = self.uploads[self.uploads.len() - UPLOADS_MAX];
            self.uploads.retain(|end| *end > taken_ns);
        }
        let (start, end) = (offset_bytes, offset_bytes + size_bytes);
        // The rest of a line that is written in part is read before.
        let mut parts: Vec<u64> = Vec::new();
        parts.extend((!start.is_multiple_of(LINE_BYTES)).then_some(start / LINE_BYTES));
        parts.extend((!end.is_multiple_of(LINE_BYTES)).then_some(end / LINE_BYTES));
        parts.dedup();
        for line in parts {
            taken_ns = taken_ns.max(self.read_lines(taken_ns, line, line + 1));
        }
        for line in start / LINE_BYTES..end.div_ceil(LINE_BYTES) {
            self.open.insert(line);
            if self.open.len() >= OBJECT_LINES {
                self.seal(taken_ns);
            }
        }
        taken_ns
    }

    /// When what was written is durable.
    pub fn flush(&mut self, at_ns: u64) -> u64 {
        self.collect(at_ns);
        self.seal(at_ns);
        let mut end_ns = self.order_free_ns.max(at_ns);
        if self.unnamed_lines > 0 {
            let there_ns = self.uploads.iter().copied().max().unwrap_or(0);
            let bytes = self.unnamed_lines * ROW_LINE_BYTES;
            end_ns = self.batch(end_ns.max(there_ns), bytes, self.unnamed_lines);
            self.staged_lines += std::mem::take(&mut self.unnamed_lines);
        }
        self.order_free_ns = end_ns;
        end_ns
    }

    /// When a window has been made visible.
    pub fn commit(&mut self, at_ns: u64) -> u64 {
        let at_ns = self.flush(at_ns);
        let lines = std::mem::take(&mut self.staged_lines);
        self.order_free_ns = self.batch(at_ns, lines * BATCH_LINE_BYTES, lines);
        self.order_free_ns
    }

    /// A batch of the map, durable.
    fn batch(&mut self, at_ns: u64, bytes: u64, lines: u64) -> u64 {
        let end_ns = at_ns + self.bucket.alone_ns(BATCH_BYTES + bytes, true);
        self.put(BATCH_BYTES + bytes);
        self.table_lines += lines;
        self.batches += 1;
        if self.batches.is_multiple_of(TABLE_BATCHES) {
            // The table and the manifest that names it; nobody waits for them.
            let bytes = std::mem::take(&mut self.table_lines) * TABLE_LINE_BYTES;
            self.put(bytes);
            self.put(BATCH_BYTES);
        }
        end_ns
    }

    fn put(&mut self, bytes: u64) {
        self.facts.puts += 1;
        self.facts.put_bytes += bytes;
    }

    /// Uploads what is in memory.
    fn seal(&mut self, at_ns: u64) {
        if self.open.is_empty() {
            return;
        }
        let lines: Vec<u64> = std::mem::take(&mut self.open).into_iter().collect();
        self.unnamed_lines += lines.len() as u64;
        let there_ns = self.upload(at_ns, lines);
        self.uploads.push(there_ns);
    }

    fn upload(&mut self, at_ns: u64, lines: Vec<u64>) -> u64 {
        let count = lines.len() as u64;
        let bytes = HEADER_BYTES + count * (LINE_BYTES + ENTRY_BYTES);
        let (_, there_ns) = self.bucket.serve(at_ns, bytes, true);
        self.put(bytes);
        self.facts.data_objects += 1;
        let object = self.objects.len() as u32;
        for (line, index) in lines.iter().zip(0..) {
            if let Some(old) = self.places.insert(*line, Place { object, index }) {
                self.give_up(old);
            }
        }
        self.lines += count;
        self.live += count;
        self.objects.push(Object { lines, live: count as u32, there_ns });
        there_ns
    }

    fn give_up(&mut self, place: Place) {
        let object = &mut self.objects[place.object as usize];
        object.live -= 1;
        self.live -= 1;
        if object.live == 0 {
            // It is deleted, which costs nothing.
            self.lines -= object.lines.len() as u64;
            object.lines = Vec::new();
        }
    }

    fn source(&self, at_ns: u64, line: u64) -> Source {
        if self.open.contains(&line) {
            return Source::Memory;
        }
        match self.places.get(&line) {
            Some(place) if self.objects[place.object as usize].there_ns > at_ns => Source::Memory,
            Some(place) => Source::In(*place),
            None => Source::Before(line),
        }
    }

    /// A GET for each run; they are under way together.
    fn read_lines(&mut self, at_ns: u64, first: u64, end: u64) -> u64 {
        let mut done_ns = at_ns;
        let mut line = first;
        while line < end {
            let source = self.source(at_ns, line);
            let mut count = 1;
            while line + count < end && self.source(at_ns, line + count).follows(source, count) {
                count += 1;
            }
            if source != Source::Memory {
                let bytes = count * LINE_BYTES;
                let (_, got_ns) = self.bucket.serve(at_ns, bytes, false);
                self.got(bytes);
                done_ns = done_ns.max(got_ns);
            }
            line += count;
        }
        done_ns
    }

    fn got(&mut self, bytes: u64) {
        self.facts.gets += 1;
        self.facts.get_bytes += bytes;
    }

    /// Packs the emptiest objects anew when there is much garbage and it is time for that.
    fn collect(&mut self, at_ns: u64) {
        while self.collected_ns + COLLECT_EVERY_NS <= at_ns {
            self.collected_ns += COLLECT_EVERY_NS;
            let mut now_ns = self.collected_ns;
            while self.is_full_of_garbage()
                && let Some(done_ns) = self.collect_some(now_ns)
            {
                now_ns = done_ns;
            }
            if !self.is_full_of_garbage() {
                let rest = (at_ns - self.collected_ns) % COLLECT_EVERY_NS;
                self.collected_ns = at_ns - rest;
                return;
            }
        }
    }

    fn is_full_of_garbage(&self) -> bool {
        (self.lines - self.live) * 100 > self.lines * GARBAGE_PERCENT
    }

    /// When that is done. None: there is nothing to do it with.
    fn collect_some(&mut self, at_ns: u64) -> Option<u64> {
        let there = |(number, object): (usize, &Object)| {
            let ratio = (u64::from(object.live) << 16) / object.lines.len().max(1) as u64;
            (object.live > 0 && object.there_ns <= at_ns).then_some((ratio, number))
        };
        let mut poorest: Vec<_> = self.objects.iter().enumerate().filter_map(there).collect();
        poorest.sort_unstable();
        poorest.truncate(COLLECT_OBJECTS);
        let (mut moved, mut there_ns) = (Vec::new(), at_ns);
        for (_, number) in poorest {
            let bytes = self.objects[number].lines.len() as u64 * (LINE_BYTES + ENTRY_BYTES);
            let (_, got_ns) = self.bucket.serve(at_ns, HEADER_BYTES + bytes, false);
            self.got(HEADER_BYTES + bytes);
            there_ns = there_ns.max(got_ns);
            let is_in_use = |line: &u64| {
                self.places.get(line).is_some_and(|place| place.object as usize == number)
            };
            moved.extend(self.objects[number].lines.iter().copied().filter(is_in_use));
        }
        let mut put_ns = there_ns;
        for lines in moved.chunks(OBJECT_LINES) {
            put_ns = put_ns.max(self.upload(there_ns, lines.to_vec()));
        }
        let lines = moved.len() as u64;
        (lines > 0).then(|| {
            let at_ns = put_ns.max(self.order_free_ns);
            self.order_free_ns = self.batch(at_ns, lines * BATCH_LINE_BYTES, lines);
            self.order_free_ns
        })
    }
}

impl Source {
    /// Whether it lies so many lines behind another.
    fn follows(self, first: Source, count: u64) -> bool {
        match (first, self) {
            (Source::Memory, Source::Memory) => true,
            (Source::In(first), Source::In(place)) => {
                first.object == place.object && u64::from(first.index) + count == place.index.into()
            }
            (Source::Before(first), Source::Before(line)) => {
                first + count == line && first / OBJECT_LINES as u64 == line / OBJECT_LINES as u64
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::profile::Profile;

    const MIB: u64 = 1 << 20;
    const S: u64 = 1_000_000_000;

    fn store() -> Store {
        let profile = Profile::load("s3").unwrap();
        Store::new(SimpleDevice::new(profile.simple.as_ref().unwrap(), 1).unwrap())
    }

    #[test]
    fn a_full_object_goes_by_itself_and_a_flush_sends_the_rest() {
        let mut store = store();
        // Writes are taken at once.
        for part in 0..9 {
            assert_eq!(store.write(S, part * MIB, MIB), S);
        }
        assert_eq!((store.facts.data_objects, store.facts.puts), (1, 1));
        let durable = store.flush(S);
        assert!(durable > S + 50_000_000, "an object and a row, one after the other: {durable}");
        assert_eq!((store.facts.data_objects, store.facts.puts), (2, 3));
        // Nothing new: nothing is sent.
        assert_eq!(store.flush(durable), durable);
        assert!(store.commit(durable) > durable);
        assert_eq!(store.facts.puts, 4);
        let bytes = 9 * MIB + 2 * 32 + 9 * 256 * 12;
        assert!(store.facts.put_bytes > bytes && store.facts.put_bytes < bytes + 200_000);
    }

    #[test]
    fn a_run_of_lines_is_one_get_and_memory_is_none() {
        let mut store = store();
        // As it was before: in objects of 8 MiB.
        assert!(store.read(S, 4 * MIB, 8 * MIB) > S + 10_000_000);
        assert_eq!((store.facts.gets, store.facts.get_bytes), (2, 8 * MIB));
        for line in [5u64, 1, 3] {
            store.write(2 * S, line * 4096, 4096);
        }
        assert_eq!(store.read(2 * S, 4096, 4096), 2 * S, "from memory");
        store.flush(2 * S);
        assert_eq!(store.read(2 * S, 4096, 4096), 2 * S, "it is on its way yet");
        let gets = store.facts.gets;
        // 1 | 2 | 3 | 4 | 5
        store.read(100 * S, 4096, 5 * 4096);
        assert_eq!(store.facts.gets, gets + 5);
        // Half of a line: the rest is read before.
        assert!(store.write(100 * S, 4096, 512) > 100 * S);
        assert_eq!(store.facts.gets, gets + 6);
    }

    #[test]
    fn too_many_objects_on_their_way_hold_writes_up() {
        let mut store = store();
        let taken: Vec<u64> = (0..12).map(|n| store.write(S, n * 8 * MIB, 8 * MIB)).collect();
        assert!(taken[..8].iter().all(|at| *at == S), "{taken:?}");
        assert!(taken[8..].iter().all(|at| *at > S), "{taken:?}");
    }

    #[test]
    fn garbage_is_packed_anew_and_stays_below_a_third() {
        let mut store = store();
        let mut random = crate::random::Random::new(3);
        let lines = 32 * OBJECT_LINES as u64;
        store.write(0, 0, lines * LINE_BYTES);
        store.flush(0);
        let mut worst = 0.0f64;
        for second in 1..3000u64 {
            for _ in 0..100 {
                store.write(second * S, random.below(lines) * LINE_BYTES, LINE_BYTES);
            }
            store.flush(second * S);
            worst = worst.max(store.facts().garbage_percent);
        }
        assert!(worst > 20.0 && worst < 34.0, "{worst}");
        assert_eq!(store.live, lines);
        let in_objects: u64 = store.objects.iter().map(|object| object.lines.len() as u64).sum();
        assert_eq!(store.lines, in_objects);
        let live: u64 = store.objects.iter().map(|object| u64::from(object.live)).sum();
        assert_eq!(live, lines);
    }
}
