//! The disk on a socket of the daemon: NBD, as far as dcd speaks it to a disk.
//!
//! The peer is the process that started this one, over a socket that nobody else has. What it says
//! is checked all the same.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dcd_protocol::nbd::wire::{
    ErrorCode, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_MAGIC, Greeting, InfoBlockSize,
    InfoExport, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, OptionReplyHeader, REQUEST_MAGIC,
    RequestHeader, SIMPLE_REPLY_MAGIC, SimpleReply, command, command_flag, info, option,
    option_reply, transmission_flag,
};
use dcd_protocol::store::{StoreFailure, StoreTroubleKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, Semaphore};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::LINE_BYTES;
use crate::keeper::Shared;

/// Longest payload of a request.
const PAYLOAD_MAX: u32 = 8 << 20;
/// Smallest unit of requests. Parts of a line of 4 KiB are written with the rest of it.
const SECTOR_BYTES: u32 = 512;
/// Longest option that is listened to.
const OPTION_MAX: u32 = 8 << 10;
/// Requests of a connection that are under way at once.
const REQUESTS_MAX: usize = 64;

fn protocol(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

async fn read_struct<T: FromBytes + FromZeros + IntoBytes>(
    socket: &mut (impl AsyncReadExt + Unpin),
) -> io::Result<T> {
    let mut value = T::new_zeroed();
    socket.read_exact(value.as_mut_bytes()).await?;
    Ok(value)
}

/// Serves it until the peer has enough.
pub async fn serve(mut socket: UnixStream, shared: Arc<Shared>, size_bytes: u64) -> io::Result<()> {
    negotiate(&mut socket, size_bytes).await?;
    let (mut from, to) = socket.into_split();
    let to = Arc::new(Mutex::new(to));
    let room = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let header: RequestHeader = match read_struct(&mut from).await {
            Ok(header) => header,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let (kind, length) = (header.command.get(), header.length.get());
        if header.magic.get() != REQUEST_MAGIC {
            return Err(protocol("a request without its magic"));
        }
        if kind == command::DISC {
            return Ok(());
        }
        let mut data = BytesMut::new();
        if kind == command::WRITE {
            if length > PAYLOAD_MAX {
                return Err(protocol("a write that is too long"));
            }
            data.resize(length as usize, 0);
            from.read_exact(&mut data).await?;
        }
        let permit = room.clone().acquire_owned().await.expect("never closed");
        let (shared, to) = (shared.clone(), to.clone());
        tokio::spawn(async move {
            let done = handle(&shared, &header, data.freeze(), size_bytes).await;
            let (error, data) = match done {
                Ok(data) => (0, data),
                Err(code) => (code as u32, Bytes::new()),
            };
            let reply = SimpleReply {
                magic: SIMPLE_REPLY_MAGIC.into(),
                error: error.into(),
                cookie: header.cookie,
            };
            let mut to = to.lock().await;
            // Whoever has gone needs no answer.
            if to.write_all(reply.as_bytes()).await.is_ok() {
                let _ = to.write_all(&data).await;
            }
            drop(permit);
        });
    }
}

async fn negotiate(socket: &mut UnixStream, size_bytes: u64) -> io::Result<()> {
    let greeting = Greeting {
        magic: GREETING_MAGIC.into(),
        option_magic: OPTION_MAGIC.into(),
        flags: (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).into(),
    };
    socket.write_all(greeting.as_bytes()).await?;
    if socket.read_u32().await? & u32::from(FLAG_FIXED_NEWSTYLE) == 0 {
        return Err(protocol("a client of another age"));
    }
    loop {
        let header: OptionHeader = read_struct(socket).await?;
        if header.magic.get() != OPTION_MAGIC || header.length.get() > OPTION_MAX {
            return Err(protocol("no option"));
        }
        let mut payload = vec![0; header.length.get() as usize];
        socket.read_exact(&mut payload).await?;
        let asked = header.option.get();
        let mut answer = Vec::new();
        let mut reply = |reply: u32, payload: &[u8]| {
            let header = OptionReplyHeader {
                magic: OPTION_REPLY_MAGIC.into(),
                option: asked.into(),
                reply: reply.into(),
                length: (payload.len() as u32).into(),
            };
            answer.extend_from_slice(header.as_bytes());
            answer.extend_from_slice(payload);
        };
        let is_go = asked == option::GO;
        match asked {
            option::GO | option::INFO => {
                let flags = transmission_flag::HAS_FLAGS
                    | transmission_flag::SEND_FLUSH
                    | transmission_flag::SEND_FUA
                    | transmission_flag::SEND_TRIM
                    | transmission_flag::SEND_WRITE_ZEROES;
                let export = InfoExport {
                    kind: info::EXPORT.into(),
                    size: size_bytes.into(),
                    flags: flags.into(),
                };
                let blocks = InfoBlockSize {
                    kind: info::BLOCK_SIZE.into(),
                    minimum: SECTOR_BYTES.into(),
                    preferred: (LINE_BYTES as u32).into(),
                    maximum: PAYLOAD_MAX.into(),
                };
                reply(option_reply::INFO, export.as_bytes());
                reply(option_reply::INFO, blocks.as_bytes());
                reply(option_reply::ACK, &[]);
            }
            option::ABORT => reply(option_reply::ACK, &[]),
            _ => reply(option_reply::ERR_UNSUP, &[]),
        }
        socket.write_all(&answer).await?;
        if is_go {
            return Ok(());
        }
    }
}

async fn handle(
    shared: &Shared,
    header: &RequestHeader,
    data: Bytes,
    size_bytes: u64,
) -> Result<Bytes, ErrorCode> {
    let (offset, length) = (header.offset.get(), u64::from(header.length.get()));
    let unit = u64::from(SECTOR_BYTES);
    let kind = header.command.get();
    let end = offset.checked_add(length).ok_or(ErrorCode::Invalid)?;
    let is_aligned = offset.is_multiple_of(unit) && length.is_multiple_of(unit);
    if kind != command::FLUSH && (!is_aligned || end > size_bytes) {
        return Err(ErrorCode::Invalid);
    }
    let disk = shared.disk().await;
    let is_fua = header.flags.get() & command_flag::FUA != 0;
    let done: Result<Bytes, StoreFailure> = async {
        match kind {
            command::READ if length <= u64::from(PAYLOAD_MAX) => {
                return disk.read_bytes(offset, length as usize).await;
            }
            command::WRITE => disk.write_bytes(offset, data).await?,
            command::TRIM | command::WRITE_ZEROES => disk.zero_bytes(offset, length).await?,
            command::FLUSH => disk.flush().await?,
            _ => return Err(crate::objects::failure("a request that is not known", "")),
        }
        if is_fua {
            disk.flush().await?;
        }
        Ok(Bytes::new())
    }
    .await;
    done.map_err(|why| {
        shared.trouble(&disk, &why);
        match disk.bucket.standing.trouble().map(|trouble| trouble.kind) {
            // Of a read these say nothing.
            _ if kind == command::READ => ErrorCode::Io,
            Some(StoreTroubleKind::Full) => ErrorCode::NoSpace,
            Some(StoreTroubleKind::Refused) => ErrorCode::NotPermitted,
            None => ErrorCode::Io,
        }
    })
}
