//! Runs the requests of [`dcd_protocol::volumes`].

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dcd_engine::units::{BLOCK_SIZE, Lba, LbaRange, MemberIndex};
use dcd_engine::volume::ReplaceError;
use dcd_engine::volume::Volume;
use dcd_engine::volume::attributes::AttributeChange;
use dcd_engine::volume::status::SpareStatus;
use dcd_engine::{Operation, RequestError, VolumeAnswer, VolumeError, VolumeRequest};
use dcd_protocol::failure::volume_hint;
use dcd_protocol::volumes::{PLACES_EXTENTS_MAX, PlaceReport};
use dcd_protocol::{Code, Failure, VolumeCommand};
use serde_json::{Value, json};

use crate::control::answers::{answer, failure, run_with_signs_of_life, write_line};
use crate::control::volume_growth;
use crate::device::device_file::DeviceFile;
use crate::device::device_spec::DeviceSpec;
use crate::event_loop::submitter::Submitter;
use crate::pair::new_member::{NewMemberError, look_at};
use crate::process::descriptors::{DESCRIPTORS_PATIENCE, receive_descriptors};
use crate::report::status_report::DaemonFacts;
use crate::report::volumes::VolumeReport;

/// Whether there is a volume.
pub(crate) fn is_served(submitter: &Submitter) -> bool {
    ask(submitter, |_| ()).is_ok()
}

/// Looks at the volume; a refusal if there is none.
fn ask<T: Send + 'static>(
    submitter: &Submitter,
    function: impl FnOnce(&Volume) -> T + Send + 'static,
) -> Result<T, Value> {
    let asked = submitter.ask(|snapshot| snapshot.core.engine()?.volume().map(function));
    asked.flatten().ok_or_else(|| answer(Err(VolumeError::NoVolume.into())))
}

/// Runs a request of the client of this connection.
pub(crate) fn run(
    stream: &UnixStream,
    submitter: &Submitter,
    facts: &Arc<DaemonFacts>,
    command: VolumeCommand,
) -> io::Result<Value> {
    let told = match command {
        VolumeCommand::Status => {
            let facts = facts.clone();
            let report = ask(submitter, move |volume| VolumeReport::of(volume, &facts.members));
            report.map(|report| json!({ "ok": true, "volume": report }))
        }
        VolumeCommand::GetAttributes { block } => ranges_of(submitter, &[(block, 1)])
            .and_then(|_| ask(submitter, move |volume| attributes_of(volume, Lba(block)))),
        VolumeCommand::Places { ranges } => ranges_of(submitter, &ranges)
            .and_then(|ranges| ask(submitter, move |volume| places_of(volume, &ranges)))
            .and_then(|places| match places {
                Some(places) => Ok(json!({ "ok": true, "places": places })),
                None => Err(failure(
                    Code::TooMuch,
                    "too many extents at once",
                    &format!("ask for at most {PLACES_EXTENTS_MAX}"),
                )),
            }),
        VolumeCommand::Replace { member, disk, accept_damage } => {
            Ok(match take_disk(stream, submitter, facts, Some(member), &disk, accept_damage)? {
                Ok(()) => json!({ "ok": true }),
                Err(refusal) => refusal.to_value(),
            })
        }
        VolumeCommand::AddSpare { disk } => {
            Ok(match take_disk(stream, submitter, facts, None, &disk, false)? {
                Ok(()) => json!({ "ok": true }),
                Err(refusal) => refusal.to_value(),
            })
        }
        VolumeCommand::RemoveSpare { disk } => {
            let names = facts.members.find(&disk);
            let spares = ask(submitter, move |volume| {
                let is_it = |spare: &SpareStatus| names.contains(&spare.disk);
                volume.spare_statuses().find(is_it).map(|spare| spare.disk)
            });
            spares.map(|spare| match spare.map(|spare| submitter.remove_spare(spare)) {
                Some(Some(Ok(()))) => json!({ "ok": true }),
                Some(Some(Err(error))) => Failure::of(error.into(), volume_hint(error)).to_value(),
                Some(None) => Failure::of(RequestError::ShuttingDown, "start it again").to_value(),
                None => failure(
                    Code::BadMember,
                    &format!("{disk} is no spare of this volume"),
                    "`dcd volume status` lists the spares",
                ),
            })
        }
        VolumeCommand::Grow { set, bytes } => {
            return Ok(volume_growth::run(submitter, set, bytes));
        }
        command => return change(stream, submitter, command),
    };
    Ok(told.unwrap_or_else(|refusal| refusal))
}

/// Has a disk that the client has opened take the place of a member, or become a spare.
fn take_disk(
    stream: &UnixStream,
    submitter: &Submitter,
    facts: &DaemonFacts,
    member: Option<u8>,
    disk: &str,
    accept_damage: bool,
) -> io::Result<Result<(), Failure>> {
    let refused = |error: NewMemberError| match error {
        NewMemberError::Refused(ReplaceError::Volume(error)) => {
            Failure::of(error.into(), volume_hint(error))
        }
        other => Failure::new(Code::BadMember, other.to_string(), other.hint().unwrap_or_default()),
    };
    if !is_served(submitter) {
        return Ok(Err(refused(ReplaceError::from(VolumeError::NoVolume).into())));
    }
    let spec = match disk.parse::<DeviceSpec>() {
        Ok(spec) => spec,
        Err(error) => {
            return Ok(Err(Failure::new(Code::BadMember, error.to_string(), error.hint())));
        }
    };
    // 1. The disk itself: whoever asks has opened it, and holds what keeps others away.
    write_line(stream, &json!({ "ok": true, "send": "descriptors" }))?;
    stream.set_read_timeout(Some(DESCRIPTORS_PATIENCE))?;
    let descriptors = receive_descriptors(stream)?;
    stream.set_read_timeout(None)?;
    let name = spec.path().display().to_string();
    let new = DeviceFile::of_descriptors(spec.path(), descriptors)
        .map_err(NewMemberError::from)
        .and_then(|file| look_at(file, spec, facts.uuid, member, accept_damage));
    // 2. Nothing is written before the engine has taken it.
    Ok(match new.map(|new| submitter.replace_member(new)) {
        Ok(Some(Ok(slot))) => {
            facts.members.put(slot, name);
            Ok(())
        }
        Ok(Some(Err(error))) | Err(error) => Err(refused(error)),
        Ok(None) => Err(Failure::of(RequestError::ShuttingDown, "start it again")),
    })
}

fn attributes_of(volume: &Volume, block: Lba) -> Value {
    let place = volume.place(block).map(|placed| {
        json!({
            "set": placed.set,
            "level": placed.tier.level.number(),
            "class": placed.tier.class.name(),
            "member": placed.member.0,
            "offset": placed.offset,
            "temporary": placed.is_temporary,
        })
    });
    json!({ "ok": true, "attributes": volume.attributes(block).to_string(), "place": place })
}

/// The extents that these ranges touch, those that lie alike as one; `None` if they are too many.
fn places_of(volume: &Volume, ranges: &[LbaRange]) -> Option<Vec<PlaceReport>> {
    let extent = volume.config().extent_bytes / BLOCK_SIZE;
    let touched = ranges.iter().map(|range| range.blocks / extent + 2).sum::<u64>();
    // The client counts alike, with some at the ends of a range.
    if touched > 2 * PLACES_EXTENTS_MAX {
        return None;
    }
    let mut places: Vec<PlaceReport> = Vec::new();
    for range in ranges.iter().filter(|range| range.blocks > 0) {
        let first = range.start.0 / extent;
        let end = (range.start.0 + range.blocks).div_ceil(extent);
        for block in (first..end).map(|index| index * extent) {
            let placed = volume.place(Lba(block));
            let place = PlaceReport {
                block,
                blocks: extent,
                level: placed.map(|placed| placed.tier.level.number()),
                set: placed.map(|placed| placed.set),
                temporary: placed.is_some_and(|placed| placed.is_temporary),
                attributes: volume.attributes(Lba(block)),
            };
            match places.last_mut() {
                Some(last)
                    if last.block + last.blocks == block
                        && (last.set, last.temporary, last.attributes)
                            == (place.set, place.temporary, place.attributes) =>
                {
                    last.blocks += extent;
                }
                _ => places.push(place),
            }
        }
    }
    Some(places)
}

/// What goes to the engine as a request.
fn change(stream: &UnixStream, submitter: &Submitter, command: VolumeCommand) -> io::Result<Value> {
    let lba = Lba;
    let request = match command {
        VolumeCommand::Status
        | VolumeCommand::GetAttributes { .. }
        | VolumeCommand::Replace { .. }
        | VolumeCommand::AddSpare { .. }
        | VolumeCommand::RemoveSpare { .. }
        | VolumeCommand::Grow { .. }
        | VolumeCommand::Places { .. } => unreachable!("they are no requests of the engine"),
        VolumeCommand::SetAttributes { ranges, set, clear } => {
            let ranges = match ranges_of(submitter, &ranges) {
                Ok(ranges) => ranges,
                Err(refusal) => return Ok(refusal),
            };
            VolumeRequest::SetAttributes { ranges, change: AttributeChange { set, clear } }
        }
        VolumeCommand::Allocate { near, attributes } => {
            VolumeRequest::Allocate { near: near.map(lba), attributes }
        }
        VolumeCommand::CreatePointer { from, to } => {
            VolumeRequest::CreatePointer { from: lba(from), to: lba(to) }
        }
        VolumeCommand::DeletePointer { from, to } => {
            VolumeRequest::DeletePointer { from: lba(from), to: lba(to) }
        }
        VolumeCommand::Collect => VolumeRequest::Collect,
        VolumeCommand::SetPointers { pointers } => VolumeRequest::SetPointers { pointers },
        VolumeCommand::Fail { member } => VolumeRequest::FailMember { member: MemberIndex(member) },
        VolumeCommand::Rebuild { member } => VolumeRequest::Rebuild { member: MemberIndex(member) },
        VolumeCommand::Scrub => VolumeRequest::Scrub,
        VolumeCommand::ResumeScrub => VolumeRequest::ResumeScrub,
        VolumeCommand::CancelWork => VolumeRequest::CancelWork,
    };
    let reply = run_with_signs_of_life(stream, submitter, Operation::Volume(request))?;
    let mut value = answer(reply.result);
    match reply.answer {
        Some(VolumeAnswer::Allocated(block)) => value["block"] = json!(block.0),
        Some(VolumeAnswer::Collected(blocks)) => value["freed"] = json!(blocks),
        None => {}
    }
    Ok(value)
}

/// The ranges, if all of them lie on the volume.
fn ranges_of(submitter: &Submitter, ranges: &[(u64, u64)]) -> Result<Vec<LbaRange>, Value> {
    let blocks = submitter.ask(|snapshot| snapshot.core.data_disk().blocks).unwrap_or(0);
    let range = |(start, length): &(u64, u64)| {
        let end = start.checked_add(*length).filter(|end| *end <= blocks);
        end.map(|_| LbaRange::new(*start, *length)).ok_or_else(|| {
            failure(
                Code::OutOfRange,
                &format!("blocks {start} and {length} more do not lie on the volume"),
                &format!("it has {blocks} blocks of 512 bytes"),
            )
        })
    };
    ranges.iter().map(range).collect()
}
