//! Runs the dcd engine on disks that lose what was not flushed, stops it at any instant, recovers,
//! and compares with a plain model.
//!
//! Everything follows from one seed: the options of the run, the load, the order in which I/Os end,
//! the moments of the crashes and what survives them. [`run::run`] with the same seed repeats a run
//! exactly.

pub mod faulty_disk;
pub mod model;
pub mod options;
pub mod random;
pub mod run;
