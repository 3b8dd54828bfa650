//! Has the volume grow while it serves.

use dcd_engine::volume::growth::GrowthError;
use dcd_engine::{GrowRefusal, RequestError};
use dcd_protocol::{Code, Failure};
use serde_json::{Value, json};

use crate::control::answers::answer;
use crate::event_loop::submitter::Submitter;

/// Begins it; the status of the volume tells how far it is.
pub(super) fn run(submitter: &Submitter, set: Option<u8>, bytes: Option<u64>) -> Value {
    match submitter.grow_volume(set, bytes) {
        Some(Ok(())) => json!({ "ok": true }),
        Some(Err(GrowRefusal::Log(error))) => answer(Err(error)),
        Some(Err(GrowRefusal::Growth(error))) => {
            Failure::new(Code::CannotGrow, error.to_string(), hint(&error)).to_value()
        }
        None => answer(Err(RequestError::ShuttingDown)),
    }
}

fn hint(error: &GrowthError) -> &'static str {
    match error {
        GrowthError::NoSet { .. } => "`dcd volume status` lists the sets",
        GrowthError::TooManySets { .. } => "grow the set that lies last: without --set",
        GrowthError::Away(_) => {
            "bring it back, rebuild or replace it first: `dcd volume status` says how it is"
        }
        GrowthError::NoRoom { .. } => {
            "make its disk larger (truncate -s, lvextend), or replace it by a larger one: dcd volume replace"
        }
        GrowthError::Shrinks { .. } => "give a larger --size, or none",
        GrowthError::TooLarge { .. } => "give a smaller --size, or none for all of it",
        GrowthError::CacheDisk { .. } => {
            "make the cache-disk larger first (truncate -s, lvextend), each of them if there are several"
        }
        GrowthError::LogIsResized { .. } => {
            "give the log these bytes again (dcd cache-disk resize BYTES), grow the volume, then the log"
        }
        GrowthError::HasMemory => "`dcd nvram remove` first, and add it again behind the growth",
        GrowthError::Config(_) => "give another --size",
        GrowthError::Superblock(_) => {
            "tables of a larger volume have to begin within the first 8 TiB of the cache-disk"
        }
        GrowthError::Tables => "larger extents have smaller tables; they are chosen at creation",
    }
}
