//! Models of disks on virtual time: drives with an arm, part by part, and simple ones without.
//!
//! A [`profile::Profile`] describes a device; [`model::DiskModel`] is one that runs. What is
//! modelled and how well, against drives that were measured: `docs/disk-models.md`.

pub mod bench;
pub mod cache;
pub mod divisor;
pub mod drive;
pub mod geometry;
pub mod mechanism;
pub mod model;
pub mod price;
pub mod profile;
pub mod profiles;
pub mod queue;
pub mod seek;
pub mod shingled;
pub mod simple;
pub mod store;
pub mod summary;
