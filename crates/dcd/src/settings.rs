//! The settings of a served disk: one flag each, one key each in the configuration file, one
//! field each in [`EngineConfig`] where the engine has a say.
//!
//! All are optional here, so that flags can be laid over a file and the engine's own defaults
//! under both. A test in `command/cli.rs` proves that the keys of the file are exactly the flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dcd_daemon::device::device_spec::{DeviceSpec, DeviceSpecError};
use dcd_daemon::device::network::{TakeOver, store_of};
use dcd_daemon::frontend::nbd::listen::{NbdAddress, NbdOptions};
use dcd_daemon::frontend::nbd::server::CONNECTIONS_LIMIT;
use dcd_daemon::frontend::nbd::tls::TlsAccess;
use dcd_daemon::frontend::nbd::tls::files::TlsFiles;
use dcd_daemon::http::address::HttpAddress;
use dcd_daemon::ring::busy_poll::BusyPollMax;
use dcd_daemon::serve::UblkNumber;
pub use dcd_daemon::units_text::parse_percent;
use dcd_daemon::units_text::{UnitError, parse_duration, parse_size};
use dcd_engine::units::Uuid;
use dcd_engine::{AckMode, DestagePolicyKind, EngineConfig, Limits, Mode};
use dcd_protocol::store::{LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, is_lease};

use crate::nvram_settings::{NvramPolicyArgument, SurvivesArgument};

/// Groups of `dcd serve --help`.
const DISKS: &str = "Disks";
const SERVED: &str = "How it is served";
const WATCH: &str = "Control and watching";
const WRITES: &str = "Writes";
const DESTAGE: &str = "Destaging";
const READS: &str = "Reads";
const VOLUME: &str = "Volumes and cache-disks on several disks";
const NVRAM: &str = "Memory in front of the log";
const PROCESS: &str = "The process and its memory";
const TROUBLE: &str = "After trouble, for one start";

/// What can be set, as far as it has been.
#[derive(Args, Clone, Debug, Default)]
pub struct Settings {
    /// The cache-disk, made by `dcd create`. If it is on several disks, each of its legs in a
    /// --cache-disk of its own, in any order.
    #[arg(long, value_name = "FILE|DEVICE", help_heading = DISKS)]
    pub cache_disk: Vec<DeviceSpec>,
    /// The share of the cache-disk, if several caches share it: its name, or the UUID of its cache
    /// [default: that of the data-disk].
    #[arg(long, value_name = "NAME|UUID", help_heading = DISKS)]
    pub share: Option<String>,
    /// The disk it belongs to, also one of another machine: nbd://HOST/EXPORT. Of a volume, each of its disks in a --data-disk of its own, in any
    /// order.
    #[arg(long, value_name = "DISK", help_heading = DISKS)]
    pub data_disk: Vec<DeviceSpec>,
    /// Serve NBD here: unix:PATH, or tcp:ADDRESS:PORT, which beyond this machine needs --tls-cert.
    /// May be given again.
    #[arg(long, value_name = "ADDRESS", help_heading = SERVED)]
    pub nbd: Vec<NbdAddress>,
    /// Certificate of this server, PEM. With it NBD over TCP is taken only with TLS 1.3 and a
    /// certificate of the client.
    #[arg(long, value_name = "FILE", help_heading = SERVED)]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate, PEM.
    #[arg(long, value_name = "FILE", help_heading = SERVED)]
    pub tls_key: Option<PathBuf>,
    /// Certificates of the authorities that sign those of clients, PEM.
    #[arg(long, value_name = "FILE", help_heading = SERVED)]
    pub tls_ca: Option<PathBuf>,
    /// Only clients whose certificate has this name (its common name, or one of its alternative
    /// names) may connect. May be given again.
    #[arg(long, value_name = "NAME", help_heading = SERVED)]
    pub tls_allow: Vec<String>,
    /// Clients whose certificate has this name may connect and only read. May be given again.
    #[arg(long, value_name = "NAME", help_heading = SERVED)]
    pub tls_read_only: Vec<String>,
    /// Listen on any TCP address without TLS: whoever reaches the port may read and change
    /// everything.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = SERVED)]
    pub insecure_tcp: Option<bool>,
    /// When a change over TCP is acknowledged [default: durable].
    #[arg(long, value_name = "MODE", help_heading = SERVED)]
    pub tcp_ack: Option<TcpAckArgument>,
    /// Most NBD clients at a time [default: 128].
    #[arg(long, value_name = "COUNT", help_heading = SERVED)]
    pub connections_max: Option<usize>,
    /// Show the disk as the file `disk` in this directory.
    #[arg(long, value_name = "DIRECTORY", help_heading = SERVED)]
    pub fuse: Option<PathBuf>,
    /// Also attach a loop device to that file.
    #[arg(long = "loop", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = SERVED)]
    pub loop_device: Option<bool>,
    /// Make a block device, /dev/ublkbN, with this number or the next free one. Needs root and
    /// Linux 6.5 or newer with the module ublk_drv. A device that an earlier dcd of this cache left
    /// is taken over, with all that waits in it.
    #[arg(long, num_args = 0..=1, default_missing_value = "any", value_name = "NUMBER", value_parser = parse_ublk, help_heading = SERVED)]
    pub ublk: Option<UblkNumber>,
    /// Await a virtual machine on this unix socket: the disk of QEMU's vhost-user-blk-pci. Its
    /// memory must be a memfd that is shared (docs/vhost-user.md).
    #[arg(long, value_name = "SOCKET", help_heading = SERVED)]
    pub vhost_user: Option<PathBuf>,
    /// Take commands (status, flush, drain, detach) on this unix socket.
    #[arg(long, value_name = "SOCKET", help_heading = WATCH)]
    pub control: Option<PathBuf>,
    /// Show a page here for browsers of this machine: 127.0.0.1:PORT, or unix:PATH. It tells all
    /// that `dcd status` does, and has the metrics, too. Every user of this machine can read it at a
    /// port, only root and the daemon's own user at a socket.
    #[arg(long, value_name = "ADDRESS", help_heading = WATCH)]
    pub http: Option<HttpAddress>,
    /// Whoever sends what is in this file, at least 16 characters, may change settings and drain
    /// there. Without it nobody may.
    #[arg(long, value_name = "FILE", help_heading = WATCH)]
    pub http_token: Option<PathBuf>,
    /// Serve metrics for Prometheus here, over plain HTTP: ADDRESS:PORT. Whoever can connect can
    /// read them.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_socket_address, help_heading = WATCH)]
    pub metrics: Option<SocketAddr>,
    /// Whether changes go to the log, or past it, straight to the data-disk [default: write-back].
    /// `dcd set` switches it while disks are used.
    #[arg(long, value_name = "MODE", help_heading = WRITES)]
    pub mode: Option<ModeArgument>,
    /// When a write is acknowledged [default: memory]; NBD over TCP has --tcp-ack.
    #[arg(long, value_name = "MODE", help_heading = WRITES)]
    pub ack: Option<AckArgument>,
    /// Longest time that an acknowledged write waits before it goes to the log [default: 100ms].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = WRITES)]
    pub max_delay: Option<Duration>,
    /// Writes of at least this size go straight to the data-disk [default: 1M; the paper: 64k].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = WRITES)]
    pub bypass_threshold: Option<u64>,
    /// Which segment is destaged first [default: first-write-first].
    #[arg(long, value_name = "POLICY", help_heading = DESTAGE)]
    pub destage_policy: Option<PolicyArgument>,
    /// With --destage-policy ordered: how far what --window-hook kept last may be behind [default:
    /// 10s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = DESTAGE)]
    pub ship_within: Option<Duration>,
    /// With --destage-policy ordered: a command that keeps the data-disk as it is, by a snapshot or
    /// a copy. It is run by /bin/sh whenever the data-disk is flushed and holds exactly the changes
    /// up to some moment, with DCD_WINDOW (a number that grows) and DCD_DATA_DISK in its
    /// environment; nothing is written there before it has ended well.
    #[arg(long, value_name = "COMMAND", help_heading = DESTAGE)]
    pub window_hook: Option<String>,
    /// The window hook is killed after so long, and tried again [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = DESTAGE)]
    pub window_hook_timeout: Option<Duration>,
    /// Quiet time before destaging while the cache is nearly empty [default: 1s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = DESTAGE)]
    pub idle_max: Option<Duration>,
    /// Quiet time before destaging while the cache is nearly full [default: 1ms].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = DESTAGE)]
    pub idle_min: Option<Duration>,
    /// Destage without waiting for quiet when this share of segments is dirty [default: 80%].
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, help_heading = DESTAGE)]
    pub dirty_high: Option<u8>,
    /// ... until the share is below this [default: 60%].
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, help_heading = DESTAGE)]
    pub dirty_low: Option<u8>,
    /// Most bytes per second that destaging writes; 0 is no limit [default: 0].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = DESTAGE)]
    pub destage_rate: Option<u64>,
    /// Most bytes per second that a leg of the cache-disk is filled with; 0: as fast as the disks
    /// are [default: 0].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = READS)]
    pub fill_rate: Option<u64>,
    /// Most writes per second that destaging does; 0 is no limit [default: 0].
    #[arg(long, value_name = "COUNT", help_heading = DESTAGE)]
    pub destage_iops: Option<u64>,
    /// Whether cache-disk and data-disk share one arm; destaging then gives way to everything
    /// [default: auto].
    #[arg(long, value_name = "WHEN", help_heading = DESTAGE)]
    pub one_disk: Option<OneDiskArgument>,
    /// Do not verify the checksum of each block that is read.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = DISKS)]
    pub no_verify_reads: Option<bool>,
    /// Leave the log unused: every write goes straight to the data-disks, and a volume is a plain
    /// RAID. The log must be empty. For comparison.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = DISKS)]
    pub no_log: Option<bool>,
    /// Call a member of a volume suspect after so many errors and rotten lines; 0: never [default:
    /// 16].
    #[arg(long, value_name = "NUMBER", help_heading = VOLUME)]
    pub suspect_after: Option<u64>,
    /// Scrub a volume by itself so long after the last time; 0: never [default: 30d].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = VOLUME)]
    pub scrub_every: Option<Duration>,
    /// Have a spare take the place of a member of a volume that has failed for so long; 0: never by
    /// itself [default: 300s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = VOLUME)]
    pub spare_after: Option<Duration>,
    /// Memory for checksums of a volume's lines; others are read from the cache-disk when they are
    /// wanted [default: 64M].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = VOLUME)]
    pub volume_memory: Option<u64>,
    /// Memory for the index, at least 1M for 4G of the cache-disk; what has no room is read from the
    /// cache-disk when it is wanted [default: all of it is in memory].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = PROCESS)]
    pub index_max: Option<u64>,
    /// How long a write waits for room in a full cache before it fails [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = WRITES)]
    pub full_timeout: Option<Duration>,
    /// A drain or detach ends when nothing more gets to the data-disk for so long, or for an eighth
    /// of it when a disk says no or a member is away [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = DESTAGE)]
    pub drain_timeout: Option<Duration>,
    /// After how long without an answer a disk counts as failed, at least 1s [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = WRITES)]
    pub io_timeout: Option<Duration>,
    /// After how long without an answer a member of a volume is done without, at least 1s [default:
    /// 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = VOLUME)]
    pub member_timeout: Option<Duration>,
    /// Number of segment buffers in memory, at least 3 [default: 16].
    #[arg(long, value_name = "COUNT", help_heading = WRITES)]
    pub segment_buffers: Option<u32>,
    /// Memory for reading sequences ahead; 0: they are not [default: 16M].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = READS)]
    pub read_ahead: Option<u64>,
    /// Share of the read area that sequences may take [default: 50%].
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, help_heading = READS)]
    pub sequence_share: Option<u8>,
    /// Do not copy what is read to the read area; sequences are.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = READS)]
    pub no_hot_blocks: Option<bool>,
    /// Do not look for sequences in what is read; those that were recorded or found before are
    /// served.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = READS)]
    pub no_detect: Option<bool>,
    /// Refuse everything that changes data.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = DISKS)]
    pub read_only: Option<bool>,
    /// Start although blocks are lost or the data-disk was changed behind the cache; only after
    /// reading what is lost. Never in a configuration file.
    #[arg(long, help_heading = TROUBLE)]
    pub accept_damage: bool,
    /// Start although the record of pairs of this host says that these disks do not belong
    /// together, or one is older than the other. Never in a configuration file.
    #[arg(long, help_heading = TROUBLE)]
    pub trust_disks: bool,
    /// Take a data-disk in an object store from whoever has it: with the cache on the cache-disk if
    /// that is the store's, else with a new one. `now`: also from a dcd whose lease has not ended,
    /// which is shut out; what it has in its log and in no window is not in the store. Never in a
    /// configuration file.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "lapsed",
          value_name = "lapsed|now", help_heading = TROUBLE)]
    pub take_over: Option<TakeOverArgument>,
    /// Serve a volume although disks are missing that held something of it. Never in a
    /// configuration file.
    #[arg(long, help_heading = VOLUME)]
    pub degraded: bool,
    /// A blank disk that takes the place of a lost one of a volume, by its number; what belongs on
    /// it is written to it while the volume is served. With --degraded, as long as nothing has been
    /// served without the lost one. Never in a configuration file. May be given again.
    #[arg(long, value_name = "NUMBER=DISK", value_parser = parse_replacement, help_heading = VOLUME)]
    pub replace_member: Vec<(u8, DeviceSpec)>,
    /// The witness of a cache-disk on several disks: a file or device of at least 72 KiB on a third
    /// one. With it a start does with one leg of two. A blank one becomes the witness.
    #[arg(long, value_name = "FILE|DEVICE", help_heading = DISKS)]
    pub witness: Option<DeviceSpec>,
    /// Make this blank disk another leg of the cache-disk: it is filled while dcd serves. DISK/NAME
    /// makes a share of a disk for it. May be given again.
    #[arg(long, value_name = "DISK", help_heading = TROUBLE)]
    pub new_leg: Vec<DeviceSpec>,
    /// Start without this leg of the cache-disk, although it may hold what the others do not; only
    /// after reading what a start without it said.
    #[arg(long, value_name = "UUID", help_heading = TROUBLE)]
    pub without_leg: Vec<Uuid>,
    /// Where the memory is that outlives a crash of dcd [default: a directory of its own below
    /// /run/dcd; of other users below $XDG_RUNTIME_DIR/dcd, or /dev/shm/dcd-UID].
    #[arg(long, value_name = "DIRECTORY", help_heading = PROCESS)]
    pub memory_directory: Option<PathBuf>,
    /// Start although the memory of the last session is not found, in which writes may be that were
    /// acknowledged and not flushed: as after a power cut. Without effect where it is found. Never
    /// in a configuration file.
    #[arg(long, help_heading = TROUBLE)]
    pub memory_lost: bool,
    /// A memory in front of the log, where small writes are done at once and overwritten, before
    /// they reach the log in groups: a device or file on a disk, which is written and flushed, or a
    /// file in a file system in memory with --nvram-survives. It begins empty; afterwards it belongs
    /// to this cache until that is stopped in order.
    #[arg(long, value_name = "FILE|DEVICE", help_heading = NVRAM)]
    pub nvram: Option<DeviceSpec>,
    /// What the memory of --nvram survives, if it is a file in memory: a person says so, and a flush
    /// believes it.
    #[arg(long, value_name = "WHAT", help_heading = NVRAM)]
    pub nvram_survives: Option<SurvivesArgument>,
    /// What leaves the memory first [default: auto; lru with --nvram-high, --nvram-low or
    /// --nvram-idle, which `auto` has follow the load].
    #[arg(long, value_name = "POLICY", help_heading = NVRAM)]
    pub nvram_policy: Option<NvramPolicyArgument>,
    /// The memory is cleaned when more than this share of it is dirty; 100%: when a write needs the
    /// room [default: 90%].
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, help_heading = NVRAM)]
    pub nvram_high: Option<u8>,
    /// Cleaning ends at this share [default: 20%, at most --nvram-high].
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, help_heading = NVRAM)]
    pub nvram_low: Option<u8>,
    /// Cleaning that no write waits for waits until nothing else was asked of the log for so long
    /// [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = NVRAM)]
    pub nvram_idle: Option<Duration>,
    /// Cleaning that no write waits for leaves this share of the memory dirty, which spares writes
    /// below: for flash [default: 0%].
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, help_heading = NVRAM)]
    pub nvram_wear_floor: Option<u8>,
    /// What is cleaned together: regions of this size, at most 2M [default: 64k].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = NVRAM)]
    pub nvram_group: Option<u64>,
    /// Writes of more than this go past the memory [default: 16k].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = NVRAM)]
    pub nvram_bypass: Option<u64>,
    /// With --nvram-policy wstf: at this age a group is cleaned wherever it lies [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = NVRAM)]
    pub nvram_age_max: Option<Duration>,
    /// Start although the memory in front of the log is not found, or not the one that the last
    /// session had: what only it held is lost. Never in a configuration file.
    #[arg(long, help_heading = TROUBLE)]
    pub nvram_lost: bool,
    /// Run the thread that serves on this processor and nowhere else.
    #[arg(long = "cpu", value_name = "NUMBER", help_heading = PROCESS)]
    pub processor: Option<usize>,
    /// Look for the next request for so long before sleeping, as long as requests come that soon;
    /// 0: never; auto: ten times what waking up takes here, at most 1ms. Costs processor time that
    /// nobody else wants [default: auto].
    #[arg(long, value_name = "TIME", value_parser = parse_busy_poll, help_heading = PROCESS)]
    pub busy_poll: Option<BusyPollMax>,
    /// Start before the disks are there, and wait for them. For services; `dcd status` tells what
    /// is waited for.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = DISKS)]
    pub wait: Option<bool>,
    /// When a signal comes while the disk is mounted, open, or connected to by NBD clients, serve
    /// them on for so long, until they have gone; 0s: not at all. Users of a ublk device, and
    /// virtual machines of vhost-user, wait for the next start instead [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = PROCESS)]
    pub stop_timeout: Option<Duration>,
    /// Keep all memory of dcd from being swapped out.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "true|false", help_heading = PROCESS)]
    pub lock_memory: Option<bool>,
    /// Refuse to start if more memory than this may come to be needed, with 64 MiB for each NBD
    /// client; and take only as many NBD clients at a time as it is enough for.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = PROCESS)]
    pub memory_max: Option<u64>,
}

impl Settings {
    /// A flag that means nothing without a cache, if one of them is set.
    pub fn needs_a_cache(&self) -> Option<&'static str> {
        // All fields are named, so that none is forgotten that will be added.
        let Settings {
            data_disk: _,
            nbd: _,
            tls_cert: _,
            tls_key: _,
            tls_ca: _,
            tls_allow: _,
            tls_read_only: _,
            insecure_tcp: _,
            tcp_ack,
            connections_max: _,
            fuse: _,
            loop_device: _,
            ublk: _,
            vhost_user: _,
            control: _,
            read_only: _,
            processor: _,
            busy_poll: _,
            cache_disk,
            share,
            http,
            http_token,
            metrics,
            mode,
            ack,
            max_delay,
            bypass_threshold,
            destage_policy,
            ship_within,
            window_hook,
            window_hook_timeout,
            idle_max,
            idle_min,
            dirty_high,
            dirty_low,
            destage_rate,
            fill_rate,
            destage_iops,
            one_disk,
            no_verify_reads,
            no_log,
            suspect_after,
            scrub_every,
            spare_after,
            volume_memory,
            index_max,
            full_timeout,
            drain_timeout,
            io_timeout,
            member_timeout,
            segment_buffers,
            read_ahead,
            sequence_share,
            no_hot_blocks,
            no_detect,
            accept_damage,
            trust_disks,
            take_over,
            degraded,
            replace_member,
            witness,
            new_leg,
            without_leg,
            memory_directory,
            memory_lost,
            nvram,
            nvram_survives,
            nvram_policy,
            nvram_high,
            nvram_low,
            nvram_idle,
            nvram_wear_floor,
            nvram_group,
            nvram_bypass,
            nvram_age_max,
            nvram_lost,
            wait,
            stop_timeout,
            lock_memory,
            memory_max,
        } = self;
        let is_on = |flag: &Option<bool>| *flag == Some(true);
        let flags = [
            ("--cache-disk", !cache_disk.is_empty()),
            ("--share", share.is_some()),
            ("--witness", witness.is_some()),
            ("--new-leg", !new_leg.is_empty()),
            ("--without-leg", !without_leg.is_empty()),
            ("--http", http.is_some()),
            ("--http-token", http_token.is_some()),
            ("--metrics", metrics.is_some()),
            ("--tcp-ack", tcp_ack.is_some()),
            ("--mode", mode.is_some()),
            ("--ack", ack.is_some()),
            ("--max-delay", max_delay.is_some()),
            ("--bypass-threshold", bypass_threshold.is_some()),
            ("--destage-policy", destage_policy.is_some()),
            ("--ship-within", ship_within.is_some()),
            ("--window-hook", window_hook.is_some()),
            ("--window-hook-timeout", window_hook_timeout.is_some()),
            ("--idle-max", idle_max.is_some()),
            ("--idle-min", idle_min.is_some()),
            ("--dirty-high", dirty_high.is_some()),
            ("--dirty-low", dirty_low.is_some()),
            ("--destage-rate", destage_rate.is_some()),
            ("--fill-rate", fill_rate.is_some()),
            ("--destage-iops", destage_iops.is_some()),
            ("--one-disk", one_disk.is_some()),
            ("--no-verify-reads", is_on(no_verify_reads)),
            ("--no-log", is_on(no_log)),
            ("--suspect-after", suspect_after.is_some()),
            ("--scrub-every", scrub_every.is_some()),
            ("--spare-after", spare_after.is_some()),
            ("--volume-memory", volume_memory.is_some()),
            ("--index-max", index_max.is_some()),
            ("--full-timeout", full_timeout.is_some()),
            ("--drain-timeout", drain_timeout.is_some()),
            ("--io-timeout", io_timeout.is_some()),
            ("--member-timeout", member_timeout.is_some()),
            ("--segment-buffers", segment_buffers.is_some()),
            ("--read-ahead", read_ahead.is_some()),
            ("--sequence-share", sequence_share.is_some()),
            ("--no-hot-blocks", is_on(no_hot_blocks)),
            ("--no-detect", is_on(no_detect)),
            ("--accept-damage", *accept_damage),
            ("--trust-disks", *trust_disks),
            ("--take-over", take_over.is_some()),
            ("--degraded", *degraded),
            ("--replace-member", !replace_member.is_empty()),
            ("--memory-directory", memory_directory.is_some()),
            ("--memory-lost", *memory_lost),
            ("--nvram", nvram.is_some()),
            ("--nvram-survives", nvram_survives.is_some()),
            ("--nvram-policy", nvram_policy.is_some()),
            ("--nvram-high", nvram_high.is_some()),
            ("--nvram-low", nvram_low.is_some()),
            ("--nvram-idle", nvram_idle.is_some()),
            ("--nvram-wear-floor", nvram_wear_floor.is_some()),
            ("--nvram-group", nvram_group.is_some()),
            ("--nvram-bypass", nvram_bypass.is_some()),
            ("--nvram-age-max", nvram_age_max.is_some()),
            ("--nvram-lost", *nvram_lost),
            ("--wait", is_on(wait)),
            ("--stop-timeout", stop_timeout.is_some()),
            ("--lock-memory", is_on(lock_memory)),
            ("--memory-max", memory_max.is_some()),
        ];
        flags.into_iter().find(|(_, is_set)| *is_set).map(|(flag, _)| flag)
    }

    /// Lays these settings over `under`: what is set here stays.
    pub fn over(self, under: Settings) -> Settings {
        Settings {
            cache_disk: match self.cache_disk.is_empty() {
                true => under.cache_disk,
                false => self.cache_disk,
            },
            share: self.share.or(under.share),
            data_disk: if self.data_disk.is_empty() { under.data_disk } else { self.data_disk },
            nbd: if self.nbd.is_empty() { under.nbd } else { self.nbd },
            tls_cert: self.tls_cert.or(under.tls_cert),
            tls_key: self.tls_key.or(under.tls_key),
            tls_ca: self.tls_ca.or(under.tls_ca),
            tls_allow: if self.tls_allow.is_empty() { under.tls_allow } else { self.tls_allow },
            tls_read_only: match self.tls_read_only.is_empty() {
                true => under.tls_read_only,
                false => self.tls_read_only,
            },
            insecure_tcp: self.insecure_tcp.or(under.insecure_tcp),
            tcp_ack: self.tcp_ack.or(under.tcp_ack),
            connections_max: self.connections_max.or(under.connections_max),
            fuse: self.fuse.or(under.fuse),
            loop_device: self.loop_device.or(under.loop_device),
            ublk: self.ublk.or(under.ublk),
            vhost_user: self.vhost_user.or(under.vhost_user),
            control: self.control.or(under.control),
            http: self.http.or(under.http),
            http_token: self.http_token.or(under.http_token),
            metrics: self.metrics.or(under.metrics),
            ack: self.ack.or(under.ack),
            max_delay: self.max_delay.or(under.max_delay),
            bypass_threshold: self.bypass_threshold.or(under.bypass_threshold),
            mode: self.mode.or(under.mode),
            destage_policy: self.destage_policy.or(under.destage_policy),
            ship_within: self.ship_within.or(under.ship_within),
            window_hook: self.window_hook.or(under.window_hook),
            window_hook_timeout: self.window_hook_timeout.or(under.window_hook_timeout),
            idle_max: self.idle_max.or(under.idle_max),
            idle_min: self.idle_min.or(under.idle_min),
            dirty_high: self.dirty_high.or(under.dirty_high),
            dirty_low: self.dirty_low.or(under.dirty_low),
            destage_rate: self.destage_rate.or(under.destage_rate),
            fill_rate: self.fill_rate.or(under.fill_rate),
            destage_iops: self.destage_iops.or(under.destage_iops),
            one_disk: self.one_disk.or(under.one_disk),
            no_verify_reads: self.no_verify_reads.or(under.no_verify_reads),
            no_log: self.no_log.or(under.no_log),
            suspect_after: self.suspect_after.or(under.suspect_after),
            scrub_every: self.scrub_every.or(under.scrub_every),
            spare_after: self.spare_after.or(under.spare_after),
            volume_memory: self.volume_memory.or(under.volume_memory),
            index_max: self.index_max.or(under.index_max),
            full_timeout: self.full_timeout.or(under.full_timeout),
            drain_timeout: self.drain_timeout.or(under.drain_timeout),
            io_timeout: self.io_timeout.or(under.io_timeout),
            member_timeout: self.member_timeout.or(under.member_timeout),
            segment_buffers: self.segment_buffers.or(under.segment_buffers),
            read_ahead: self.read_ahead.or(under.read_ahead),
            sequence_share: self.sequence_share.or(under.sequence_share),
            no_hot_blocks: self.no_hot_blocks.or(under.no_hot_blocks),
            no_detect: self.no_detect.or(under.no_detect),
            read_only: self.read_only.or(under.read_only),
            accept_damage: self.accept_damage || under.accept_damage,
            trust_disks: self.trust_disks || under.trust_disks,
            take_over: self.take_over.or(under.take_over),
            degraded: self.degraded || under.degraded,
            replace_member: self.replace_member,
            witness: self.witness.or(under.witness),
            new_leg: self.new_leg,
            without_leg: self.without_leg,
            memory_directory: self.memory_directory.or(under.memory_directory),
            memory_lost: self.memory_lost || under.memory_lost,
            nvram: self.nvram.or(under.nvram),
            nvram_survives: self.nvram_survives.or(under.nvram_survives),
            nvram_policy: self.nvram_policy.or(under.nvram_policy),
            nvram_high: self.nvram_high.or(under.nvram_high),
            nvram_low: self.nvram_low.or(under.nvram_low),
            nvram_idle: self.nvram_idle.or(under.nvram_idle),
            nvram_wear_floor: self.nvram_wear_floor.or(under.nvram_wear_floor),
            nvram_group: self.nvram_group.or(under.nvram_group),
            nvram_bypass: self.nvram_bypass.or(under.nvram_bypass),
            nvram_age_max: self.nvram_age_max.or(under.nvram_age_max),
            nvram_lost: self.nvram_lost || under.nvram_lost,
            processor: self.processor.or(under.processor),
            busy_poll: self.busy_poll.or(under.busy_poll),
            wait: self.wait.or(under.wait),
            stop_timeout: self.stop_timeout.or(under.stop_timeout),
            lock_memory: self.lock_memory.or(under.lock_memory),
            memory_max: self.memory_max.or(under.memory_max),
        }
    }

    /// Whether both disks share one arm; `None`: the daemon looks.
    pub fn one_disk(&self) -> Option<bool> {
        match self.one_disk {
            None | Some(OneDiskArgument::Auto) => None,
            Some(OneDiskArgument::Yes) => Some(true),
            Some(OneDiskArgument::No) => Some(false),
        }
    }

    /// How NBD is served.
    pub fn nbd_options(&self) -> Result<NbdOptions, NbdOptionsError> {
        let missing = |flag| NbdOptionsError::TlsIncomplete { flag };
        let tls = match (&self.tls_cert, &self.tls_key, &self.tls_ca) {
            (None, None, None) => None,
            (Some(certificate), Some(key), Some(client_authority)) => Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_authority: client_authority.clone(),
                access: Arc::new(TlsAccess {
                    allow: self.tls_allow.clone(),
                    read_only: self.tls_read_only.clone(),
                }),
            }),
            (None, ..) => return Err(missing("--tls-cert")),
            (_, None, _) => return Err(missing("--tls-key")),
            (.., None) => return Err(missing("--tls-ca")),
        };
        if tls.is_none() && !(self.tls_allow.is_empty() && self.tls_read_only.is_empty()) {
            return Err(missing("--tls-cert"));
        }
        let has_tcp = self.nbd.iter().any(NbdAddress::is_tcp);
        if tls.is_some() && !has_tcp {
            return Err(NbdOptionsError::TlsWithoutTcp);
        }
        let insecure_tcp = self.insecure_tcp.unwrap_or(false);
        if tls.is_some() && insecure_tcp {
            return Err(NbdOptionsError::TlsAndInsecure);
        }
        let default = NbdOptions::default();
        let connections_max = self.connections_max.unwrap_or(default.connections_max);
        if !(1..=CONNECTIONS_LIMIT).contains(&connections_max) {
            return Err(NbdOptionsError::Connections { found: connections_max });
        }
        let tcp_ack = self.tcp_ack.unwrap_or(TcpAckArgument::Durable);
        let tcp_durable = tcp_ack == TcpAckArgument::Durable;
        Ok(NbdOptions { tls, insecure_tcp, tcp_durable, connections_max })
    }

    /// Whether a data-disk is in an object store, which has windows of its own.
    pub fn is_in_store(&self) -> bool {
        self.data_disk.iter().any(|disk| store_of(disk.path()).is_some())
    }

    /// The engine's part.
    pub fn engine_config(&self) -> EngineConfig {
        let default = EngineConfig::default();
        EngineConfig {
            hash_seed: default.hash_seed,
            mode: self.mode.map_or(default.mode, ModeArgument::mode),
            mode_asked: default.mode_asked,
            ack: self.ack.map_or(default.ack, AckArgument::mode),
            max_delay: span(self.max_delay, default.max_delay),
            bypass_threshold_bytes: self.bypass_threshold.unwrap_or(default.bypass_threshold_bytes),
            destage_policy: match self.destage_policy {
                Some(policy) => policy.policy(),
                None if self.is_in_store() => DestagePolicyKind::Ordered,
                None => default.destage_policy,
            },
            ship_within: span(self.ship_within, default.ship_within),
            keeps_windows: self.window_hook.is_some() || self.is_in_store(),
            idle_threshold_max: span(self.idle_max, default.idle_threshold_max),
            idle_threshold_min: span(self.idle_min, default.idle_threshold_min),
            dirty_high_percent: self.dirty_high.unwrap_or(default.dirty_high_percent),
            dirty_low_percent: self.dirty_low.unwrap_or(default.dirty_low_percent),
            fill_bytes_per_second_max: self.fill_rate.unwrap_or(default.fill_bytes_per_second_max),
            destage_bytes_per_second_max: self
                .destage_rate
                .unwrap_or(default.destage_bytes_per_second_max),
            destage_writes_per_second_max: self
                .destage_iops
                .unwrap_or(default.destage_writes_per_second_max),
            one_disk: self.one_disk().unwrap_or(default.one_disk),
            verify_reads: !self.no_verify_reads.unwrap_or(!default.verify_reads),
            no_log: self.no_log.unwrap_or(default.no_log),
            suspect_after: self.suspect_after.unwrap_or(default.suspect_after),
            scrub_every: span(self.scrub_every, default.scrub_every),
            twin_quiet: default.twin_quiet,
            spare_after: span(self.spare_after, default.spare_after),
            volume_memory_bytes: self.volume_memory.unwrap_or(default.volume_memory_bytes),
            index_bytes_max: self.index_max.unwrap_or(default.index_bytes_max),
            full_timeout: span(self.full_timeout, default.full_timeout),
            drain_timeout: span(self.drain_timeout, default.drain_timeout),
            io_timeout: span(self.io_timeout, default.io_timeout),
            member_timeout: span(self.member_timeout, default.member_timeout),
            segment_buffers: self.segment_buffers.unwrap_or(default.segment_buffers),
            read_ahead_bytes: self.read_ahead.unwrap_or(default.read_ahead_bytes),
            sequence_percent: self.sequence_share.unwrap_or(default.sequence_percent),
            hot_blocks: !self.no_hot_blocks.unwrap_or(!default.hot_blocks),
            detector: default.detector.filter(|_| !self.no_detect.unwrap_or(false)),
            read_only: self.read_only.unwrap_or(default.read_only),
            // The disk says these when it is opened.
            data_disk_is_store: false,
            data_disk_read_only: false,
            accept_damage: self.accept_damage,
            // `dcd grow` does that.
            grow: false,
            limits: Limits::MOST,
            // Known when it is found, or made.
            memory: None,
            nvram: None,
            nvram_may_be_lost: false,
            legs: None,
        }
    }
}

/// The span that is set, in the engine's unit.
pub fn span(set: Option<Duration>, default: dcd_engine::Duration) -> dcd_engine::Duration {
    let nanos = |set: Duration| u64::try_from(set.as_nanos()).unwrap_or(u64::MAX);
    set.map_or(default, |set| dcd_engine::Duration(nanos(set)))
}

/// `--take-over`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TakeOverArgument {
    /// If nobody has a lease on it any more
    Lapsed,
    /// Whoever has one is shut out
    Now,
}

impl TakeOverArgument {
    /// In the words of who does it.
    pub fn of(argument: Option<TakeOverArgument>) -> TakeOver {
        match argument {
            None => TakeOver::No,
            Some(TakeOverArgument::Lapsed) => TakeOver::Lapsed,
            Some(TakeOverArgument::Now) => TakeOver::Now,
        }
    }
}

/// `--ack`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AckArgument {
    /// As soon as it is in memory that outlives dcd; durable within --max-delay
    Memory,
    /// When it has been written to the cache-disk
    Log,
    /// When it survives a power cut
    Durable,
    /// As memory does; flushes and FUA when a window with all before them was kept: they survive
    /// the loss of the cache-disk. With --destage-policy ordered
    Remote,
}

impl AckArgument {
    /// The engine's.
    pub fn mode(self) -> AckMode {
        match self {
            // What waits for windows are flushes: the loop sees to that.
            AckArgument::Memory | AckArgument::Remote => AckMode::Memory,
            AckArgument::Log => AckMode::Log,
            AckArgument::Durable => AckMode::Durable,
        }
    }
}

/// `--tcp-ack`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TcpAckArgument {
    /// When it survives a power cut: the client may outlive this machine
    Durable,
    /// As --ack says, like those of all other clients
    Same,
}

/// Settings of NBD that do not go together.
#[derive(Debug, thiserror::Error)]
pub enum NbdOptionsError {
    /// Some of the three files, and not all.
    #[error("{flag} is missing: TLS needs --tls-cert, --tls-key and --tls-ca")]
    TlsIncomplete {
        /// What is missing.
        flag: &'static str,
    },
    /// Nothing to protect.
    #[error("--tls-cert is for NBD over TCP, and there is no --nbd tcp:HOST:PORT")]
    TlsWithoutTcp,
    /// Both at once.
    #[error("--tls-cert protects NBD over TCP, and --insecure-tcp does not want that")]
    TlsAndInsecure,
    /// Too many or none.
    #[error("expected --connections-max from 1 to {CONNECTIONS_LIMIT}, found {found}")]
    Connections {
        /// What was given.
        found: usize,
    },
}

impl NbdOptionsError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            NbdOptionsError::TlsIncomplete { .. } => {
                "docs/nbd.md tells how to make certificates; each file is in PEM form".into()
            }
            NbdOptionsError::TlsWithoutTcp => {
                "add --nbd tcp:0.0.0.0:10809, or leave the --tls options out".into()
            }
            NbdOptionsError::TlsAndInsecure => "leave one of them out".into(),
            NbdOptionsError::Connections { .. } => {
                "each may take 64 MiB; --memory-max lets in as many as there is memory for".into()
            }
        })
    }
}

/// `--mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ModeArgument {
    /// To the log, and to the data-disk when it has time
    WriteBack,
    /// To the data-disk, and copied to the cache-disk as if it had been read
    WriteThrough,
    /// To the data-disk; what is read is kept on the cache-disk
    WriteAround,
    /// To the data-disk; the cache-disk is left alone
    PassThrough,
}

impl ModeArgument {
    fn mode(self) -> Mode {
        match self {
            ModeArgument::WriteBack => Mode::WriteBack,
            ModeArgument::WriteThrough => Mode::WriteThrough,
            ModeArgument::WriteAround => Mode::WriteAround,
            ModeArgument::PassThrough => Mode::PassThrough,
        }
    }
}

/// `--destage-policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PolicyArgument {
    /// The oldest segment
    #[value(name = "first-write-first")]
    FirstWrite,
    /// The newest segment
    #[value(name = "last-write-first")]
    LastWrite,
    /// The segment with the least that is still needed
    #[value(name = "least-valid-first")]
    LeastValid,
    /// All that is in the log at a moment before anything that comes later; with --window-hook
    Ordered,
}

impl PolicyArgument {
    fn policy(self) -> DestagePolicyKind {
        match self {
            PolicyArgument::FirstWrite => DestagePolicyKind::FirstWriteFirst,
            PolicyArgument::LastWrite => DestagePolicyKind::LastWriteFirst,
            PolicyArgument::LeastValid => DestagePolicyKind::LeastValidFirst,
            PolicyArgument::Ordered => DestagePolicyKind::Ordered,
        }
    }
}

/// `--one-disk`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OneDiskArgument {
    /// Look which disks the two are on
    Auto,
    /// They share an arm
    Yes,
    /// They do not
    No,
}

/// The length of a lease on an object store, in seconds.
pub fn parse_lease(text: &str) -> Result<u64, String> {
    let length = parse_duration(text).map_err(|error| error.to_string())?;
    match length.subsec_nanos() == 0 && is_lease(length.as_secs()) {
        true => Ok(length.as_secs()),
        false => Err(format!(
            "expected {LEASE_SECONDS_MIN}s to {LEASE_SECONDS_MAX}s, in whole seconds, found {text}: with a shorter one a slow \
             answer of the store ends it, and behind a longer one another machine waits for so long"
        )),
    }
}

/// The number of a ublk device, or any.
pub fn parse_ublk(text: &str) -> Result<UblkNumber, String> {
    match text {
        "any" => Ok(UblkNumber::Any),
        number => match number.parse::<u32>() {
            Ok(number) if number < u32::MAX => Ok(UblkNumber::Number(number)),
            _ => Err(format!("expected the number of a device, or any, found {number:?}")),
        },
    }
}

/// An address and a port to listen on.
pub fn parse_socket_address(text: &str) -> Result<SocketAddr, String> {
    let form = "expected an address and a port, like 127.0.0.1:9464 or [::1]:9464";
    text.parse().map_err(|_| format!("{form}, found {text:?}"))
}

/// A member and its disk: `2=/dev/sdc`.
pub fn parse_replacement(text: &str) -> Result<(u8, DeviceSpec), String> {
    let form = "expected the number of a member and a disk, like 2=/dev/sdc";
    let (number, disk) = text.split_once('=').ok_or(form)?;
    let number = number.parse().map_err(|_| form)?;
    let disk: DeviceSpec = disk.parse().map_err(|error: DeviceSpecError| error.to_string())?;
    Ok((number, disk))
}

/// A time to look for the next request: `auto`, `50us`.
pub fn parse_busy_poll(text: &str) -> Result<BusyPollMax, UnitError> {
    match text.trim() {
        "auto" => Ok(BusyPollMax::Auto),
        time => parse_duration(time).map(BusyPollMax::Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn settings(line: &str) -> Settings {
        Line::try_parse_from(format!("x {line}").split_whitespace()).unwrap().settings
    }

    #[test]
    fn without_flags_the_engine_has_its_defaults() {
        let config = settings("").engine_config();
        assert_eq!(format!("{config:?}"), format!("{:?}", EngineConfig::default()));
    }

    #[test]
    fn what_is_on_top_wins_also_when_it_says_no() {
        let file = settings("--read-only --loop --dirty-high 90% --nbd unix:a --ack log");
        let flags = settings("--read-only=false --dirty-low 10 --nbd unix:b");
        let both = flags.over(file);
        assert_eq!((both.read_only, both.loop_device), (Some(false), Some(true)));
        assert_eq!((both.dirty_high, both.dirty_low), (Some(90), Some(10)));
        assert_eq!(both.nbd.len(), 1);
        assert_eq!(both.engine_config().ack, AckMode::Log);
        assert_eq!(settings("--one-disk auto").one_disk(), None);
        assert_eq!(settings("--one-disk no").one_disk(), Some(false));
    }

    #[test]
    fn clients_on_other_machines_get_durable_acknowledgements() {
        assert_eq!(settings("--nbd tcp:127.0.0.1:1").engine_config().ack, AckMode::Memory);
        let durable = |line| settings(line).nbd_options().unwrap().tcp_durable;
        assert!(durable("--nbd tcp:127.0.0.1:1 --ack memory"));
        assert!(!durable("--nbd tcp:127.0.0.1:1 --tcp-ack same"));
    }

    #[test]
    fn ublk_has_a_number_or_not() {
        assert_eq!(settings("").ublk, None);
        assert_eq!(settings("--ublk").ublk, Some(UblkNumber::Any));
        assert_eq!(settings("--ublk 3 --loop").ublk, Some(UblkNumber::Number(3)));
        assert!(parse_ublk("-1").is_err() && parse_ublk("4294967295").is_err());
    }

    #[test]
    fn shares() {
        assert_eq!(parse_percent("80%").unwrap(), 80);
        assert!(parse_percent("101").is_err() && parse_percent("-1").is_err());
    }
}
