//! Ordered shipping, judged from outside: what is left when the cache-disk is thrown away at any
//! moment is what was kept of the data-disk last, and that must be a point of the order of changes.
//!
//! The image is taken when the engine asks for it, and compared with all changes that there ever
//! were: those that it shows for certain and those that it lacks for certain, as after a crash
//! ([`crate::model`]). What one window shows a later one must show, too, and until the engine is
//! told that it was kept nothing may be written to the data-disk.

use dcd_engine::Input;

use crate::disk::Pages;
use crate::faults::Allowed;
use crate::model::{ChangeNumber, Model, Shown, Violation, read_block};

/// The data-disk at the end of a window.
pub struct KeptImage {
    /// Which.
    pub window: u64,
    /// What it shows.
    pub image: Pages,
    /// A power cut would change nothing of that.
    pub is_durable: bool,
}

/// Who keeps windows: slow by turns, and failing now and then.
#[derive(Clone, Default)]
pub struct Keeper {
    keeping: Option<(u64, u32)>,
    asked: u32,
}

impl Keeper {
    /// The engine asks for it.
    pub fn asked(&mut self, window: u64) {
        assert!(self.keeping.is_none(), "it is being kept");
        self.asked += 1;
        // Nothing that other runs draw depends on it.
        self.keeping = Some((window, self.asked.wrapping_mul(0x9e37_79b1) >> 28));
    }

    /// Whether it is under way.
    pub fn is_keeping(&self) -> bool {
        self.keeping.is_some()
    }

    /// Nothing else will happen.
    pub fn hurry(&mut self) {
        if let Some((_, inputs)) = &mut self.keeping {
            *inputs = 0;
        }
    }

    /// How it ends, if it ends before the next input.
    pub fn next_answer(&mut self) -> Option<Input> {
        let (window, inputs) = self.keeping?;
        if let Some(left) = inputs.checked_sub(1) {
            self.keeping = Some((window, left));
            return None;
        }
        self.keeping = None;
        Some(Input::WindowKept { window, is_kept: !self.asked.is_multiple_of(5) })
    }
}

/// All changes that there were, and what windows have shown of them.
pub struct Order {
    model: Model,
    last: u64,
}

impl Order {
    /// Of a device of zeroes.
    pub fn new(blocks: u64) -> Order {
        Order { model: Model::new(blocks), last: 0 }
    }

    /// A change is submitted, under the number that it has elsewhere.
    pub fn submit(
        &mut self,
        number: ChangeNumber,
        start: u64,
        blocks: u64,
        is_zero: bool,
        is_atomic: bool,
    ) {
        let own = self.model.submit(start, blocks, is_zero, is_atomic);
        assert_eq!(own, number, "all changes are told");
    }

    /// It was acknowledged, or has failed.
    pub fn acknowledge(&mut self, number: ChangeNumber, ok: bool) {
        self.model.acknowledge(number, ok);
    }

    /// A moment, later than all before.
    pub fn tick(&mut self) -> u64 {
        self.model.tick()
    }

    /// Another cache has the data-disk, and counts its windows from the beginning.
    pub fn other_cache(&mut self) {
        self.last = 0;
    }

    /// What was acknowledged before this moment is in every window from now on.
    pub fn flushed(&mut self, submitted: u64) {
        self.model.flushed(submitted);
    }

    /// What is there after a crash, as far as it was looked at: all that was not certain.
    pub fn crashed(&mut self, shown: &[(u64, Shown)]) {
        self.model.crashed(shown);
    }

    /// The volume has become larger.
    pub fn grow(&mut self, blocks: u64) {
        self.model.grow(blocks);
    }

    /// Compares the end of a window.
    pub fn compare(
        &mut self,
        kept: &KeptImage,
        blocks: u64,
        allowed: &Allowed,
    ) -> Result<(), Violation> {
        let words =
            |what: String| Violation(format!("the data-disk at window {}: {what}", kept.window));
        if !kept.is_durable {
            return Err(words("a power cut would change it".into()));
        }
        if kept.window < self.last {
            return Err(words(format!("comes behind window {}", self.last)));
        }
        self.last = kept.window;
        let mut bytes = [0; 512];
        let shown: Vec<(u64, Shown)> = (0..blocks)
            .map(|block| {
                kept.image.read(block as usize * 512, &mut bytes);
                (block, read_block(&bytes, block))
            })
            .collect();
        self.model.check_window(&shown, allowed).map_err(|violation| words(violation.0))
    }
}
