//! Gives the log or the read area another size, and tells which they have then. Where the
//! cache-disk is a share, its room goes with the log:
//!
//! ```text
//! larger     1. The share takes room (`device/share_room.rs`).
//!            2. The log grows into it.
//! smaller    1. The log shrinks.
//! both       3. What the log has not is given back; also if it did not become what was asked for.
//! ```
//! The read area gets its room from the log; annexes that go with it are given back likewise.
//! What a death between two of them leaves over, the next start gives back.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use dcd_engine::format::share_directory::Windows;
use dcd_engine::io::ResizeError;
use dcd_engine::legs::LegStanding;
use dcd_engine::units::{LINE_SIZE, LbaRange};
use dcd_engine::{RequestError, Superblock};
use dcd_protocol::{Code, Failure, ResizeAsked, ResizeDone};
use serde_json::{Value, json};

use crate::control::answers::{answer, failure};
use crate::control::long_jobs::{Long, with_progress};
use crate::control::shared::Shared;
use crate::device::device_file::DeviceError;
use crate::device::share_room::ShareRoom;
use crate::event_loop::submitter::{SizeWanted, Submitter};
use crate::pair::legs::CacheSide;

/// How long what is under way in room that is to be given back is waited for, and how often it is
/// looked at.
const UNDER_WAY_PATIENCE: Duration = Duration::from_secs(2);
const UNDER_WAY_INTERVAL: Duration = Duration::from_millis(20);

/// A share below the log.
struct Room {
    place: usize,
    share: ShareRoom,
    size_before: u64,
}

pub(super) fn run(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    asked: ResizeAsked,
    listed: &mut Vec<LbaRange>,
) -> io::Result<Value> {
    let submitter = &shared.submitter;
    // Who is not alone takes no room.
    let alone = shared.resizing.try_lock();
    let sizes =
        |it: &Superblock| (it.geometry.segments, u64::from(it.geometry.copy_slots()) * LINE_SIZE);
    let before = superblock(submitter);
    let had_annexes = before.as_ref().is_some_and(|it| it.geometry.annexes.count() > 0);
    let before = before.as_ref().map_or((0, 0), sizes);
    // 1. The read area gets its room from the log.
    let (rooms, bytes) = match asked.read_area {
        Some(_) if asked.bytes.is_some() => {
            let error = "the log and the read area cannot get another size at once";
            return Ok(failure(Code::BadRequest, error, "ask for the one, and then for the other"));
        }
        Some(_) if alone.is_err() => return Ok(answer(Err(ResizeError::UnderWay.into()))),
        Some(_) => (Vec::new(), None),
        None => match take_rooms(submitter, asked.bytes, alone.is_ok()) {
            Ok(taken) => taken,
            Err(refusal) => return Ok(refusal),
        },
    };
    let wanted = asked.read_area.map_or(SizeWanted::Log(bytes), SizeWanted::ReadArea);
    // 2. Its end is waited for also when nobody else does any more.
    let (sender, ended) = mpsc::sync_channel(1);
    let ticket = submitter.new_ticket();
    let answered = with_progress(reader, shared, Long::Resize(ticket), listed, |done| {
        submitter.resize(ticket, wanted, move |reply| {
            let result = reply.result;
            done(reply);
            let _ = sender.send(result);
        });
    });
    let result = ended.recv().unwrap_or(Err(RequestError::ShuttingDown));
    // 3.
    let (rooms, bytes) = match (asked.read_area, result) {
        (Some(_), Ok(())) => annexes_gone(submitter, had_annexes),
        _ => (rooms, bytes.filter(|_| result.is_ok())),
    };
    let given_back = give_back(submitter, &rooms, bytes, result);
    let mut answer = answered?;
    if let (Some(superblock), true) = (superblock(submitter), answer["ok"] == true) {
        let (segments, read_area_bytes) = sizes(&superblock);
        let done = ResizeDone {
            bytes: superblock.end(),
            segments,
            segments_before: before.0,
            segment_size_bytes: superblock.geometry.segment_size_bytes,
            read_area_bytes,
            read_area_bytes_before: before.1,
            share_bytes: share_bytes(submitter, &rooms),
            not_given_back: given_back.err().map(|error| error.to_string()),
        };
        answer = json!(done);
        answer["ok"] = true.into();
    }
    Ok(answer)
}

fn superblock(submitter: &Submitter) -> Option<Superblock> {
    submitter.ask(|snapshot| Some(snapshot.core.engine()?.superblock().clone())).flatten()
}

/// The shares below a log whose annexes have gone, and how much of them is used now. None where
/// that is not sure, as while the tables of a volume grow: the next start gives back what is too much.
fn annexes_gone(submitter: &Submitter, had_annexes: bool) -> (Vec<Room>, Option<u64>) {
    match superblock(submitter) {
        Some(now) if had_annexes && now.volume_bytes == 0 => {
            (rooms_now(submitter), Some(now.end()))
        }
        _ => (Vec::new(), None),
    }
}

/// The shares below the log, with the room that they have.
fn rooms_now(submitter: &Submitter) -> Vec<Room> {
    let shares = submitter.ask(|snapshot| snapshot.cache_side?.rooms().ok()).flatten();
    let with_sizes = shares.into_iter().flatten().filter_map(|(place, share)| {
        let (size_before, _) = share.sizes().ok()?;
        Some(Room { place, share, size_before })
    });
    with_sizes.collect()
}

/// The shares below the log, with room for it, and how many bytes it may have: those that were
/// asked for, or all that there are. Nothing is taken where it is known that the log cannot have
/// that size.
fn take_rooms(
    submitter: &Submitter,
    asked: Option<u64>,
    is_alone: bool,
) -> Result<(Vec<Room>, Option<u64>), Value> {
    let refused = |error: DeviceError| {
        let hint = error.hint().unwrap_or_default();
        Failure::new(Code::NoShareRoom, error.to_string(), hint).to_value()
    };
    let ending = || answer(Err(RequestError::ShuttingDown));
    let found = submitter.ask(|snapshot| {
        let side = snapshot.cache_side?;
        // Disks of its own have the size that they have.
        let disks = side.iter().filter(|disk| disk.file().share().is_none());
        let sizes: io::Result<Vec<u64>> = disks.map(|disk| disk.size_now()).collect();
        Some(side.rooms().and_then(|rooms| Ok((rooms, sizes?))))
    });
    let (shares, sizes) = match found {
        None => return Err(ending()),
        Some(None) => return Ok((Vec::new(), asked)),
        Some(Some(found)) => found.map_err(|_| answer(Err(RequestError::Io)))?,
    };
    if shares.is_empty() {
        return Ok((Vec::new(), asked));
    }
    let mut rooms = Vec::new();
    let mut most = sizes;
    for (place, share) in shares {
        let (size_before, most_bytes) = share.sizes().map_err(refused)?;
        rooms.push(Room { place, share, size_before });
        most.push(most_bytes);
    }
    let bytes = asked.unwrap_or_else(|| most.into_iter().min().unwrap_or(0));
    let checked = submitter.ask(move |snapshot| (snapshot.check_size)(bytes));
    match checked {
        None => return Err(ending()),
        Some(Err(RequestError::Resize(error @ ResizeError::Same { .. }))) if asked.is_none() => {
            let hint = "make another cache of this disk smaller first, or give a size";
            return Err(Failure::of(error.into(), hint).to_value());
        }
        Some(Err(error)) => return Err(answer(Err(error))),
        Some(Ok(())) if !is_alone => return Err(answer(Err(ResizeError::UnderWay.into()))),
        Some(Ok(())) => {}
    }
    for room in &rooms {
        let mut tell =
            |windows: Windows| submitter.set_windows(room.place, room.share.disk(), windows);
        if let Err(error) = room.share.take(bytes, &mut tell) {
            // What others have taken by now.
            let _ = give_back(submitter, &rooms, None, Ok(()));
            return Err(refused(error));
        }
    }
    Ok((rooms, Some(bytes)))
}

/// What the log has not, but for what was asked for, or for what each had before. Not where a disk
/// does not do what it should: what is on it then is not known.
fn give_back(
    submitter: &Submitter,
    rooms: &[Room],
    keep_bytes: Option<u64>,
    result: Result<(), RequestError>,
) -> Result<(), DeviceError> {
    let is_well = submitter.ask(|snapshot| {
        let engine = snapshot.core.engine()?;
        let mut standings = engine.legs().filter_map(|leg| leg.standing);
        let legs_are_well = standings.all(LegStanding::has_newest_size);
        Some(engine.cache_disk_failure().is_none() && legs_are_well)
    });
    if is_well.flatten() != Some(true) || result == Err(RequestError::Io) {
        return Ok(());
    }
    for room in rooms {
        let until = Instant::now() + UNDER_WAY_PATIENCE;
        let mut tell = |windows: Windows| loop {
            let is_told = submitter.set_windows(room.place, room.share.disk(), windows.clone());
            if is_told || Instant::now() >= until {
                return is_told;
            }
            std::thread::sleep(UNDER_WAY_INTERVAL);
        };
        room.share.give_back(keep_bytes.unwrap_or(room.size_before), &mut tell)?;
    }
    Ok(())
}

/// How large the share is; the smallest, if there are several.
fn share_bytes(submitter: &Submitter, rooms: &[Room]) -> Option<u64> {
    let places: Vec<usize> = rooms.iter().map(|room| room.place).collect();
    let sizes = submitter.ask(move |snapshot| {
        let at = |place: &usize| snapshot.cache_side.and_then(|side: &CacheSide| side.at(*place));
        places.iter().filter_map(at).filter_map(|disk| disk.size_now().ok()).min()
    });
    sizes.flatten()
}
