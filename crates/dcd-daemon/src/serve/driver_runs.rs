//! Runs of the driver (event loop, ring, disks) under a simulated kernel: `dcd fuzz --driver`.
//!
//! The engine's own runs begin at its boundary, where every I/O ends once, whole, and when it is
//! said. Here is what makes that so: the ring that puts short transfers together and waits beside a
//! full queue, the loop that takes completions, tells the time and answers. A third of the runs
//! have a labelled data-disk; from seed 1,048,576 on the mode is switched. One seed chooses the
//! kernel's habits ([`SimulatedKernel`]), the settings and the requests; half of the runs also have
//! an I/O that fails or is cancelled now and then. What must hold:
//!
//! 1. Each request is answered once, also behind pauses of hours, and the end comes when it is
//!    asked for.
//! 2. Reads show what was written last; in runs without failures nothing fails, and no disk is
//!    taken for hung.
//! 3. After the death of the process at any turn, of an opening, of serving or of an end, the next
//!    session opens with all that was acknowledged. Behind an end in order the label of the
//!    data-disk and the superblock fit each other alone.
//! 4. Of a cache-disk that is shared, which every fourth is, nothing changes outside of the share.
//!    Half of them are in two pieces of the disk; from seed 2,097,152 on all are shared, and room
//!    moves between the share and another, which writes to all that it has.
//! 5. Memory is not touched while the kernel has it, and the loop never waits for nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::data_label::{DATA_LABEL_BYTES, DATA_LABEL_OFFSETS, DataLabel, LabelState};
use dcd_engine::format::geometry::Geometry;
use dcd_engine::format::share_directory::{
    DIRECTORY_COPY_BYTES, NewShare, ShareState, Window, Windows,
};
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_engine::{
    AckMode, Buffer, DataDiskInfo, EngineConfig, Lba, LbaRange, Mode, Operation, Phase, Reply,
    TieredEngine, Uuid,
};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::device_spec::DeviceSpec;
use crate::device::network::TakeOver;
use crate::device::shares::{DirectoryChange, directory_at, make_directory, share_at};
use crate::event_loop::EventLoop;
use crate::event_loop::submitter::Completion;
use crate::pair::book::PairBook;
use crate::pair::{DataDiskSize, DataDisks, PairOptions};
use crate::ring::simulated_kernel::{Counts, Habits, Random, SimulatedKernel};
use crate::serve::left_over_room::give_back_left_over;
use crate::serve::open_pair::open_pair_on;

const LINES: u64 = 192;
const BLOCKS: u64 = LINES * LINE_SIZE / BLOCK_SIZE;
const SEGMENT_BYTES: u64 = 64 << 10;
const CACHE_BYTES: u64 = 2 << 20;
const IO_TIMEOUT: Duration = Duration::from_secs(2);
const HOUR: u64 = 3600 * 1_000_000_000;
/// From this seed on the mode is switched.
const MODES_FROM: u64 = 1 << 20;
/// From this seed on room moves between shares.
const ROOM_MOVES_FROM: u64 = 1 << 21;
const MIB: u64 = 1 << 20;
/// The disk on which it is then, or if it is shared at all.
const LARGE_DISK_BYTES: u64 = 9 * MIB;
const SHARED_DISK_BYTES: u64 = 6 * MIB;
/// Caches that have the other shares.
const BEFORE: Uuid = Uuid([2; 16]);
const BEHIND: Uuid = Uuid([3; 16]);
/// Turns within which something must have happened that was asked for.
const TURNS_MAX: u32 = 20_000;

/// What a run has done.
#[derive(Clone, Copy, Default, Debug)]
pub struct DriverReport {
    /// Requests answered.
    pub requests: u64,
    /// Times that the process was stopped for an hour.
    pub pauses: u64,
    /// Times that it died.
    pub kills: u64,
    /// Times that a mode was asked for.
    pub modes_wanted: u64,
    /// Times that the log got another size, in a share that did.
    pub room_moved: u64,
    /// What the kernel has done.
    pub kernel: Counts,
}

/// One run. What is wrong, if anything is.
pub fn run(seed: u64) -> Result<DriverReport, String> {
    let folder = Folder::new(seed).map_err(|error| format!("no folder for the disks: {error}"))?;
    let mut run = Run::new(seed, &folder.0)?;
    let sessions = if run.is_faulty { 3 } else { 6 };
    for session in 0..1 + run.random.below(sessions) {
        let ended = run.session().and_then(|()| run.look_beside());
        ended.map_err(|what| format!("session {session}: {what}"))?;
        // A cache-disk that has failed may hold anything.
        if run.is_over {
            break;
        }
    }
    Ok(run.report)
}

/// A directory with the share of this cache, in so many pieces, and others around it that hold
/// something.
fn make_shares(
    path: &Path,
    cache: Uuid,
    bytes: u64,
    pieces: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::write(path, vec![0x5a; bytes as usize])?;
    make_directory(&DeviceFile::open(path)?, Uuid([1; 16]))?;
    let mut change = DirectoryChange::begin(path)?;
    for (name, cache, size_bytes) in
        [("before", BEFORE, MIB), ("own", cache, CACHE_BYTES / pieces), ("behind", BEHIND, MIB)]
    {
        let new = NewShare { name: name.into(), cache, size_bytes, data_disk: String::new() };
        change.directory.allocate(new)?;
        change.directory.set_state(cache, ShareState::InUse)?;
    }
    let windows = change.directory.resize(cache, CACHE_BYTES)?;
    change.write()?;
    match windows.iter().count() as u64 == pieces {
        true => Ok(()),
        false => Err("the share is elsewhere".into()),
    }
}

/// What a disk that is shared holds outside of this share; if room moves, in the other shares.
fn beside_share(path: &Path, room_moves: bool) -> Result<Vec<u8>, String> {
    let mut bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let part = |window: &Window| window.offset_bytes as usize..window.end() as usize;
    if room_moves {
        let others = [windows_of(path, "before")?, windows_of(path, "behind")?];
        let parts = others.iter().flat_map(Windows::iter).map(part);
        return Ok(parts.flat_map(|part| bytes[part].to_vec()).collect());
    }
    for window in windows_of(path, "own")?.iter() {
        bytes[part(window)].fill(0);
    }
    Ok(bytes)
}

/// The copy of the directory that counts cannot be read any more.
fn lose_newer_copy(path: &Path) -> std::io::Result<()> {
    let disk = std::fs::File::options().read(true).write(true).open(path)?;
    if let Ok(directory) = directory_at(path)? {
        disk.write_all_at(&[0xee; DIRECTORY_COPY_BYTES], directory.offset())?;
    }
    Ok(())
}

/// Where a share is, as the directory says.
fn windows_of(path: &Path, share: &str) -> Result<Windows, String> {
    let share = share_at(&path.join(share)).map_err(|error| error.to_string())?;
    share.map(|share| share.windows).map_err(|error| error.to_string())
}

struct Folder(PathBuf);

impl Folder {
    fn new(seed: u64) -> std::io::Result<Folder> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("dcd-driver-{}-{seed}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What was asked.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Read {
        first: u64,
        blocks: u64,
    },
    Change {
        first: u64,
        blocks: u64,
        value: u8,
    },
    /// Another size of the log, which may be refused.
    Resize,
    Other,
}

type Answers = Arc<Mutex<Vec<(u64, Reply)>>>;

/// From a start to an end.
struct Session {
    event_loop: EventLoop<TieredEngine>,
    kernel: SimulatedKernel,
    /// What nobody has looked at yet.
    answers: Answers,
}

struct Run {
    random: Random,
    folder: PathBuf,
    config: EngineConfig,
    is_faulty: bool,
    switches_modes: bool,
    moves_room: bool,
    /// Values that each block may have.
    may_be: Vec<Vec<u8>>,
    asked: BTreeMap<u64, Asked>,
    next: u64,
    next_value: u8,
    report: DriverReport,
    /// It takes requests.
    may_ask: bool,
    /// So many turns before the process dies.
    dies_in: Option<u64>,
    /// Where the payload of the data-disk begins.
    data_offset_bytes: u64,
    /// Of a cache-disk that is shared, what it holds outside of the share.
    beside: Option<Vec<u8>>,
    /// There is no next start.
    is_over: bool,
}

impl Run {
    fn new(seed: u64, folder: &Path) -> Result<Run, String> {
        let mut random = Random::new(seed);
        let geometry = Geometry::fit(CACHE_BYTES, SEGMENT_BYTES).map_err(|e| format!("{e:?}"))?;
        let data_disk =
            DataDiskInfo { blocks: BLOCKS, logical_block_size: 512, physical_sector_size: 512 };
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&random.next().to_le_bytes());
        uuid[8..].copy_from_slice(&seed.to_le_bytes());
        let data_offset_bytes = random.pick(&[0, 0, 1 << 17]);
        let path = folder.join("c");
        let moves_room = seed >= ROOM_MOVES_FROM;
        let is_shared = seed % 4 == 3 || moves_room;
        let shared_bytes = if moves_room { LARGE_DISK_BYTES } else { SHARED_DISK_BYTES };
        let cache = std::fs::File::create(&path).map_err(|e| e.to_string())?;
        cache.set_len(CACHE_BYTES).map_err(|e| e.to_string())?;
        if is_shared {
            let pieces = 1 + seed / 4 % 2;
            make_shares(&path, Uuid(uuid), shared_bytes, pieces).map_err(|e| e.to_string())?;
        }
        let windows = if is_shared { Some(windows_of(&path, "own")?) } else { None };
        for (offset, bytes) in create(CreateOptions {
            uuid: Uuid(uuid),
            geometry,
            data_disk,
            data_disk_serial: String::new(),
            created_unix_seconds: 0,
            volume: None,
            data_offset_bytes,
            has_end_mark: false,
            has_legs: false,
        }) {
            let mut bytes = bytes.bytes();
            let mut offset = offset;
            while !bytes.is_empty() {
                let place = windows.as_ref().map(|windows| windows.locate(offset));
                let whole = (offset, bytes.len() as u64);
                let (at, piece) = place.unwrap_or(Some(whole)).ok_or("behind the share")?;
                let (now, rest) = bytes.split_at(bytes.len().min(piece as usize));
                cache.write_all_at(now, at).map_err(|e| e.to_string())?;
                offset += now.len() as u64;
                bytes = rest;
            }
        }
        let data = std::fs::File::create(folder.join("d")).map_err(|e| e.to_string())?;
        data.set_len(data_offset_bytes + BLOCKS * BLOCK_SIZE).map_err(|e| e.to_string())?;
        if data_offset_bytes > 0 {
            let label = DataLabel {
                uuid: Uuid(uuid),
                writing: 0,
                epoch: 0,
                epoch_max: 0,
                state: LabelState::Detached,
                payload_offset_bytes: data_offset_bytes,
                payload_bytes: BLOCKS * BLOCK_SIZE,
            };
            data.write_all_at(label.encode().bytes(), label.offset()).map_err(|e| e.to_string())?;
        }
        let millis = dcd_engine::Duration::from_millis;
        let config = EngineConfig {
            ack: random.pick(&[AckMode::Memory, AckMode::Log, AckMode::Durable]),
            max_delay: millis(random.pick(&[2, 20, 100])),
            bypass_threshold_bytes: random.pick(&[16 << 10, 1 << 20]),
            idle_threshold_max: millis(random.pick(&[5, 50, 500])),
            idle_threshold_min: millis(1),
            segment_buffers: 4,
            io_timeout: dcd_engine::Duration(IO_TIMEOUT.as_nanos() as u64),
            full_timeout: dcd_engine::Duration(3 * IO_TIMEOUT.as_nanos() as u64),
            ..EngineConfig::default()
        };
        Ok(Run {
            is_faulty: random.one_in(2),
            switches_modes: seed >= MODES_FROM,
            random,
            folder: folder.to_owned(),
            config,
            may_be: vec![vec![0]; BLOCKS as usize],
            asked: BTreeMap::new(),
            next: 0,
            next_value: 0,
            report: DriverReport::default(),
            may_ask: false,
            dies_in: None,
            data_offset_bytes,
            beside: if is_shared { Some(beside_share(&path, moves_room)?) } else { None },
            moves_room,
            is_over: false,
        })
    }

    /// What is other caches' has not changed.
    fn look_beside(&self) -> Result<(), String> {
        let Some(expected) = &self.beside else { return Ok(()) };
        let found = beside_share(&self.folder.join("c"), self.moves_room)?;
        match expected.iter().zip(&found).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} of those outside of the share has changed")),
        }
    }

    fn habits(&mut self) -> Habits {
        let random = &mut self.random;
        // Looked at, not drawn: what else a seed stands for stays.
        let has_memory = random.clone().one_in(4);
        let refused = [
            0,
            libc::FALLOC_FL_PUNCH_HOLE,
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE,
        ];
        Habits {
            queue: random.pick(&[2, 8, 1024]),
            completions: random.pick(&[1, 4, 4096]),
            made_at_once: random.pick(&[1, 3, 20]),
            is_busy_when_full: random.one_in(2),
            short_in: random.pick(&[3, 20]),
            refused_modes: random.pick(&refused),
            slow: IO_TIMEOUT.as_nanos() as u64,
            has_memory,
        }
    }

    /// From a start to a stop in order.
    fn session(&mut self) -> Result<(), String> {
        // It must outlive all handles of the kernel, and is eight bytes.
        let time: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        let habits = self.habits();
        let kernel = SimulatedKernel::new(time, habits, Random::new(self.random.next()));
        let file = |name: &str| DeviceSpec::Plain(self.folder.join(name));
        let options = PairOptions {
            cache_disks: file(if self.beside.is_some() { "c/own" } else { "c" }).into(),
            data_disks: DataDisks {
                disks: vec![file("d")],
                replacements: Vec::new(),
                degraded: false,
            },
            take_over: TakeOver::No,
            not_for_volumes: None,
            engine: self.config.clone(),
            one_disk: Some(false),
            memory_directory: Some(self.folder.clone()),
            memory_lost: false,
            nvram: None,
            nvram_lost: false,
            pairs: PairBook::default(),
            size: DataDiskSize::Same,
            memory: None,
            quiet: true,
        };
        let clock = Clock::simulated(time);
        let pair = open_pair_on(&options, None, clock, Box::new(kernel.clone()));
        let pair = pair.map_err(|error| format!("it does not open: {error}"))?;
        let answers = Answers::default();
        let mut session = Session { event_loop: pair.event_loop, kernel, answers };
        let ended = self.serve(&mut session);
        let kernel = session.kernel.clone();
        let counts = kernel.counts();
        self.report.kernel.operations += counts.operations;
        self.report.kernel.short += counts.short;
        self.report.kernel.interrupted += counts.interrupted;
        self.report.kernel.failed += counts.failed;
        self.report.kernel.calls_refused += counts.calls_refused;
        self.report.kernel.beside_the_queue += counts.beside_the_queue;
        if self.dies_in == Some(0) {
            self.die(session)?;
            return kernel.violation().map_or(Ok(()), Err);
        }
        ended?;
        let is_closed = *session.event_loop.phase() == Phase::Closed;
        let (engine, is_empty) = session.event_loop.close();
        if !is_empty {
            return Err("something is under way behind the end".into());
        }
        self.is_over = !is_closed || engine.cache_disk_failure().is_some();
        if self.data_offset_bytes > 0 && !self.is_over && !self.is_faulty {
            self.look_at_label(engine.superblock().data_label_epoch)?;
        }
        kernel.violation().map_or(Ok(()), Err)
    }

    fn serve(&mut self, session: &mut Session) -> Result<(), String> {
        self.may_ask = false;
        // Faults may be a reason not to have what was acknowledged; and most of what is of interest
        // is short.
        let may_die = !self.is_faulty && self.random.one_in(2);
        let most = self.random.pick(&[40, 400]);
        self.dies_in = may_die.then(|| 1 + self.random.below(most));
        for turn in 0.. {
            match session.event_loop.phase() {
                Phase::Running => break,
                Phase::Opening if turn < TURNS_MAX => self.turn(session)?,
                // An error may be a reason not to start.
                Phase::Failed(_) if self.is_faulty => return Ok(()),
                phase => return Err(format!("it does not start: {phase:?}")),
            }
        }
        if self.moves_room {
            give_back_left_over(&session.event_loop, true);
            if !self.is_faulty {
                self.look_at_room(session)?;
            }
        }
        self.may_ask = true;
        for _ in 0..40 + self.random.below(200) {
            match self.random.below(20) {
                0..9 => self.ask(session),
                9 if self.is_faulty => {
                    session.kernel.fail_next(self.random.pick(&[
                        Errno::IO,
                        Errno::CANCELED,
                        Errno::NOSPC,
                    ]));
                }
                11 if self.switches_modes => self.switch_mode(session)?,
                12 if self.moves_room && self.random.one_in(3) => self.move_room(session)?,
                10 => {
                    let idle = Duration::from_millis(self.random.below(400));
                    self.turn_for(session, idle)?;
                }
                _ => self.turn(session)?,
            }
        }
        self.wait_for_all(session)?;
        self.look_at_disks(session)?;
        let read = self.look_at_all(session);
        if self.dies_in == Some(0) {
            return read;
        }
        if !self.is_faulty && self.dies_in.is_none() && self.random.one_in(3) {
            self.dies_in = Some(1 + self.random.below(30));
        }
        let stopped = self.stop(session);
        read.and(stopped)
    }

    /// Most switches are taken back later than they take; some are not.
    fn switch_mode(&mut self, session: &mut Session) -> Result<(), String> {
        let modes = [Mode::WriteBack, Mode::WriteBack, Mode::WriteAround, Mode::PassThrough];
        self.config.mode = self.random.pick(&modes);
        self.report.modes_wanted += 1;
        session.event_loop.configure(&self.config).map_err(|error| format!("the mode: {error}"))
    }

    /// What is left over of a change that was cut off is not kept.
    fn look_at_room(&self, session: &Session) -> Result<(), String> {
        let superblock = session.event_loop.core().superblock();
        let windows = windows_of(&self.folder.join("c"), "own")?;
        match superblock.geometry_on(windows.size_bytes()) {
            Ok(geometry) if geometry.segments > superblock.geometry.segments => Err(format!(
                "the share has {} bytes, and its log ends at {}",
                windows.size_bytes(),
                superblock.end()
            )),
            _ => Ok(()),
        }
    }

    /// The share gets another size, and what it gives back, or leaves, another takes and writes
    /// over, while requests are under way. The process may die between any two steps.
    fn move_room(&mut self, session: &mut Session) -> Result<(), String> {
        let path = self.folder.join("c");
        if self.random.one_in(2) {
            self.move_neighbour(&path, MIB)?;
        }
        let bytes = MIB * self.random.pick(&[2, 3, 4, 5]) - self.random.pick(&[0, 0, 4096]);
        let rooms = session.event_loop.rooms().map_err(|error| error.to_string())?;
        let [(place, share)] = &rooms[..] else { return Err("it is one share".into()) };
        let before = windows_of(&path, "own")?.size_bytes();
        // 1.
        let is_taken = {
            let may_die = self.dies_in.is_some() && self.random.one_in(4);
            let event_loop = &session.event_loop;
            let mut tell =
                |windows| !may_die && event_loop.set_windows(*place, share.disk(), windows);
            let is_taken = share.take(bytes, &mut tell).is_ok();
            if may_die {
                return self.die_here();
            }
            is_taken
        };
        // What has been taken both copies say.
        if windows_of(&path, "own")?.size_bytes() > before && self.random.one_in(3) {
            lose_newer_copy(&path).map_err(|error| error.to_string())?;
        }
        // 2. What others get of the directory is written over at once.
        self.move_neighbour(&path, u64::MAX)?;
        let is_tried = is_taken && !self.random.one_in(4);
        if is_tried {
            let geometry = session.event_loop.core().superblock().geometry;
            self.give(session, Operation::Resize { cache_disk_bytes: bytes }, Asked::Resize);
            for _ in 0..TURNS_MAX {
                if !self.asked.values().any(|asked| matches!(asked, Asked::Resize)) {
                    break;
                }
                self.ask(session);
                self.turn(session)?;
            }
            let is_done = session.event_loop.core().superblock().geometry != geometry;
            self.report.room_moved += u64::from(is_done);
        }
        // 3.
        if self.is_faulty && session.event_loop.core().cache_disk_failure().is_some() {
            return Ok(());
        }
        let may_die = self.dies_in.is_some() && self.random.one_in(4);
        let event_loop = &session.event_loop;
        let mut tell = |windows| !may_die && event_loop.set_windows(*place, share.disk(), windows);
        // Somebody has asked for that much, and has it or not.
        let keep = if is_taken { bytes } else { before };
        share.give_back(keep, &mut tell).map_err(|error| error.to_string())?;
        if may_die {
            return self.die_here();
        }
        let has = session.event_loop.room_bytes(*place);
        let said = windows_of(&path, "own")?.size_bytes();
        if has != Some(said) {
            return Err(format!("{has:?} bytes are taken for the share's, which has {said}"));
        }
        if self.random.one_in(2) {
            self.move_neighbour(&path, u64::MAX)?;
        }
        Ok(())
    }

    fn die_here(&mut self) -> Result<(), String> {
        self.dies_in = Some(0);
        Err("the process died".into())
    }

    /// The share behind gets a size, or all that is free, and writes to all that it has.
    fn move_neighbour(&mut self, path: &Path, size_bytes: u64) -> Result<(), String> {
        let text = |error: DeviceError| error.to_string();
        let mut change = DirectoryChange::begin(path).map_err(text)?;
        let known = change.directory.find("behind").ok_or("it has gone")?.windows.clone();
        let most = known.size_bytes() + change.directory.free_bytes();
        let windows = change.directory.resize(BEHIND, size_bytes.min(most));
        let windows = windows.map_err(|error| error.to_string())?;
        change.write().map_err(text)?;
        drop(change);
        self.next_value = self.next_value.wrapping_add(1).max(1);
        let disk = std::fs::File::options().write(true).open(path).map_err(|e| e.to_string())?;
        for window in windows.iter() {
            let bytes = vec![self.next_value; window.size_bytes as usize];
            disk.write_all_at(&bytes, window.offset_bytes).map_err(|error| error.to_string())?;
        }
        self.beside = Some(beside_share(path, true)?);
        Ok(())
    }

    /// What was answered holds. What was asked may have been done.
    fn die(&mut self, session: Session) -> Result<(), String> {
        self.report.kills += 1;
        session.kernel.kill();
        let answered: Vec<_> = session.answers.lock().expect("one thread").drain(..).collect();
        for (id, reply) in answered {
            self.answered(id, &reply)?;
        }
        drop(session.event_loop.close());
        for (_, asked) in std::mem::take(&mut self.asked) {
            if let Asked::Change { first, blocks, value } = asked {
                for may_be in &mut self.may_be[first as usize..(first + blocks) as usize] {
                    may_be.push(value);
                }
            }
        }
        Ok(())
    }

    /// Behind an end in order.
    fn look_at_label(&self, epoch: u64) -> Result<(), String> {
        let data = std::fs::read(self.folder.join("d")).map_err(|error| error.to_string())?;
        let copies = DATA_LABEL_OFFSETS.map(|at| &data[at as usize..][..DATA_LABEL_BYTES]);
        let label = DataLabel::newest(copies[0], copies[1]).map_err(|error| error.to_string())?;
        match (label.epoch, label.epoch_max) == (epoch, epoch) {
            true => Ok(()),
            false => Err(format!("the superblock has epoch {epoch}, and {label:?}")),
        }
    }

    fn look_at_disks(&self, session: &Session) -> Result<(), String> {
        let counters = session.event_loop.core().counters();
        let errors = counters.cache_disk_errors + counters.data_disk_errors;
        match !self.is_faulty && errors > 0 {
            true => Err(format!("{errors} errors of disks that had none")),
            false => Ok(()),
        }
    }

    /// A turn of the loop, before which the process may be stopped: rather when somebody has waited
    /// for long.
    fn turn(&mut self, session: &mut Session) -> Result<(), String> {
        let wait = Duration::from_micros(self.random.below(10_000));
        self.turn_for(session, wait)
    }

    fn turn_for(&mut self, session: &mut Session, wait: Duration) -> Result<(), String> {
        let is_nearly_late = session.kernel.oldest() > IO_TIMEOUT.as_nanos() as u64 / 1000 * 985;
        // Not while something is slow: a pause uses up a part of its time, which it needs.
        let is_paused = match session.kernel.has_slow() {
            true => is_nearly_late && self.random.one_in(2),
            false => self.random.one_in(100),
        };
        if is_paused {
            // Others are under way, too, whose ends are seen before that of the slow one.
            if is_nearly_late && self.may_ask {
                (0..8).for_each(|_| self.ask(session));
                let turned = session.event_loop.turn(Some(Duration::ZERO));
                turned.map_err(|error| format!("the loop has ended: {error}"))?;
            }
            self.report.pauses += 1;
            session.kernel.pause(HOUR);
        }
        if let Some(left) = &mut self.dies_in {
            *left -= 1;
            if *left == 0 {
                return Err("the process died".into());
            }
        }
        session
            .event_loop
            .turn(Some(wait))
            .map_err(|error| format!("the loop has ended: {error}"))?;
        if let Some(violation) = session.kernel.violation() {
            return Err(violation);
        }
        for (id, reply) in session.answers.lock().expect("one thread").drain(..).collect::<Vec<_>>()
        {
            self.answered(id, &reply)?;
        }
        Ok(())
    }

    fn ask(&mut self, session: &mut Session) {
        let lines = self.random.pick(&[1, 1, 2, 5, 12]);
        let (first, blocks) = match self.random.one_in(3) {
            true => {
                let blocks = 1 + self.random.below(lines * 8);
                (self.random.below(BLOCKS - blocks), blocks)
            }
            false => (self.random.below(LINES - lines) * 8, lines * 8),
        };
        let overlaps = |asked: &Asked| match *asked {
            Asked::Read { first: other, blocks: more }
            | Asked::Change { first: other, blocks: more, .. } => {
                first < other + more && other < first + blocks
            }
            Asked::Resize | Asked::Other => false,
        };
        if self.asked.len() > 40 || self.asked.values().any(overlaps) {
            return;
        }
        let range = LbaRange::new(first, blocks);
        let (operation, asked) = match self.random.below(12) {
            0..5 => {
                self.next_value = self.next_value.wrapping_add(1).max(1);
                let value = self.next_value;
                let mut data = Buffer::zeroed((blocks * BLOCK_SIZE) as usize);
                for (at, block) in data.bytes_mut().chunks_mut(BLOCK_SIZE as usize).enumerate() {
                    fill(block, first + at as u64, value);
                }
                (
                    Operation::Write { start: Lba(first), data },
                    Asked::Change { first, blocks, value },
                )
            }
            5..9 => (Operation::read(range), Asked::Read { first, blocks }),
            9 => {
                let may_unmap = self.random.one_in(2);
                (
                    Operation::WriteZeroes { range, may_unmap },
                    Asked::Change { first, blocks, value: 0 },
                )
            }
            10 => (Operation::Discard { range }, Asked::Change { first, blocks, value: 0 }),
            _ => (Operation::Flush, Asked::Other),
        };
        self.give(session, operation, asked);
    }

    fn give(&mut self, session: &mut Session, operation: Operation, asked: Asked) {
        let id = self.next;
        self.next += 1;
        self.asked.insert(id, asked);
        let answers = session.answers.clone();
        let completion = Completion::new(move |reply| {
            answers.lock().expect("one thread").push((id, reply));
        });
        let fua = self.random.one_in(5) && matches!(asked, Asked::Change { .. });
        match fua {
            true => session.event_loop.request_fua(operation, completion),
            false => session.event_loop.request(operation, completion),
        }
    }

    fn answered(&mut self, id: u64, reply: &Reply) -> Result<(), String> {
        let asked =
            self.asked.remove(&id).ok_or_else(|| format!("request {id} is answered twice"))?;
        self.report.requests += 1;
        if let (Err(error), false, false) =
            (&reply.result, self.is_faulty, matches!(asked, Asked::Resize))
        {
            return Err(format!("{asked:?}: {error:?}, and nothing has failed"));
        }
        match (asked, &reply.result) {
            (Asked::Resize | Asked::Other, _) | (Asked::Read { .. }, Err(_)) => {}
            (Asked::Change { first, blocks, value }, result) => {
                for may_be in &mut self.may_be[first as usize..(first + blocks) as usize] {
                    if result.is_ok() {
                        may_be.clear();
                    }
                    may_be.push(value);
                }
            }
            (Asked::Read { first, blocks }, Ok(())) => {
                let buffer = reply.buffer.as_ref().ok_or("a read without data")?;
                if buffer.len() as u64 != blocks * BLOCK_SIZE {
                    return Err(format!("{asked:?}: {} bytes", buffer.len()));
                }
                for (at, block) in buffer.bytes().chunks(BLOCK_SIZE as usize).enumerate() {
                    let number = first + at as u64;
                    let may_be = &self.may_be[number as usize];
                    if !may_be.iter().any(|value| is_filled(block, number, *value)) {
                        let found = &block[..16];
                        return Err(format!("block {number}: {found:?} instead of {may_be:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    fn wait_for_all(&mut self, session: &mut Session) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            if self.asked.is_empty() {
                return Ok(());
            }
            self.turn(session)?;
        }
        Err(format!("never answered: {:?}", self.asked.values()))
    }

    fn look_at_all(&mut self, session: &mut Session) -> Result<(), String> {
        for first in (0..BLOCKS).step_by(128) {
            let blocks = (BLOCKS - first).min(128);
            let operation = Operation::read(LbaRange::new(first, blocks));
            self.give(session, operation, Asked::Read { first, blocks });
        }
        self.wait_for_all(session)
    }

    fn stop(&mut self, session: &mut Session) -> Result<(), String> {
        self.may_ask = false;
        self.give(session, Operation::Shutdown, Asked::Other);
        self.wait_for_all(session)?;
        self.look_at_disks(session)
    }
}

/// What a block holds: zeroes, or its number and a value, so that it tells where it should be.
fn fill(block: &mut [u8], number: u64, value: u8) {
    if value == 0 {
        return block.fill(0);
    }
    block.fill(value);
    block[..8].copy_from_slice(&number.to_le_bytes());
}

fn is_filled(block: &[u8], number: u64, value: u8) -> bool {
    let mut expected = [0; BLOCK_SIZE as usize];
    fill(&mut expected, number, value);
    block == expected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_does_what_the_engine_relies_on() {
        let mut all = DriverReport::default();
        let seeds = (0..60).chain(MODES_FROM..MODES_FROM + 20);
        for seed in seeds.chain(ROOM_MOVES_FROM..ROOM_MOVES_FROM + 20) {
            let report = run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            all.requests += report.requests;
            all.pauses += report.pauses;
            all.kills += report.kills;
            all.modes_wanted += report.modes_wanted;
            all.room_moved += report.room_moved;
            all.kernel.short += report.kernel.short;
            all.kernel.beside_the_queue += report.kernel.beside_the_queue;
            all.kernel.interrupted += report.kernel.interrupted;
            all.kernel.calls_refused += report.kernel.calls_refused;
        }
        // None of them was for nothing.
        let Counts { short, beside_the_queue, interrupted, calls_refused, .. } = all.kernel;
        assert!(all.kills > 20 && all.room_moved > 20, "{all:?}");
        let counts = [all.requests, all.pauses, all.modes_wanted, short, beside_the_queue];
        for count in counts.into_iter().chain([interrupted, calls_refused]) {
            assert!(count > 60, "{all:?}");
        }
    }
}
