//! Runs the requests of [`dcd_protocol::legs`].

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dcd_engine::io::LegError;
use dcd_engine::units::Uuid;
use dcd_engine::{Operation, RequestError};
use dcd_protocol::failure::leg_hint;
use dcd_protocol::{Code, Failure, LegCommand};
use serde_json::{Value, json};

use crate::control::answers::{answer, run_with_signs_of_life, write_line};
use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::device_spec::DeviceSpec;
use crate::device::share_room::ShareRoom;
use crate::device::shares::directory_of;
use crate::event_loop::submitter::Submitter;
use crate::pair::legs::{
    NewLeg, NewLegError, WITNESS_BYTES, check_blank, check_former_leg, check_size, new_leg_uuid,
    read_leg_label,
};
use crate::process::descriptors::{DESCRIPTORS_PATIENCE, receive_descriptors};
use crate::report::legs::{reports, witness_report};
use crate::report::status_report::DaemonFacts;

/// Runs a request of the client of this connection.
pub(crate) fn run(
    stream: &UnixStream,
    submitter: &Submitter,
    facts: &Arc<DaemonFacts>,
    command: LegCommand,
) -> io::Result<Value> {
    let refusal = |error: LegError| Failure::of(error.into(), leg_hint(error)).to_value();
    let name = |text: &str| text.parse::<Uuid>().map_err(|_| refusal(LegError::NoSuchLeg));
    let operation = match command {
        LegCommand::Status => {
            let told = submitter.ask(|snapshot| {
                let engine = snapshot.core.engine()?;
                let side = snapshot.cache_side;
                let witness = engine.leg_witness().map(|it| witness_report(it, side));
                Some((reports(engine.legs(), side), witness))
            });
            let (legs, witness) = told.flatten().unwrap_or_default();
            if legs.is_empty() {
                return Ok(refusal(LegError::NoLegs));
            }
            return Ok(json!({ "ok": true, "legs": legs, "witness": witness }));
        }
        LegCommand::Add { disk } => {
            return Ok(match add(stream, submitter, facts.uuid, &disk, false)? {
                Ok(leg) => json!({ "ok": true, "leg": leg.to_string() }),
                Err(refusal) => refusal.to_value(),
            });
        }
        LegCommand::AddWitness { file } => {
            return Ok(match add(stream, submitter, facts.uuid, &file, true)? {
                Ok(witness) => json!({ "ok": true, "leg": witness.to_string() }),
                Err(refusal) => refusal.to_value(),
            });
        }
        LegCommand::Fill { leg } => name(&leg).map(|leg| Operation::FillLeg { leg }),
        LegCommand::TakeOut { leg } => name(&leg).map(|leg| Operation::TakeOutLeg { leg }),
    };
    match operation {
        Ok(operation) => Ok(answer(run_with_signs_of_life(stream, submitter, operation)?.result)),
        Err(refusal) => Ok(refusal),
    }
}

/// Has a disk that the client has opened become a leg, or the witness; its name.
fn add(
    stream: &UnixStream,
    submitter: &Submitter,
    cache: Uuid,
    disk: &str,
    is_witness: bool,
) -> io::Result<Result<Uuid, Failure>> {
    let refused = |error: NewLegError| match error {
        NewLegError::Leg(error) => Failure::of(error.into(), leg_hint(error)),
        other => Failure::new(Code::BadLeg, other.to_string(), other.hint().unwrap_or_default()),
    };
    let end = submitter.ask(|snapshot| {
        let engine = snapshot.core.engine()?;
        engine.legs().next().map(|_| engine.superblock().end())
    });
    let end = end.map(|end| end.map(|end| if is_witness { WITNESS_BYTES } else { end }));
    let Some(end_bytes) = end.flatten() else { return Ok(Err(refused(LegError::NoLegs.into()))) };
    let spec = match disk.parse::<DeviceSpec>() {
        Ok(spec) => spec,
        Err(error) => {
            return Ok(Err(Failure::new(Code::BadLeg, error.to_string(), error.hint())));
        }
    };
    // 1. The disk itself: whoever asks has opened it, and holds what keeps others away.
    write_line(stream, &json!({ "ok": true, "send": "descriptors" }))?;
    stream.set_read_timeout(Some(DESCRIPTORS_PATIENCE))?;
    let descriptors = receive_descriptors(stream)?;
    stream.set_read_timeout(None)?;
    let new = match look_at(spec, descriptors, cache, end_bytes, is_witness) {
        Ok(new) => new,
        Err(error) => return Ok(Err(refused(error))),
    };
    // 2. A share is in use before it is a leg.
    if let Err(error) = in_use(&new.file) {
        return Ok(Err(refused(error.into())));
    }
    // 3. Nothing is written to it before the engine has taken it.
    let leg = new.leg;
    Ok(match submitter.add_leg(new) {
        Some(Ok(())) => Ok(leg),
        Some(Err(error)) => Err(refused(error)),
        None => Err(Failure::of(RequestError::ShuttingDown, "start it again")),
    })
}

/// What the directory says of a share that becomes a leg (`pair/leg_share.rs`).
fn in_use(file: &DeviceFile) -> Result<(), DeviceError> {
    let room = ShareRoom::of(file).map_err(|source| DeviceError::Io {
        path: file.path().to_owned(),
        operation: "open",
        source,
    })?;
    room.map_or(Ok(()), |room| room.set_in_use())
}

/// What a disk is that is to become a leg of this cache, of so many bytes.
fn look_at(
    spec: DeviceSpec,
    descriptors: Vec<OwnedFd>,
    cache: Uuid,
    end_bytes: u64,
    is_witness: bool,
) -> Result<NewLeg, NewLegError> {
    let mut file = DeviceFile::of_descriptors(spec.path(), descriptors)?;
    // Of a disk with shares the one that is meant is this cache's (`pair/leg_share.rs`).
    if let Ok(directory) = directory_of(&file)?
        && let Some(share) = spec.path().file_name().and_then(|name| directory.find(name.to_str()?))
        && share.cache == cache
    {
        file.become_share(share.clone())?;
    }
    check_size(&file, end_bytes)?;
    let label = read_leg_label(&file)?.ok().filter(|label| label.cache == cache);
    match label {
        Some(_) => check_former_leg(&file, cache)?,
        None => check_blank(&file)?,
    }
    let leg = new_leg_uuid().map_err(|source| DeviceError::Io {
        path: spec.path().to_owned(),
        operation: "get a name for",
        source,
    })?;
    Ok(NewLeg { file, spec, leg, before: label, is_witness })
}
