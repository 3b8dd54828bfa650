//! Places of clients on the control socket. There are a few, and who sits in one without asking
//! anything gives it up for somebody who comes: the status of a daemon must be seen whoever else
//! holds connections to it.
//!
//! 1. As long as there is room, everybody gets a place.
//! 2. Then who waits for nothing loses its place: first those that have never asked anything, the
//!    longest there first; then those that have asked nothing for [`IDLE_PATIENCE`]. No command of
//!    theirs is lost: it is taken, or not read.
//! 3. If all are at work, there are [`RESERVE`] places more, for what is answered at once.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Clients at a time.
const PLACES: usize = 16;
/// Places for short questions.
const RESERVE: usize = 4;
/// Who has asked nothing for so long may lose its place.
const IDLE_PATIENCE: Duration = Duration::from_secs(10);

/// All places.
#[derive(Default)]
pub(crate) struct Places {
    taken: Mutex<Vec<Arc<Seat>>>,
}

/// What a place is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceKind {
    /// All that can be asked.
    Full,
    /// Only what is answered at once.
    Reserve,
}

struct Seat {
    stream: UnixStream,
    kind: PlaceKind,
    state: Mutex<SeatState>,
}

#[derive(Clone, Copy)]
struct SeatState {
    /// Since then it waits for nothing; nothing: it is at work.
    idle_since: Option<Instant>,
    has_asked: bool,
    is_lost: bool,
}

impl Seat {
    fn state(&self) -> MutexGuard<'_, SeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken; it is given back with this.
pub(crate) struct Place {
    places: Arc<Places>,
    seat: Arc<Seat>,
}

impl Places {
    fn taken(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for this client; nothing if there is none.
    pub(crate) fn take(self: &Arc<Places>, stream: &UnixStream) -> io::Result<Option<Place>> {
        let mut taken = self.taken();
        let count = |taken: &[Arc<Seat>], kind| taken.iter().filter(|it| it.kind == kind).count();
        let has_room = count(&taken, PlaceKind::Full) < PLACES || free_one(&mut taken);
        let kind = match has_room {
            true => PlaceKind::Full,
            false if count(&taken, PlaceKind::Reserve) < RESERVE => PlaceKind::Reserve,
            false => return Ok(None),
        };
        let now = Some(Instant::now());
        let state = SeatState { idle_since: now, has_asked: false, is_lost: false };
        let seat = Arc::new(Seat { stream: stream.try_clone()?, kind, state: Mutex::new(state) });
        taken.push(seat.clone());
        Ok(Some(Place { places: self.clone(), seat }))
    }
}

/// Parts from the client that needs its place least; whether there is one.
fn free_one(taken: &mut Vec<Arc<Seat>>) -> bool {
    let now = Instant::now();
    let mut free: Option<(bool, Instant, usize)> = None;
    for (at, seat) in taken.iter().enumerate().filter(|(_, it)| it.kind == PlaceKind::Full) {
        let state = *seat.state();
        let Some(since) = state.idle_since else { continue };
        if state.has_asked && now.saturating_duration_since(since) < IDLE_PATIENCE {
            continue;
        }
        let candidate = (state.has_asked, since, at);
        if free.is_none_or(|best| candidate < best) {
            free = Some(candidate);
        }
    }
    let Some((_, _, at)) = free else { return false };
    {
        let mut state = taken[at].state();
        // It has asked something meanwhile.
        if state.idle_since.is_none() {
            return false;
        }
        state.is_lost = true;
    }
    let seat = taken.swap_remove(at);
    // Its thread reads the end and gives up.
    let _ = seat.stream.shutdown(Shutdown::Both);
    true
}

impl Place {
    /// What it is for.
    pub(crate) fn kind(&self) -> PlaceKind {
        self.seat.kind
    }

    /// It begins with a command. False: the place is lost, and the command is not run.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.seat.state();
        if state.is_lost {
            return false;
        }
        (state.idle_since, state.has_asked) = (None, true);
        true
    }

    /// The command has been answered.
    pub(crate) fn end(&self) {
        self.seat.state().idle_since = Some(Instant::now());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().retain(|seat| !Arc::ptr_eq(seat, &self.seat));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn client(places: &Arc<Places>) -> (Option<Place>, UnixStream) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        (places.take(&theirs).unwrap(), ours)
    }

    #[test]
    fn who_has_never_asked_makes_room_and_who_works_does_not() {
        let places = Arc::new(Places::default());
        let mut first: Vec<_> = (0..PLACES).map(|_| client(&places)).collect();
        // All but the third are at work.
        let mut begun = first.iter().enumerate().filter(|(at, _)| *at != 2);
        assert!(begun.all(|(_, it)| it.0.as_ref().unwrap().begin()));
        let (place, _stream) = client(&places);
        let place = place.unwrap();
        assert_eq!(place.kind(), PlaceKind::Full);
        assert!(place.begin());
        assert_eq!(first[2].1.read(&mut [0]).unwrap(), 0, "the third is asked to go");
        assert!(!first[2].0.as_ref().unwrap().begin());
        // Now everybody works: short questions only, and not for everybody.
        let short: Vec<_> = (0..RESERVE).map(|_| client(&places)).collect();
        assert!(short.iter().all(|(it, _)| it.as_ref().unwrap().kind() == PlaceKind::Reserve));
        assert!(client(&places).0.is_none());
        // Who has just finished stays.
        first[5].0.as_ref().unwrap().end();
        assert!(client(&places).0.is_none());
        drop(short);
        drop(first);
        assert_eq!(client(&places).0.unwrap().kind(), PlaceKind::Full);
    }
}
