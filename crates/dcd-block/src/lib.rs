//! What everybody who speaks of blocks of dcd shares, with the engine or without: addresses and
//! times with their [`units`], what a block is for ([`attributes`]), [`checksum`]s, and why a
//! request fails ([`errors`]).

pub mod attributes;
pub mod checksum;
pub mod errors;
pub mod units;
