//! Opening a pair of disks for the engine: locks, superblock, hints about wrong disks, memory.

use std::path::Path;
use std::rc::Rc;

use dcd_engine::error::VolumeOpenError;
use dcd_engine::format::nvram::NvramIdentity;
use dcd_engine::io::ResizeError;
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::{VOLUME_HEADER_BYTES, VolumeHeader};
use dcd_engine::volume::{Volume, VolumeParts};
use dcd_engine::{
    AckMode, Buffer, DataDiskInfo, DestagePolicyKind, Device, Engine, EngineConfig, FormatError,
    IoError, MemoryUse, OpenError, Phase, SegmentMemory, Superblock, TieredEngine, Time,
};

use crate::clock::Clock;
use crate::device::device_file::{DeviceError, DeviceFile, share_a_disk};
use crate::device::device_spec::DeviceSpec;
use crate::device::identity::same_disks;
use crate::device::network::store::{Start, claim_store};
use crate::device::network::{Mark, NetworkProblem, StoreName};
use crate::device::shares::whole_name;
use crate::disk::Disk;
use crate::event_loop::{DataSide, EventLoop, MayGrow, Parts};
use crate::frontend::nbd::Export;
use crate::frontend::nbd::server::CONNECTIONS_MAX;
use crate::memory::places::{others_write, trusted_owners};
use crate::memory::search::{Found, MemorySearch, identity_of};
use crate::memory::segment_memory::{BootId, SegmentFile, SharedSegmentMemory};
use crate::memory::watch::MemoryWatch;
use crate::pair::book::PairEntry;
use crate::pair::label_keeper::{LabelKeeper, has_lost_a_superblock, judge_label, read_data_label};
use crate::pair::leg_share::LegShare;
use crate::pair::legs::{CacheSide, write_leg_label};
use crate::pair::members::Members;
use crate::pair::{DataDiskSize, PairOptions, SuperblockError, read_superblock, replaced};
use crate::process::random::random_bytes;
use crate::process::signals::Signals;
use crate::ring::kernel::{Kernel, linux};
use crate::serve::error::ServeError;
use crate::serve::find_cache::{Given, find_cache, open_cache_disks};
use crate::serve::memory_need::MemoryNeed;
use crate::serve::open_nvram::{OpenNvram, open_nvram};
use crate::serve::opening::OpeningTeller;
use crate::serve::own_disks::check_witness;
use crate::units_text::format_duration;
use crate::window_hook::WindowHook;

/// Longest read or write of an NBD client.
const PAYLOAD_MAX: u32 = 32 << 20;

/// An engine on its disks, opening.
pub(crate) struct Pair {
    pub(crate) event_loop: EventLoop<TieredEngine>,
    pub(crate) superblock: Superblock,
    pub(crate) record: PairEntry,
    pub(crate) one_disk: bool,
    pub(crate) data_disk: DataDiskInfo,
    /// Size of the disk itself, whatever counts.
    pub(crate) data_disk_bytes: u64,
    /// Trim gives space back.
    pub(crate) trim: bool,
    /// Of a volume, the disks that are there; else empty.
    pub(crate) member_names: Vec<Option<String>>,
    /// The disk that was given for each member, also if it is none any more.
    pub(crate) given_for_members: Vec<Option<String>>,
    /// What is wrong with disks of a volume that are not there.
    pub(crate) away: Vec<String>,
}

/// Opens both disks and begins to open the cache.
pub(crate) fn open_pair(
    options: &PairOptions,
    signals: Option<Rc<Signals>>,
) -> Result<Pair, ServeError> {
    let kernel = linux().map_err(ServeError::system("make an io_uring"))?;
    open_pair_on(options, signals, Clock::start(), kernel)
}

/// The same on this kernel, with the time of this clock.
pub(crate) fn open_pair_on(
    options: &PairOptions,
    signals: Option<Rc<Signals>>,
    clock: Clock,
    kernel: Box<dyn Kernel>,
) -> Result<Pair, ServeError> {
    // 1. Both disks, locked. From here on nobody else can start with either, under any name.
    //    Declared first, and so dropped last: a share is given back when nobody has it open.
    let new_shares;
    let OpenDisks { mut cache_disks, data_disks, data_disk_read_only, away } = open_disks(options)?;
    new_shares = std::mem::take(&mut cache_disks.shares);

    // 2. Who this cache is, and whether the disks belong together as far as can be seen from here.
    //    The engine looks deeper (sizes, witnesses) when it opens.
    let superblock_of = |disk: &Disk| superblock_of(disk, &data_disks);
    let mut found = find_cache(cache_disks, &options.cache_disks, superblock_of)?;
    let superblock = found.superblock.clone();
    let mut below = Below::of(&superblock, found.disk(), data_disks, away, options)?;
    if !superblock.has_legs {
        found.disk().file().is_known_by(Mark::Cache(superblock.uuid));
    }
    let trust_disks = options.pairs.trust_disks;
    let label = below.look_behind_label(&superblock, found.disk(), trust_disks)?;
    if superblock.has_legs && superblock.data_offset_bytes > 0 {
        return Err(ServeError::LabelledOnLegs);
    }
    // Where nothing can be written, none is: the superblock then keeps its epoch.
    let label = label.filter(|_| !data_disk_read_only);

    let files: Vec<&DeviceFile> = below.disks().map(Disk::file).collect();
    options.pairs.check(&superblock, found.disk().file(), &files)?;

    // 3. A slow disk stands for one of its own, wherever its file lies.
    let one_disk = options.one_disk.unwrap_or_else(|| {
        !options.cache_disks.all().any(DeviceSpec::is_slowed)
            && !options.data_disks.disks.iter().any(DeviceSpec::is_slowed)
            && below
                .disks()
                .any(|disk| found.side.iter().any(|leg| share_a_disk(leg.file(), disk.file())))
    });
    let seed = random_bytes().map_err(ServeError::system("get random numbers"))?;
    let hash_seed = u64::from_le_bytes(seed);
    let mut config =
        EngineConfig { one_disk, data_disk_read_only, hash_seed, ..options.engine.clone() };
    let store = below.store().cloned();
    if store.is_some() {
        // A window becomes visible by one commit.
        (config.destage_policy, config.keeps_windows) = (DestagePolicyKind::Ordered, true);
        config.data_disk_is_store = true;
    }
    config.validate().map_err(OpenError::Config)?;
    if let (Some(store), false) = (&store, data_disk_read_only) {
        // Whoever wrote to it before writes no more. Refused, it has changed nothing. So it is for
        // a cache that is read-only, too: that ends while it is served.
        let cache_disks: Vec<&Path> = found.side.iter().map(|leg| leg.file().path()).collect();
        // A superblock that has gone bad was the newer one.
        let is_bad = has_lost_a_superblock(found.disk().file());
        let start = Start {
            cache: superblock.uuid,
            generation: superblock.generation + u64::from(is_bad),
            boot_id: BootId::current().bytes(),
            cache_disks,
            trusts_disks: trust_disks,
            take_over: options.take_over,
        };
        claim_store(store, &start).map_err(|failure| {
            let path = store.to_string().into();
            let source = Box::new(NetworkProblem::Store(failure));
            ServeError::device("data-disk")(DeviceError::Network { path, source })
        })?;
    }

    let info = below.info();
    let data_disk_info = match options.size {
        DataDiskSize::AsRecorded if info.blocks > superblock.data_disk.blocks => {
            DataDiskInfo { blocks: superblock.data_disk.blocks, ..info }
        }
        _ => info,
    };
    config.grow = options.size == DataDiskSize::Grown;

    // 4. The memory in front of the log, before the superblock names it. It knows whether the
    //    cache-disk is an older copy, to which the segment memory of the last session is nothing.
    if options.nvram.is_some() {
        // What does not go with it is refused before anything is written there.
        let any = NvramIdentity { id: superblock.uuid, generation: 0 };
        let with = EngineConfig { nvram: Some(any), legs: None, ..config.clone() };
        with.validate().map_err(OpenError::Config)?;
    }
    let nvram = options.nvram.as_ref();
    let nvram =
        nvram.map(|nvram| open_nvram(options, nvram, &superblock, data_disk_info, clock.now()));
    let nvram = nvram.transpose()?;
    config.nvram = nvram.as_ref().map(|nvram| nvram.tier.identity());
    config.nvram_may_be_lost = options.nvram_lost;

    // 5. Memory that may hold what a process that died had acknowledged. Then it decides how many
    //    segment buffers there are: what they hold must be found where it was put.
    // A segment has one buffer at a time.
    config.segment_buffers = config.segment_buffers.min(superblock.geometry.segments);
    let clients_max = clients_max(options, &superblock, &config, &below)?;
    let may_grow = may_grow(options, &superblock, &config, &below, clients_max);
    let (memory, segment_memory) =
        find_memory(options, &superblock, &found.side, &below, &mut config).map_err(|error| {
            // Nobody needs the memory of a session from which the members have gone on.
            below.left_behind(&superblock, found.disk().file()).unwrap_or(error)
        })?;
    found.side.iter_mut().for_each(|disk| disk.set_segment_memory(memory.mapping()));
    config.legs = found.parts.take();

    // As long as files may be opened.
    let files: Vec<&DeviceFile> = below.disks().map(Disk::file).collect();
    let record = options.pairs.entry(superblock.uuid, found.disk().file(), &files, options.quiet);

    // 6. The engine, which begins with reading.
    let data_disk_bytes = info.bytes();
    let cache_disk_bytes = found.size_bytes();
    let read_only = config.read_only;
    let trim = below.disks().all(Disk::can_give_back_space);
    let member_names = below.member_names();
    let given_for_members = below.given_for_members();
    let away = below.away().iter().map(ToString::to_string).collect();
    let opening = Opening {
        now: clock.now(),
        superblock: superblock.clone(),
        cache_disk_bytes,
        config,
        segment_memory: Box::new(segment_memory),
    };
    let (engine, data) = open_engine(opening, below, data_disk_info, options)?;
    if let Some(label) = &found.label {
        // All has been looked at. Crash behind it: the superblock does not speak of the label.
        write_leg_label(found.disk().file(), label).map_err(ServeError::device("cache-disk"))?;
    }
    let description = format!("{} behind {} (dcd)", options.data_disks, options.cache_disks);
    let (core, nvram) = match nvram {
        Some(OpenNvram { tier, disk }) => (TieredEngine::with(engine, tier), Some(disk)),
        None => (TieredEngine::without(engine), None),
    };
    let mut event_loop = EventLoop::new(Parts {
        core,
        nvram,
        cache_side: Some(found.side),
        memory: Some(MemoryWatch::new(memory, superblock.uuid)),
        data,
        label,
        kernel,
        clock,
        export: Export { description, ..export_of(data_disk_info, read_only, trim) },
        clients_max,
        signals,
        quiet: options.quiet,
    })
    .map_err(ServeError::system("make an io_uring"))?;
    may_grow.into_iter().for_each(|may_grow| event_loop.set_may_grow(may_grow));
    if let Some(store) = store {
        let submitter = event_loop.submitter();
        let ended = move |window, is_kept| submitter.window_kept(window, is_kept);
        let hook = WindowHook::of_store(store, ended);
        let hook = hook.map_err(ServeError::system("start what commits windows"))?;
        let submitter = event_loop.submitter();
        if let Some(lease) = hook.lease() {
            lease.set_on_news(move || submitter.lease_news());
        }
        event_loop.set_window_hook(hook);
    }
    let kept = new_shares.into_iter().try_for_each(LegShare::keep);
    kept.map_err(ServeError::device("cache-disk"))?;
    Ok(Pair {
        event_loop,
        superblock,
        record,
        one_disk,
        data_disk: data_disk_info,
        data_disk_bytes,
        trim,
        member_names,
        given_for_members,
        away,
    })
}

/// The disks that were named.
struct OpenDisks {
    cache_disks: Given,
    data_disks: Vec<Disk>,
    /// One of them takes no writes.
    data_disk_read_only: bool,
    /// What is wrong with data-disks that are not there.
    away: Vec<DeviceError>,
}

/// Locks the disks, so that nobody else can start with one of them under any name.
fn open_disks(options: &PairOptions) -> Result<OpenDisks, ServeError> {
    let named = options.data_disks.disks.iter().chain(replaced(&options.data_disks));
    let mut paths: Vec<&Path> = options.cache_disks.all().map(DeviceSpec::path).collect();
    paths.extend(named.map(DeviceSpec::path));
    if let Some((first, second, shared)) = same_disks(&paths) {
        let (first, second) = (first.to_owned(), second.to_owned());
        return Err(ServeError::SameDisk { first, second, shared });
    }
    if let Some(witness) = &options.cache_disks.witness {
        check_witness(witness.path(), paths.iter().copied())?;
    }
    let cache_disks = open_cache_disks(&options.cache_disks, &options.data_disks.disks)?;
    let (data_disks, data_disk_read_only, away) = (Vec::new(), false, Vec::new());
    let mut open = OpenDisks { cache_disks, data_disks, data_disk_read_only, away };
    for spec in &options.data_disks.disks {
        match open_data_disk(spec, options.engine.read_only) {
            Ok((disk, read_only)) => {
                open.data_disk_read_only |= read_only;
                open.data_disks.push(disk);
            }
            Err(error) if error.is_away() => open.away.push(error),
            Err(error) => return Err(ServeError::device("data-disk")(error)),
        }
    }
    Ok(open)
}

/// The newer superblock of the cache-disk.
fn superblock_of(cache_disk: &Disk, data_disks: &[Disk]) -> Result<Superblock, ServeError> {
    read_superblock(cache_disk.file()).map_err(|error| match error {
        SuperblockError::Device(error) => ServeError::device("cache-disk")(error),
        SuperblockError::Format(source) => {
            let swapped = data_disks.iter().find(|disk| read_superblock(disk.file()).is_ok());
            if let Some(data_disk) = swapped {
                return ServeError::Swapped {
                    cache_disk: cache_disk.file().path().to_owned(),
                    data_disk: data_disk.file().path().to_owned(),
                };
            }
            ServeError::NoCache { path: cache_disk.file().path().to_owned(), source }
        }
    })
}

/// How many clients the memory limit has room for.
fn clients_max(
    options: &PairOptions,
    superblock: &Superblock,
    config: &EngineConfig,
    below: &Below,
) -> Result<usize, ServeError> {
    let Some(limit) = options.memory else { return Ok(CONNECTIONS_MAX) };
    let mut need = MemoryNeed::of(&superblock.geometry, config, limit.clients);
    need.add("volume", below.memory_bytes(superblock, config));
    need.clients_within(&limit).ok_or_else(|| ServeError::MemoryMax {
        most: limit.bytes,
        needed: need.least(limit.clients),
        parts: need.words(),
    })
}

/// The same question of a log of another size, beside so many clients.
fn may_grow(
    options: &PairOptions,
    superblock: &Superblock,
    config: &EngineConfig,
    below: &Below,
    clients_max: usize,
) -> Option<MayGrow> {
    let limit = options.memory?;
    let of_volume = below.memory_bytes(superblock, config);
    Some(Box::new(move |geometry, config| {
        let mut need = MemoryNeed::of(geometry, config, limit.clients);
        need.add("volume", of_volume);
        let needed = need.total_with(limit.clients, clients_max);
        match needed > limit.bytes {
            true => Err(ResizeError::Memory { needed, most: limit.bytes }),
            false => Ok(()),
        }
    }))
}

/// Finds the segment memory of the last session or makes new one, and notes in the settings which
/// it is and how many buffers it has.
fn find_memory(
    options: &PairOptions,
    superblock: &Superblock,
    cache_side: &CacheSide,
    below: &Below,
    config: &mut EngineConfig,
) -> Result<(SegmentFile, SharedSegmentMemory), ServeError> {
    let geometry = &superblock.geometry;
    let size = Engine::segment_memory_size(geometry, config);
    let buffers_of = |size| Engine::segment_buffers_of(geometry, size);
    let disks = below.disks().chain(cache_side.iter()).map(|disk| disk.file().path());
    let first = cache_side.iter().next().expect("a cache-disk was given");
    let search = MemorySearch {
        superblock,
        directory: options.memory_directory.as_deref(),
        owners: trusted_owners(&disks.collect::<Vec<_>>()),
        size,
        is_possible: &|found| buffers_of(found).is_some(),
        may_be_lost: options.memory_lost,
        cache_disk: &whole_name(first.file().path()).display().to_string(),
    };
    let Found { file: memory, memory: segment_memory, lost } = search.run()?;
    tell_of_memory(&memory, lost, options.memory_directory.as_deref(), options.quiet);
    // Without a log all goes to the data-disk.
    let rests_in_memory = config.ack != AckMode::Durable && !config.no_log;
    let max_delay = std::time::Duration::from_nanos(config.max_delay.0);
    config.memory = Some(identity_of(&memory, rests_in_memory.then_some(max_delay)));
    let buffers = buffers_of(memory.mapping().len() as u64).unwrap_or(config.segment_buffers);
    if buffers != config.segment_buffers {
        if !options.quiet {
            eprintln!(
                "dcd: the last run ended without order and had {buffers} segment buffers; they are \
                 used until the next stop in order, then {}",
                config.segment_buffers
            );
        }
        config.segment_buffers = buffers;
    }
    Ok((memory, segment_memory))
}

/// What an engine begins with, whatever is below it.
struct Opening {
    now: Time,
    superblock: Superblock,
    cache_disk_bytes: u64,
    config: EngineConfig,
    segment_memory: Box<dyn SegmentMemory>,
}

/// The engine, which begins with reading, and the disks below it.
fn open_engine(
    opening: Opening,
    below: Below,
    data_disk: DataDiskInfo,
    options: &PairOptions,
) -> Result<(Engine, DataSide), ServeError> {
    let Opening { now, superblock, cache_disk_bytes, config, segment_memory } = opening;
    let given = below.given_for_members();
    let (engine, data) = match below {
        Below::One(disk) => {
            let info = data_disk;
            let engine =
                Engine::open(now, superblock, cache_disk_bytes, info, config, segment_memory);
            (engine, DataSide::Disk(disk))
        }
        Below::Volume { header, members } => {
            let degraded = options.data_disks.degraded;
            let (infos, others) = members.infos();
            let parts = VolumeParts { header: *header, members: infos, others, degraded };
            let engine = Engine::open_volume(
                now,
                superblock,
                cache_disk_bytes,
                parts,
                config,
                segment_memory,
            );
            (engine, DataSide::Members(members.disks))
        }
    };
    let engine = engine.map_err(|error| match error {
        error @ OpenError::Volume(_) => of_member(error, &given),
        OpenError::DataDiskSize { expected, found } if found > expected => ServeError::Grown {
            cache_disk: options.cache_disks.to_string(),
            data_disk: options.data_disks.to_string(),
            expected,
            found,
        },
        error => ServeError::Open(error),
    })?;
    Ok((engine, data))
}

/// What a person should know of the memory that was found.
fn tell_of_memory(
    memory: &SegmentFile,
    lost: Option<std::time::Duration>,
    asked: Option<&std::path::Path>,
    quiet: bool,
) {
    if let Some(delay) = lost {
        eprintln!(
            "dcd: the segment memory of the last session is lost, as was said: what it acknowledged in its last {} \
             and no flush has covered may be gone",
            format_duration(delay)
        );
    }
    let Some(asked) = asked.filter(|_| !quiet) else { return };
    let asked = asked.canonicalize().unwrap_or_else(|_| asked.to_owned());
    if memory.directory() == asked {
        if others_write(&asked) {
            eprintln!(
                "dcd: anybody may take names in {}: give the segment memory a directory of its own, or none",
                asked.display()
            );
        }
    } else if !memory.was_found {
        eprintln!(
            "dcd: the name of the segment memory in {} is taken by somebody else; it is in {}",
            asked.display(),
            memory.directory().display()
        );
    } else {
        eprintln!(
            "dcd: the last run ended without order and had its segment memory in {}; it is used there until the \
             next stop in order, then in {}",
            memory.directory().display(),
            asked.display()
        );
    }
}

/// Whether a disk may be the one whose serial number the cache knows.
pub(crate) fn check_serial(
    superblock: &Superblock,
    data_disk: &DeviceFile,
) -> Result<(), ServeError> {
    let (expected, found) = (&superblock.data_disk_serial, &data_disk.serial);
    // A disk may lose its number in another enclosure; only a different one is proof.
    if expected.is_empty() || found.is_empty() || expected == found {
        return Ok(());
    }
    let (path, expected, found) = (data_disk.path().to_owned(), expected.clone(), found.clone());
    Err(ServeError::WrongDataDisk { path, expected, found })
}

/// What is below the engine.
enum Below {
    One(Box<Disk>),
    Volume { header: Box<VolumeHeader>, members: Members },
}

impl Below {
    /// Finds out which disk is which.
    fn of(
        superblock: &Superblock,
        cache_disk: &Disk,
        mut data_disks: Vec<Disk>,
        away: Vec<DeviceError>,
        options: &PairOptions,
    ) -> Result<Below, ServeError> {
        if superblock.volume_bytes > 0 {
            if let Some(operation) = options.not_for_volumes {
                return Err(ServeError::NotForVolumes { operation });
            }
            let in_store =
                |disk: &&Disk| disk.file().network().is_some_and(|it| it.store().is_some());
            if let Some(disk) = data_disks.iter().find(in_store) {
                return Err(ServeError::NotInStore {
                    path: disk.file().path().to_owned(),
                    what: "a member of a volume",
                });
            }
            let header = Box::new(read_volume_header(cache_disk.file(), superblock)?);
            let mut members = Members::of(data_disks, superblock.uuid, header.config.members)?;
            // Whether the others can do without is for the engine to say: it may be no member any
            // more.
            members.away.extend(away);
            for (member, spec) in &options.data_disks.replacements {
                members.replace(*member, spec)?;
            }
            return Ok(Below::Volume { header, members });
        }
        if let Some(error) = away.into_iter().next() {
            return Err(ServeError::device("data-disk")(error));
        }
        if data_disks.len() > 1 || !options.data_disks.replacements.is_empty() {
            return Err(ServeError::OneDataDisk);
        }
        if options.data_disks.degraded {
            return Err(ServeError::OnlyForVolumes { flag: "--degraded" });
        }
        let data_disk = data_disks.pop().ok_or(ServeError::OneDataDisk)?;
        check_serial(superblock, data_disk.file())?;
        Ok(Below::One(Box::new(data_disk)))
    }

    /// The object store that the data-disk is in.
    fn store(&self) -> Option<&StoreName> {
        match self {
            Below::One(disk) => disk.file().network()?.store(),
            Below::Volume { .. } => None,
        }
    }

    /// Compares the label of the data-disk, if the cache says that it has one, and leaves it out of
    /// what the engine sees.
    fn look_behind_label(
        &mut self,
        superblock: &Superblock,
        cache_disk: &Disk,
        trust_disks: bool,
    ) -> Result<Option<LabelKeeper>, ServeError> {
        let Below::One(disk) = self else { return Ok(None) };
        if superblock.data_offset_bytes == 0 {
            return Ok(None);
        }
        let label = read_data_label(disk.file()).map_err(ServeError::device("data-disk"))?;
        let found = label.as_ref().ok().copied();
        let judged = judge_label(superblock, cache_disk.file(), disk.file().path(), label);
        if judged.is_ok() {
            disk.file().is_known_by(Mark::DataLabel(superblock.uuid));
        }
        if !trust_disks {
            judged?;
        }
        disk.set_payload_offset(superblock.data_offset_bytes);
        Ok(Some(LabelKeeper::new(superblock, found)))
    }

    fn disks(&self) -> impl Iterator<Item = &Disk> {
        let (one, members) = match self {
            Below::One(disk) => (Some(&**disk), &[][..]),
            Below::Volume { members, .. } => (None, &members.disks[..]),
        };
        one.into_iter().chain(members.iter().flatten())
    }

    fn info(&self) -> DataDiskInfo {
        match self {
            Below::One(disk) => disk.data_disk_info(),
            Below::Volume { header, .. } => Volume::data_disk_info(&header.config),
        }
    }

    fn member_names(&self) -> Vec<Option<String>> {
        match self {
            Below::One(_) => Vec::new(),
            Below::Volume { members, .. } => members.names(),
        }
    }

    fn given_for_members(&self) -> Vec<Option<String>> {
        match self {
            Below::One(_) => Vec::new(),
            Below::Volume { members, .. } => members.given_for_each(),
        }
    }

    /// What is wrong if the members of a volume went on with another cache-disk than this one.
    fn left_behind(&self, superblock: &Superblock, cache_disk: &DeviceFile) -> Option<ServeError> {
        let Below::Volume { header, members } = self else { return None };
        let (start, labels) = (superblock.volume_offset(), members.label_numbers());
        let read = |offset, buffer: &mut Buffer| {
            let length = buffer.len();
            *buffer = cache_disk.read_at(offset, length).map_err(|_| IoError::Failed)?;
            if buffer.len() == length { Ok(()) } else { Err(IoError::Failed) }
        };
        let error = Volume::left_behind((**header).clone(), start, &labels, read)?;
        Some(of_member(error.into(), &self.given_for_members()))
    }

    /// What is wrong with disks that are not there.
    fn away(&self) -> &[DeviceError] {
        match self {
            Below::One(_) => &[],
            Below::Volume { members, .. } => &members.away,
        }
    }

    /// What the tables of a volume take.
    fn memory_bytes(&self, superblock: &Superblock, config: &EngineConfig) -> u64 {
        match self {
            Below::One(_) => 0,
            Below::Volume { header, .. } => volume_memory_bytes(header, superblock, config),
        }
    }
}

/// Its tables as they are on the cache-disk, with room to search in, and what is under way on the
/// members. Of checksums there are those within the budget and those that have changed, of which
/// the journal has a record.
fn volume_memory_bytes(
    header: &VolumeHeader,
    superblock: &Superblock,
    config: &EngineConfig,
) -> u64 {
    const UNDER_WAY_BYTES: u64 = 32 << 20;
    let tables = superblock.volume_bytes.saturating_sub(header.journal_bytes) / 2;
    let area = VolumeArea::of(header, superblock.volume_offset());
    let checksums = area.map_or(0, |area| area.checksum_bytes());
    let in_memory = checksums.min(config.volume_memory_bytes.saturating_add(header.journal_bytes));
    tables.saturating_sub(checksums) / 4 * 5 + in_memory + UNDER_WAY_BYTES
}

/// Reads both copies of what a volume is made of.
fn read_volume_header(
    cache_disk: &DeviceFile,
    superblock: &Superblock,
) -> Result<VolumeHeader, ServeError> {
    let mut problem = None;
    for copy in 0..2 {
        let offset = superblock.volume_offset() + copy * VOLUME_HEADER_BYTES as u64;
        let bytes = cache_disk.read_at(offset, VOLUME_HEADER_BYTES);
        let bytes = bytes.map_err(ServeError::device("cache-disk"))?;
        match VolumeHeader::decode(bytes.bytes()) {
            Ok(header) if header.uuid == superblock.uuid => return Ok(header),
            Ok(header) => {
                let (what, expected, found) =
                    ("the header of the volume", superblock.uuid, header.uuid);
                problem.get_or_insert(FormatError::Uuid { what, expected, found });
            }
            Err(error) => drop(problem.get_or_insert(error)),
        }
    }
    let error = problem.expect("two copies were read");
    Err(ServeError::Open(OpenError::Format(error)))
}

/// The disk, and whether it takes no writes.
fn open_data_disk(spec: &DeviceSpec, read_only: bool) -> Result<(Disk, bool), DeviceError> {
    match Disk::open(Device::DataDisk, spec) {
        // Whoever asks for reading only gets that, also of a disk that takes no writes.
        Err(DeviceError::ReadOnly { .. } | DeviceError::Permission { .. }) if read_only => {
            Disk::open_read_only(Device::DataDisk, spec).map(|disk| (disk, true))
        }
        opened => opened.map(|disk| (disk, false)),
    }
}

/// Turns the loop until the engine runs. Whether it does: not if somebody asked to stop first.
/// Meanwhile `teller` says how far it is; then it is told which disks it did without (`away`).
pub(crate) fn wait_until_running(
    event_loop: &mut EventLoop<TieredEngine>,
    away: &[String],
    members: &[Option<String>],
    mut teller: OpeningTeller<'_>,
) -> Result<bool, ServeError> {
    loop {
        match event_loop.phase() {
            Phase::Opening => {}
            Phase::Running => {
                away.iter().for_each(|why| eprintln!("dcd: data-disk: {why}: on without it"));
                return Ok(true);
            }
            Phase::Failed(source @ OpenError::Volume(VolumeOpenError::MembersMissing { .. }))
                if !away.is_empty() =>
            {
                let (away, source) = (away.join(", "), Box::new(source.clone()));
                return Err(ServeError::MembersAway { away, source });
            }
            Phase::Failed(error) => return Err(of_member(error.clone(), members)),
            Phase::Closed => return Ok(false),
        }
        let turned = event_loop.turn(Some(teller.patience()));
        turned.map_err(ServeError::system("wait for the disks"))?;
        teller.tell(event_loop.core());
        // From then on the superblock may name it, so that it would be missed.
        if event_loop.core().memory_use() == MemoryUse::InUse
            && let Some(memory) = event_loop.memory()
        {
            memory.keep();
        }
        if event_loop.take_stop_request().is_some() {
            return Ok(false);
        }
    }
}

/// What is wrong with one member is said of the disk that was given for it.
fn of_member(error: OpenError, members: &[Option<String>]) -> ServeError {
    let member = match &error {
        OpenError::Volume(
            VolumeOpenError::MemberShort { member, .. }
            | VolumeOpenError::MemberOlder { member, .. }
            | VolumeOpenError::MemberReplaced { member }
            | VolumeOpenError::CacheDiskOlder { member, .. },
        ) => Some(usize::from(member.0)),
        _ => None,
    };
    match member.and_then(|member| members.get(member)?.clone()) {
        Some(disk) => ServeError::OfMember { disk, source: Box::new(error) },
        None => error.into(),
    }
}

/// What NBD clients see of a volume.
pub(crate) fn export_of(volume: DataDiskInfo, read_only: bool, trim: bool) -> Export {
    Export {
        size_bytes: volume.bytes(),
        minimum_block: volume.logical_block_size,
        preferred_block: 4096,
        maximum_payload: PAYLOAD_MAX,
        read_only,
        trim,
        description: String::new(),
    }
}
