//! Who may stand at the doors of NBD, and who has to go when there are too many.
//!
//! Clients that negotiate have places of their own: they take none of those of `--connections-max`
//! until they begin to transmit. When all places for negotiation are taken, a new client takes the
//! place of the one that is worth least:
//!
//! 1. who has no certificate goes before who has shown one. That keeps up to half of the places;
//! 2. then those of the address that has most of them. What an address does with its own places
//!    must not cost the others any: a client over a long line is silent for a whole round trip,
//!    and a crowd on a short one speaks at once. Few places are as good as one, so that a client
//!    may have several connections;
//! 3. of these, who is late with its first bytes: of an address with few places after a second, of
//!    one with many as soon as half of its places are silent;
//! 4. of these, who has been there for longest.
//!
//! So a crowd of one address displaces itself, and whoever comes from another negotiates
//! undisturbed. A crowd of very many addresses cannot be told from as many clients: the oldest that
//! has got nowhere goes, and each has as long as the places last.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use dcd_engine::{Duration, Time};
use rustix::process::{Resource, getrlimit};

/// Clients that may negotiate at a time. At a thousand bare connects a second each has half a
/// second for its first byte.
pub(crate) const NEGOTIATING_MAX: usize = 512;
/// The same where memory is bounded: of a negotiation 20 to 50 KiB are held.
const NEGOTIATING_MAX_SPARING: usize = 128;
/// As few as that where there are too few descriptors.
const NEGOTIATING_MIN: usize = 16;
/// An address that has no more places than this is worth as much as one with a single one.
const FEW: u32 = 4;
/// Who comes from an address with few places has so long for its first bytes.
const FIRST_BYTES: Duration = Duration::from_secs(1);
/// Descriptors for disks, sockets and whatever else is open.
pub(crate) const DESCRIPTORS_OTHER: usize = 256;

/// Where a client comes from, as far as it cannot choose that: of IPv6 the network, in which
/// everybody has many addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// A Unix socket, used by this user.
    User(u32),
    /// An address of IPv4, or 64 bits of one of IPv6.
    Network(u64),
}

impl Origin {
    pub(crate) fn of(from: SocketAddr) -> Origin {
        match from.ip().to_canonical() {
            IpAddr::V4(ip) => Origin::Network(u64::from(u32::from(ip))),
            // No network of the internet begins with zeroes, so it is none of the above.
            IpAddr::V6(ip) => Origin::Network((ip.to_bits() >> 64) as u64),
        }
    }
}

/// How far a client has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// It has sent nothing.
    Silent,
    /// It has sent something.
    Spoken,
    /// It has shown a certificate.
    Certified,
    /// It transmits.
    Admitted,
}

/// How many of an address negotiate.
#[derive(Clone, Copy, Default)]
struct Party {
    silent: u32,
    spoken: u32,
    certified: u32,
}

impl Party {
    fn of(&mut self, standing: Standing) -> Option<&mut u32> {
        match standing {
            Standing::Silent => Some(&mut self.silent),
            Standing::Spoken => Some(&mut self.spoken),
            Standing::Certified => Some(&mut self.certified),
            Standing::Admitted => None,
        }
    }

    fn is_empty(self) -> bool {
        self.silent + self.spoken + self.certified == 0
    }
}

/// Counts of those at the doors.
pub(crate) struct Places {
    negotiating: BTreeMap<Origin, Party>,
    negotiating_count: usize,
    certified_count: usize,
    negotiating_max: usize,
    spares_memory: bool,
    admitted: usize,
    /// Clients that may transmit at a time.
    pub(crate) admitted_max: usize,
}

impl Places {
    pub(crate) fn new(admitted_max: usize) -> Places {
        Places {
            negotiating: BTreeMap::new(),
            negotiating_count: 0,
            certified_count: 0,
            negotiating_max: NEGOTIATING_MAX,
            spares_memory: false,
            admitted: 0,
            admitted_max,
        }
    }

    /// Fewer may negotiate at a time.
    pub(crate) fn spare_memory(&mut self) {
        self.spares_memory = true;
        self.fit_descriptors();
    }

    /// Takes the limit of descriptors into account.
    pub(crate) fn fit_descriptors(&mut self) {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let left = usize::try_from(limit).unwrap_or(usize::MAX);
        let left = left.saturating_sub(self.admitted_max).saturating_sub(DESCRIPTORS_OTHER);
        let most = if self.spares_memory { NEGOTIATING_MAX_SPARING } else { NEGOTIATING_MAX };
        self.negotiating_max = left.clamp(NEGOTIATING_MIN, most);
    }

    /// Clients that transmit.
    pub(crate) fn admitted(&self) -> usize {
        self.admitted
    }

    /// Whether somebody who negotiates has to go before another may come.
    pub(crate) fn is_full(&self) -> bool {
        self.negotiating_count >= self.negotiating_max
    }

    /// A client has come.
    pub(crate) fn enter(&mut self, origin: Origin) {
        self.count(origin, Standing::Silent, true);
    }

    /// A client that negotiates has come further.
    pub(crate) fn rise(&mut self, origin: Origin, before: Standing, standing: Standing) {
        self.count(origin, standing, true);
        self.count(origin, before, false);
    }

    /// A client wants to transmit. False: there are too many, and it has to go.
    pub(crate) fn admit(&mut self, origin: Origin, before: Standing) -> bool {
        if self.admitted >= self.admitted_max {
            return false;
        }
        self.rise(origin, before, Standing::Admitted);
        true
    }

    /// A client has gone.
    pub(crate) fn leave(&mut self, origin: Origin, standing: Standing) {
        self.count(origin, standing, false);
    }

    fn count(&mut self, origin: Origin, standing: Standing, comes: bool) {
        fn add(count: &mut usize, comes: bool) {
            *count = if comes { *count + 1 } else { *count - 1 };
        }
        let party = self.negotiating.entry(origin).or_default();
        match party.of(standing) {
            Some(count) => {
                *count = if comes { *count + 1 } else { *count - 1 };
                add(&mut self.negotiating_count, comes);
                if standing == Standing::Certified {
                    add(&mut self.certified_count, comes);
                }
            }
            None => add(&mut self.admitted, comes),
        }
        if party.is_empty() {
            self.negotiating.remove(&origin);
        }
    }

    /// What a client that negotiates is worth: the least goes first.
    pub(crate) fn worth(
        &self,
        origin: Origin,
        standing: Standing,
        opened: Time,
        now: Time,
    ) -> impl Ord + use<> {
        let party = self.negotiating.get(&origin).copied().unwrap_or_default();
        // One certificate must not keep out those who have yet to show theirs.
        let has_reserve = self.certified_count * 2 <= self.negotiating_max;
        let is_kept = has_reserve && standing == Standing::Certified;
        let of_origin = party.silent + party.spoken + if has_reserve { 0 } else { party.certified };
        let is_late = if of_origin > FEW {
            party.silent * 2 > of_origin
        } else {
            opened.after(FIRST_BYTES) < now
        };
        let is_late = is_late && standing == Standing::Silent;
        (is_kept, Reverse(of_origin.max(FEW)), !is_late, opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(ip: &str) -> Origin {
        Origin::of(SocketAddr::new(ip.parse().unwrap(), 7))
    }

    #[test]
    fn an_address_is_what_one_cannot_choose() {
        assert_eq!(origin("127.0.0.1"), origin("::ffff:127.0.0.1"));
        assert_ne!(origin("127.0.0.1"), origin("127.0.0.2"));
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::2:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_ne!(Origin::User(0), Origin::User(1000));
    }

    /// Full places, with a clock: each newcomer takes the place of the one that is worth least.
    struct Doors {
        places: Places,
        there: Vec<(Origin, Standing, Time)>,
        now: Time,
    }

    impl Doors {
        fn new() -> Doors {
            Doors { places: Places::new(2), there: Vec::new(), now: Time(0) }
        }

        /// Some come, one in each millisecond, and come as far as that at once.
        fn come(&mut self, origins: impl IntoIterator<Item = Origin>, standing: Standing) {
            for origin in origins {
                self.now = self.now.after(Duration::from_millis(1));
                if self.places.is_full() {
                    let worth = |&(origin, standing, opened): &(Origin, Standing, Time)| {
                        self.places.worth(origin, standing, opened, self.now)
                    };
                    let least = (0..self.there.len()).min_by_key(|&at| worth(&self.there[at]));
                    let (origin, standing, _) = self.there.remove(least.unwrap());
                    self.places.leave(origin, standing);
                }
                self.places.enter(origin);
                if standing != Standing::Silent {
                    self.places.rise(origin, Standing::Silent, standing);
                }
                self.there.push((origin, standing, self.now));
            }
        }

        fn count(&self, origin: Origin) -> usize {
            self.there.iter().filter(|(known, ..)| *known == origin).count()
        }
    }

    fn many(count: usize) -> impl Iterator<Item = Origin> {
        (0..count).map(|number| Origin::Network(1 << 40 | number as u64))
    }

    fn crowd(count: usize) -> impl Iterator<Item = Origin> {
        std::iter::repeat_n(Origin::Network(1), count)
    }

    #[test]
    fn a_crowd_of_one_address_displaces_itself_however_far_it_comes() {
        for standing in [Standing::Silent, Standing::Spoken] {
            let mut doors = Doors::new();
            doors.come(crowd(2000), standing);
            let alone = [origin("10.0.0.1"), origin("2001:db8::1"), Origin::User(0)];
            alone.iter().for_each(|&one| doors.come([one; FEW as usize], Standing::Silent));
            doors.come(crowd(2000), standing);
            for one in alone {
                assert_eq!(doors.count(one), FEW as usize, "{one:?} is silent for two seconds");
            }
            assert_eq!(doors.there.len(), NEGOTIATING_MAX);
        }
    }

    #[test]
    fn who_shares_its_address_with_a_crowd_that_speaks_has_its_time_too() {
        let mut doors = Doors::new();
        doors.come(crowd(2000), Standing::Spoken);
        doors.come(crowd(1), Standing::Silent);
        let came = doors.now;
        doors.come(crowd(NEGOTIATING_MAX - 1), Standing::Spoken);
        assert!(doors.there.iter().any(|(.., opened)| *opened == came));
        // And one that says nothing displaces none that speaks, beyond half of them.
        doors.come(crowd(2000), Standing::Silent);
        let silent = doors.there.iter().filter(|(_, standing, _)| *standing == Standing::Silent);
        assert_eq!(silent.count(), NEGOTIATING_MAX / 2 + 1);
    }

    #[test]
    fn of_many_addresses_the_oldest_goes_and_first_who_is_late() {
        let mut doors = Doors::new();
        doors.come(many(3000), Standing::Spoken);
        let alone = origin("10.0.0.1");
        doors.come([alone], Standing::Silent);
        doors.come(many(NEGOTIATING_MAX - 1), Standing::Spoken);
        assert_eq!(doors.count(alone), 1, "it was there for as long as any");
        doors.come(many(1), Standing::Spoken);
        assert_eq!(doors.count(alone), 0);
        doors.come([alone], Standing::Silent);
        doors.now = doors.now.after(Duration::from_millis(1100));
        doors.come(many(1), Standing::Spoken);
        assert_eq!(doors.count(alone), 0, "it had a second");
    }

    #[test]
    fn a_certificate_keeps_half_of_the_places_and_no_more() {
        let mut doors = Doors::new();
        let (known, alone) = (origin("10.0.0.1"), origin("10.0.0.2"));
        doors.come([known; 100], Standing::Certified);
        doors.come(many(3000), Standing::Spoken);
        assert_eq!(doors.count(known), 100);
        doors.come([known; 3000], Standing::Certified);
        doors.come([alone], Standing::Silent);
        doors.come([known; 3000], Standing::Certified);
        assert_eq!(doors.count(alone), 1);
    }

    #[test]
    fn nobody_is_counted_twice() {
        let mut places = Places::new(2);
        let (crowd, alone) = (origin("127.0.0.1"), origin("127.0.0.2"));
        (0..3).for_each(|_| places.enter(crowd));
        places.enter(alone);
        places.rise(crowd, Standing::Silent, Standing::Spoken);
        places.rise(crowd, Standing::Spoken, Standing::Certified);
        assert!(places.admit(crowd, Standing::Certified) && places.admit(alone, Standing::Silent));
        assert!(!places.admit(crowd, Standing::Silent));
        places.leave(alone, Standing::Admitted);
        assert!(places.admit(crowd, Standing::Silent));
        places.leave(crowd, Standing::Silent);
        let counts = (places.negotiating_count, places.certified_count, places.admitted);
        assert_eq!((counts, places.negotiating.len()), ((0, 0, 2), 0));
    }
}
