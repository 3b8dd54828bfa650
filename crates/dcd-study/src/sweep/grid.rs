//! The points of a sweep: all combinations that differ, in the order of the flags, the last one
//! changing fastest.

use std::collections::BTreeSet;

use dcd_engine::nvram::HotZoneSize;
use dcd_sim::disk::profile::Profile;
use dcd_sim::replay::Pace;
use dcd_sim::sweep::Point;

use super::arguments::{GridArguments, OrNone};
use super::fingerprint::fingerprint;
use crate::StudyError;
use crate::simulate::{CacheArguments, NvramPolicyArgument, SequencesArgument};

/// A point before its caches are set up.
#[derive(Clone)]
struct Draft<'a> {
    disk: &'a str,
    profile: &'a Profile,
    caches: CacheArguments,
    stretch: f64,
    sequences: Option<SequencesArgument>,
}

/// One more flag: each draft once for each value, or as it is where the flag makes no difference.
fn span<'a, T: Copy>(
    drafts: Vec<Draft<'a>>,
    values: &[T],
    matters: impl Fn(&CacheArguments) -> bool,
    set: impl Fn(&mut Draft<'a>, T),
) -> Vec<Draft<'a>> {
    let spanned = drafts.into_iter().flat_map(|draft| {
        let values = if matters(&draft.caches) { values } else { &[] };
        let with = |value: &T| {
            let mut draft = draft.clone();
            set(&mut draft, *value);
            draft
        };
        let with: Vec<_> = values.iter().map(with).collect();
        if with.is_empty() { vec![draft] } else { with }
    });
    spanned.collect()
}

/// All of them.
pub fn points(arguments: &GridArguments) -> Result<Vec<Point>, StudyError> {
    let is_stack = |policy: &NvramPolicyArgument| *policy == NvramPolicyArgument::Stack;
    if !arguments.hot_zone.is_empty() && !arguments.policy.iter().any(is_stack) {
        return Err(StudyError::FlagNeeds { flag: "--hot-zone", needs: "--policy stack" });
    }
    let disks = arguments.disk.iter().map(|name| Ok((name, Profile::load(name)?)));
    let disks: Vec<(&String, Profile)> = disks.collect::<Result<_, StudyError>>()?;
    let caches = CacheArguments::default();
    let of_disk = |(disk, profile)| Draft {
        disk,
        profile,
        caches: caches.clone(),
        stretch: 1.0,
        sequences: None,
    };
    let drafts = disks.iter().map(|(disk, profile)| of_disk((disk.as_str(), profile))).collect();

    let always = |_: &CacheArguments| true;
    let nvram = |caches: &CacheArguments| caches.nvram.is_some();
    let stack = |caches: &CacheArguments| caches.nvram.is_some() && is_stack(&caches.policy());
    // With `auto` no threshold is fixed.
    let fixed = |caches: &CacheArguments| {
        caches.nvram.is_some() && caches.policy() != NvramPolicyArgument::Auto
    };
    let log = |caches: &CacheArguments| caches.cache_disk.is_some();
    let drafts = span(drafts, &arguments.nvram, always, |draft, OrNone(bytes)| {
        draft.caches.nvram = bytes;
    });
    let drafts = span(drafts, &arguments.policy, nvram, |draft, policy| {
        draft.caches.policy = Some(policy);
    });
    let drafts = span(drafts, &arguments.high, fixed, |draft, high| {
        draft.caches.high = Some(high);
    });
    let drafts = span(drafts, &arguments.low, fixed, |draft, low| {
        draft.caches.low = Some(low.min(draft.caches.high()));
    });
    let drafts = span(drafts, &arguments.idle, fixed, |draft, idle| {
        draft.caches.idle = Some(idle);
    });
    let drafts = span(drafts, &arguments.groups_at_once, fixed, |draft, count| {
        draft.caches.groups_at_once = Some(count);
    });
    let drafts = span(drafts, &arguments.hot_zone, stack, |draft, size| {
        draft.caches.hot_zone = Some(size);
    });
    let drafts = span(drafts, &arguments.cache_disk, always, |draft, OrNone(bytes)| {
        draft.caches.cache_disk = bytes;
    });
    let drafts = span(drafts, &arguments.segment, log, |draft, bytes| {
        draft.caches.segment = bytes;
    });
    let drafts = span(drafts, &arguments.destage, log, |draft, policy| {
        draft.caches.destage = Some(policy);
    });
    let area = |caches: &CacheArguments| caches.read_area.is_some();
    let drafts = span(drafts, &arguments.read_area, log, |draft, OrNone(bytes)| {
        draft.caches.read_area = bytes;
    });
    let drafts = span(drafts, &arguments.sequences, area, |draft, mode| {
        draft.sequences = Some(mode);
    });
    let drafts = span(drafts, &arguments.confirmations, area, |draft, count| {
        draft.caches.confirmations = count;
    });
    let drafts = span(drafts, &arguments.history, area, |draft, lines| {
        draft.caches.history = lines;
    });
    let drafts = span(drafts, &arguments.stretch, always, |draft, stretch| draft.stretch = stretch);

    let points = drafts.into_iter().map(|draft| {
        let labels = labels(&draft);
        let caches = match draft.sequences {
            Some(_) => draft.caches.with_sequences()?,
            None => draft.caches,
        };
        Ok(Point {
            labels,
            setup: caches.setup(draft.profile.clone(), arguments.seed)?,
            sequences: draft.sequences.map(|mode| mode.mode(arguments.passes)),
            memory_max: None,
            pace: match draft.stretch {
                0.0 => Pace::Closed,
                stretch => Pace::Open { stretch },
            },
        })
    });
    let mut points = points.collect::<Result<Vec<_>, StudyError>>()?;
    // Low thresholds above the high one, settings of the detector where nothing is to be found.
    let mut known = BTreeSet::new();
    points.retain(|point| known.insert(point.labels.clone()));
    for point in &mut points {
        point.labels.push(("settings", fingerprint(arguments, point)));
    }
    Ok(points)
}

/// Parameters of a point. Empty: it makes no difference.
fn labels(draft: &Draft<'_>) -> Vec<(&'static str, String)> {
    let caches = &draft.caches;
    let of_nvram = |text: String| if caches.nvram.is_some() { text } else { String::new() };
    let is_fixed = caches.nvram.is_some() && caches.policy() != NvramPolicyArgument::Auto;
    let of_fixed = |text: String| if is_fixed { text } else { String::new() };
    let of_log = |text: String| if caches.cache_disk.is_some() { text } else { String::new() };
    // Where the load is recorded, nothing is found.
    let detects =
        caches.read_area.is_some() && draft.sequences != Some(SequencesArgument::RecordThenReplay);
    let of_detector = |count: u32| if detects { count.to_string() } else { String::new() };
    let bytes = |size: Option<u64>| size.map_or(String::new(), |bytes| bytes.to_string());
    let hot_zone = match caches.hot_zone.unwrap_or(HotZoneSize::Found) {
        _ if caches.policy() != NvramPolicyArgument::Stack => String::new(),
        HotZoneSize::Found => "auto".to_owned(),
        HotZoneSize::Percent(percent) => percent.to_string(),
    };
    let groups_at_once = match caches.groups_at_once() {
        u32::MAX => "all".to_owned(),
        count => count.to_string(),
    };
    vec![
        ("disk", draft.disk.to_owned()),
        ("nvram_bytes", bytes(caches.nvram)),
        ("policy", of_nvram(caches.policy().name())),
        ("high_percent", of_fixed(caches.high().to_string())),
        ("low_percent", of_fixed(caches.low().to_string())),
        ("idle_ms", of_fixed((caches.idle().as_micros() as f64 / 1e3).to_string())),
        ("groups_at_once", of_fixed(groups_at_once)),
        ("hot_zone", of_nvram(hot_zone)),
        ("cache_disk_bytes", bytes(caches.cache_disk)),
        ("segment_bytes", of_log(caches.segment.to_string())),
        ("destage", of_log(caches.destage(draft.profile).name())),
        ("read_area_bytes", bytes(caches.read_area)),
        ("sequences", draft.sequences.map_or(String::new(), SequencesArgument::name)),
        ("confirmations", of_detector(caches.confirmations)),
        ("history_lines", of_detector(caches.history)),
        ("stretch", draft.stretch.to_string()),
    ]
}
