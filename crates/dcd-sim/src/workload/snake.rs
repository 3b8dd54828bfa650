//! A file server of 1992, made to be like what Haining 2000 tells of disks 5 and 6 of HP's `snake`
//! traces: as many reads and writes as in Table 7.1, of the same mean sizes, and written so often
//! to the same places that a memory of 128 KB finds as much as in Table 7.3. `docs/workloads.md`
//! has what was fitted to what, and what comes out.
//!
//! ```text
//!   hot     a few blocks of metadata, written over and over; now and then another takes the place of one
//!   warm    more of them, each written less often
//!   cold    files of several blocks one behind the other, out of many
//! ```

use super::arrivals::{Arrivals, Shape};
use super::pattern::{Access, Pattern, Scatter};
use super::zipf::Zipf;
use crate::random::Random;
use crate::trace::{Flags, Operation};

/// Block of the file system (HP-UX).
const BLOCK_BYTES: u64 = 8192;
/// Smaller writes and reads, of fragments, are of 1, 2 or 3 of these: 2 KB on average.
const FRAGMENT_BYTES: u64 = 1024;
/// Room for the file systems: the HP 97560 has 1,355 million bytes.
const SPAN_BLOCKS: u64 = 163_840;
/// 25 to 30 April.
const DURATION_S: f64 = 6.0 * 86_400.0;
/// Requests in a burst, so that one comes every half minute, as the kernel then wrote what had
/// changed.
const BURST_REQUESTS: u64 = 16;
/// Reads follow reads, and writes follow writes: what comes next is drawn anew once in so many.
const SAME_KIND_REQUESTS: u64 = 8;
/// Files that are read, and how much more often the first are.
const READ_FILES: u64 = 16_384;
const READ_THETA: f64 = 0.9;
const READ_FILE_BLOCKS: f64 = 2.0;
/// Blocks of metadata that may become hot or warm.
const METADATA_BLOCKS: u64 = 4096;

/// What is known of a disk, and what was fitted.
#[derive(Clone, Copy, Debug)]
struct Disk {
    /// Table 7.1.
    reads: u64,
    read_kb: f64,
    writes: u64,
    write_kb: f64,
    /// Of 512 bytes, as estimated for section 7.3 (disk 5), or in proportion to the writes.
    cold_sectors: u64,
    /// Fitted to Table 7.3: shares of the writes, numbers of blocks, mean length of files.
    hot_share: f64,
    hot_blocks: u64,
    warm_share: f64,
    warm_blocks: u64,
    file_blocks: f64,
    /// A hot block is replaced after so many writes to hot ones.
    hot_writes: u64,
    /// Fitted to the stalled writes of Table 7.3.
    within_ns: u64,
}

const DISK_5: Disk = Disk {
    reads: 134_420,
    read_kb: 5.354,
    writes: 129_379,
    write_kb: 6.876,
    cold_sectors: 119_400,
    hot_share: 0.65,
    hot_blocks: 3,
    warm_share: 0.06,
    warm_blocks: 16,
    file_blocks: 3.5,
    hot_writes: 100,
    within_ns: 34_000_000,
};

const DISK_6: Disk = Disk {
    reads: 146_782,
    read_kb: 6.152,
    writes: 240_632,
    write_kb: 6.726,
    cold_sectors: 222_072,
    hot_share: 0.645,
    warm_share: 0.03,
    file_blocks: 4.0,
    within_ns: 55_000_000,
    ..DISK_5
};

/// The server, or one disk of it.
#[derive(Clone, Debug)]
pub(super) struct Snake {
    disk: Disk,
    is_writing: bool,
    /// Numbers of hot and of warm blocks.
    hot: Vec<u64>,
    warm: Vec<u64>,
    /// The next number.
    metadata_next: u64,
    metadata: Scatter,
    /// The file that is being written, and how far.
    written: FilePlace,
    write_files: Files,
    read: FilePlace,
    read_files: Files,
    read_law: Zipf,
    /// Fragments that should have been read by now, and were not; those that were.
    fragments_due: f64,
    fragments_read: u64,
}

/// Files, each at a place of its own and always as long as it is.
#[derive(Clone, Copy, Debug)]
struct Files {
    count: u64,
    scatter: Scatter,
    mean_blocks: f64,
}

/// A place in a file.
#[derive(Clone, Copy, Default, Debug)]
struct FilePlace {
    file: u64,
    /// Its first block, the one that is next, and how many there are.
    first: u64,
    block: u64,
    blocks: u64,
}

impl Files {
    fn new(count: u64, mean_blocks: f64) -> Files {
        Files { count, scatter: Scatter::new(count), mean_blocks }
    }

    /// Where the next block from there begins, or the first of the file that `choose` gives.
    fn next(&self, place: &mut FilePlace, choose: impl FnOnce() -> u64) -> u64 {
        let slot_blocks = SPAN_BLOCKS / self.count;
        if place.is_at_end() {
            let file = choose();
            // Its length and its place belong to the file.
            let mut its = Random::new(file);
            let blocks = its.geometric(self.mean_blocks).min(slot_blocks);
            let first = self.scatter.slot(file) * slot_blocks + its.below(slot_blocks - blocks + 1);
            *place = FilePlace { file, first, block: 0, blocks };
        }
        let offset_bytes = (place.first + place.block) * BLOCK_BYTES;
        place.block += 1;
        offset_bytes
    }
}

impl FilePlace {
    fn is_at_end(&self) -> bool {
        self.block == self.blocks
    }
}

/// Share of requests for fragments that makes the mean what it is.
fn fragment_share(mean_kb: f64) -> f64 {
    (8.0 - mean_kb) / (8.0 - 2.0)
}

/// 8 KB, or for that share of the numbers 1, 2 or 3 KB. Evenly spread: already a few numbers have
/// that share.
fn block_or_fragment(number: u64, share: f64) -> u64 {
    let golden = (number as f64 * 0.618_033_988_749_894_9).fract();
    if golden < share { FRAGMENT_BYTES * (1 + number % 3) } else { BLOCK_BYTES }
}

impl Snake {
    /// # Panics
    /// If it is neither 5 nor 6.
    pub(super) fn of_disk(number: u8) -> Snake {
        let disk = match number {
            5 => DISK_5,
            6 => DISK_6,
            _ => panic!("nothing was fitted to disk {number}"),
        };
        let cold_blocks = disk.cold_sectors * 512 / BLOCK_BYTES;
        let files = (cold_blocks as f64 / disk.file_blocks) as u64;
        let metadata = disk.hot_blocks + disk.warm_blocks;
        Snake {
            disk,
            is_writing: false,
            hot: (0..disk.hot_blocks).collect(),
            warm: (disk.hot_blocks..metadata).collect(),
            metadata_next: metadata,
            metadata: Scatter::new(METADATA_BLOCKS),
            written: FilePlace::default(),
            write_files: Files::new(files, disk.file_blocks),
            read: FilePlace::default(),
            read_files: Files::new(READ_FILES, READ_FILE_BLOCKS),
            fragments_due: 0.0,
            fragments_read: 0,
            read_law: Zipf::new(READ_FILES, READ_THETA),
        }
    }

    /// As many as in the table.
    pub(super) fn requests(&self) -> u64 {
        self.disk.reads + self.disk.writes
    }

    /// At such a rate that they take six days.
    pub(super) fn arrivals(&self) -> Arrivals {
        let rate = self.requests() as f64 / DURATION_S;
        Arrivals::bursts(Shape::Exponential, rate, BURST_REQUESTS, self.disk.within_ns)
            .expect("bursts every half minute are far from each other")
    }

    fn read(&mut self, random: &mut Random) -> (u64, u64) {
        let offset_bytes = self.read_files.next(&mut self.read, || self.read_law.draw(random));
        // Some files are read so often that a share of the files would not be one of the reads.
        self.fragments_due += fragment_share(self.disk.read_kb);
        if self.fragments_due < 1.0 || !self.read.is_at_end() {
            return (offset_bytes, BLOCK_BYTES);
        }
        self.fragments_due -= 1.0;
        self.fragments_read += 1;
        (offset_bytes, FRAGMENT_BYTES * (1 + self.fragments_read % 3))
    }

    fn write(&mut self, random: &mut Random) -> (u64, u64) {
        // A file is written in one go: the shares are of writes, and it is several of them.
        let Disk { hot_share, warm_share, file_blocks, .. } = self.disk;
        let files_weight = (1.0 - hot_share - warm_share) / file_blocks;
        let kind = random.uniform() * (hot_share + warm_share + files_weight);
        if !self.written.is_at_end() || kind > hot_share + warm_share {
            let files = self.write_files;
            let offset_bytes = files.next(&mut self.written, || random.below(files.count));
            // Only the last block of a file is a fragment, and the same each time that the file is
            // written.
            let share = fragment_share(self.disk.write_kb) * file_blocks;
            let share = if self.written.is_at_end() { share } else { 0.0 };
            return (offset_bytes, block_or_fragment(self.written.file, share));
        }
        let is_hot = kind <= hot_share;
        let renew = is_hot && random.below(self.disk.hot_writes) == 0;
        let blocks = if is_hot { &mut self.hot } else { &mut self.warm };
        let place = random.below(blocks.len() as u64) as usize;
        if renew {
            blocks[place] = self.metadata_next;
            self.metadata_next += 1;
        }
        let number = blocks[place];
        let slot = self.metadata.slot(number % METADATA_BLOCKS);
        let offset_bytes = slot * (SPAN_BLOCKS / METADATA_BLOCKS) * BLOCK_BYTES;
        (offset_bytes, block_or_fragment(number, fragment_share(self.disk.write_kb)))
    }
}

impl Pattern for Snake {
    fn next(&mut self, random: &mut Random) -> Access {
        if random.below(SAME_KIND_REQUESTS) == 0 {
            let share = self.disk.writes as f64 / self.requests() as f64;
            self.is_writing = random.chance(share);
        }
        let (operation, (offset_bytes, size_bytes)) = match self.is_writing {
            true => (Operation::Write, self.write(random)),
            false => (Operation::Read, self.read(random)),
        };
        Access { operation, offset_bytes, size_bytes, flags: Flags::default() }
    }
}
