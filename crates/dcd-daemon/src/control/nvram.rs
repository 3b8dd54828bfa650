//! Runs the requests of [`dcd_protocol::nvram`].
//!
//! ```text
//! add      1. The memory is taken over from the client, who has opened and locked it, and looked at.
//!          2. One that is to be replaced goes. A new one that is no good is refused before.
//!          3. The new one comes.
//! ```
//! Whatever ends between 2 and 3 leaves a cache without a memory, which serves.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;

use dcd_engine::io::NvramChangeError;
use dcd_engine::nvram::durable::{NvramOpenError, NvramStart};
use dcd_engine::units::{BLOCK_SIZE, LbaRange};
use dcd_engine::{DataDiskInfo, NvramRefusal, Operation, RequestError, Time, Uuid};
use dcd_protocol::failure::nvram_hint;
use dcd_protocol::{Code, Failure, NvramCommand};
use serde_json::Value;

use crate::control::answers::{answer, write_line};
use crate::control::long_jobs::{Long, with_progress};
use crate::control::shared::Shared;
use crate::device::device_file::DeviceFile;
use crate::device::device_spec::DeviceSpec;
use crate::event_loop::submitter::Snapshot;
use crate::pair::nvram::{NewNvram, NvramError, new_id, open_new};
use crate::process::descriptors::{DESCRIPTORS_PATIENCE, receive_descriptors};

pub(super) fn run(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    command: NvramCommand,
    listed: &mut Vec<LbaRange>,
) -> io::Result<Value> {
    match command {
        NvramCommand::Remove => remove(reader, shared, listed),
        NvramCommand::Add { memory, survives_power, replaces } => {
            // Before anything is handed over, and before another one goes.
            if let Some(refusal) = refusal(shared, replaces) {
                return Ok(refusal);
            }
            let bad = |error: &dyn std::fmt::Display, hint: &str| {
                Failure::new(Code::BadNvram, error.to_string(), hint).to_value()
            };
            let spec = match memory.parse::<DeviceSpec>() {
                Ok(spec) => spec,
                Err(error) => return Ok(bad(&error, &error.hint())),
            };
            // 1.
            let stream: &UnixStream = reader.get_ref();
            write_line(stream, &serde_json::json!({ "ok": true, "send": "descriptors" }))?;
            stream.set_read_timeout(Some(DESCRIPTORS_PATIENCE))?;
            let descriptors = receive_descriptors(stream)?;
            stream.set_read_timeout(None)?;
            let Some(place) = shared.submitter.ask(Place::of).flatten() else {
                return Ok(answer(Err(RequestError::ShuttingDown)));
            };
            let opened = DeviceFile::of_descriptors(spec.path(), descriptors)
                .map_err(NvramError::from)
                .and_then(|file| open(shared, spec, file, survives_power, &place));
            let new = match opened {
                Ok(new) => new,
                Err(error) => {
                    let hint = match &error {
                        // Nothing is lost that could be given up here.
                        NvramError::Open { source: NvramOpenError::Unnamed { .. }, .. } => Some(
                            "give a blank one. This one was the cache's before, and failed, or did not end in order: if the \
                             cache-disk is an older copy, what was written since is in it. `dcd inspect nvram` shows what is"
                                .into(),
                        ),
                        error => error.hint(),
                    };
                    return Ok(bad(&error, hint.as_deref().unwrap_or_default()));
                }
            };
            // 2.
            if replaces {
                let removed = remove(reader, shared, listed)?;
                if removed["ok"] != true {
                    return Ok(removed);
                }
            }
            // 3.
            let ticket = shared.submitter.new_ticket();
            let answered = with_progress(reader, shared, Long::Nvram(ticket), listed, |done| {
                shared.submitter.add_nvram(ticket, new, done);
            })?;
            if answered["code"] != Code::Io.as_str() {
                return Ok(answered);
            }
            let error = format!("{memory}, or the cache-disk, failed while it was made ready");
            let hint = "`dcd status` and dmesg tell which; changes go to the log, without a memory";
            Ok(Failure::new(Code::Io, error, hint).to_value())
        }
    }
}

fn remove(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    listed: &mut Vec<LbaRange>,
) -> io::Result<Value> {
    let ticket = shared.submitter.new_ticket();
    with_progress(reader, shared, Long::Nvram(ticket), listed, |done| {
        shared.submitter.run_as(ticket, Operation::RemoveNvram, done);
    })
}

/// Why no memory may come now, or take the place of the one that is there.
fn refusal(shared: &Shared, replaces: bool) -> Option<Value> {
    let change = |error: NvramChangeError| Failure::of(error.into(), nvram_hint(error)).to_value();
    if shared.facts.nvram.is_memory_bounded {
        let error = "a memory in front of the log is not possible with --memory-max yet";
        let hint = "serve it without --memory-max";
        return Some(Failure::new(Code::BadNvram, error, hint).to_value());
    }
    let asked = shared.submitter.ask(|snapshot| {
        let has_volume = snapshot.core.engine().is_some_and(|engine| engine.volume().is_some());
        let no_log = snapshot.core.engine().is_some_and(|engine| engine.config().no_log);
        (snapshot.core.may_add_nvram(), has_volume && no_log)
    });
    let Some((may_add, is_volume_without_log)) = asked else {
        return Some(answer(Err(RequestError::ShuttingDown)));
    };
    if is_volume_without_log {
        let error = "a memory is not possible with --no-log and a volume of several disks yet";
        let hint = "serve it without --no-log";
        return Some(Failure::new(Code::BadNvram, error, hint).to_value());
    }
    match (may_add, replaces) {
        (Err(NvramRefusal::Request(RequestError::NvramChange(NvramChangeError::InUse))), true) => {
            None
        }
        (Ok(()) | Err(NvramRefusal::NotYet), true) => Some(change(NvramChangeError::NoMemory)),
        (Ok(()) | Err(NvramRefusal::NotYet), false) => None,
        (Err(NvramRefusal::Request(RequestError::NvramChange(error))), _) => Some(change(error)),
        (Err(NvramRefusal::Request(error)), _) => Some(answer(Err(error))),
        (Err(NvramRefusal::Settings(error)), _) => {
            let error = format!("a memory in front of the log does not go with this: {error}");
            let hint = "`dcd set` lists the settings, and changes most of them";
            Some(Failure::new(Code::BadNvram, error, hint).to_value())
        }
    }
}

/// What a memory is to be for.
struct Place {
    cache: Uuid,
    volume: DataDiskInfo,
    now: Time,
}

impl Place {
    fn of(snapshot: &Snapshot<'_>) -> Option<Place> {
        let cache = snapshot.core.engine()?.superblock().uuid;
        Some(Place { cache, volume: snapshot.core.data_disk(), now: snapshot.now })
    }
}

/// Looks at it, and reads it. Nothing in it is changed.
fn open(
    shared: &Shared,
    spec: DeviceSpec,
    file: DeviceFile,
    survives_power: bool,
    place: &Place,
) -> Result<NewNvram, NvramError> {
    let start = NvramStart {
        cache: place.cache,
        expected: None,
        new_id: new_id()?,
        volume_blocks: place.volume.blocks,
        unit_blocks: (u64::from(place.volume.logical_block_size) / BLOCK_SIZE).max(1),
        may_be_lost: false,
    };
    open_new(spec, file, survives_power, shared.facts.nvram.config, &start, place.now)
}
