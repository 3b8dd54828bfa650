//! Disks in memory: cheap to copy ([`pages`]), and as faulty as real ones ([`faulty`]).

pub mod faulty;
pub mod pages;

pub use faulty::{Fate, FaultyDisk, SECTOR};
pub use pages::Pages;
