//! Options of a run on a volume, drawn from its seed.

use dcd_engine::AckMode;
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::config::{LABEL_BYTES, SetConfig, VolumeConfig};
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::placement::{Placement, RaidLevel, Tier};

use super::VolumeKind;
use crate::legs::LegOptions;
use crate::options::{Options, reused_late};
use crate::random::Random;

/// Options of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeOptions {
    /// What the volume is made of.
    pub config: VolumeConfig,
    /// Pointers that there is room for.
    pub pointers_max: u32,
    /// Size of the journal in bytes.
    pub journal_bytes: u64,
    /// The cache above it.
    pub cache: Options,
    /// Members fail, vanish, come back, and are replaced.
    pub members_fail: bool,
    /// More of them than the level bears.
    pub too_many_fail: bool,
    /// Bits of redundant sets rot, and sectors become unreadable.
    pub rots: bool,
    /// Single I/Os of members fail.
    pub io_errors: bool,
    /// There are hints, allocated blocks and pointers.
    pub hints: bool,
    /// What else is wrong.
    pub more: MoreFaults,
}

/// Seeds from this one on have [`MoreFaults`]; those before are the runs that they were before
/// there were any.
pub const MORE_FAULTS_FROM: u64 = 1_000;

/// Seeds from this one on use the log again early in half of the runs, but for those with a focus.
pub const REUSE_FROM: u64 = 10_000;

/// Faults and loads that are drawn from a generator of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MoreFaults {
    /// Writes of members to redundant sets are reported as done and never were, or land elsewhere.
    pub loses_writes: bool,
    /// A disk is as it was at an earlier start.
    pub older_disks: bool,
    /// A member fails while a start is under way.
    pub fails_at_start: bool,
    /// Rebuilds and scrubs are begun often, and members are called failed.
    pub busy_members: bool,
    /// Everything goes past the log: the volume has as much to do as it can have.
    pub past_the_log: bool,
    /// Crashes of copies at any moment, not only between steps.
    pub probes: bool,
    /// Every other request is for up to 64 lines, and some come in bursts.
    pub large: bool,
    /// So many times as many steps.
    pub length: u8,
    /// There is room for more pointers from time to time.
    pub grows_pointers: bool,
    /// The cache-disk fails, and is well again behind the next crash.
    pub cache_disk_fails: bool,
    /// Single writes and flushes of the cache-disk fail.
    pub cache_disk_stumbles: bool,
    /// The cache-disk is rotten, or cannot be read in a place, when a start looks at it.
    pub cache_disk_rots: bool,
    /// The log is left unused: the volume is a plain RAID, with its tables on the cache-disk.
    pub without_log: bool,
    /// The cache-disk is destroyed, and the volume is imported from its members.
    pub loses_cache_disk: bool,
    /// Disks take the place of members that work, and of those that do not.
    pub replaces_members: bool,
    /// Members leave, little is changed, and they come back.
    pub members_return: bool,
    /// The volume is scrubbed by itself, so many seconds after the last time.
    pub scrub_every_s: Option<u64>,
    /// There are spares, and one takes the place of a member that has failed for so long.
    pub spare_after_ms: Option<u64>,
    /// The volume grows from time to time.
    pub grows_volume: bool,
    /// There is memory for so many pages of checksums; `None`: for all.
    pub sum_pages: Option<u64>,
    /// One thing happens again and again.
    pub focus: Option<Focus>,
}

/// What happens again and again: chains of events that swarms of options hardly ever bring
/// together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Focus {
    /// The same member is replaced by a blank disk, what is lost is written, flushes fail and drop
    /// what they should have made durable, and the power is cut.
    Replace,
    /// Blocks are allocated, point to each other, are freed, and are written and collected all the
    /// same.
    Blocks,
    /// The power is cut right behind each checkpoint of the volume.
    Checkpoints,
    /// Reads of members take some seconds, while what they read leaves its place and other things
    /// come there.
    SlowReads,
}

/// Seeds from this one on may have a cache-disk that fails.
pub const CACHE_DISK_FAILS_FROM: u64 = 100_000;

/// Seeds from this one on have a [`Focus`], by turns.
pub const FOCUS_FROM: u64 = 200_000;
/// And those from this one on none any more.
pub const FOCUS_END: u64 = 400_000;

/// Seeds from this one on may have a table of pointers that grows, with a journal that gives it
/// room.
pub const GROWS_FROM: u64 = 1_000_000;
/// For so many pages.
const GROWS_BYTES: u64 = 32 * 8192;

/// This seed, and one in so many behind it, has a cache-disk of which single I/Os fail.
pub const STUMBLES_FIRST: u64 = 2_000_002;
/// See there.
pub const STUMBLES_EACH: u64 = 3;

/// This seed, and one in so many behind it, leaves the log unused.
pub const WITHOUT_LOG_FROM: u64 = 3_000_000;
/// See there.
pub const WITHOUT_LOG_EACH: u64 = 2;

/// This seed, and one in so many behind it, has a cache-disk that rots.
pub const ROTS_FROM: u64 = 4_000_000;
/// See there.
pub const ROTS_EACH: u64 = 3;

/// This seed, and one in so many behind it, has memory for few pages of checksums.
pub const FEW_SUMS_FROM: u64 = 5_000_000;
/// See there.
pub const FEW_SUMS_EACH: u64 = 2;

/// Seeds from this one on have their cache-disk on two legs.
pub const LEGS_FROM: u64 = 6_000_000;
/// And those before this one.
pub const LEGS_END: u64 = 7_000_000;

/// Seeds from this one on have a twin of the tables; those that leave the log unused lose their
/// cache-disk.
pub const TWIN_FROM: u64 = 7_000_000;

/// Seeds from this one on have members that others take the place of.
pub const REPLACES_FROM: u64 = 8_000_000;

/// Seeds from this one on have members that leave and come back, with little changed meanwhile.
pub const RETURNS_FROM: u64 = 9_000_000;
/// Seeds from this one on are scrubbed by time, and none of their members leaves to come back.
pub const SCRUBS_FROM: u64 = 10_000_000;
/// Seeds from this one on have spares: disks come and go while members fail, and are used by
/// themselves.
pub const SPARES_FROM: u64 = 11_000_000;
/// Seeds from this one on have a volume that grows, and a log.
pub const GROWS_VOLUME_FROM: u64 = 12_000_000;
/// One in so many of them has no twin of its tables.
const GROWS_WITHOUT_TWIN_EACH: u64 = 3;
/// Half of those whose members come back, with nothing else wrong with a disk: whatever differs
/// then is a mistake.
const RETURNS_ALONE_EACH: u64 = 2;

impl MoreFaults {
    fn draw(random: &mut Random) -> MoreFaults {
        MoreFaults {
            loses_writes: random.one_in(3),
            older_disks: random.one_in(3),
            fails_at_start: random.one_in(3),
            busy_members: random.one_in(3),
            past_the_log: random.one_in(2),
            probes: random.one_in(2),
            large: random.one_in(2),
            length: random.pick(&[0, 0, 1, 2]),
            grows_pointers: false,
            cache_disk_fails: false,
            cache_disk_stumbles: false,
            cache_disk_rots: false,
            without_log: false,
            loses_cache_disk: false,
            replaces_members: false,
            members_return: false,
            scrub_every_s: None,
            spare_after_ms: None,
            grows_volume: false,
            sum_pages: None,
            focus: None,
        }
    }
}

impl VolumeOptions {
    /// Those of a seed.
    pub fn draw(random: &mut Random, kind: VolumeKind) -> VolumeOptions {
        let config = draw_config(random, kind);
        let cache = Options {
            data_blocks: config.blocks(),
            // A volume reads and writes whole lines.
            logical_block: 4096,
            physical_sector: 4096,
            copy_pages: 0,
            one_disk: false,
            // So that members which are gone for good do not look like a cache that is full.
            full_timeout_s: 1500,
            segments: random.pick(&[16, 16, 24]) as u32,
            bypass_bytes: random.pick(&[8 << 10, 32 << 10, 1 << 30]),
            destage_bytes_max: 0,
            destage_writes_max: 0,
            ..Options::draw(random, &[])
        };
        VolumeOptions {
            config,
            pointers_max: random.pick(&[20, 600]) as u32,
            journal_bytes: 1 << 20,
            cache: Options { ack: random.pick(&[AckMode::Memory, AckMode::Log]), ..cache },
            members_fail: !random.one_in(4),
            too_many_fail: random.one_in(6),
            rots: random.one_in(3),
            io_errors: random.one_in(3),
            hints: kind.has_tiers() && !random.one_in(4) || random.one_in(4),
            more: MoreFaults::default(),
        }
    }

    /// Those of a run; `random` is at its beginning.
    pub fn of_seed(random: &mut Random, kind: VolumeKind, seed: u64) -> VolumeOptions {
        let mut options = VolumeOptions::draw(random, kind);
        if seed < REUSE_FROM || (FOCUS_FROM..FOCUS_END).contains(&seed) {
            options.cache.limits = reused_late(options.cache.limits);
        }
        if seed >= MORE_FAULTS_FROM {
            options.more = MoreFaults::draw(&mut Random::new(!seed));
            if options.more.past_the_log {
                options.cache.bypass_bytes = LINE_SIZE;
            }
            if seed >= CACHE_DISK_FAILS_FROM {
                options.more.cache_disk_fails = seed.is_multiple_of(3);
            }
            if (FOCUS_FROM..FOCUS_END).contains(&seed) {
                options.focus_on(kind, seed);
            }
            if seed >= GROWS_FROM && options.hints {
                options.more.grows_pointers = true;
                options.journal_bytes += GROWS_BYTES;
            }
            options.more.cache_disk_stumbles =
                seed >= STUMBLES_FIRST && (seed - STUMBLES_FIRST).is_multiple_of(STUMBLES_EACH);
            options.more.cache_disk_rots =
                seed >= ROTS_FROM && (seed - ROTS_FROM).is_multiple_of(ROTS_EACH);
            // Nothing else notices what has rotted in the log.
            options.cache.verify_reads |= options.more.cache_disk_rots;
            if seed >= FEW_SUMS_FROM && seed.is_multiple_of(FEW_SUMS_EACH) {
                let pages = Random::new(seed ^ 0x50a5).pick(&[1, 1, 2, 3]);
                options.more.sum_pages = Some(pages);
            }
            if seed >= WITHOUT_LOG_FROM && seed.is_multiple_of(WITHOUT_LOG_EACH) {
                options.more.without_log = true;
                // What else it does without its cache-disk is for those that have a log on it.
                options.more.cache_disk_fails = false;
                options.more.cache_disk_stumbles = false;
            }
        }
        if (LEGS_FROM..LEGS_END).contains(&seed) {
            options.put_on_legs(&mut Random::new(seed ^ 0x6c65_6773));
        }
        if seed >= GROWS_VOLUME_FROM {
            // Only what has a log can be told of it.
            options.more.without_log = false;
        }
        if seed >= TWIN_FROM {
            options.give_twin(&mut Random::new(seed ^ 0x7477_696e));
            options.more.replaces_members = seed >= REPLACES_FROM;
        }
        if seed >= GROWS_VOLUME_FROM {
            options.let_volume_grow(seed);
        } else if seed >= SPARES_FROM {
            options.give_spares(&mut Random::new(seed ^ 0x7370_6172));
        } else if seed >= SCRUBS_FROM {
            let every = Random::new(seed ^ 0x7363_7275).pick(&[1, 3, 20, 200]);
            options.more.scrub_every_s = Some(every);
        } else if seed >= RETURNS_FROM {
            options.let_members_return(seed);
        }
        options
    }

    /// What may be wrong with the cache-disk is wrong with one leg, and not seen.
    fn put_on_legs(&mut self, random: &mut Random) {
        self.more.cache_disk_fails = false;
        self.more.cache_disk_stumbles = false;
        self.more.cache_disk_rots = false;
        self.cache.legs = Some(LegOptions::draw(random));
        // A leg that hangs is given up first, and of what has rotted on it only checksums can tell.
        self.cache.full_timeout_s = 20_000;
        self.cache.verify_reads = true;
    }

    /// What would be seen by nobody when only members are left is left out.
    fn give_twin(&mut self, random: &mut Random) {
        self.config.twin_region_pages = random.pick(&[1, 1, 2, 16]) as u32;
        if self.more.without_log {
            self.more.loses_cache_disk = true;
            self.more.loses_writes = false;
            self.more.cache_disk_rots = false;
            self.rots = false;
            // The journal is gone that writes again what a power cut has garbled.
            self.cache.shears = false;
        }
    }

    /// By themselves: what somebody does with disks meanwhile is left out.
    fn give_spares(&mut self, random: &mut Random) {
        self.members_fail = true;
        self.too_many_fail = false;
        self.more.spare_after_ms = Some(random.pick(&[1, 20, 300, 3000]));
        self.more.replaces_members = false;
        self.more.older_disks = false;
        self.more.loses_cache_disk = false;
    }

    fn let_volume_grow(&mut self, seed: u64) {
        self.more.grows_volume = true;
        self.more.replaces_members = seed.is_multiple_of(2);
        if seed.is_multiple_of(GROWS_WITHOUT_TWIN_EACH) {
            self.config.twin_region_pages = 0;
        }
    }

    fn let_members_return(&mut self, seed: u64) {
        self.members_fail = true;
        self.too_many_fail = false;
        self.more.members_return = true;
        // While a member is away nobody crashes soon enough who has given up the cache-disk.
        self.more.cache_disk_stumbles = false;
        if (seed / RETURNS_ALONE_EACH).is_multiple_of(RETURNS_ALONE_EACH) {
            (self.rots, self.io_errors) = (false, false);
            self.more.loses_writes = false;
            self.more.cache_disk_fails = false;
            self.more.cache_disk_rots = false;
            self.more.replaces_members = false;
        }
    }

    /// A kind of volume has those that concern it.
    fn focus_on(&mut self, kind: VolumeKind, seed: u64) {
        let has_raid0 = matches!(kind, VolumeKind::Raid0) || kind.has_tiers();
        let focus = match seed % 4 {
            0 if has_raid0 => Focus::Replace,
            1 => Focus::Blocks,
            2 => Focus::SlowReads,
            _ => Focus::Checkpoints,
        };
        let more = &mut self.more;
        *more = MoreFaults {
            past_the_log: more.past_the_log,
            focus: Some(focus),
            ..Default::default()
        };
        self.too_many_fail = false;
        self.rots = false;
        self.io_errors = false;
        match focus {
            Focus::Replace => self.members_fail = true,
            Focus::Blocks => {
                self.hints = true;
                self.members_fail = false;
            }
            Focus::Checkpoints => more.large = true,
            Focus::SlowReads => {
                self.members_fail = false;
                self.hints = false;
            }
        }
    }

    /// Size of a member.
    pub fn member_bytes(&self) -> u64 {
        let ends = self.config.sets.iter().map(|set| set.member_offset_bytes + set.member_bytes);
        let sets = ends.max().unwrap_or(LABEL_BYTES);
        let Some(offset) = self.config.twin_offset_bytes() else { return sets };
        let (pointers, journal) = (self.pointers_max, self.journal_bytes);
        let area = VolumeArea::new(&self.config, pointers, journal, offset);
        offset + area.expect("it is small").twin_bytes()
    }
}

fn draw_config(random: &mut Random, kind: VolumeKind) -> VolumeConfig {
    // Members, and copies of RAID 1.
    let (members, copies) = match kind {
        VolumeKind::Raid0 | VolumeKind::Raid5 | VolumeKind::Replicas => {
            (3 + random.below(4) as usize, 1)
        }
        VolumeKind::Raid1 => random.pick(&[(3, 3), (4, 2), (6, 2), (6, 3)]),
        VolumeKind::Tiered | VolumeKind::Classes => random.pick(&[(3, 3), (4, 2), (4, 2), (6, 2)]),
    };
    let extent_bytes = 4096 << random.below(5);
    let mut member_offset_bytes = LABEL_BYTES;
    let sets: Vec<SetConfig> = kind
        .tiers()
        .iter()
        .map(|Tier { level, class }| {
            let stripe_unit_bytes = 4096 << random.below(4);
            let mut set = SetConfig {
                level: *level,
                class: *class,
                members: rotated(members, random.below(members as u64) as usize),
                stripe_unit_bytes,
                copies: if *level == RaidLevel::Raid1 { copies } else { 1 },
                member_offset_bytes,
                member_bytes: stripe_unit_bytes,
            };
            let bytes = (256 << 10) + random.below(512 << 10);
            set.member_bytes *= bytes.div_ceil(set.capacity_bytes());
            member_offset_bytes += set.member_bytes;
            set
        })
        .collect();
    let mut config = VolumeConfig {
        members,
        sets,
        extent_bytes,
        logical_bytes: 0,
        temporary_bytes: 0,
        selective_caching: random.one_in(3),
        twin_region_pages: 0,
        migrate_bytes_per_second_max: random.pick(&[0, 0, 1 << 20]),
        placement: Placement::default(),
    };
    let raid0 = config.sets.iter().filter(|set| set.level == RaidLevel::Raid0);
    let raid0: u64 = raid0.map(|set| config.whole_extents(set)).sum();
    config.temporary_bytes = random.below(raid0 / 3 + 1) * extent_bytes;
    let extents = (config.capacity_bytes() - config.temporary_bytes) / extent_bytes;
    // Full sets, or some room besides.
    let spare = if random.one_in(2) { 0 } else { random.below(extents / 3 + 1) };
    config.logical_bytes = (extents - spare) * extent_bytes;
    config.validate().expect("options are drawn so that they fit");
    config
}

/// The members, not all sets in the same order.
fn rotated(members: usize, by: usize) -> Vec<MemberIndex> {
    (0..members).map(|place| MemberIndex(((place + by) % members) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_all_kinds_can_be() {
        for kind in VolumeKind::ALL {
            for seed in 0..500 {
                let options = VolumeOptions::draw(&mut Random::new(seed), kind);
                assert_eq!(options.config.validate(), Ok(()));
                assert_eq!(options.cache.data_blocks, options.config.blocks());
            }
        }
    }
}
