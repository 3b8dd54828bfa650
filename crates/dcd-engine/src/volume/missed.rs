//! What members have missed that are away: a bit for each *region*, some stripes of a redundant
//! set. A member that comes back is brought up to date there, and nowhere else.
//!
//! One bit speaks for all members: it says that one of those that are *noted* may not have what is
//! in the region. All that a noted member has missed is marked; more may be. Three things carry it:
//!
//! - *Nothing is written for it.* Whatever changes a stripe is in the journal, and marks its region
//!   when its record is written. A root has the bits of all records before its tail, and a start
//!   marks those behind it again. So a bit is durable with the record of the change.
//! - *A member is noted when it goes*, if it had all up to then: with the regions of all records in
//!   the ring. What records before have said was flushed there.
//! - *Bits go when nobody is noted any more.* A member is not when all is there, flushed; or when
//!   the disk in its place is not as it was left.

use super::format::root::{MISSED_BYTES, MissedBits};
use super::members::MemberMask;
use super::placement::RaidLevel;
use super::raid::Layout;
use crate::units::{LINE_SIZE, MemberIndex};

/// Regions that the root has a bit for.
const REGIONS_MAX: u64 = MISSED_BYTES as u64 * 8;
/// What a region has on each member, at least.
const REGION_BYTES_MIN: u64 = 8 << 10;

/// Names a region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MissedRegion(pub(crate) u32);

/// The regions of a set.
#[derive(Clone, Copy, Debug)]
struct SetRegions {
    first: u64,
    /// Stripes of a region; 0: the set has none.
    stripes: u64,
    stripes_of_set: u64,
}

/// The bits, and who is noted.
pub(crate) struct Missed {
    sets: Vec<SetRegions>,
    region_bytes: u64,
    words: Vec<u64>,
    noted: MemberMask,
}

/// Stripes of a region; 0: the set needs none.
fn stripes_of_region(layout: &Layout, region_bytes: u64) -> u64 {
    let unit_bytes = u64::from(layout.unit_lines()) * LINE_SIZE;
    match layout.level() {
        RaidLevel::Raid0 => 0,
        RaidLevel::Raid1 | RaidLevel::Raid5 => (region_bytes / unit_bytes).max(1),
    }
}

impl Missed {
    /// Nobody has missed anything.
    pub(crate) fn new(layouts: &[Layout]) -> Missed {
        let regions_of =
            |layout: &Layout, region_bytes| match stripes_of_region(layout, region_bytes) {
                0 => 0,
                stripes => layout.stripes().div_ceil(stripes),
            };
        let count = |bytes| layouts.iter().map(|layout| regions_of(layout, bytes)).sum::<u64>();
        let mut region_bytes = REGION_BYTES_MIN;
        // Ends: at last each set is one region.
        while count(region_bytes) > REGIONS_MAX {
            region_bytes *= 2;
        }
        let mut first = 0;
        let sets = layouts.iter().map(|layout| {
            let set = SetRegions {
                first,
                stripes: stripes_of_region(layout, region_bytes),
                stripes_of_set: layout.stripes(),
            };
            first += regions_of(layout, region_bytes);
            set
        });
        let sets: Vec<SetRegions> = sets.collect();
        let words = vec![0; first.div_ceil(64) as usize];
        Missed { sets, region_bytes, words, noted: MemberMask::default() }
    }

    /// The region of a stripe of a redundant set.
    pub(crate) fn region_of(&self, set: u8, stripe: u64) -> MissedRegion {
        let set = &self.sets[usize::from(set)];
        MissedRegion((set.first + stripe / set.stripes) as u32)
    }

    fn has(&self, region: u64) -> bool {
        self.words[region as usize / 64] & 1 << (region % 64) != 0
    }

    /// Whether a stripe of a redundant set is in a region that is marked.
    pub(crate) fn is_marked(&self, set: u8, stripe: u64) -> bool {
        self.has(self.region_of(set, stripe).0.into())
    }

    /// Marks a region, if anybody is noted who may miss it.
    pub(crate) fn mark(&mut self, region: MissedRegion) {
        if !self.noted.is_none() {
            self.words[region.0 as usize / 64] |= 1 << (region.0 % 64);
        }
    }

    /// Whether all is marked that a member has missed.
    pub(crate) fn is_noted(&self, member: MemberIndex) -> bool {
        self.noted.has(member)
    }

    /// From here on all is marked that a member does not get.
    pub(crate) fn note(&mut self, member: MemberIndex) {
        self.replayed(member, true);
    }

    /// A member counts as up to date, since the others cannot do without it, and may lack anything:
    /// when it is done without at last, it gets all.
    pub(crate) fn note_all(&mut self, member: MemberIndex) {
        self.note(member);
        self.words.fill(u64::MAX);
    }

    /// A member has all, or nothing that counts. Bits that nobody needs go.
    pub(crate) fn forget(&mut self, member: MemberIndex) {
        self.replayed(member, false);
        self.drop_unneeded();
    }

    /// What a record of the journal says of a member. No bit goes: the root may have been written
    /// behind later records, and have bits for these.
    pub(crate) fn replayed(&mut self, member: MemberIndex, is_noted: bool) {
        let others = self.noted.without(MemberMask::of(member));
        self.noted = if is_noted { others.with(MemberMask::of(member)) } else { others };
    }

    /// The same has been done with all records.
    pub(crate) fn drop_unneeded(&mut self) {
        if self.noted.is_none() {
            self.words.fill(0);
        }
    }

    /// The first stripe of a set from this one on that is in a marked region.
    pub(crate) fn next_marked(&self, set: u8, stripe: u64) -> Option<u64> {
        let regions = self.sets[usize::from(set)];
        if regions.stripes == 0 || stripe >= regions.stripes_of_set {
            return None;
        }
        if self.is_marked(set, stripe) {
            return Some(stripe);
        }
        let end = regions.first + regions.stripes_of_set.div_ceil(regions.stripes);
        let region = self.next_bit(regions.first + stripe / regions.stripes + 1, end)?;
        Some((region - regions.first) * regions.stripes)
    }

    /// The first region that is marked, from one on and before another. Words without any cost one
    /// step: this is asked for in each turn of a driver that shows how far a member is.
    fn next_bit(&self, from: u64, end: u64) -> Option<u64> {
        let mut at = from;
        while at < end {
            let word = self.words[at as usize / 64] >> (at % 64);
            if word != 0 {
                return Some(at + u64::from(word.trailing_zeros())).filter(|found| *found < end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Stripes of a set from this one on that are in marked regions.
    pub(crate) fn stripes_marked(&self, set: u8, from: u64) -> u64 {
        let (mut from, mut count) = (from, 0);
        let regions = self.sets[usize::from(set)];
        while let Some(first) = self.next_marked(set, from) {
            from = ((first / regions.stripes + 1) * regions.stripes).min(regions.stripes_of_set);
            count += from - first;
        }
        count
    }

    /// For a root.
    pub(crate) fn to_root(&self) -> Option<MissedBits> {
        let mut bits = vec![0; MISSED_BYTES];
        for (bytes, word) in bits.chunks_exact_mut(8).zip(&self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let MemberMask(members) = self.noted;
        (members != 0).then_some(MissedBits { members, region_bytes: self.region_bytes, bits })
    }

    /// From a root. Regions of another size say only that something was missed.
    pub(crate) fn load(&mut self, root: Option<&MissedBits>) {
        let Some(root) = root else { return };
        self.noted = MemberMask(root.members);
        let words = root.bits.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let is_same = root.region_bytes == self.region_bytes;
        for (word, bits) in self.words.iter_mut().zip(words) {
            *word = if is_same { bits } else { u64::MAX };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::config::{LABEL_BYTES, SetConfig};
    use crate::volume::placement::DeviceClass;

    fn layout(level: RaidLevel, unit: u64, stripes: u64) -> Layout {
        Layout::new(&SetConfig {
            level,
            class: DeviceClass::Slow,
            members: (0..4).map(MemberIndex).collect(),
            stripe_unit_bytes: unit,
            copies: if level == RaidLevel::Raid1 { 2 } else { 1 },
            member_offset_bytes: LABEL_BYTES,
            member_bytes: unit * stripes,
        })
    }

    fn layouts(stripes: u64) -> Vec<Layout> {
        vec![
            layout(RaidLevel::Raid1, 4096, stripes),
            layout(RaidLevel::Raid0, 4096, stripes),
            layout(RaidLevel::Raid5, 32 << 10, stripes),
        ]
    }

    #[test]
    fn each_stripe_is_in_a_region_of_its_own_set() {
        let mut missed = Missed::new(&layouts(100));
        // 8 KiB: 2 stripes of the first, 1 of the last.
        assert_eq!(missed.region_of(0, 98), MissedRegion(49));
        assert_eq!(missed.region_of(2, 0), MissedRegion(50));
        assert_eq!(missed.region_of(2, 99), MissedRegion(149));
        missed.mark(MissedRegion(49));
        assert_eq!(missed.next_marked(0, 0), None, "nobody misses it");
        missed.note(MemberIndex(1));
        missed.mark(MissedRegion(49));
        missed.mark(MissedRegion(50));
        assert_eq!(missed.next_marked(0, 0), Some(98));
        assert_eq!(missed.next_marked(0, 99), Some(99));
        assert_eq!(missed.next_marked(1, 0), None);
        assert_eq!((missed.next_marked(2, 0), missed.next_marked(2, 1)), (Some(0), None));
        assert_eq!((missed.stripes_marked(0, 0), missed.stripes_marked(0, 99)), (2, 1));
        assert_eq!((missed.stripes_marked(1, 0), missed.stripes_marked(2, 0)), (0, 1));
    }

    #[test]
    fn regions_grow_with_the_sets() {
        // 4 TiB on each member.
        let layouts = layouts(1 << 30);
        let mut missed = Missed::new(&layouts);
        assert!(missed.words.len() * 8 <= MISSED_BYTES, "the root has room");
        let last = layouts[2].stripes() - 1;
        missed.note(MemberIndex(0));
        missed.mark(missed.region_of(2, last));
        assert_eq!(missed.next_marked(0, 0), None);
        let first = missed.next_marked(2, 0).expect("it is marked");
        assert!(last - first < 1 << 17, "one in some thousands of it");
        assert_eq!(missed.stripes_marked(2, 0), last + 1 - first);
    }

    #[test]
    fn bits_stay_while_anybody_needs_them() {
        let mut missed = Missed::new(&layouts(100));
        assert_eq!(missed.to_root(), None);
        missed.note(MemberIndex(1));
        missed.note(MemberIndex(2));
        missed.mark(MissedRegion(3));
        missed.forget(MemberIndex(1));
        assert!(missed.is_marked(0, 6) && !missed.is_noted(MemberIndex(1)));
        let root = missed.to_root();
        let mut loaded = Missed::new(&layouts(100));
        loaded.load(root.as_ref());
        assert!(loaded.is_marked(0, 6) && !loaded.is_marked(0, 0));
        assert_eq!(loaded.noted, MemberMask(0b100));
        let root = root.map(|root| MissedBits { region_bytes: 1 << 30, ..root });
        loaded.load(root.as_ref());
        assert!(loaded.is_marked(0, 0), "nobody knows what they said");
        missed.forget(MemberIndex(2));
        assert!(!missed.is_marked(0, 6));
        // One that may lack anything gets all.
        missed.note_all(MemberIndex(3));
        assert_eq!((missed.stripes_marked(0, 0), missed.stripes_marked(2, 0)), (100, 100));
        missed.forget(MemberIndex(3));
        assert_eq!((missed.stripes_marked(0, 0), missed.stripes_marked(2, 0)), (0, 0));
    }

    /// Regions of two sets in one word, and of one set in many.
    #[test]
    fn the_next_that_is_marked_is_found() {
        let mut missed = Missed::new(&layouts(1000));
        missed.note(MemberIndex(0));
        let marked = [(0, 0), (0, 130), (0, 998), (2, 1), (2, 640), (2, 999)];
        marked.iter().for_each(|(set, stripe)| missed.mark(missed.region_of(*set, *stripe)));
        for set in [0, 2] {
            for from in 0..1000 {
                let expected = (from..1000).find(|stripe| missed.is_marked(set, *stripe));
                assert_eq!(missed.next_marked(set, from), expected, "set {set} from {from}");
            }
        }
    }
}
