//! An engine on two byte arrays: create, write, flush, crash, recover, read, drain. The smallest
//! whole driver, to be copied. A real one starts the I/Os and goes on; this one does each at once.

use std::collections::VecDeque;

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
use dcd_engine::{
    Buffer, DataDiskInfo, Device, Duration, Engine, EngineConfig, Geometry, Input, Io, IoData,
    IoDone, IoOperation, Lba, LbaRange, Operation, Output, Phase, Reply, Request, RequestError,
    RequestId, Superblock, Time, Uuid,
};

const LINE: usize = 4096;
const DATA_DISK: DataDiskInfo =
    DataDiskInfo { blocks: 8192, logical_block_size: 512, physical_sector_size: 4096 };

/// A disk with a volatile cache: what was not flushed is lost in a crash.
struct MemoryDisk {
    current: Vec<u8>,
    durable: Vec<u8>,
}

impl MemoryDisk {
    fn new(bytes: u64) -> MemoryDisk {
        MemoryDisk { current: vec![0; bytes as usize], durable: vec![0; bytes as usize] }
    }

    fn at(&mut self, offset: u64, length: usize) -> &mut [u8] {
        &mut self.current[offset as usize..][..length]
    }

    fn flush(&mut self) {
        self.durable.copy_from_slice(&self.current);
    }

    fn crash(&mut self) {
        self.current.copy_from_slice(&self.durable);
    }
}

/// Makes an empty cache for the data-disk: once, not at each start.
fn create_cache(cache_disk: &mut MemoryDisk) {
    let geometry = Geometry::fit(cache_disk.current.len() as u64, 64 << 10).expect("it fits");
    let first_bytes = create(CreateOptions {
        uuid: Uuid(*b"sixteen at rando"),
        geometry,
        data_disk: DATA_DISK,
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        volume: None,
        data_offset_bytes: 0,
        has_end_mark: false,
        has_legs: false,
    });
    // The last two are the superblocks. A crash before the flush leaves a disk that is no cache,
    // a crash after it a whole one.
    let superblocks = first_bytes.len() - 2;
    for (index, (offset, bytes)) in first_bytes.iter().enumerate() {
        if index == superblocks {
            cache_disk.flush();
        }
        cache_disk.at(*offset, bytes.len()).copy_from_slice(bytes.bytes());
    }
    cache_disk.flush();
}

struct Driver {
    engine: Engine,
    cache_disk: MemoryDisk,
    data_disk: MemoryDisk,
    /// I/Os that the engine has asked for and not heard of.
    ios: VecDeque<Io>,
    replies: VecDeque<Reply>,
    now: Time,
    wake_up: Option<Time>,
    requests: u64,
}

impl Driver {
    /// Opens a cache; after a crash that includes the recovery.
    fn open(mut cache_disk: MemoryDisk, data_disk: MemoryDisk) -> Driver {
        let [first, second] =
            SUPERBLOCK_OFFSETS.map(|offset| cache_disk.at(offset, SUPERBLOCK_SIZE).to_vec());
        let superblock = Superblock::newest(&first, &second).expect("a cache");
        // Memory that outlives the process would also keep what was acknowledged and not flushed.
        let config = EngineConfig::default();
        let memory = Buffer::zeroed(Engine::segment_memory_size(&superblock.geometry, &config));
        let size = cache_disk.current.len() as u64;
        let now = Time::ZERO;
        let engine = Engine::open(now, superblock, size, DATA_DISK, config, Box::new(memory));
        let mut driver = Driver {
            engine: engine.expect("it can be opened"),
            cache_disk,
            data_disk,
            ios: VecDeque::new(),
            replies: VecDeque::new(),
            now,
            wake_up: None,
            requests: 0,
        };
        driver.input(Input::Timeout);
        while *driver.engine.phase() == Phase::Opening {
            driver.step();
        }
        assert_eq!(*driver.engine.phase(), Phase::Running);
        driver
    }

    /// One input, and all outputs that it causes, until the engine waits.
    fn input(&mut self, input: Input) {
        self.engine.handle_input(self.now, input);
        loop {
            match self.engine.poll_output() {
                Output::Io(io) => self.ios.push_back(io),
                Output::Reply(reply) => self.replies.push_back(reply),
                // Only with DestagePolicyKind::Ordered: nobody keeps a copy of the data-disk.
                Output::KeepWindow { window } => {
                    self.engine.handle_input(self.now, Input::WindowKept { window, is_kept: true });
                }
                Output::Wait { until } => {
                    self.wake_up = until;
                    return;
                }
            }
        }
    }

    /// The next thing that happens: an I/O ends, or the time comes that the engine waits for.
    fn step(&mut self) {
        if let Some(io) = self.ios.pop_front() {
            self.now = self.now.after(Duration::from_micros(100));
            let done = self.carry_out(io);
            return self.input(Input::IoDone(done));
        }
        let until = self.wake_up.expect("an engine with work to do waits for something");
        self.now = self.now.max(until);
        self.input(Input::Timeout);
    }

    /// Does an I/O. Its buffer goes back to the engine, also when it fails.
    fn carry_out(&mut self, io: Io) -> IoDone {
        let disk = match io.device {
            Device::CacheDisk => &mut self.cache_disk,
            Device::DataDisk => &mut self.data_disk,
            Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                unreachable!("only where there are several")
            }
        };
        let mut returned = None;
        match io.operation {
            IoOperation::Read { offset, mut buffer } => {
                let length = buffer.len();
                buffer.bytes_mut().copy_from_slice(disk.at(offset, length));
                returned = Some(buffer);
            }
            IoOperation::Write { offset, data: IoData::Owned(buffer), fua } => {
                disk.at(offset, buffer.len()).copy_from_slice(buffer.bytes());
                if fua {
                    disk.flush(); // more than is asked for, never less
                }
                returned = Some(buffer);
            }
            IoOperation::Write { offset, data: IoData::SegmentMemory(range), fua } => {
                let bytes = &self.engine.segment_memory()[range];
                disk.at(offset, bytes.len()).copy_from_slice(bytes);
                if fua {
                    disk.flush();
                }
            }
            IoOperation::WriteZeroes { offset, length, .. } => {
                disk.at(offset, length as usize).fill(0);
            }
            IoOperation::Flush => disk.flush(),
        }
        IoDone { id: io.id, result: Ok(()), buffer: returned }
    }

    /// A request, from here to its reply.
    fn request(&mut self, operation: Operation) -> Result<Option<Buffer>, RequestError> {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.input(Input::Request(Request { id, operation, fua: false }));
        loop {
            if let Some(reply) = self.replies.pop_front() {
                assert_eq!(reply.id, id, "one request at a time");
                return reply.result.map(|()| reply.buffer);
            }
            self.step();
        }
    }

    fn write(&mut self, start: Lba, bytes: &[u8]) {
        let data = Buffer::copy_of(bytes);
        self.request(Operation::Write { start, data }).expect("a write");
    }

    fn read(&mut self, range: LbaRange) -> Vec<u8> {
        let buffer = self.request(Operation::read(range)).expect("a read");
        buffer.expect("a read that succeeds brings its data").bytes().to_vec()
    }
}

fn main() {
    let mut cache_disk = MemoryDisk::new(8 << 20);
    create_cache(&mut cache_disk);
    let mut driver = Driver::open(cache_disk, MemoryDisk::new(DATA_DISK.bytes()));

    // Acknowledged; the first is durable with the flush, the second nowhere but in memory.
    driver.write(Lba(0), &[1; LINE]);
    driver.request(Operation::Flush).expect("a flush");
    driver.write(Lba(8), &[2; LINE]);
    assert_eq!(driver.read(LbaRange::new(8, 8)), [2; LINE]);

    // The power fails: engine, segment memory and all that was not flushed are gone.
    let Driver { mut cache_disk, mut data_disk, .. } = driver;
    cache_disk.crash();
    data_disk.crash();
    assert_eq!(data_disk.at(0, LINE), [0; LINE], "all there is of the first is in the log");

    let mut driver = Driver::open(cache_disk, data_disk);
    assert_eq!(driver.read(LbaRange::new(0, 8)), [1; LINE], "recovered");
    assert_eq!(driver.read(LbaRange::new(8, 8)), [0; LINE], "lost: it was never flushed");

    // To the data-disk with everything, and a closed cache.
    driver.request(Operation::Drain).expect("a drain");
    assert_eq!(driver.data_disk.at(0, LINE), [1; LINE]);
    driver.request(Operation::Shutdown).expect("a shutdown");
    assert_eq!(*driver.engine.phase(), Phase::Closed);
    let counters = driver.engine.counters();
    println!("wrote, crashed, recovered, drained: {} lines destaged", counters.destaged_lines);
}
