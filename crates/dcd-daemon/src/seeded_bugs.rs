//! Deliberate mistakes of the driver, to see whether its runs under a simulated kernel find them
//! ([`driver_runs`](crate::event_loop::driver_runs)).
//!
//! As those of the engine: without the test-only feature `seeded-bugs`, [`seeded`] is a constant and the hooks are not
//! compiled in.

/// Whether the mistake is on.
#[cfg(not(feature = "seeded-bugs"))]
#[inline(always)]
pub(crate) const fn seeded(_bug: DriverBug) -> bool {
    false
}

/// Whether the mistake is on.
#[cfg(feature = "seeded-bugs")]
pub(crate) fn seeded(bug: DriverBug) -> bool {
    TURNED_ON.get() == Some(bug)
}

#[cfg(feature = "seeded-bugs")]
thread_local! {
    static TURNED_ON: std::cell::Cell<Option<DriverBug>> = const { std::cell::Cell::new(None) };
}

/// Turns one mistake on in this thread, and any other off.
#[cfg(feature = "seeded-bugs")]
pub fn turn_on(bug: Option<DriverBug>) {
    TURNED_ON.set(bug);
}

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// A deliberate mistake.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum DriverBug { $($(#[doc = $doc])+ $variant,)+ }

        #[cfg(feature = "seeded-bugs")]
        impl DriverBug {
            /// All.
            pub const ALL: &[DriverBug] = &[$(DriverBug::$variant,)+];

            /// As the documents name it.
            pub fn name(self) -> &'static str {
                match self { $(DriverBug::$variant => $name,)+ }
            }

            /// What is wrong.
            pub fn what(self) -> &'static str {
                match self { $(DriverBug::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

bugs! {
    /// A short transfer counts as the whole.
    ShortIsWhole = "short-is-whole";
    /// The rest of a short transfer is read from where the first part was.
    RestFromTheStart = "rest-from-the-start";
    /// What was interrupted counts as done.
    InterruptedIsDone = "interrupted-is-done";
    /// What was cancelled counts as done.
    CancelledIsDone = "cancelled-is-done";
    /// The place of an operation is free while its rest is under way.
    PlaceFreedEarly = "place-freed-early";
    /// Memory is touched while the kernel has it.
    TouchedUnderWay = "touched-under-way";
    /// What does not fit into the queue is forgotten.
    OverflowForgotten = "overflow-forgotten";
    /// A queue that is full, or a kernel that is busy, ends the loop.
    BusyIsFatal = "busy-is-fatal";
    /// A way to zero that the disk does not know fails, and no other is tried.
    RefusedZeroFails = "refused-zero-fails";
    /// The engine is told the time before the queue of completions is empty.
    TimeBeforeEnds = "time-before-ends";
    /// The label of the data-disk does not say which epoch comes before the superblock is written.
    LabelNotAnnounced = "label-not-announced";
    /// The label speaks of the next epoch alone before the superblock is written.
    LabelSettledEarly = "label-settled-early";
    /// The label allows two epochs behind an end in order: an older copy of a disk fits, too.
    LabelNotSettled = "label-not-settled";
}
