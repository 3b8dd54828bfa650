//! Who may stand at the doors of NBD, and who has to go when there are too many.
//!
//! Clients that negotiate have places of their own: they take none of those of `--connections-max`
//! until they begin to transmit. When all places for negotiation are taken, a new client takes the
//! place of the one that is worth least:
//!
//! 1. who has sent nothing yet goes before who has: an honest client sends its first bytes as soon
//!    as it is greeted;
//! 2. then who has no certificate goes before who has shown one;
//! 3. of these, those of the address that has most of them; of these, who has been there for
//!    longest.
//!
//! So a crowd of one address displaces itself, and whoever comes from another negotiates
//! undisturbed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use dcd_engine::Time;
use rustix::process::{Resource, getrlimit};

/// Clients that may negotiate at a time. At a thousand bare connects a second each has half a
/// second for its first byte.
pub(crate) const NEGOTIATING_MAX: usize = 512;
/// The same where memory is bounded: of a negotiation 20 to 50 KiB are held.
const NEGOTIATING_MAX_SPARING: usize = 128;
/// As few as that where there are too few descriptors.
const NEGOTIATING_MIN: usize = 16;
/// Descriptors for disks, sockets and whatever else is open.
pub(crate) const DESCRIPTORS_OTHER: usize = 256;

/// Where a client comes from, as far as it cannot choose that: of IPv6 the network, in which
/// everybody has many addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// A Unix socket.
    Here,
    /// An address of IPv4, or 64 bits of one of IPv6.
    Network(u64),
}

impl Origin {
    pub(crate) fn of(from: Option<SocketAddr>) -> Origin {
        let Some(from) = from else { return Origin::Here };
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

/// Counts of those at the doors.
pub(crate) struct Places {
    negotiating: BTreeMap<Origin, u32>,
    negotiating_count: usize,
    negotiating_max: usize,
    spares_memory: bool,
    admitted: usize,
    /// Clients that may transmit at a time.
    pub(crate) admitted_max: usize,
}

impl Places {
    pub(crate) fn new(admitted_max: usize) -> Places {
        let negotiating = BTreeMap::new();
        let (negotiating_count, negotiating_max, admitted) = (0, NEGOTIATING_MAX, 0);
        Places {
            negotiating,
            negotiating_count,
            negotiating_max,
            spares_memory: false,
            admitted,
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
        *self.negotiating.entry(origin).or_default() += 1;
        self.negotiating_count += 1;
    }

    /// A client wants to transmit. False: there are too many, and it has to go.
    pub(crate) fn admit(&mut self, origin: Origin) -> bool {
        if self.admitted >= self.admitted_max {
            return false;
        }
        self.leave(origin, Standing::Certified);
        self.admitted += 1;
        true
    }

    /// A client has gone, or does not negotiate any more.
    pub(crate) fn leave(&mut self, origin: Origin, standing: Standing) {
        if standing == Standing::Admitted {
            self.admitted -= 1;
            return;
        }
        self.negotiating_count -= 1;
        if let Some(count) = self.negotiating.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.negotiating.remove(&origin);
            }
        }
    }

    /// What a client that negotiates is worth: the least goes first.
    pub(crate) fn worth(
        &self,
        origin: Origin,
        standing: Standing,
        opened: Time,
    ) -> impl Ord + use<> {
        let of_origin = self.negotiating.get(&origin).copied().unwrap_or(0);
        (standing, std::cmp::Reverse(of_origin), opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(ip: &str) -> Origin {
        Origin::of(Some(SocketAddr::new(ip.parse().unwrap(), 7)))
    }

    #[test]
    fn an_address_is_what_one_cannot_choose() {
        assert_eq!(origin("127.0.0.1"), origin("::ffff:127.0.0.1"));
        assert_ne!(origin("127.0.0.1"), origin("127.0.0.2"));
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::2:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
    }

    #[test]
    fn who_is_worth_least_goes_first() {
        let mut places = Places::new(2);
        let (crowd, alone) = (origin("127.0.0.1"), origin("127.0.0.2"));
        (0..3).for_each(|_| places.enter(crowd));
        places.enter(alone);
        let worth = |origin, standing, at| places.worth(origin, standing, Time(at));
        let order = [
            worth(crowd, Standing::Silent, 5),
            worth(crowd, Standing::Silent, 6),
            worth(alone, Standing::Silent, 0),
            worth(crowd, Standing::Spoken, 0),
            worth(alone, Standing::Spoken, 0),
            worth(crowd, Standing::Certified, 0),
            worth(alone, Standing::Certified, 0),
        ];
        assert!(order.is_sorted());
        assert!(places.admit(crowd) && places.admit(alone) && !places.admit(crowd));
        places.leave(alone, Standing::Admitted);
        assert!(places.admit(crowd));
        places.leave(crowd, Standing::Spoken);
        assert_eq!((places.negotiating_count, places.negotiating.len()), (0, 0));
    }
}
