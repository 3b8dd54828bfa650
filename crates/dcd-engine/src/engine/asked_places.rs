//! Places of a sequence that reads have asked for since it was followed: whoever asked has them
//! now, so they are not read ahead again ([`super::prefetch`]).

/// So many more that were asked for before than that were not: what was asked for is forgotten.
const AGAIN_MAX: u32 = 32;

/// Places that were asked for.
#[derive(Default)]
pub(super) struct AskedPlaces {
    /// A bit for each place.
    places: Vec<u64>,
    /// How many more were asked for of late that had been before than were not.
    again: u32,
}

impl AskedPlaces {
    /// Whether the place was asked for.
    pub(super) fn has(&self, place: u32) -> bool {
        self.places.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// Notes a place; tells whether all others were forgotten.
    pub(super) fn note(&mut self, place: u32) -> bool {
        self.again = match self.has(place) {
            true => self.again + 1,
            false => self.again.saturating_sub(1),
        };
        // Whoever asks again and again has forgotten, or it is another who asks.
        let is_anew = self.again > AGAIN_MAX;
        if is_anew {
            *self = AskedPlaces::default();
        }
        let word = place as usize / 64;
        if self.places.len() <= word {
            self.places.resize(word + 1, 0);
        }
        self.places[word] |= 1 << (place % 64);
        is_anew
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_asked_for_until_many_are_asked_for_again() {
        let mut asked = AskedPlaces::default();
        assert!((0..200).all(|place| !asked.note(place)));
        assert!(asked.has(199) && !asked.has(200));
        // Some are always asked for again: the beginning of a file system.
        for place in 200..300 {
            assert!(!asked.note(0) && !asked.note(place));
        }
        let forgotten = (0..100).position(|place| asked.note(place));
        assert_eq!(forgotten, Some(AGAIN_MAX as usize));
        assert!(asked.has(AGAIN_MAX) && !asked.has(AGAIN_MAX - 1) && !asked.has(299));
    }
}
