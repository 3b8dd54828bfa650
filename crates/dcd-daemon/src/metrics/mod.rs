//! What is exported of a running dcd: each metric, and where in the [`StatusReport`] it is found.
//!
//! One table, [`METRICS`], makes the export, and a test compares `docs/metrics.md` with it. Names
//! follow OpenMetrics: `dcd_` in front, the unit at the end, `_total` behind counters.

pub mod open_metrics;

use dcd_protocol::LegReport;

use crate::device::network::store_report::STORE_TROUBLES;
use crate::event_loop::response_times::HistogramReport;
use crate::metrics::open_metrics::{Document, MetricKind, Samples};
use crate::report::network::NetworkReport;
use crate::report::status_report::StatusReport;
use crate::report::volumes::{MemberReport, VolumeReport};

use MetricKind::{Counter, Gauge, Histogram, Info, StateSet};

/// A family of metrics.
pub struct Metric {
    /// Its name, without the suffix of samples.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// The unit, which the name ends with.
    pub unit: Option<&'static str>,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
    samples: fn(&StatusReport, &mut Samples<'_>),
}

impl Metric {
    const fn new(
        name: &'static str,
        kind: MetricKind,
        unit: Option<&'static str>,
        labels: &'static [&'static str],
        help: &'static str,
        samples: fn(&StatusReport, &mut Samples<'_>),
    ) -> Metric {
        Metric { name, kind, unit, labels, help, samples }
    }
}

/// The export of this moment.
pub fn export(report: &StatusReport) -> String {
    let mut document = Document::default();
    for metric in METRICS {
        let mut samples = document.family(metric.name, metric.kind, metric.unit, metric.help);
        (metric.samples)(report, &mut samples);
    }
    document.end()
}

/// Upper bounds of buckets: 1 us, and each twice the one before, to more than 16 s.
/// [`HistogramReport`] has the same.
const BUCKETS: u32 = 25;

/// One sample without labels.
macro_rules! one {
    ($name:literal, $kind:expr, $unit:expr, $help:literal, $($field:ident).+) => {
        Metric::new($name, $kind, $unit, &[], $help, |report, to| {
            to.number(&[], number(report.$($field).+))
        })
    };
}

/// One sample of the memory in front of the log, if there is one.
macro_rules! nvram {
    ($name:literal, $kind:expr, $unit:expr, $help:literal, $field:ident) => {
        Metric::new($name, $kind, $unit, &[], $help, |report, to| {
            if let Some(nvram) = &report.nvram {
                to.number(&[], number(nvram.$field));
            }
        })
    };
}

/// One sample of the volume, if there is one.
macro_rules! volume {
    ($name:literal, $kind:expr, $unit:expr, $help:literal, $($field:ident).+) => {
        Metric::new($name, $kind, $unit, &[], $help, |report, to| {
            if let Some(volume) = &report.volume {
                to.number(&[], number(volume.$($field).+));
            }
        })
    };
    ($name:literal, $kind:expr, $unit:expr, $help:literal, $method:ident()) => {
        Metric::new($name, $kind, $unit, &[], $help, |report, to| {
            if let Some(volume) = &report.volume {
                to.number(&[], number(volume.$method()));
            }
        })
    };
}

const BYTES: Option<&str> = Some("bytes");
const SECONDS: Option<&str> = Some("seconds");

/// All of them, in the order of the export. Each stands on as few lines as it can: this is a table.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    Metric::new("dcd", Info, None, &["version", "cache", "cache_disk", "data_disk"],
        "Facts: the program, and the cache that it serves.",
        |report, to| to.whole(&[("version", &report.version), ("cache", &report.uuid),
            ("cache_disk", &report.cache_disk), ("data_disk", &report.data_disk)], 1)),
    one!("dcd_uptime_seconds", Gauge, SECONDS, "Time since it began to serve.", uptime_seconds),
    Metric::new("dcd_state", StateSet, None, &["dcd_state"],
        "What it does with changes: logging; writing-through or passing-through without its cache-disk, or past its log as its mode says; failed: it refuses them.",
        |report, to| to.state(&[], &STATES, state_of(report))),
    Metric::new("dcd_acknowledgement", StateSet, None, &["dcd_acknowledgement"],
        "When a write is acknowledged.",
        |report, to| to.state(&[], &["memory", "log", "durable"], &report.ack)),
    one!("dcd_one_disk", Gauge, None, "1 if cache-disk and data-disk share an arm.", one_disk),
    one!("dcd_memory_missing", Gauge, None,
        "1 if the memory that outlives the process was removed and cannot be put back: acknowledged is what is durable.", memory.is_missing),
    one!("dcd_memory_put_back", Counter, None, "How often that memory was removed and put back.", memory.times_put_back),

    // What users ask for.
    Metric::new("dcd_requests", Counter, None, &["request"], "Requests; zeroes are discards and writes of zeroes.",
        |report, to| {
            let counters = &report.counters;
            to.whole(&[("request", "read")], counters.reads);
            to.whole(&[("request", "write")], counters.writes);
            to.whole(&[("request", "zeroes")], counters.zeroes);
            to.whole(&[("request", "flush")], counters.flushes);
        }),
    Metric::new("dcd_request_bytes", Counter, BYTES, &["request"], "Bytes asked for by requests.",
        |report, to| {
            to.whole(&[("request", "read")], report.counters.read_bytes);
            to.whole(&[("request", "write")], report.counters.write_bytes);
        }),
    one!("dcd_fua_requests", Counter, None, "Requests that carried FUA.", counters.fuas),
    one!("dcd_stalled_requests", Counter, None, "Requests that had to wait for room in the log.", counters.stalled_writes),
    Metric::new("dcd_response_time_seconds", Histogram, SECONDS, &["request"],
        "From the receipt of a request to its reply; write includes discards and writes of zeroes.",
        |report, to| {
            let times = &report.response_times;
            for (request, times) in [("read", &times.reads), ("write", &times.writes), ("flush", &times.flushes)] {
                to.histogram(&[("request", request)], &buckets_of(times), times.sum / 1e6, times.count);
            }
        }),
    one!("dcd_nbd_connections", Gauge, None, "NBD clients connected.", nbd_connections),
    one!("dcd_recorders", Gauge, None, "Clients that record requests.", recorders),
    one!("dcd_served_size_bytes", Gauge, BYTES, "Size of the device that is served.", volume_bytes),

    // Where reads come from.
    Metric::new("dcd_read_lines", Counter, None, &["from"],
        "Lines of 4 KiB that reads got from the log, from a slot of it that was destaged already, from a copy in the read area, or from the data-disk.",
        |report, to| {
            let counters = &report.counters;
            to.whole(&[("from", "log")], counters.read_hit_lines);
            to.whole(&[("from", "destaged-slot")], counters.read_clean_lines);
            to.whole(&[("from", "copy")], counters.read_copy_lines);
            to.whole(&[("from", "data-disk")], counters.read_miss_lines);
        }),
    one!("dcd_read_ahead_lines", Counter, None, "Lines read ahead for sequences.", counters.read_ahead_lines),
    one!("dcd_read_ahead_used_lines", Counter, None,
        "Lines read ahead that reads used; one that was used twice counts twice.", counters.read_ahead_used_lines),
    one!("dcd_read_ahead_size_bytes", Gauge, BYTES, "Memory that holds what was read ahead.", copies.read_ahead_bytes),
    one!("dcd_copied_lines", Counter, None, "Lines copied to the read area.", counters.copy_lines_written),
    one!("dcd_damaged_copies", Counter, None, "Copies that were not what they should be; the data-disk was read.", counters.copies_damaged),
    one!("dcd_read_area_size_bytes", Gauge, BYTES, "Room for copies; 0: there is none.", copies.read_area_bytes),
    one!("dcd_read_area_valid_bytes", Gauge, BYTES, "Of it, true copies.", copies.valid_bytes),
    one!("dcd_read_area_stale_bytes", Gauge, BYTES, "Of it, copies that wait to be made anew.", copies.stale_bytes),
    one!("dcd_sequences", Gauge, None, "Sequences that are kept.", copies.sequences),
    one!("dcd_copy_index_bytes", Gauge, BYTES, "Memory of what is known of copies.", copies.memory_bytes),

    // The log.
    one!("dcd_dirty_bytes", Gauge, BYTES, "Newer in the cache than on the data-disk; lost with the cache-disk.", dirty_bytes),
    Metric::new("dcd_segments", Gauge, None, &["state"], "Segments of the log by state.",
        |report, to| {
            let segments = &report.segments;
            to.whole(&[("state", "free")], segments.free.into());
            to.whole(&[("state", "empty")], segments.empty.into());
            to.whole(&[("state", "buffered")], segments.buffered.into());
            to.whole(&[("state", "dirty")], segments.dirty.into());
        }),
    one!("dcd_segment_size_bytes", Gauge, BYTES, "Size of a segment.", segments.size_bytes),
    one!("dcd_utilisation_ratio", Gauge, Some("ratio"), "Share of the segments that are in use.", utilisation),
    one!("dcd_index_bytes", Gauge, BYTES, "Memory of the index of the log.", index_bytes),
    one!("dcd_zero_ranges", Gauge, None, "Ranges that are zero in the log and not yet on the data-disk.", zero_ranges),
    one!("dcd_poisoned_lines", Gauge, None, "Lines of 4 KiB that are lost and fail to read until they are written.", poisoned_lines),
    one!("dcd_logged_lines", Counter, None, "Lines logged, also in the place of others in the record that is being filled.",
        counters.logged_lines),
    one!("dcd_overwritten_lines", Counter, None,
        "Lines logged whose older copy was still in the log: destaging that was spared.", counters.overwritten_lines),
    one!("dcd_bypassed_writes", Counter, None, "Writes that went past the log.", counters.bypasses),
    one!("dcd_bypassed_bytes", Counter, BYTES, "Bytes of them.", counters.bypass_bytes),
    one!("dcd_log_records", Counter, None, "Records sealed.", counters.records),
    one!("dcd_log_writes", Counter, None, "Writes of the log to the cache-disk.", counters.log_writes),
    one!("dcd_log_written_bytes", Counter, BYTES, "Bytes of them, with headers and padding.", counters.log_write_bytes),
    one!("dcd_checkpoints", Counter, None, "Checkpoints completed.", counters.checkpoints),
    one!("dcd_checkpoint_written_bytes", Counter, BYTES, "Bytes of them.", counters.checkpoint_bytes),
    one!("dcd_index_pages_read", Counter, None, "Pages of the index read from the cache-disk, with index-max.", counters.index_pages_read),
    Metric::new("dcd_disk_flushes", Counter, None, &["disk"], "Flushes of disks.",
        |report, to| {
            to.whole(&[("disk", "cache-disk")], report.counters.cache_disk_flushes);
            to.whole(&[("disk", "data-disk")], report.counters.data_disk_flushes);
        }),
    one!("dcd_log_fua_writes", Counter, None, "Writes of the log that needed no flush.", counters.cache_disk_fua_writes),

    // Destaging.
    one!("dcd_draining", Gauge, None, "1 while a drain is under way.", draining),
    Metric::new("dcd_window_behind_seconds", Gauge, SECONDS, &[], "With ordered shipping: how old the oldest change is that is in no window that was kept.",
        |report, to| if let Some(ordered) = &report.ordered { to.number(&[], ordered.behind_seconds) }),
    Metric::new("dcd_windows_kept", Counter, None, &[], "Windows that the hook of ordered shipping has kept.",
        |report, to| if let Some(ordered) = &report.ordered { to.whole(&[], ordered.kept) }),
    Metric::new("dcd_window_hook_failures", Gauge, None, &[], "How often that hook has failed since it last ended well.",
        |report, to| if let Some(ordered) = &report.ordered { to.whole(&[], ordered.failures) }),
    Metric::new("dcd_store_trouble", Gauge, None, &["kind"], "With a data-disk in an object store: 1 while its server says that it is full or refuses, or when another dcd has taken it over.",
        |report, to| if let Some(store) = &report.store {
            for kind in STORE_TROUBLES {
                to.whole(&[("kind", kind)], u64::from(store.state == kind));
            }
        }),
    Metric::new("dcd_store_lease_seconds", Gauge, SECONDS, &[], "With a data-disk in an object store: how long a lease on it is.",
        |report, to| if let Some(store) = &report.store { to.whole(&[], store.lease_seconds) }),
    one!("dcd_destage_held_back", Gauge, None, "1 while nothing is destaged because of errors.", destage_held_back),
    one!("dcd_destage_blocked_lines", Gauge, None, "Lines whose last write to the data-disk failed.", destage_blocked_lines),
    one!("dcd_destage_batches", Counter, None, "Destage batches completed.", counters.destage_batches),
    one!("dcd_destaged_lines", Counter, None, "Lines moved to the data-disk.", counters.destaged_lines),
    one!("dcd_destage_writes", Counter, None, "Writes to the data-disk that moved them.", counters.destage_writes),
    one!("dcd_destage_written_bytes", Counter, BYTES, "Bytes of them: its rate is the destage rate.", counters.destage_write_bytes),
    one!("dcd_destage_read_bytes", Counter, BYTES, "Bytes read from the cache-disk to destage.", counters.destage_read_bytes),
    one!("dcd_destaged_zero_ranges", Counter, None, "Zero ranges brought to the data-disk.", counters.destaged_zero_ranges),
    one!("dcd_completed_lines", Counter, None, "Lines whose physical sector was completed before destaging.", counters.completed_lines),
    Metric::new("dcd_idle_threshold_seconds", Gauge, SECONDS, &[], "Quiet time that starts a destage now.",
        |report, to| to.number(&[], report.idle_threshold_microseconds / 1e6)),

    // Errors.
    Metric::new("dcd_disk_errors", Counter, None, &["disk"], "I/O errors of disks. A volume counts as one data-disk: what it refuses because it is lost counts, too.",
        |report, to| {
            to.whole(&[("disk", "cache-disk")], report.counters.cache_disk_errors);
            to.whole(&[("disk", "data-disk")], report.counters.data_disk_errors);
        }),
    one!("dcd_checksum_errors", Counter, None, "Slots of the log whose checksum did not match.", counters.checksum_errors),
    one!("dcd_cache_disk_failed", Gauge, None, "1 if the cache-disk has failed, until a restart.", cache_disk_failed),
    one!("dcd_cache_disk_clean", Gauge, None,
        "1 if nothing on the cache-disk is newer than on the data-disk: should it fail now, nothing is lost.", cache_disk_clean),

    // How the start went.
    one!("dcd_recovery_duration_seconds", Gauge, SECONDS, "Time that the start took.", recovery.seconds),
    one!("dcd_recovery_read_bytes", Gauge, BYTES, "Bytes read from the cache-disk at the start.", recovery.bytes_read),
    one!("dcd_recovery_records", Gauge, None, "Records replayed at the start.", recovery.records),
    one!("dcd_recovery_memory_records", Gauge, None,
        "Of them, found only in the memory that outlived the last process.", recovery.records_from_memory),
    one!("dcd_recovery_clean_shutdown", Gauge, None, "1 if the cache had been closed in order.", recovery.was_closed),

    // Legs of the cache-disk; where it is one disk there are no samples.
    Metric::new("dcd_leg_state", StateSet, None, &["leg", "dcd_leg_state"], "How the legs of the cache-disk are.",
        |report, to| each_leg(report, |leg, of| {
            to.state(&[("leg", leg)], &["in-sync", "filling", "stale", "failed", "out", "missing"], &of.state);
        })),
    Metric::new("dcd_leg_filled_bytes", Gauge, BYTES, &["leg"], "Bytes that a leg has which is being filled; one in sync has all.",
        |report, to| each_leg(report, |leg, of| to.whole(&[("leg", leg)], of.filled_bytes))),
    Metric::new("dcd_leg_errors", Counter, None, &["leg"], "I/Os of a leg that failed.",
        |report, to| each_leg(report, |leg, of| to.whole(&[("leg", leg)], of.errors))),
    Metric::new("dcd_leg_mended_reads", Counter, None, &["leg"], "Reads that failed, were done by another leg, and written again.",
        |report, to| each_leg(report, |leg, of| to.whole(&[("leg", leg)], of.mended))),

    // Network disks; without one there are no samples.
    Metric::new("dcd_network_disk_state", StateSet, None, &["role", "disk", "dcd_network_disk_state"], "How the connection to a network disk stands.",
        |report, to| each_network_disk(report, |labels, of| {
            to.state(labels, &["connected", "connecting", "refused"], &of.state);
        })),
    Metric::new("dcd_network_disk_state_duration_seconds", Gauge, SECONDS, &["role", "disk"], "Since when.",
        |report, to| each_network_disk(report, |labels, of| to.number(labels, of.seconds))),
    Metric::new("dcd_network_disk_connections", Gauge, None, &["role", "disk"], "Connections to it.",
        |report, to| each_network_disk(report, |labels, of| to.whole(labels, of.connections as u64))),
    Metric::new("dcd_network_disk_reconnects", Counter, None, &["role", "disk"], "How often the connection was lost and made again.",
        |report, to| each_network_disk(report, |labels, of| to.whole(labels, of.reconnects))),
    Metric::new("dcd_network_disk_failed_flushes", Counter, None, &["role", "disk"], "Flushes that failed because the connection was lost behind writes that no flush had covered.",
        |report, to| each_network_disk(report, |labels, of| to.whole(labels, of.flushes_failed))),
    Metric::new("dcd_network_disk_waiting", Gauge, None, &["role", "disk"], "Reads, writes and flushes that wait for a connection.",
        |report, to| each_network_disk(report, |labels, of| to.whole(labels, of.waiting as u64))),
    Metric::new("dcd_leg_witness_votes", Gauge, None, &[], "1 if the witness of the legs has a say: a start may do with one of them.",
        |report, to| if let Some(witness) = &report.leg_witness { to.whole(&[], u64::from(witness.state == "votes")) }),

    // A memory in front of the log; without one there are no samples.
    nvram!("dcd_nvram_capacity_bytes", Gauge, BYTES, "Bytes of blocks that the memory in front of the log may hold.", capacity_bytes),
    nvram!("dcd_nvram_dirty_bytes", Gauge, BYTES, "Bytes of blocks that are in it, and perhaps nowhere else.", dirty_bytes),
    nvram!("dcd_nvram_damaged_blocks", Gauge, None, "Blocks in it that are damaged, and fail until they are written.", damaged_blocks),
    Metric::new("dcd_nvram_failed", Gauge, None, &[],
        "1 if it takes no more writes: it is emptied, and goes by itself; changes wait until then. Also behind that, until another one comes.",
        |report, to| {
            let is_there = report.nvram.as_ref().map(|nvram| nvram.failed);
            if let Some(failed) = is_there.or(report.failed_nvram.as_ref().map(|_| true)) {
                to.number(&[], number(failed));
            }
        }),
    nvram!("dcd_nvram_writes", Counter, None, "Writes that went into it.", writes),
    nvram!("dcd_nvram_written_bytes", Counter, BYTES, "Their bytes.", write_bytes),
    nvram!("dcd_nvram_overwritten_bytes", Counter, BYTES, "Bytes that were overwritten in it before they were on their way to the log: that was spared.", overwritten_bytes),
    nvram!("dcd_nvram_stalled_writes", Counter, None, "Writes that had to wait for room in it.", stalled_writes),
    nvram!("dcd_nvram_bypasses", Counter, None, "Large writes, zeroes and discards that went past it.", bypasses),
    nvram!("dcd_nvram_read_hits", Counter, None, "Reads that it answered.", read_hits),
    nvram!("dcd_nvram_cleaning_writes", Counter, None, "Writes to the log that made room in it.", cleaning_writes),
    nvram!("dcd_nvram_cleaned_bytes", Counter, BYTES, "Their bytes.", cleaning_bytes),
    nvram!("dcd_nvram_cleaning_failures", Counter, None, "Of them, those that failed and were tried again.", cleaning_failures),
    Metric::new("dcd_nvram_waited_seconds", Gauge, SECONDS, &["arm"],
        "How long requests have waited of late, or would have, with each set of policy and thresholds that is tried.",
        |report, to| for (arm, us) in report.nvram.iter().flat_map(|it| &it.control).flat_map(|it| &it.waited_us) {
            to.number(&[("arm", arm)], *us as f64 / 1e6);
        }),
    Metric::new("dcd_nvram_arm", StateSet, None, &["dcd_nvram_arm"],
        "Which of them is followed.",
        |report, to| if let Some(control) = report.nvram.as_ref().and_then(|it| it.control.as_ref()) {
            for arm in control.waited_us.keys() {
                to.whole(&[("dcd_nvram_arm", arm)], u64::from(*arm == control.arm));
            }
        }),
    Metric::new("dcd_nvram_switches", Counter, None, &[],
        "How often another was taken.",
        |report, to| if let Some(control) = report.nvram.as_ref().and_then(|it| it.control.as_ref()) {
            to.whole(&[], control.switches);
        }),
    nvram!("dcd_nvram_commits", Counter, None, "Commits: each makes all writes durable that have come by then.", commits),

    // A volume of several disks; without one there are no samples.
    Metric::new("dcd_member_state", StateSet, None, &["member", "dcd_member_state"], "How the members of a volume are.",
        |report, to| each_member(report, |member, of| {
            to.state(&[("member", member)], &["up-to-date", "late", "stale", "rebuilding", "missing"], &of.state);
        })),
    Metric::new("dcd_member_missing_bytes", Gauge, BYTES, &["member"], "Bytes that a member has to get before it is up to date: what it has missed, or all that belongs there.",
        |report, to| each_member(report, |member, of| to.whole(&[("member", member)], of.bytes_to_rebuild))),
    Metric::new("dcd_member_errors", Counter, None, &["member"], "I/Os of a member that failed.",
        |report, to| each_member(report, |member, of| to.whole(&[("member", member)], of.errors))),
    Metric::new("dcd_member_read_errors", Counter, None, &["member"], "Of them, reads.",
        |report, to| each_member(report, |member, of| to.whole(&[("member", member)], of.read_errors))),
    Metric::new("dcd_member_rotten_lines", Counter, None, &["member"], "Lines of a member that were not what was written there.",
        |report, to| each_member(report, |member, of| to.whole(&[("member", member)], of.lines_rotten))),
    Metric::new("dcd_member_mended_lines", Counter, None, &["member"], "Lines of a member that were written anew from what the others have.",
        |report, to| each_member(report, |member, of| to.whole(&[("member", member)], of.lines_mended))),
    Metric::new("dcd_member_suspect", Gauge, None, &["member"], "1 if a member has as many errors and rotten lines as `suspect-after` says.",
        |report, to| each_member(report, |member, of| to.whole(&[("member", member)], of.suspect.into()))),
    Metric::new("dcd_member_times_late", Counter, None, &["member"], "How often a member has kept others waiting for a third of member-timeout.",
        |report, to| each_member(report, |member, of| to.whole(&[("member", member)], of.times_late))),
    Metric::new("dcd_set_extents", Gauge, None, &["set", "level"], "Extents that fit into a RAID set.",
        |report, to| each_set(report, |set, level, all, _| to.whole(&[("set", set), ("level", level)], all))),
    Metric::new("dcd_set_used_extents", Gauge, None, &["set", "level"], "Of them, in use.",
        |report, to| each_set(report, |set, level, _, used| to.whole(&[("set", set), ("level", level)], used))),
    Metric::new("dcd_volume_work_ratio", Gauge, Some("ratio"), &["work"], "How far a rebuild or scrub is; no sample if there is none.",
        |report, to| {
            if let Some(work) = report.volume.as_ref().and_then(|volume| volume.work.as_ref()) {
                to.number(&[("work", &work.kind)], work.done as f64 / work.total.max(1) as f64);
            }
        }),
    Metric::new("dcd_volume_scrub_end_timestamp_seconds", Gauge, Some("seconds"), &[], "When the last scrub ended that has read everything; no sample if there was none.",
        |report, to| {
            if let Some(ended) = report.volume.as_ref().and_then(|volume| volume.scrub.ended) {
                to.number(&[], number(ended));
            }
        }),
    Metric::new("dcd_volume_scrub_due_timestamp_seconds", Gauge, Some("seconds"), &[], "When the next scrub is due by itself; no sample if never.",
        |report, to| {
            if let Some(due) = report.volume.as_ref().and_then(|volume| volume.scrub.due) {
                to.number(&[], number(due));
            }
        }),
    volume!("dcd_volume_scrub_found_lines", Gauge, None, "Lines that the last scrub found not as they should have been.", scrub.found),
    volume!("dcd_volume_ended_scrubs", Counter, None, "Scrubs that have read everything.", counters.scrubs_ended),
    volume!("dcd_volume_found_lines", Counter, None, "Lines that these found not as they should have been.", counters.scrubs_found),
    volume!("dcd_volume_passed_lines", Counter, None, "Lines that scrubs passed by, because their checksums could not be read.", counters.scrubs_not_compared),
    volume!("dcd_volume_growing", Gauge, None, "1 while the volume grows.", is_growing()),
    volume!("dcd_volume_failed", Gauge, None, "1 if redundant sets take no changes any more.", has_failed),
    volume!("dcd_volume_unreadable_lines", Gauge, None, "Lines that are lost now: reads of them fail until they are written.", lines_lost()),
    volume!("dcd_volume_held_log_bytes", Gauge, BYTES, "Bytes of the log held by what cannot be written to members that are away.", log_held_bytes),
    volume!("dcd_volume_held_log_max_bytes", Gauge, BYTES, "They may be so many; then changes of such lines fail.", log_held_max_bytes),
    volume!("dcd_volume_refused_changes", Counter, None, "Changes that have failed for that.", changes_refused),
    volume!("dcd_volume_waiting_migrations", Gauge, None, "Extents that are to be moved to another set.", migrations_waiting),
    volume!("dcd_volume_pointers", Gauge, None, "Pointers between blocks.", pointers),
    volume!("dcd_volume_pointers_limit", Gauge, None, "So many there can be.", pointers_max),
    volume!("dcd_volume_index_bytes", Gauge, BYTES, "Memory of the tables of a volume.", memory_bytes),
    volume!("dcd_member_reads", Counter, None, "Reads of members.", counters.member_reads),
    volume!("dcd_member_writes", Counter, None, "Writes of members.", counters.member_writes),
    volume!("dcd_member_written_bytes", Counter, BYTES, "Bytes of them.", counters.member_write_bytes),
    volume!("dcd_volume_journal_written_bytes", Counter, BYTES, "Bytes of the journal of redundant sets.", counters.journal_bytes),
    volume!("dcd_volume_bad_lines", Counter, None, "Lines that a member did not give, or gave with a wrong checksum.", counters.lines_bad),
    volume!("dcd_volume_repaired_lines", Counter, None, "Lines of members that were written anew from the others.", counters.lines_repaired),
    volume!("dcd_volume_twin_holders", Gauge, None, "Members that have the twin of the tables whole; 0: without the cache-disk nothing is found.", twin_holders()),
    volume!("dcd_volume_twin_unsettled_regions", Gauge, None, "Regions whose checksums are not in the twin yet.", twin_regions_marked()),
    volume!("dcd_volume_lost_lines", Counter, None, "Lines that were given up: neither their member nor the others have them.", counters.lines_lost),
    volume!("dcd_volume_unreadable_pages", Counter, None, "Pages of checksums that the cache-disk did not give: what was wanted there failed.", counters.pages_unreadable),
    volume!("dcd_volume_moved_extents", Counter, None, "Extents moved to another set.", counters.extents_moved),
    volume!("dcd_volume_replicas", Gauge, None, "Copies of extents on faster devices.", replicas),
    volume!("dcd_volume_replica_reads", Counter, None, "Reads that copies on faster devices have served.", counters.replica_reads),
    volume!("dcd_volume_bad_replicas", Counter, None, "Copies on faster devices that were not what was copied: read from their own place, and made anew.", counters.replicas_bad),
    volume!("dcd_volume_ahead_extents", Counter, None, "Extents that were read because what was read points to them.", counters.extents_read_ahead),
    volume!("dcd_volume_ahead_reads", Counter, None, "Reads that these have served, from memory.", counters.ahead_reads),
    volume!("dcd_volume_failed_members", Counter, None, "Members that have failed.", counters.members_failed),
    volume!("dcd_volume_rebuilt_members", Counter, None, "Members that were rebuilt.", counters.members_rebuilt),
    volume!("dcd_volume_caught_up_members", Counter, None, "Of them, those that got what they had missed while they were away, and no more.", counters.members_caught_up),
    volume!("dcd_volume_replaced_members", Counter, None, "Members that another disk has taken the place of.", counters.members_replaced),
    volume!("dcd_volume_spares", Gauge, None, "Spares that can take the place of a member.", spares_ready()),
    volume!("dcd_volume_used_spares", Counter, None, "Spares that have taken the place of a member.", counters.spares_used),
];

/// Names of [`state_of`].
const STATES: [&str; 4] = ["logging", "writing-through", "passing-through", "failed"];

fn state_of(report: &StatusReport) -> &str {
    match report.uncached.as_deref() {
        Some(uncached) => uncached,
        None if report.cache_disk_failed || report.mode.switch == "failed" => "failed",
        // Older daemons have no other mode, and do not speak of it.
        None if ["", "write-back"].contains(&report.mode.mode.as_str()) => "logging",
        None => "passing-through",
    }
}

fn each_leg(report: &StatusReport, mut tell: impl FnMut(&str, &LegReport)) {
    for leg in &report.legs {
        tell(&leg.leg, leg);
    }
}

fn each_network_disk(report: &StatusReport, mut tell: impl FnMut(&[(&str, &str)], &NetworkReport)) {
    for disk in &report.network_disks {
        tell(&[("role", &disk.role), ("disk", &disk.disk)], disk);
    }
}

fn each_member(report: &StatusReport, mut tell: impl FnMut(&str, &MemberReport)) {
    for member in report.volume.iter().flat_map(|volume: &VolumeReport| &volume.members) {
        tell(&member.member.to_string(), member);
    }
}

fn each_set(report: &StatusReport, mut tell: impl FnMut(&str, &str, u64, u64)) {
    for set in report.volume.iter().flat_map(|volume| &volume.sets) {
        tell(&set.set.to_string(), &set.level.to_string(), set.extents, set.extents_used);
    }
}

/// Bounds in seconds, and how many took no longer.
fn buckets_of(times: &HistogramReport) -> Vec<(f64, u64)> {
    (0..BUCKETS)
        .map(|power| {
            let bound_micros = f64::from(1u32 << power);
            let within = times.buckets.iter().filter(|bucket| bucket.to <= bound_micros);
            (bound_micros / 1e6, within.map(|bucket| bucket.count).sum())
        })
        .collect()
}

/// What can be a sample.
trait Number: Copy {
    fn number(self) -> f64;
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for usize {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

fn number(value: impl Number) -> f64 {
    value.number()
}

#[cfg(test)]
mod tests;
