//! `dcd serve`: a cache between its frontends and its two disks, until somebody ends it.

pub(crate) mod device_frontends;
pub mod driver_runs;
pub mod error;
mod find_cache;
pub mod grow;
pub mod in_process;
mod left_over_room;
pub(crate) mod leg_news;
pub mod legs_words;
pub(crate) mod member_news;
pub mod memory_need;
pub(crate) mod mount_place;
mod nvram_news;
pub mod offline;
pub mod open_nvram;
pub(crate) mod open_pair;
mod opening;
pub mod own_disks;
pub mod salvage_target;
pub mod several;
pub mod share_choice;
pub mod slow_disk;
pub(crate) mod supervise;
pub(crate) mod unlocked;
pub(crate) mod volume_news;
mod waiting;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use dcd_engine::stats::RecoveryReport;
use dcd_engine::units::MemberIndex;
use dcd_engine::{DataDiskInfo, EngineConfig, Operation, Phase, TieredEngine, Uuid, VolumeRequest};

use self::share_choice::choose_shares;
use crate::caretaker::{self, CaretakerProgram, Duties, LoopDuty};
use crate::control::ControlServer;
use crate::control::settings::SharedSettings;
use crate::device::device_file::let_udev_look;
use crate::device::device_spec::DeviceSpec;
use crate::device::network::TakeOver;
use crate::device::shares::disk_of;
use crate::event_loop::EventLoop;
use crate::event_loop::core::Core;
use crate::event_loop::submitter::{Completion, Submitter};
pub use crate::frontend::fuse::thread::FuseReady;
use crate::frontend::fuse::thread::MadeBefore;
use crate::frontend::nbd::doors::NbdDoors;
use crate::frontend::nbd::listen::{Listener, NbdAddress, NbdOptions, UnixSocket, listen_unix};
use crate::frontend::nbd::tls::files::TlsFiles;
use crate::frontend::ublk;
use crate::http::address::{Door, HttpAddress};
use crate::http::daemon::DaemonSite;
use crate::http::server::HttpServer;
use crate::http::token::Token;
use crate::pair::book::{PairBook, PairEntry};
use crate::pair::new_member::MemberNames;
use crate::pair::{CacheDisks, DataDiskSize, DataDisks, NvramOptions, PairOptions};
use crate::process::confine::Reach;
use crate::process::isolation::{
    Clients, IsolationReport, MemoryLimit, check_processor, isolate, run_on_processor,
};
use crate::process::log;
use crate::process::service_manager::Notifier;
use crate::process::signals::Signals;
use crate::report::status_report::{DaemonFacts, NvramTerms};
use crate::ring::busy_poll::BusyPollMax;
use crate::serve::device_frontends::{DeviceFrontends, Made, Shown, Wanted, begin};
pub use crate::serve::error::ServeError;
use crate::serve::left_over_room::give_back_left_over;
use crate::serve::leg_news::LegNews;
use crate::serve::member_news::{MemberNews, members_not_whole};
use crate::serve::nvram_news::NvramNews;
use crate::serve::open_pair::{Pair, open_pair, wait_until_running};
use crate::serve::opening::OpeningTeller;
pub use crate::serve::supervise::Outcome;
use crate::serve::supervise::{DiskNews, Manner, run_until_stopped, shut_down_now};
use crate::serve::waiting::{Awaited, wait_for_disks};
use crate::users::UserFinder;
use crate::window_hook::{WindowHook, WindowHookOptions};

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The disk with the log.
    pub cache_disks: CacheDisks,
    /// The share of it; `None`: that of the data-disk, if the disk has shares.
    pub share: Option<String>,
    /// The disks with the data.
    pub data_disks: DataDisks,
    /// Settings of the engine.
    pub engine: EngineConfig,
    /// Whether both disks share one arm; `None`: look. Replaces the setting in `engine`.
    pub one_disk: Option<bool>,
    /// Where NBD clients are awaited.
    pub nbd: Vec<NbdAddress>,
    /// And how.
    pub nbd_options: NbdOptions,
    /// Directory in which the volume appears as a file.
    pub fuse: Option<PathBuf>,
    /// Whether to make a loop device on that file.
    pub loop_device: bool,
    /// The ublk device, if there is to be one.
    pub ublk: Option<UblkNumber>,
    /// Where a virtual machine is awaited.
    pub vhost_user: Option<PathBuf>,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// Where metrics are read over HTTP, and nothing else.
    pub metrics: Option<SocketAddr>,
    /// Where the page is.
    pub http: Option<HttpAddress>,
    /// What those know who may change something there.
    pub http_token: Option<Token>,
    /// Where the segment memory goes; `None`: to a directory of our own
    /// ([`crate::memory::places`]).
    pub memory_directory: Option<PathBuf>,
    /// Go on without the segment memory of the last session, if it is lost: a person has read what
    /// that means.
    pub memory_lost: bool,
    /// The memory in front of the log, if there is to be one.
    pub nvram: Option<NvramOptions>,
    /// Go on without the memory in front of the log that the last session had, if it is lost.
    pub nvram_lost: bool,
    /// The processor that the loop runs on, and nowhere else.
    pub processor: Option<usize>,
    /// How long the loop looks for the next event before it sleeps, at most.
    pub busy_poll: BusyPollMax,
    /// Most memory that the cache and its clients may come to need; refused at the start if that is
    /// too little.
    pub memory_max_bytes: Option<u64>,
    /// Whether to wait for disks that are not there yet.
    pub wait: bool,
    /// How long a stop waits for those who would lose what they have not written yet.
    pub stop_timeout: std::time::Duration,
    /// Whether nothing of the process may be swapped out.
    pub lock_memory: bool,
    /// Whether the calling thread, and all that it starts, give up files, capabilities and system
    /// calls that serving does not need. Not with FUSE if there is no `caretaker`: nobody who has
    /// done that may unmount.
    pub give_up_rights: bool,
    /// What does, for a daemon that has given up its rights, the few things that take them.
    pub caretaker: Option<CaretakerProgram>,
    /// What keeps windows of ordered shipping.
    pub window_hook: Option<WindowHookOptions>,
    /// Flushes and FUA are answered when a window with all of it was kept, and not before.
    pub remote_ack: bool,
    /// Whether an object store is taken from another daemon that has a lease on it.
    pub take_over: TakeOver,
    /// What the host remembers of pairs.
    pub pairs: PairBook,
    /// What may be set while it serves, and the file that SIGHUP has read again.
    pub settings: Option<SharedSettings>,
    /// That file.
    pub settings_file: Option<PathBuf>,
    /// No messages about clients and signals.
    pub quiet: bool,
}

/// Which number a ublk device gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UblkNumber {
    /// That of the device which an earlier daemon of this cache left, else the next free one.
    Any,
    /// This one.
    Number(u32),
}

impl UblkNumber {
    /// The number, if it is said.
    pub fn said(self) -> Option<u32> {
        match self {
            UblkNumber::Any => None,
            UblkNumber::Number(number) => Some(number),
        }
    }
}

/// What is known when the volume is served.
pub struct Ready {
    /// Identity of the cache.
    pub uuid: Uuid,
    /// Size of the volume.
    pub size_bytes: u64,
    /// Where NBD clients are awaited, with real ports.
    pub nbd: Vec<NbdAddress>,
    /// The FUSE file and loop device, if asked for.
    pub fuse: Option<FuseReady>,
    /// The ublk device, if asked for.
    pub ublk: Option<PathBuf>,
    /// Where a virtual machine is awaited, if asked for.
    pub vhost_user: Option<PathBuf>,
    /// Where metrics are read, with the real port, if asked for.
    pub metrics: Option<SocketAddr>,
    /// Where the page is, with the real port, if asked for.
    pub http: Option<HttpAddress>,
    /// The control socket, if asked for.
    pub control: Option<PathBuf>,
    /// How the start went.
    pub recovery: RecoveryReport,
    /// Members of a volume that are not up to date.
    pub degraded: Vec<u8>,
    /// Whether both disks share one arm.
    pub one_disk: bool,
    /// For requests of this process, and to stop it.
    pub submitter: Submitter,
}

impl Ready {
    /// Where the disk can be used, for people.
    fn frontends(&self) -> Vec<String> {
        let fuse = self.fuse.iter().flat_map(|fuse| [Some(&fuse.file), fuse.loop_device.as_ref()]);
        let devices = self.ublk.iter().chain(&self.vhost_user).chain(fuse.flatten());
        let paths = devices.map(|path| path.display().to_string());
        paths.chain(self.nbd.iter().map(NbdAddress::to_string)).collect()
    }
}

/// What cannot be made once the cache is open ends it in order, so that a failed start leaves
/// nothing behind: no session that is open, no segment memory.
macro_rules! or_close {
    ($made:expr, $event_loop:ident) => {
        match $made {
            Ok(made) => made,
            Err(error) => {
                let _ = shut_down_now(&mut $event_loop);
                $event_loop.close();
                return Err(error.into());
            }
        }
    };
}

/// Serves a cache until a signal or a command ends it. `ready` is called once, when all frontends
/// are there.
///
/// It runs on the calling thread, which should be the first of the process: signals are blocked
/// there and in threads started later.
pub fn serve(options: ServeOptions, ready: &mut dyn FnMut(&Ready)) -> Result<Outcome, ServeError> {
    let outcome = serve_until_end(options, ready);
    // All is dropped that has orders for it.
    caretaker::finish();
    outcome
}

fn serve_until_end(
    mut options: ServeOptions,
    ready: &mut dyn FnMut(&Ready),
) -> Result<Outcome, ServeError> {
    if options.loop_device && options.fuse.is_none() {
        return Err(ServeError::LoopWithoutFuse);
    }
    mount_place::check(&options, None)?;
    options.processor.map_or(Ok(()), check_processor)?;
    options.ublk.map_or(Ok(()), |_| ublk::check())?;
    let signals = Rc::new(Signals::install_all().map_err(ServeError::system("receive signals"))?);
    // Behind that: a thread that began before would be killed by signals, and all with it.
    let doors = NbdDoors::new(&options.nbd_options, options.quiet)?;
    let notifier = Notifier::from_environment();
    // Whoever waits can be asked for what.
    let mut control_socket = None;
    if options.wait {
        control_socket = options.control.as_deref().map(listen_unix).transpose()?;
        let listener = control_socket.as_ref().map(|(listener, _)| listener);
        let awaited = Awaited::new(&options.cache_disks, &options.data_disks);
        if !wait_for_disks(awaited, listener, &signals, &notifier, options.quiet) {
            return Ok(Outcome::StoppedWhileOpening);
        }
    }
    notifier.status("opening");
    let data_disks: Vec<&Path> = data_disks_of(&options).map(DeviceSpec::path).collect();
    let share = options.share.as_deref();
    let mut disks = options.cache_disks.disks.clone();
    choose_shares(&mut disks, share, &data_disks, &options.pairs)?;
    options.cache_disks.disks = disks;
    let mut isolation = isolate(options.lock_memory)?;
    let mut pair = open_pair(&pair_options(&options), Some(signals))?;
    let event_loop = &mut pair.event_loop;

    // Sockets are made before the cache is opened, so that a wrong address is noticed while
    // nothing has been written. Early clients wait until it runs.
    let listeners = doors.listen(&options.nbd)?;
    if options.memory_max_bytes.is_some() {
        event_loop.spare_memory();
    } else {
        event_loop.set_clients_max(options.nbd_options.connections_max);
    }
    let vhost_user = options.vhost_user.as_deref().map(listen_unix).transpose()?;
    if control_socket.is_none() {
        control_socket = options.control.as_deref().map(listen_unix).transpose()?;
    }
    let page = options.http.as_ref().map(Door::page).transpose()?;
    let metrics = options.metrics.map(Door::metrics).transpose()?;
    let http = page.into_iter().chain(metrics).collect();
    // Links may be others since, and the memory of the last session may be where nobody said.
    mount_place::check(&options, event_loop.memory().map(|memory| memory.directory()))?;
    start_window_hook(&options, event_loop)?;
    event_loop.set_flushes_wait_for_windows(options.remote_ack);
    // All is open. Threads of before this line may do more; none of them hears a client.
    let fuse_made = match options.give_up_rights {
        true => give_up_rights(&options, event_loop, &mut isolation, &pair.data_disk)?,
        false => None,
    };
    doors.start()?;

    let listener = control_socket.as_ref().map(|(listener, _)| listener);
    let teller = OpeningTeller::new(listener, Some(&notifier), options.quiet);
    if !wait_until_running(event_loop, &pair.away, &pair.given_for_members, teller)? {
        pair.event_loop.close();
        return Ok(Outcome::StoppedWhileOpening);
    }
    let sockets = Sockets { nbd: listeners, vhost_user, control: control_socket, http };
    serve_open_pair(options, Opened { pair, sockets, isolation, fuse_made }, notifier, ready)
}

/// A cache that runs, and what was made for it while the process might still do everything.
struct Opened {
    pair: Pair,
    sockets: Sockets,
    isolation: IsolationReport,
    fuse_made: Option<MadeBefore>,
}

/// Where somebody can connect.
struct Sockets {
    nbd: Vec<Listener>,
    vhost_user: Option<UnixSocket>,
    control: Option<UnixSocket>,
    http: Vec<Door>,
}

/// Starts the frontends, and serves until the end.
fn serve_open_pair(
    options: ServeOptions,
    Opened { pair, sockets, isolation, fuse_made }: Opened,
    notifier: Notifier,
    ready: &mut dyn FnMut(&Ready),
) -> Result<Outcome, ServeError> {
    let Pair {
        mut event_loop,
        superblock,
        mut record,
        one_disk,
        data_disk,
        trim,
        member_names,
        ..
    } = pair;
    let recovery = note_the_start(&mut event_loop, &mut record, &options);
    let addresses = sockets.nbd.iter().map(|listener| listener.address.clone()).collect();
    for listener in sockets.nbd {
        event_loop.add_listener(listener);
    }
    let users = UserFinder::default();
    let member_names = MemberNames::new(member_names);
    let facts = Arc::new(DaemonFacts {
        uuid: superblock.uuid,
        cache_disk: options.cache_disks.to_string(),
        data_disk: options.data_disks.to_string(),
        members: member_names.clone(),
        data_offset_bytes: superblock.data_offset_bytes,
        tcp_durable: options.nbd_options.tcp_durable(&options.nbd),
        one_disk,
        nvram: NvramTerms::new(
            options.nvram.as_ref().map(|nvram| nvram.config),
            options.memory_max_bytes.is_some(),
        ),
        started: std::time::Instant::now(),
        frontends: OnceLock::new(),
        users: users.clone(),
        vhost_user: OnceLock::new(),
        dead_loops: OnceLock::new(),
        isolation,
    });
    let asked_at =
        AskedAt { control: sockets.control, http: sockets.http, token: options.http_token.clone() };
    let settings = options.settings.clone();
    let servers = Servers::start(asked_at, &event_loop.submitter(), &facts, settings);
    let servers = or_close!(servers, event_loop);
    let mut news = Ready {
        uuid: superblock.uuid,
        size_bytes: data_disk.bytes(),
        nbd: addresses,
        fuse: None,
        ublk: None,
        vhost_user: None,
        metrics: servers.http.as_ref().and_then(HttpServer::metrics_address),
        http: servers.page_address(options.http.as_ref()),
        control: options.control.clone(),
        recovery,
        degraded: members_behind(event_loop.core()),
        one_disk,
        submitter: event_loop.submitter(),
    };

    let wanted = Wanted {
        fuse: options.fuse,
        loop_device: options.loop_device,
        made_before: fuse_made,
        ublk: options.ublk,
        vhost_user: options.vhost_user.zip(sockets.vhost_user),
        quiet: options.quiet,
    };
    let read_only = options.engine.read_only;
    let shown = Shown { uuid: superblock.uuid, info: data_disk, read_only, trim };
    let begun = or_close!(begin(wanted, &shown, &event_loop.submitter()), event_loop);
    if let Some(thread) = &begun.vhost_user {
        let _ = facts.vhost_user.set(thread.trouble());
    }
    // Threads that were started before run where they like.
    event_loop.set_busy_poll(options.busy_poll.on_this_machine());
    or_close!(options.processor.map_or(Ok(()), run_on_processor), event_loop);
    // One for the sign of life, one for what is told here: both speak to the same socket.
    let mut watched = Notifier::from_environment();
    let mut told = |Made { fuse, ublk, vhost_user }| {
        (news.fuse, news.ublk, news.vhost_user) = (fuse, ublk, vhost_user);
        // It is told once, so nothing is there yet.
        let _ = facts.frontends.set(news.frontends());
        let _ = facts.dead_loops.set(news.fuse.iter().flat_map(|it| it.dead.clone()).collect());
        notifier.ready(&format!("serves {}", news.frontends().join(" ")));
        ready(&news);
    };
    let mut frontends = DeviceFrontends::new(begun, &mut told, users.clone());
    let mut news = DiskNews {
        members: MemberNews::new(member_names),
        legs: LegNews::default(),
        nvram: NvramNews::default(),
    };
    let manner = Manner {
        quiet: options.quiet,
        stop_timeout: options.stop_timeout,
        users,
        settings: options.settings,
    };
    let outcome =
        run_until_stopped(&mut event_loop, &mut frontends, &mut watched, &mut news, manner);

    note_the_end(event_loop, &outcome, &mut record, &facts.members);
    // Whoever waits for the end at the control socket learns of it.
    servers.stop();
    outcome
}

/// Where somebody may ask about a daemon.
#[derive(Default)]
pub(crate) struct AskedAt {
    pub(crate) control: Option<UnixSocket>,
    pub(crate) http: Vec<Door>,
    pub(crate) token: Option<Token>,
}

/// Who answers questions about a daemon, each on a thread of its own.
pub(crate) struct Servers {
    control: Option<ControlServer>,
    http: Option<HttpServer>,
}

impl Servers {
    pub(crate) fn start(
        AskedAt { control, http, token }: AskedAt,
        submitter: &Submitter,
        facts: &Arc<DaemonFacts>,
        settings: Option<SharedSettings>,
    ) -> Result<Servers, ServeError> {
        let site = DaemonSite::new(submitter.clone(), facts.clone(), settings.clone(), token);
        let control = control
            .map(|socket| ControlServer::start(socket, submitter.clone(), facts.clone(), settings))
            .transpose()
            .map_err(ServeError::system("start the control socket"))?;
        let http = match http.is_empty() {
            true => None,
            false => {
                let http = HttpServer::start(http, site);
                Some(http.map_err(ServeError::system("serve the page and metrics"))?)
            }
        };
        Ok(Servers { control, http })
    }

    /// Where the page is that was asked for there.
    fn page_address(&self, asked: Option<&HttpAddress>) -> Option<HttpAddress> {
        match (asked?, self.http.as_ref().and_then(HttpServer::page_address)) {
            (HttpAddress::Tcp(_), Some(address)) => Some(HttpAddress::Tcp(address)),
            (asked, _) => Some(asked.clone()),
        }
    }

    pub(crate) fn stop(self) {
        if let Some(http) = self.http {
            http.stop();
        }
        if let Some(control) = self.control {
            control.stop();
        }
    }
}

/// Members of a volume that are not up to date.
fn members_behind(engine: &TieredEngine) -> Vec<u8> {
    engine.volume().map_or_else(Vec::new, |volume| {
        let others = volume.member_statuses().filter(|(_, member)| !member.is_whole());
        others.map(|(index, _)| index.0).collect()
    })
}

/// How the pair is opened.
fn pair_options(options: &ServeOptions) -> PairOptions {
    PairOptions {
        cache_disks: options.cache_disks.clone(),
        data_disks: options.data_disks.clone(),
        take_over: options.take_over,
        not_for_volumes: None,
        engine: options.engine.clone(),
        one_disk: options.one_disk,
        memory_directory: options.memory_directory.clone(),
        memory_lost: options.memory_lost,
        nvram: options.nvram.clone(),
        nvram_lost: options.nvram_lost,
        size: DataDiskSize::Same,
        memory: options.memory_max_bytes.map(|bytes| MemoryLimit {
            bytes,
            clients: Clients {
                nbd: !options.nbd.is_empty(),
                fuse: options.fuse.is_some(),
                ublk: options.ublk.is_some(),
                vhost_user: options.vhost_user.is_some(),
            },
            connections_max: options.nbd_options.connections_max,
        }),
        pairs: options.pairs.clone(),
        quiet: options.quiet,
    }
}

/// Starts what runs the window hook, while that may be done.
fn start_window_hook(
    options: &ServeOptions,
    event_loop: &mut EventLoop<TieredEngine>,
) -> Result<(), ServeError> {
    // Nothing is shipped in order on a volume.
    let (Some(wanted), Some(disk)) = (&options.window_hook, event_loop.one_data_disk()) else {
        return Ok(());
    };
    let submitter = event_loop.submitter();
    let ended = move |window, is_kept| submitter.window_kept(window, is_kept);
    let data_disk = options.data_disks.to_string();
    let opened = disk.file().descriptors()[0];
    let hook = WindowHook::start(wanted, &data_disk, opened, ended);
    let hook = hook.map_err(ServeError::system("start what runs the window hook"))?;
    event_loop.set_window_hook(hook);
    Ok(())
}

/// Gives up files, capabilities and system calls that serving does not take. What takes them later
/// is made before, and is done by the caretaker.
fn give_up_rights(
    options: &ServeOptions,
    event_loop: &mut EventLoop<TieredEngine>,
    isolation: &mut IsolationReport,
    data_disk: &DataDiskInfo,
) -> Result<Option<MadeBefore>, ServeError> {
    let (mut fuse_made, mut is_kept) = (None, false);
    if let Some(program) = &options.caretaker {
        let directory = options.fuse.as_deref();
        let make = |directory| MadeBefore::make(directory, options.engine.read_only);
        fuse_made = directory.map(make).transpose()?;
        let duties = duties(options, fuse_made.as_ref(), data_disk.logical_block_size);
        is_kept = caretaker::start(program, &duties).is_ok();
    }
    if is_kept || options.fuse.is_none() {
        let reach = reach(options, event_loop, is_kept);
        isolation.give_up(reach, options.ublk.is_some());
    }
    Ok(fuse_made)
}

/// What is due once the cache is open, before anything is acknowledged.
fn note_the_start(
    event_loop: &mut EventLoop<TieredEngine>,
    record: &mut PairEntry,
    options: &ServeOptions,
) -> RecoveryReport {
    // Not before the superblock says it, and before anything is acknowledged.
    record.opened(event_loop.core().superblock().generation);
    give_back_left_over(event_loop, options.quiet);
    // From now on it may hold what is acknowledged and nowhere else.
    let now = event_loop.now();
    if let Some(memory) = event_loop.memory() {
        memory.guard(now);
    }
    about_this_cache(event_loop, options);
    let recovery = event_loop.core().status().recovery;
    if recovery.data_disk_changed {
        eprintln!(
            "dcd: the data-disk has changed since this cache-disk was last in use. The cache is \
             empty, so nothing is overwritten. If dcd has not run without its cache-disk meanwhile, \
             check that it is the right data-disk"
        );
    }
    // And nobody may mount the data-disk by its label from now on.
    options.data_disks.disks.iter().for_each(|disk| let_udev_look(disk.path()));
    for (member, disk) in &options.data_disks.replacements {
        begin_rebuild(event_loop, *member, disk);
    }
    recovery
}

/// Whatever is said from now on is about this cache.
fn about_this_cache(event_loop: &EventLoop<TieredEngine>, options: &ServeOptions) {
    let cache = event_loop.core().superblock().uuid.to_string();
    log::about(log::About { cache, device: options.data_disks.to_string() });
    told!(Debug, "opened", "dcd: the cache is open: {}", options.cache_disks);
}

/// Closes what served, and writes down and says how it is left.
fn note_the_end(
    mut event_loop: EventLoop<TieredEngine>,
    outcome: &Result<Outcome, ServeError>,
    record: &mut PairEntry,
    members: &MemberNames,
) {
    // After an end in order the log holds everything, so the memory goes. After another it may be
    // all there is of what was acknowledged. Of a cache that has given up its cache-disk it stays,
    // and tells a later start that what is in it counts no more.
    let is_closed = *event_loop.phase() == Phase::Closed;
    let is_detached = outcome.as_ref().is_ok_and(|outcome| *outcome == Outcome::Detached);
    if is_detached {
        event_loop.label_without_cache();
    }
    let (engine, _) = event_loop.close();
    let is_uncached = engine.cache_disk_failure().is_some();
    // What the superblock says, which has been written.
    if is_closed && outcome.is_ok() && !is_uncached {
        record.closed(engine.superblock(), engine.holds_newer_data());
    } else if is_detached && is_uncached {
        record.detached_without_cache();
    }
    let not_whole = engine.volume().map(|volume| members_not_whole(volume, members));
    let not_whole = not_whole.unwrap_or_default();
    if !not_whole.is_empty() {
        told!(Warning, "stopped", "dcd: stopped. The volume is degraded: {}", not_whole.join(", "));
    }
    if is_uncached && is_detached {
        eprintln!(
            "dcd: detached: the data-disk holds everything. The cache-disk has failed and could not \
             be marked: make it anew with `dcd create` before you use it again"
        );
    }
}

/// The files that are needed from now on.
fn reach(options: &ServeOptions, event_loop: &mut EventLoop<TieredEngine>, is_kept: bool) -> Reach {
    let mut reach = Reach::new();
    event_loop.memory().into_iter().for_each(|memory| reach.memory_directory(memory.directory()));
    let certificates = options.nbd_options.tls.iter().flat_map(TlsFiles::paths);
    certificates.for_each(|path| reach.watched_file(path));
    options.settings_file.iter().for_each(|path| reach.watched_file(path));
    // Somebody else removes them.
    if !is_kept {
        sockets_of(options).iter().for_each(|path| reach.socket(path));
    }
    disks_of(options).for_each(|(_, disk)| reach.disk(&disk_of(disk.path()), disk.fault_control()));
    if let Some(NvramOptions { disk, .. }) = &options.nvram {
        reach.disk(&disk_of(disk.path()), disk.fault_control());
    }
    if options.ublk.is_some() {
        reach.devices_to_be();
    }
    reach
}

/// All that has a name in the file system.
fn sockets_of(options: &ServeOptions) -> Vec<PathBuf> {
    let nbd = options.nbd.iter().filter_map(|address| match address {
        NbdAddress::Unix(path) => Some(path),
        NbdAddress::Tcp { .. } => None,
    });
    let http = options.http.iter().filter_map(|address| match address {
        HttpAddress::Unix(path) => Some(path),
        HttpAddress::Tcp(_) => None,
    });
    nbd.chain(&options.control).chain(&options.vhost_user).chain(http).cloned().collect()
}

/// What takes rights that are given up.
fn duties(options: &ServeOptions, fuse: Option<&MadeBefore>, block_size: u32) -> Duties {
    Duties {
        sockets: sockets_of(options),
        mount: fuse.map(|made| made.point.directory().to_owned()),
        loop_device: fuse.filter(|_| options.loop_device).map(|made| LoopDuty {
            block_size,
            read_only: options.engine.read_only,
            left: made.stale.clone(),
        }),
    }
}

/// All disks, and what each is.
fn disks_of(options: &ServeOptions) -> impl Iterator<Item = (&'static str, &DeviceSpec)> {
    let cache_disks = options.cache_disks.all().map(|disk| ("cache-disk", disk));
    cache_disks.chain(data_disks_of(options).map(|disk| ("data-disk", disk)))
}

/// The data-disks, with those that take the place of lost ones.
fn data_disks_of(options: &ServeOptions) -> impl Iterator<Item = &DeviceSpec> {
    let replacements = options.data_disks.replacements.iter().map(|(_, disk)| disk);
    options.data_disks.disks.iter().chain(replacements)
}

/// Has what belongs on a disk that took the place of a lost one written to it.
fn begin_rebuild(event_loop: &mut EventLoop<TieredEngine>, member: u8, disk: &DeviceSpec) {
    let request = VolumeRequest::Rebuild { member: MemberIndex(member) };
    let disk = disk.to_string();
    let told = Completion::new(move |reply| {
        if let Err(error) = reply.result {
            eprintln!(
                "dcd: member {member} ({disk}) is not rebuilt yet: {error}. Later: dcd volume rebuild {member}"
            );
        }
    });
    event_loop.request(Operation::Volume(request), told);
}
