//! Which opening may have a store. Two daemons with copies of one cache-disk are the same cache, so
//! each opening has a name of its own, drawn at random, and a lease.
//!
//! ```text
//! a daemon begins     it gets the store if nobody has a lease, if whoever had it is gone for
//!                     certain, or if a person says so; never with an older copy of the cache-disk
//! it goes on          (what had the store open has died) if nobody has opened it meanwhile
//! ```
//! The names are what keeps two apart, with the fence of SlateDB: clocks are only asked how long
//! somebody else is waited for.

use dcd_protocol::store::{CLOCKS_DIFFER_SECONDS, Claim};

use crate::format::Claimed;

/// Why a store of the same cache is not for this opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Another one has it, for so long.
    Leased { seconds: u64 },
    /// This daemon had it, and another one has opened it since.
    Lost,
    /// The cache-disk is not the one that was in use last.
    OlderCopy { expected: u64, found: u64 },
}

impl Claimed {
    /// In so many seconds the lease is over, whichever clock is right; 0: it is.
    pub(crate) fn seconds_left(&self, now_unix_seconds: u64) -> u64 {
        if self.is_over {
            return 0;
        }
        let patience = self.lease_seconds.saturating_add(CLOCKS_DIFFER_SECONDS);
        let until = self.renewed_unix_seconds.saturating_add(patience);
        until.saturating_sub(now_unix_seconds)
    }

    /// Whether it is for a daemon that knows this of it.
    pub(crate) fn judge(&self, claim: &Claim, now_unix_seconds: u64) -> Result<(), Refusal> {
        if let Some(had) = &claim.had {
            // The answer to the last opening may have been lost.
            let is_ours = [had, &claim.next].contains(&&self.claim);
            return if is_ours { Ok(()) } else { Err(Refusal::Lost) };
        }
        if claim.generation < self.generation && !claim.trusts_disks {
            let (expected, found) = (self.generation, claim.generation);
            return Err(Refusal::OlderCopy { expected, found });
        }
        let seconds = self.seconds_left(now_unix_seconds);
        match seconds == 0 || self.place == claim.place || claim.is_now {
            true => Ok(()),
            false => Err(Refusal::Leased { seconds }),
        }
    }
}

#[cfg(test)]
mod tests {
    use dcd_protocol::store::LEASE_SECONDS;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn row() -> Claimed {
        Claimed {
            claim: "one".into(),
            place: "here".into(),
            generation: 5,
            lease_seconds: LEASE_SECONDS,
            renewed_unix_seconds: NOW,
            is_over: false,
            host: None,
        }
    }

    fn start() -> Claim {
        Claim {
            cache: "cache".into(),
            had: None,
            next: "two".into(),
            place: "there".into(),
            generation: 5,
            trusts_disks: false,
            is_now: false,
            host: None,
        }
    }

    #[test]
    fn a_start_waits_for_the_lease_of_another() {
        let judged = |after| row().judge(&start(), NOW + after);
        let patience = LEASE_SECONDS + CLOCKS_DIFFER_SECONDS;
        assert_eq!(judged(0), Err(Refusal::Leased { seconds: patience }));
        assert_eq!(judged(patience - 1), Err(Refusal::Leased { seconds: 1 }));
        assert_eq!(judged(patience), Ok(()));
        let over = Claimed { is_over: true, ..row() };
        assert_eq!(over.judge(&start(), NOW), Ok(()));
        assert_eq!(row().judge(&Claim { is_now: true, ..start() }, NOW), Ok(()));
        // Whoever had it there is gone: the cache-disk is locked.
        assert_eq!(row().judge(&Claim { place: "here".into(), ..start() }, NOW), Ok(()));
        // A clock that is far ahead of ours is not believed to be past.
        let later = Claimed { renewed_unix_seconds: u64::MAX, ..row() };
        assert!(matches!(later.judge(&start(), NOW), Err(Refusal::Leased { .. })));
    }

    #[test]
    fn an_older_copy_is_refused_whatever_the_lease() {
        let older = Claim { generation: 4, place: "here".into(), is_now: true, ..start() };
        let over = Claimed { is_over: true, ..row() };
        let refused = Err(Refusal::OlderCopy { expected: 5, found: 4 });
        assert_eq!(row().judge(&older, NOW), refused);
        assert_eq!(over.judge(&older, NOW), refused);
        assert_eq!(over.judge(&Claim { trusts_disks: true, ..older }, NOW), Ok(()));
    }

    #[test]
    fn who_goes_on_has_it_until_another_has() {
        let going_on = |had: &str, next: &str| {
            let claim = Claim { had: Some(had.into()), next: next.into(), ..start() };
            let forced = Claim { is_now: true, trusts_disks: true, ..claim.clone() };
            let place = Claim { place: "here".into(), ..claim.clone() };
            let judged = row().judge(&claim, NOW + 1_000_000);
            // Nothing that is said at the beginning changes that, nor does time.
            assert_eq!(row().judge(&forced, NOW), judged);
            assert_eq!(row().judge(&place, NOW), judged);
            judged
        };
        assert_eq!(going_on("one", "two"), Ok(()));
        assert_eq!(going_on("zero", "one"), Ok(()));
        assert_eq!(going_on("zero", "two"), Err(Refusal::Lost));
    }
}
