//! A volume that `dcd serve` serves: blocks over NBD, all else over the control socket.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use dcd_block::attributes::{AttributeChange, Attributes};
use dcd_block::units::BLOCK_SIZE;
use dcd_protocol::VolumeCommand;
use serde_json::Value;

use crate::block_device::{
    Allocation, BlockDevice, Geometry, PointerChange, PointerVerb, Read, Usage, Write,
};
use crate::control::{ControlConnection, connect};
use crate::error::DeviceError;
use crate::nbd::{NbdClient, NbdReceiver, NbdRequest};

/// Requests on the way at once. Replies of that many writes, and that many requests to read, fit
/// into the buffers of the socket, so neither side waits for the other to read.
const REQUESTS_UNDER_WAY: usize = 64;
/// Largest request that is sent.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Ranges in a line of the control socket.
const RANGES_PER_LINE: usize = 512;
/// Extents whose places are asked for at once.
const PLACES_PER_LINE: u64 = 1 << 16;

/// The size of a block of the volume.
fn ask_block_bytes(control: &mut ControlConnection) -> Result<u64, DeviceError> {
    let answer = control.ask(VolumeCommand::Status)?;
    let extent_bytes = answer["volume"]["extent_bytes"].as_u64();
    let extent_bytes = extent_bytes.filter(|bytes| bytes.is_power_of_two());
    extent_bytes
        .filter(|bytes| (BLOCK_SIZE..=1 << 30).contains(bytes))
        .ok_or_else(|| control.no_answer(answer.to_string().as_bytes()))
}

/// A connection to a volume.
pub struct Device {
    control: ControlConnection,
    nbd: NbdClient,
    receiver: NbdReceiver,
    nbd_socket: PathBuf,
    geometry: Geometry,
    is_broken: bool,
}

impl Device {
    /// Connects to the control socket and the NBD socket of a `dcd serve` that has a volume.
    pub fn connect(control_socket: &Path, nbd_socket: &Path) -> Result<Device, DeviceError> {
        let mut control = ControlConnection::connect(control_socket)?;
        let block_bytes = ask_block_bytes(&mut control)?;
        let stream = connect(nbd_socket)?;
        let life = Some(control_socket);
        Device::with(control, block_bytes, stream, nbd_socket, life)
    }

    /// The same on connections that there are, to servers whose word counts.
    pub fn on(control: UnixStream, nbd: UnixStream) -> Result<Device, DeviceError> {
        let mut control = ControlConnection::on(control);
        let block_bytes = ask_block_bytes(&mut control)?;
        Device::with(control, block_bytes, nbd, Path::new(""), None)
    }

    fn with(
        control: ControlConnection,
        block_bytes: u64,
        nbd: UnixStream,
        nbd_socket: &Path,
        life: Option<&Path>,
    ) -> Result<Device, DeviceError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::TimedOut => DeviceError::Silent { path: nbd_socket.to_owned() },
            _ => DeviceError::Connect { path: nbd_socket.to_owned(), source },
        };
        let mut nbd = NbdClient::on(nbd).map_err(failed)?;
        if let Some(control_socket) = life {
            nbd = nbd.with_control(control_socket);
        }
        let receiver = nbd.receiver().map_err(failed)?;
        let geometry =
            Geometry { block_bytes: block_bytes as usize, blocks: nbd.size_bytes() / block_bytes };
        let nbd_socket = nbd_socket.to_owned();
        Ok(Device { control, nbd, receiver, nbd_socket, geometry, is_broken: false })
    }

    /// Writes that are durable when this returns.
    pub fn write_durably(&mut self, writes: &[Write<'_>]) -> Result<(), DeviceError> {
        self.send_writes(writes, true)
    }

    /// What these blocks hold is not wanted any more, nor are they: they are free afterwards.
    pub fn trim(&mut self, blocks: Range<u64>) -> Result<(), DeviceError> {
        self.for_parts(blocks, "trim", |offset, length| NbdRequest::Trim {
            offset,
            length,
            fua: false,
        })
    }

    /// These blocks read as zeroes from now on.
    pub fn write_zeroes(&mut self, blocks: Range<u64>) -> Result<(), DeviceError> {
        self.for_parts(blocks, "write zeroes", |offset, length| NbdRequest::WriteZeroes {
            offset,
            length,
            may_unmap: true,
            fua: false,
        })
    }

    fn for_parts(
        &mut self,
        blocks: Range<u64>,
        what: &'static str,
        request: impl Fn(u64, u32) -> NbdRequest<'static>,
    ) -> Result<(), DeviceError> {
        self.check(&blocks)?;
        let block_bytes = self.geometry.block_bytes as u64;
        let (mut offset, end) = (blocks.start * block_bytes, blocks.end * block_bytes);
        let mut requests = Vec::new();
        while offset < end {
            let length = (end - offset).min(1 << 30);
            requests.push(request(offset, length as u32));
            offset += length;
        }
        let parts = requests.into_iter().map(|request| (request, None));
        self.exchange(parts, what)
    }

    fn send_writes(&mut self, writes: &[Write<'_>], fua: bool) -> Result<(), DeviceError> {
        let block_bytes = self.geometry.block_bytes as u64;
        for write in writes {
            self.check(&(write.block..write.block + write.data.len() as u64 / block_bytes))?;
        }
        let parts = writes.iter().flat_map(|write| {
            let chunks = write.data.chunks(REQUEST_BYTES_MAX).enumerate();
            chunks.map(move |(i, data)| {
                let offset = write.block * block_bytes + (i * REQUEST_BYTES_MAX) as u64;
                (NbdRequest::Write { offset, data, fua }, None)
            })
        });
        self.exchange(parts, "write")
    }

    /// Sends requests, [`REQUESTS_UNDER_WAY`] at a time, and takes the replies, all of them also
    /// after an error. Reads bring the place for their data with them.
    fn exchange<'a>(
        &mut self,
        parts: impl Iterator<Item = (NbdRequest<'a>, Option<&'a mut [u8]>)>,
        what: &'static str,
    ) -> Result<(), DeviceError> {
        if self.is_broken {
            return Err(self.broken(io::ErrorKind::BrokenPipe.into()));
        }
        let mut under_way = VecDeque::new();
        let mut first_error = None;
        for (request, place) in parts {
            if under_way.len() == REQUESTS_UNDER_WAY {
                let error = self.take_reply(&mut under_way)?;
                first_error = first_error.or(error);
            }
            let cookie = self.nbd.send(request).map_err(|source| self.broken(source))?;
            under_way.push_back((cookie, place));
        }
        while !under_way.is_empty() {
            let error = self.take_reply(&mut under_way)?;
            first_error = first_error.or(error);
        }
        let Some(error) = first_error else { return Ok(()) };
        // The numbers of the protocol are those of Linux.
        let source = io::Error::from_raw_os_error(error as i32);
        Err(DeviceError::Io { what, source })
    }

    /// Takes a reply, whichever comes first; the number of its error.
    fn take_reply(
        &mut self,
        under_way: &mut VecDeque<(u64, Option<&mut [u8]>)>,
    ) -> Result<Option<u32>, DeviceError> {
        let reply = self.receiver.receive_reply().map_err(|source| self.broken(source))?;
        let found = under_way.iter().position(|(cookie, _)| *cookie == reply.cookie);
        let Some((_, place)) = found.and_then(|at| under_way.remove(at)) else {
            return Err(self.broken(io::ErrorKind::InvalidData.into()));
        };
        if reply.error != 0 {
            return Ok(Some(reply.error));
        }
        if let Some(place) = place {
            self.receiver.receive_data(place).map_err(|source| self.broken(source))?;
        }
        Ok(None)
    }

    fn broken(&mut self, source: io::Error) -> DeviceError {
        self.is_broken = true;
        if source.kind() == io::ErrorKind::TimedOut {
            return DeviceError::Silent { path: self.nbd_socket.clone() };
        }
        DeviceError::Broken { path: self.nbd_socket.clone(), source }
    }

    fn check(&self, range: &Range<u64>) -> Result<(), DeviceError> {
        let Geometry { blocks, .. } = self.geometry;
        if range.start <= range.end && range.end <= blocks {
            return Ok(());
        }
        Err(DeviceError::Range { first: range.start, end: range.end, blocks })
    }

    /// The number of a block on the wire, which counts in 512 bytes.
    fn to_wire(&self, block: u64) -> u64 {
        block.saturating_mul(self.geometry.block_bytes as u64 / BLOCK_SIZE)
    }

    fn blocks_from_wire(&self, wire: u64) -> u64 {
        wire / (self.geometry.block_bytes as u64 / BLOCK_SIZE)
    }

    fn status(&mut self) -> Result<Value, DeviceError> {
        let mut answer = self.control.ask(VolumeCommand::Status)?;
        Ok(answer["volume"].take())
    }
}

impl BlockDevice for Device {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn is_read_only(&self) -> bool {
        self.nbd.is_read_only()
    }

    fn read(&mut self, reads: &mut [Read<'_>]) -> Result<(), DeviceError> {
        let block_bytes = self.geometry.block_bytes as u64;
        for read in &*reads {
            self.check(&(read.block..read.block + read.data.len() as u64 / block_bytes))?;
        }
        let parts = reads.iter_mut().flat_map(|read| {
            let block = read.block;
            let chunks = read.data.chunks_mut(REQUEST_BYTES_MAX).enumerate();
            chunks.map(move |(i, data)| {
                let offset = block * block_bytes + (i * REQUEST_BYTES_MAX) as u64;
                (NbdRequest::Read { offset, length: data.len() as u32 }, Some(data))
            })
        });
        self.exchange(parts, "read")
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), DeviceError> {
        self.send_writes(writes, false)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.exchange([(NbdRequest::Flush, None)].into_iter(), "flush")
    }

    fn allocate(&mut self, wanted: &[Allocation]) -> Vec<Result<u64, DeviceError>> {
        let asked: Vec<_> = wanted
            .iter()
            .map(|Allocation { near, attributes }| VolumeCommand::Allocate {
                near: near.map(|near| self.to_wire(near)),
                attributes: *attributes,
            })
            .collect();
        let answers = self.control.ask_all(asked.into_iter());
        let blocks = answers.into_iter().map(|answer| {
            let answer = answer?;
            let found = answer["block"].as_u64().map(|wire| self.blocks_from_wire(wire));
            found
                .filter(|block| *block < self.geometry.blocks)
                .ok_or_else(|| self.control.no_answer(answer.to_string().as_bytes()))
        });
        blocks.collect()
    }

    fn change_pointers(&mut self, changes: &[PointerChange]) -> Vec<Result<(), DeviceError>> {
        let asked: Vec<_> = changes
            .iter()
            .map(|change| {
                let (from, to) = (self.to_wire(change.from), self.to_wire(change.to));
                match change.verb {
                    PointerVerb::Create => VolumeCommand::CreatePointer { from, to },
                    PointerVerb::Delete => VolumeCommand::DeletePointer { from, to },
                }
            })
            .collect();
        let answers = self.control.ask_all(asked.into_iter());
        answers.into_iter().map(|answer| answer.map(|_| ())).collect()
    }

    fn set_attributes(
        &mut self,
        blocks: &[u64],
        change: AttributeChange,
    ) -> Result<(), DeviceError> {
        let extent = self.to_wire(1);
        let ranges: Vec<_> = blocks.iter().map(|block| (self.to_wire(*block), extent)).collect();
        let AttributeChange { set, clear } = change;
        let asked = ranges.chunks(RANGES_PER_LINE).map(|ranges| VolumeCommand::SetAttributes {
            ranges: ranges.to_vec(),
            set,
            clear,
        });
        self.control.ask_all(asked).into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    fn discard(&mut self, blocks: &[Range<u64>]) -> Result<(), DeviceError> {
        blocks.iter().try_for_each(|range| self.trim(range.clone()))
    }

    fn attributes(&mut self, blocks: &[u64]) -> Result<Vec<Attributes>, DeviceError> {
        let asked: Vec<_> = blocks
            .iter()
            .map(|block| VolumeCommand::GetAttributes { block: self.to_wire(*block) })
            .collect();
        let answers = self.control.ask_all(asked.into_iter());
        let attributes = answers.into_iter().map(|answer| {
            let answer = answer?;
            let words = answer["attributes"].as_str().and_then(|words| words.parse().ok());
            words.ok_or_else(|| self.control.no_answer(answer.to_string().as_bytes()))
        });
        attributes.collect()
    }

    fn collect(&mut self) -> Result<u64, DeviceError> {
        let answer = self.control.ask(VolumeCommand::Collect)?;
        let freed = answer["freed"].as_u64();
        freed.ok_or_else(|| self.control.no_answer(answer.to_string().as_bytes()))
    }

    fn mapped(&mut self, range: Range<u64>) -> Result<Vec<Range<u64>>, DeviceError> {
        self.check(&range)?;
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut start = range.start;
        while start < range.end {
            let count = (range.end - start).min(PLACES_PER_LINE);
            let asked = (self.to_wire(start), self.to_wire(count));
            let answer = self.control.ask(VolumeCommand::Places { ranges: vec![asked] })?;
            let Some(places) = answer["places"].as_array() else {
                return Err(self.control.no_answer(answer.to_string().as_bytes()));
            };
            for place in places.iter().filter(|place| !place["level"].is_null()) {
                let (block, blocks) = (place["block"].as_u64(), place["blocks"].as_u64());
                let (Some(block), Some(blocks)) = (block, blocks) else {
                    return Err(self.control.no_answer(place.to_string().as_bytes()));
                };
                let first = self.blocks_from_wire(block).max(start);
                let end = self.blocks_from_wire(block.saturating_add(blocks)).min(start + count);
                // In order and of this range, or it is no answer.
                if end <= first || runs.last().is_some_and(|last| first < last.end) {
                    return Err(self.control.no_answer(place.to_string().as_bytes()));
                }
                match runs.last_mut() {
                    Some(last) if last.end == first => last.end = end,
                    _ => runs.push(first..end),
                }
            }
            start += count;
        }
        Ok(runs)
    }

    fn settle(&mut self) -> Result<(), DeviceError> {
        // What was freed leaves the log as zeroes.
        self.control.drain()
    }

    fn make_pointer_room(&mut self, pointers: u64) -> Result<(), DeviceError> {
        // More than can be counted is more than there can be.
        let pointers = u32::try_from(pointers).unwrap_or(u32::MAX);
        self.control.ask(VolumeCommand::SetPointers { pointers }).map(|_| ())
    }

    fn usage(&mut self) -> Result<Usage, DeviceError> {
        let status = self.status()?;
        let number = |name: &str| status[name].as_u64();
        match (number("extents_mapped"), number("pointers"), number("pointers_max")) {
            (Some(mapped), Some(pointers), Some(pointers_max)) => {
                Ok(Usage { mapped, pointers, pointers_max })
            }
            _ => Err(self.control.no_answer(status.to_string().as_bytes())),
        }
    }
}
