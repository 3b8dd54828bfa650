//! Drives whose tracks overlap like shingles: what is written destroys what lies behind it in its
//! band, so a band is written in order, or all of it again.
//!
//! ```text
//! managed by the drive   writes go to a media cache, a log on the outer tracks; a band that is
//!                        written from its beginning on, in order, goes to its place at once
//!                        at rest: bands are cleaned, the one first that has waited longest: read,
//!                        merged with what is in the cache, written again
//!                        the cache is full: a write waits until bands were cleaned for it
//! managed by the host    a write is at the write pointer of its zone, or at the beginning, which
//!                        empties it; others are refused
//! ```
//! Cleaning ends with the band under way when a request comes, whose work is lost; that takes no
//! time of the request. Reads find what is in the cache there, a piece at a time.

use std::collections::{BTreeMap, VecDeque};

use super::drive::Drive;
use super::profile::{FieldProblem, ShinglesManagedBy, ShinglesProfile};

/// Bands that are written in order at a time.
const STREAMS_MAX: usize = 8;
const CLEAN_MS_MAX: f64 = 600_000.0;

/// Bands and what keeps their order.
#[derive(Clone, Debug)]
pub enum Shingles {
    /// The drive.
    Drive(Box<Translation>),
    /// The host.
    Host(Zones),
}

impl Shingles {
    /// Of a drive with so many sectors of that size.
    ///
    /// # Errors
    /// When no drive can be like that; the problem names the field.
    pub fn new(
        profile: &ShinglesProfile,
        sectors: u64,
        sector_bytes: u32,
    ) -> Result<Shingles, FieldProblem> {
        let in_sectors = |name: &str, bytes: u64| {
            let count = bytes / u64::from(sector_bytes);
            if count == 0 || count >= sectors {
                let message = format!("{bytes} is not between a sector and the whole drive");
                return Err(FieldProblem::new(name, message));
            }
            Ok(count)
        };
        let band = in_sectors("band_bytes", profile.band_bytes)?;
        let ns = |name: &str, ms: Option<f64>| match ms {
            Some(ms) if (0.001..=CLEAN_MS_MAX).contains(&ms) => Ok((ms * 1e6) as u64),
            Some(ms) => Err(FieldProblem::new(name, format!("{ms} is not 0.001 to 600000"))),
            None => Err(FieldProblem::new(name, "a drive that cleans needs it".into())),
        };
        let is_for = |name: &str, is_set: bool, whose: &str| match is_set {
            true => {
                Err(FieldProblem::new(name, format!("is only for those managed by the {whose}")))
            }
            false => Ok(()),
        };
        match profile.managed_by {
            ShinglesManagedBy::Drive => {
                is_for("conventional_bytes", profile.conventional_bytes.is_some(), "host")?;
                let bytes = profile.media_cache_bytes.ok_or_else(|| {
                    FieldProblem::new("media_cache_bytes", "a drive that cleans needs it".into())
                })?;
                let cache = in_sectors("media_cache_bytes", bytes)?;
                Ok(Shingles::Drive(Box::new(Translation {
                    band,
                    cache,
                    clean_ns: ns("clean_band_ms", profile.clean_band_ms)?,
                    idle_ns: ns("clean_idle_ms", profile.clean_idle_ms)?,
                    used: 0,
                    next: 0,
                    bands: BTreeMap::new(),
                    waiting: VecDeque::new(),
                    streams: VecDeque::new(),
                    busy_until_ns: 0,
                    cleaned: 0,
                })))
            }
            ShinglesManagedBy::Host => {
                for (name, is_set) in [
                    ("media_cache_bytes", profile.media_cache_bytes.is_some()),
                    ("clean_band_ms", profile.clean_band_ms.is_some()),
                    ("clean_idle_ms", profile.clean_idle_ms.is_some()),
                ] {
                    is_for(name, is_set, "drive")?;
                }
                let conventional = match profile.conventional_bytes {
                    None | Some(0) => 0,
                    Some(bytes) => in_sectors("conventional_bytes", bytes)?,
                };
                if conventional % band != 0 {
                    let message = "is not a multiple of band_bytes: a zone is of one kind".into();
                    return Err(FieldProblem::new("conventional_bytes", message));
                }
                Ok(Shingles::Host(Zones { zone: band, conventional, pointers: BTreeMap::new() }))
            }
        }
    }

    /// Sectors before those that are shown.
    pub fn hidden_sectors(&self) -> u64 {
        match self {
            Shingles::Drive(translation) => translation.cache,
            Shingles::Host(_) => 0,
        }
    }
}

// ---- managed by the drive ----------------------------------------------------------------------

/// Where a drive has what was written.
#[derive(Clone, Debug)]
pub struct Translation {
    /// Sectors of a band.
    band: u64,
    /// Sectors of the media cache, which lies before everything else.
    cache: u64,
    clean_ns: u64,
    idle_ns: u64,
    /// Sectors of the cache that no cleaning has freed.
    used: u64,
    /// Where it goes on.
    next: u64,
    /// Bands with something in the cache, or half written.
    bands: BTreeMap<u64, Band>,
    /// The same, in the order in which they will be cleaned.
    waiting: VecDeque<u64>,
    /// Bands that are being written in order, and their next sectors; the oldest first.
    streams: VecDeque<(u64, u64)>,
    busy_until_ns: u64,
    cleaned: u64,
}

#[derive(Clone, Default, Debug)]
struct Band {
    /// Sectors of the cache that its cleaning frees.
    used: u64,
    /// First sector, the one behind the last, and where in the cache: how far the arm has to go.
    /// Cleaning frees room elsewhere than at the begin of the log, so two may have one place.
    extents: BTreeMap<u64, (u64, u64)>,
}

impl Band {
    fn remove(&mut self, start: u64, end: u64) {
        let before = self.extents.range(..start).next_back().map(|(from, to)| (*from, *to));
        if let Some((from, (until, place))) = before
            && until > start
        {
            self.extents.insert(from, (start, place));
            if until > end {
                self.extents.insert(end, (until, place + (end - from)));
            }
        }
        while let Some((from, (until, place))) =
            self.extents.range(start..end).next().map(|(from, to)| (*from, *to))
        {
            self.extents.remove(&from);
            if until > end {
                self.extents.insert(end, (until, place + (end - from)));
            }
        }
    }
}

impl Translation {
    /// Sectors in the media cache that wait for cleaning.
    pub fn used_sectors(&self) -> u64 {
        self.used
    }

    /// Bands that were cleaned.
    pub fn cleaned_bands(&self) -> u64 {
        self.cleaned
    }

    /// What was done at rest before `at_ns`.
    fn rest(&mut self, at_ns: u64) {
        let begin_ns = self.busy_until_ns.saturating_add(self.idle_ns);
        let bands = at_ns.saturating_sub(begin_ns) / self.clean_ns;
        for _ in 0..bands {
            if !self.clean_one() {
                break;
            }
        }
    }

    fn clean_one(&mut self) -> bool {
        let Some(number) = self.waiting.pop_front() else { return false };
        let band = self.bands.remove(&number).expect("it waits");
        self.used -= band.used;
        self.cleaned += 1;
        true
    }

    fn band_mut(&mut self, number: u64) -> &mut Band {
        if !self.bands.contains_key(&number) {
            self.waiting.push_back(number);
        }
        self.bands.entry(number).or_default()
    }

    /// When the host has sectors from `first` on.
    pub fn read(&mut self, drive: &mut Drive, at_ns: u64, first: u64, count: u64) -> u64 {
        self.rest(at_ns);
        let (mut at_ns, mut sector, end) = (at_ns, first, first + count);
        while sector < end {
            let (place, until) = self.place_of(sector, end);
            at_ns = drive.read(at_ns, place, until - sector);
            sector = until;
        }
        self.busy_until_ns = at_ns;
        at_ns
    }

    /// Where a sector is, and the first one behind it that lies elsewhere.
    fn place_of(&self, sector: u64, end: u64) -> (u64, u64) {
        let number = sector / self.band;
        let end = end.min((number + 1) * self.band);
        let home = self.cache + sector;
        let Some(band) = self.bands.get(&number) else { return (home, end) };
        let at = band.extents.range(..=sector).next_back();
        if let Some((from, (until, place))) = at.filter(|(_, (until, _))| *until > sector) {
            return (place + (sector - from), end.min(*until));
        }
        let next = band.extents.range(sector..end).next().map_or(end, |(from, _)| *from);
        (home, next)
    }

    /// When a write is reported.
    pub fn write(&mut self, drive: &mut Drive, at_ns: u64, first: u64, count: u64) -> u64 {
        self.rest(at_ns);
        let (mut at_ns, mut sector, end) = (at_ns, first, first + count);
        while sector < end {
            let number = sector / self.band;
            let until = end.min((number + 1) * self.band);
            at_ns = match self.goes_on(number, sector, until) {
                true => drive.write(at_ns, self.cache + sector, until - sector),
                false => self.write_to_cache(drive, at_ns, number, sector, until),
            };
            sector = until;
        }
        self.busy_until_ns = at_ns;
        at_ns
    }

    /// Whether it begins a band or goes on with one that is written in order.
    fn goes_on(&mut self, number: u64, sector: u64, until: u64) -> bool {
        let begins = sector == number * self.band;
        let known = self.streams.iter().position(|(band, _)| *band == number);
        if !begins && known.is_none_or(|at| self.streams[at].1 != sector) {
            return false;
        }
        if let Some(at) = known {
            self.streams.remove(at);
        }
        if let Some(band) = self.bands.get_mut(&number) {
            // Its room in the cache becomes free when the band is cleaned.
            band.remove(sector, until);
        }
        if until < (number + 1) * self.band {
            self.streams.push_back((number, until));
        }
        if self.streams.len() > STREAMS_MAX {
            // What lies behind has to be written again.
            let (number, _) = self.streams.pop_front().expect("there are some");
            self.band_mut(number);
        }
        true
    }

    fn write_to_cache(
        &mut self,
        drive: &mut Drive,
        at_ns: u64,
        number: u64,
        sector: u64,
        until: u64,
    ) -> u64 {
        // More than the whole cache has room in it, a part at a time.
        let (mut at_ns, mut sector) = (at_ns, sector);
        while sector < until {
            let count = (until - sector).min(self.cache - self.next);
            while self.used + count > self.cache {
                if !self.clean_one() {
                    self.used = 0;
                    break;
                }
                at_ns += self.clean_ns;
            }
            let place = self.next;
            self.next = (self.next + count) % self.cache;
            self.used += count;
            let band = self.band_mut(number);
            band.used += count;
            band.remove(sector, sector + count);
            band.extents.insert(sector, (sector + count, place));
            at_ns = drive.write(at_ns, place, count);
            sector += count;
        }
        at_ns
    }
}

// ---- managed by the host -----------------------------------------------------------------------

/// Zones, of which each has a write pointer.
#[derive(Clone, Debug)]
pub struct Zones {
    /// Sectors of a zone.
    zone: u64,
    /// Sectors, from the first on, that take writes anywhere.
    conventional: u64,
    /// Next sectors of zones that were written.
    pointers: BTreeMap<u64, u64>,
}

impl Zones {
    /// Takes a write of sectors, or tells where its zone would take one; if it would fit there but
    /// for its end, where the next zone would.
    ///
    /// # Errors
    /// The sector at which it should begin.
    pub fn write(&mut self, first: u64, count: u64) -> Result<(), u64> {
        let end = first + count;
        if end <= self.conventional {
            return Ok(());
        }
        if first < self.conventional {
            return Err(self.pointer(self.conventional / self.zone));
        }
        let number = first / self.zone;
        let pointer = self.pointer(number);
        if first != pointer && first != number * self.zone {
            return Err(pointer);
        }
        if end > (number + 1) * self.zone {
            return Err(self.pointer(number + 1));
        }
        self.pointers.insert(number, end);
        Ok(())
    }

    /// Where a zone goes on.
    fn pointer(&self, number: u64) -> u64 {
        let (begin, behind) = (number * self.zone, (number + 1) * self.zone);
        // A full zone, or one that nothing is known of, takes writes at its beginning.
        self.pointers.get(&number).copied().filter(|at| *at < behind).unwrap_or(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::profile::Profile;
    use crate::random::Random;

    const S: u64 = 1_000_000_000;

    fn drive() -> (Drive, Translation) {
        let mut profile = Profile::load("archive-8tb").unwrap().mechanical.unwrap();
        let shingles = profile.shingles.as_mut().unwrap();
        // A cache that is soon full: 8 MiB, 2048 sectors.
        shingles.media_cache_bytes = Some(8 << 20);
        let drive = Drive::new(&profile, 0).unwrap();
        let sectors = drive.mechanism().geometry.sectors();
        let shingles = profile.shingles.as_ref().unwrap();
        let Shingles::Drive(translation) = Shingles::new(shingles, sectors, 4096).unwrap() else {
            panic!("it is managed by the drive")
        };
        (drive, *translation)
    }

    #[test]
    fn the_cliff_comes_and_rest_brings_the_speed_back() {
        let (mut drive, mut shingles) = drive();
        let mut random = Random::new(7);
        let mut now = S;
        let mut write = |shingles: &mut Translation, now: &mut u64| {
            let began = *now;
            let sector = 1 + random.below(100_000) * 10_000;
            *now = shingles.write(&mut drive, *now, sector, 1);
            (*now - began) as f64 / 1e6
        };
        let fast: Vec<f64> = (0..2048).map(|_| write(&mut shingles, &mut now)).collect();
        let slow: Vec<f64> = (0..50).map(|_| write(&mut shingles, &mut now)).collect();
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let (fast, slow) = (mean(&fast), mean(&slow));
        assert!(fast < 15.0, "{fast} ms");
        assert!(slow > 40.0 * fast, "{fast}, {slow} ms");
        // A minute of rest, and there is room for as many as bands were cleaned.
        let (used, cleaned) = (shingles.used_sectors(), shingles.cleaned_bands());
        now += 60 * S;
        let again = write(&mut shingles, &mut now);
        let done = shingles.cleaned_bands() - cleaned;
        assert!((50..=80).contains(&done), "{done}");
        assert!(used - shingles.used_sectors() >= done - 1 && again < 30.0, "{again} ms");
    }

    #[test]
    fn what_comes_in_order_goes_to_its_place() {
        let (mut drive, mut shingles) = drive();
        let band = shingles.band;
        let mut now = 0;
        for sector in (10 * band..12 * band).step_by(256) {
            now = shingles.write(&mut drive, now, sector, 256);
        }
        assert_eq!(shingles.used_sectors(), 0);
        let bytes = 2.0 * band as f64 * 4096.0;
        assert!(bytes / (now as f64 / 1e9) > 100e6, "{now} ns");
        // Not in order: to the cache.
        shingles.write(&mut drive, now, 11 * band + 5, 1);
        assert_eq!(shingles.used_sectors(), 1);
    }

    #[test]
    fn the_newest_is_read_wherever_it_is() {
        let (mut drive, mut shingles) = drive();
        let mut random = Random::new(1);
        // Model: sector to place.
        let mut places: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..150 {
            let (first, count) = (random.below(300) + 1, random.below(12) + 1);
            for sector in first..first + count {
                places.insert(sector, shingles.next + (sector - first));
            }
            shingles.write(&mut drive, 0, first, count);
        }
        assert_eq!(shingles.cleaned_bands(), 0);
        for sector in 0..330 {
            let expected = places.get(&sector).copied().unwrap_or(shingles.cache + sector);
            let (place, until) = shingles.place_of(sector, 330);
            assert_eq!(place, expected, "sector {sector}");
            assert!(until > sector);
        }
        shingles.read(&mut drive, S, 0, 330);
    }

    #[test]
    fn a_zone_is_conventional_or_not() {
        let profile = Profile::load("hc620").unwrap().mechanical.unwrap().shingles.unwrap();
        let zones = |conventional_bytes| {
            let profile = ShinglesProfile { conventional_bytes, ..profile };
            Shingles::new(&profile, 1 << 32, 4096)
        };
        assert!(zones(None).is_ok() && zones(Some(3 * profile.band_bytes)).is_ok());
        let problem = zones(Some(3 * profile.band_bytes + 4096)).unwrap_err().message;
        assert!(problem.contains("multiple of band_bytes"), "{problem}");
    }

    #[test]
    fn a_zone_takes_what_comes_next() {
        let mut zones = Zones { zone: 100, conventional: 200, pointers: BTreeMap::new() };
        assert_eq!(zones.write(77, 5), Ok(()));
        assert_eq!(zones.write(195, 10), Err(200), "over the end of the conventional ones");
        assert_eq!(zones.write(350, 1), Err(300));
        assert_eq!(zones.write(300, 50), Ok(()));
        assert_eq!(zones.write(351, 1), Err(350));
        assert_eq!(zones.write(350, 51), Err(400), "over the end of the zone");
        assert_eq!(zones.write(400, 7), Ok(()));
        assert_eq!(zones.write(350, 51), Err(407), "the next zone has begun");
        assert_eq!(zones.write(300, 101), Err(407), "from the beginning");
        assert_eq!(zones.write(200, 9), Ok(()));
        assert_eq!(zones.write(195, 10), Err(209), "behind the conventional ones it goes on there");
        assert_eq!(zones.write(350, 50), Ok(()));
        assert_eq!(zones.write(399, 1), Err(300), "it is full");
        assert_eq!(zones.write(300, 1), Ok(()), "from the beginning");
        assert_eq!(zones.write(350, 1), Err(301));
    }
}
