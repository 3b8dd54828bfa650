//! `dcd slow-disk` and `dcd serve --null`: one disk over NBD, FUSE, ublk or vhost-user without a
//! cache, so that slowness, and what the layers above cost, can be felt and measured.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use dcd_engine::{Device, Uuid};

use crate::clock::Clock;
use crate::device::device_spec::DeviceSpec;
use crate::disk::Disk;
use crate::event_loop::pass_through::PassThrough;
use crate::event_loop::submitter::Submitter;
use crate::event_loop::{DataSide, EventLoop, Parts};
use crate::frontend::fuse::thread::FuseReady;
use crate::frontend::nbd::Export;
use crate::frontend::nbd::doors::NbdDoors;
use crate::frontend::nbd::listen::{NbdAddress, NbdOptions, listen_unix};
use crate::frontend::nbd::tls::files::TlsFiles;
use crate::frontend::ublk;
use crate::pair::book::PairBook;
use crate::pair::new_member::MemberNames;
use crate::process::confine::Reach;
use crate::process::isolation::{check_processor, isolate, run_on_processor};
use crate::process::service_manager::Notifier;
use crate::process::signals::Signals;
use crate::report::status_report::{DaemonFacts, NvramTerms};
use crate::ring::busy_poll::BusyPollMax;
use crate::serve::device_frontends::{DeviceFrontends, Made, Shown, Wanted, begin};
use crate::serve::error::ServeError;
use crate::serve::leg_news::LegNews;
use crate::serve::member_news::MemberNews;
use crate::serve::nvram_news::NvramNews;
use crate::serve::open_pair::export_of;
use crate::serve::supervise::{DiskNews, Manner, Outcome, run_until_stopped};
use crate::serve::{AskedAt, Servers, UblkNumber, mount_place};
use crate::users::UserFinder;

/// What to serve.
#[derive(Clone, Debug)]
pub struct SlowDiskOptions {
    /// The disk.
    pub disk: DeviceSpec,
    /// Where NBD clients are awaited.
    pub nbd: Vec<NbdAddress>,
    /// And how.
    pub nbd_options: NbdOptions,
    /// Directory in which the disk appears as a file.
    pub fuse: Option<PathBuf>,
    /// Whether to make a loop device on that file.
    pub loop_device: bool,
    /// The ublk device, if there is to be one.
    pub ublk: Option<UblkNumber>,
    /// Where a virtual machine is awaited.
    pub vhost_user: Option<PathBuf>,
    /// The control socket; it counts requests, and has no status to show.
    pub control: Option<PathBuf>,
    /// Refuse changes. Only so is a disk shown whose cache may hold what is newer, or one that is a
    /// part of something.
    pub read_only: bool,
    /// What the host remembers of pairs.
    pub pairs: PairBook,
    /// The processor that the loop runs on, and nowhere else.
    pub processor: Option<usize>,
    /// How long the loop looks for the next event before it sleeps, at most.
    pub busy_poll: BusyPollMax,
    /// Whether the calling thread, and all that it starts, give up files, capabilities and system
    /// calls that serving does not need. Not with FUSE: nobody who has done that may mount.
    pub give_up_rights: bool,
    /// No messages about clients.
    pub quiet: bool,
}

/// What is known when the disk is served.
pub struct SlowDiskReady {
    /// Where NBD clients are awaited, with real ports.
    pub nbd: Vec<NbdAddress>,
    /// The FUSE file and loop device, if asked for.
    pub fuse: Option<FuseReady>,
    /// The ublk device, if asked for.
    pub ublk: Option<PathBuf>,
    /// Where a virtual machine is awaited, if asked for.
    pub vhost_user: Option<PathBuf>,
    /// Size of the disk.
    pub size_bytes: u64,
    /// For requests of this process, and to stop it.
    pub submitter: Submitter,
}

/// Serves a disk until a signal (or [`Submitter::stop`]) ends it.
pub fn slow_disk(
    options: SlowDiskOptions,
    ready: &mut dyn FnMut(&SlowDiskReady),
) -> Result<Outcome, ServeError> {
    mount_place::check_slow_disk(&options)?;
    options.processor.map_or(Ok(()), check_processor)?;
    options.ublk.map_or(Ok(()), |_| ublk::check())?;
    let signals = Rc::new(Signals::install_all().map_err(ServeError::system("receive signals"))?);
    // Behind that: a thread that began before would be killed by signals, and all with it.
    let doors = NbdDoors::new(&options.nbd_options, options.quiet)?;
    let disk = Disk::open(Device::DataDisk, &options.disk).map_err(ServeError::device("disk"))?;
    if !options.read_only {
        options.pairs.check_without_cache(disk.file()).map_err(ServeError::WithoutCache)?;
    }
    if options.loop_device && options.fuse.is_none() {
        return Err(ServeError::LoopWithoutFuse);
    }
    let listeners = doors.listen(&options.nbd)?;
    let vhost_user_socket = options.vhost_user.as_deref().map(listen_unix).transpose()?;
    let info = disk.data_disk_info();
    let trim = disk.can_give_back_space();
    let description = format!("{} without a cache (dcd slow-disk)", options.disk);
    let export = Export { description, ..export_of(info, options.read_only, trim) };
    let mut event_loop = EventLoop::new(Parts {
        core: PassThrough::new(info),
        cache_side: None,
        memory: None,
        nvram: None,
        data: DataSide::Disk(Box::new(disk)),
        label: None,
        kernel: crate::ring::kernel::linux().map_err(ServeError::system("make an io_uring"))?,
        clock: Clock::start(),
        export,
        clients_max: options.nbd_options.connections_max,
        signals: Some(signals),
        quiet: options.quiet,
    })
    .map_err(ServeError::system("make an io_uring"))?;
    let control_socket = options.control.as_deref().map(listen_unix).transpose()?;
    let mut isolation = isolate(false)?;
    if options.give_up_rights && options.fuse.is_none() {
        isolation.give_up(reach(&options), options.ublk.is_some());
    }
    doors.start()?;
    let addresses = listeners.iter().map(|listener| listener.address.clone()).collect();
    for listener in listeners {
        event_loop.add_listener(listener);
    }
    let users = UserFinder::default();
    let facts = DaemonFacts {
        uuid: Uuid([0; 16]),
        cache_disk: String::new(),
        data_disk: options.disk.to_string(),
        members: MemberNames::default(),
        data_offset_bytes: 0,
        tcp_durable: options.nbd_options.tcp_durable(&options.nbd),
        one_disk: false,
        nvram: NvramTerms::new(None, false),
        started: std::time::Instant::now(),
        frontends: OnceLock::new(),
        users: users.clone(),
        vhost_user: OnceLock::new(),
        dead_loops: OnceLock::new(),
        isolation,
    };
    let asked_at = AskedAt { control: control_socket, ..AskedAt::default() };
    let servers = Servers::start(asked_at, &event_loop.submitter(), &Arc::new(facts), None)?;
    let mut news = SlowDiskReady {
        nbd: addresses,
        fuse: None,
        ublk: None,
        vhost_user: None,
        size_bytes: info.bytes(),
        submitter: event_loop.submitter(),
    };
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&mark_of_disk(&options.disk).to_be_bytes());
    let wanted = Wanted {
        fuse: options.fuse,
        loop_device: options.loop_device,
        made_before: None,
        ublk: options.ublk,
        vhost_user: options.vhost_user.zip(vhost_user_socket),
        quiet: options.quiet,
    };
    let shown = Shown { uuid: Uuid(uuid), info, read_only: options.read_only, trim };
    let begun = begin(wanted, &shown, &event_loop.submitter())?;
    event_loop.set_busy_poll(options.busy_poll.on_this_machine());
    options.processor.map_or(Ok(()), run_on_processor)?;
    let mut told = |Made { fuse, ublk, vhost_user }| {
        (news.fuse, news.ublk, news.vhost_user) = (fuse, ublk, vhost_user);
        Notifier::from_environment().ready("serves without a cache");
        ready(&news);
    };
    let mut frontends = DeviceFrontends::new(begun, &mut told, users.clone());
    let mut notifier = Notifier::from_environment();
    let mut news = DiskNews {
        members: MemberNews::new(MemberNames::default()),
        legs: LegNews::default(),
        nvram: NvramNews::default(),
    };
    let stop_timeout = std::time::Duration::ZERO;
    let manner = Manner { quiet: options.quiet, stop_timeout, users, settings: None };
    let stopped =
        run_until_stopped(&mut event_loop, &mut frontends, &mut notifier, &mut news, manner);
    event_loop.close();
    servers.stop();
    stopped
}

/// The files that are needed from now on.
fn reach(options: &SlowDiskOptions) -> Reach {
    let mut reach = Reach::new();
    let certificates = options.nbd_options.tls.iter().flat_map(TlsFiles::paths);
    certificates.for_each(|path| reach.watched_file(path));
    sockets_of(options).iter().for_each(|path| reach.socket(path));
    reach.disk(options.disk.path(), options.disk.fault_control());
    reach
}

/// All that has a name in the file system.
pub(crate) fn sockets_of(options: &SlowDiskOptions) -> Vec<PathBuf> {
    let nbd = options.nbd.iter().filter_map(|address| match address {
        NbdAddress::Unix(path) => Some(path),
        NbdAddress::Tcp { .. } => None,
    });
    nbd.chain(&options.control).chain(&options.vhost_user).cloned().collect()
}

/// Says of a device which disk it shows; without a cache there is no UUID. (FNV-1a, never zero.)
fn mark_of_disk(disk: &DeviceSpec) -> u64 {
    let step = |mark: u64, byte: u8| (mark ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    disk.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, step) | 1
}
