//! Tags that labels of legs, and of the witness, may have which do not count now. A label has room
//! for the last tags only, and whoever is not among them is a stranger to a start, which refuses it.
//! So these go last: a leg that is out for long, and still there, keeps nothing from starting.

use crate::format::leg_label::Tag;
use crate::units::Uuid;

/// Of each name: the last two that it may have counted with, and two fills of it.
const OF_ONE_MAX: usize = 4;
const KEPT_MAX: usize = 32;

#[derive(Default)]
pub(super) struct KeptTags {
    /// The oldest first.
    tags: Vec<(Uuid, Tag)>,
}

impl KeptTags {
    pub(super) fn new(found: Vec<(Uuid, Tag)>) -> KeptTags {
        KeptTags { tags: found }
    }

    /// All labels of this one are newer.
    pub(super) fn forget(&mut self, name: Uuid) {
        self.tags.retain(|(of, _)| *of != name);
    }

    pub(super) fn keep(&mut self, name: Uuid, tag: Tag) {
        if self.tags.contains(&(name, tag)) {
            return;
        }
        let of_name = self.tags.iter().enumerate().filter(|(_, (of, _))| *of == name);
        // Its label may be the first still: what a fill writes may have failed.
        let place = of_name.map(|(place, _)| place).nth(OF_ONE_MAX - 2);
        let is_full = self.tags.iter().filter(|(of, _)| *of == name).count() == OF_ONE_MAX;
        if let Some(place) = place.filter(|_| is_full) {
            self.tags.remove(place);
        }
        if self.tags.len() == KEPT_MAX {
            self.tags.remove(0);
        }
        self.tags.push((name, tag));
    }

    pub(super) fn all(&self) -> Vec<Tag> {
        self.tags.iter().map(|(_, tag)| *tag).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [Uuid; 2] = [Uuid([1; 16]), Uuid([2; 16])];

    #[test]
    fn the_first_labels_of_one_are_kept_while_it_is_filled_again_and_again() {
        let mut kept = KeptTags::new(vec![(NAMES[0], Tag(1))]);
        kept.keep(NAMES[1], Tag(2));
        (3..20).for_each(|tag| kept.keep(NAMES[0], Tag(tag)));
        let numbers = |kept: &KeptTags| kept.all().iter().map(|tag| tag.0).collect::<Vec<_>>();
        assert_eq!(numbers(&kept), [1, 2, 3, 18, 19]);
        kept.forget(NAMES[0]);
        assert_eq!(numbers(&kept), [2]);
    }

    #[test]
    fn many_names_are_not_kept_for_ever() {
        let mut kept = KeptTags::default();
        (1..=100).for_each(|name| kept.keep(Uuid([name; 16]), Tag(name.into())));
        assert_eq!(kept.all().len(), KEPT_MAX);
        assert_eq!(kept.all().last(), Some(&Tag(100)));
    }
}
