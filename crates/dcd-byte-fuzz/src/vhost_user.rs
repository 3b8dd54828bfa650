//! What a hypervisor says about a guest's disk, and what the guest puts into its queues.
//!
//! ```text
//! vhost_user_message  12 bytes of header, then the payload; byte 0 says how many descriptors come with it
//! vhost_user_queue    byte 0   ring size 2^0 to 2^7, indirect tables 8, events 16, blocks of 4 KiB 32
//!                     byte 1   what is added to the index that the daemon begins with
//!                     the rest the guest's memory from its start on: table, available, used, and
//!                     whatever it points at
//! vhost_user_record   byte 0   the ring's used index; the rest is the record of requests under way
//! ```

use dcd_daemon::frontend::vhost_user::block::{self, Status, Wanted};
use dcd_daemon::frontend::vhost_user::chain::Chain;
use dcd_daemon::frontend::vhost_user::config::{IO_BYTES_MAX, Volume, ZEROES_BLOCKS_MAX};
use dcd_daemon::frontend::vhost_user::inflight::Inflight;
use dcd_daemon::frontend::vhost_user::memory::{GuestMemory, Region, SharedMemory};
use dcd_daemon::frontend::vhost_user::message::{
    DESCRIPTORS_MAX, HEADER_BYTES, Header, Message, PAYLOAD_BYTES_MAX, RingAddresses,
};
use dcd_daemon::frontend::vhost_user::ring::Ring;
use dcd_engine::buffer_pool::BufferPool;
use dcd_engine::{LbaRange, Operation, Uuid};

use crate::input::Input;

/// Where the guest and the front-end have the memory; apart, so that they are not mixed up.
pub(crate) const GUEST: u64 = 0x1_0000;
pub(crate) const USER: u64 = 0x7000_0000;
pub(crate) const MEMORY_BYTES: u64 = 64 << 10;
/// Within the memory, for rings of up to 128.
pub(crate) const AVAILABLE: u64 = 2048;
pub(crate) const USED: u64 = 2560;
const UUID: Uuid = Uuid([3; 16]);
const VOLUME_BLOCKS: u64 = 10_003;

pub(crate) fn message(input: &[u8]) {
    let mut program = Input(input);
    let descriptors = usize::from(program.u8());
    let Some((header, payload)) = program.0.split_first_chunk::<HEADER_BYTES>() else { return };
    match Header::parse(header) {
        Err(error) => assert!(!error.to_string().contains('\n')),
        Ok(header) => {
            assert!(header.size <= PAYLOAD_BYTES_MAX);
            // The socket gives as many bytes as the header says, which has a limit; the parser must
            // not rely on it.
            let most = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
            for payload in [most, payload.get(..header.size).unwrap_or(&[])] {
                check(header.request, payload, descriptors);
            }
        }
    }
}

fn check(request: u32, payload: &[u8], descriptors: usize) {
    match Message::parse(request, payload, descriptors) {
        Err(error) => assert!(!error.to_string().contains('\n')),
        Ok(message) => {
            assert!(descriptors <= DESCRIPTORS_MAX && payload.len() <= PAYLOAD_BYTES_MAX);
            // What the session counts on.
            match message {
                Message::SetMemoryTable(regions) => assert_eq!(regions.len(), descriptors),
                Message::AddRegion(_) | Message::SetInflight(_) | Message::SetBackendChannel => {
                    assert_eq!(descriptors, 1)
                }
                Message::SetConfig { bytes, .. } => assert_eq!(bytes.len() + 12, payload.len()),
                _ => assert!(descriptors <= 1),
            }
        }
    }
}

/// What is served; `large`: in blocks of 4 KiB.
pub(crate) fn volume(large: bool) -> Volume {
    Volume {
        uuid: UUID,
        blocks: VOLUME_BLOCKS,
        logical_block_size: if large { 4096 } else { 512 },
        physical_block_size: 4096,
        read_only: false,
        trim: true,
    }
}

/// A request lies in the volume, and is of whole blocks of it.
pub(crate) fn check_range(range: LbaRange, volume: &Volume) {
    let end = range.start.0.checked_add(range.blocks).expect("an end");
    assert!(end <= VOLUME_BLOCKS);
    let unit = volume.unit_blocks();
    assert!(range.start.0.is_multiple_of(unit) && range.blocks.is_multiple_of(unit));
}

pub(crate) fn queue(input: &[u8]) {
    let mut program = Input(input);
    let how = program.u8();
    let begin = program.u8();
    let (memory, file) = SharedMemory::new("fuzz", MEMORY_BYTES).expect("memory");
    let bytes = &program.0[..program.0.len().min(MEMORY_BYTES as usize)];
    assert!(memory.write(0, bytes));
    let region = Region::map(GUEST, USER, MEMORY_BYTES, file, 0).expect("a region");
    let memory = GuestMemory::default().with(region).expect("one region");
    let volume = volume(how & 32 != 0);
    let size = Ring::check_size(1 << (how & 7)).expect("a size of rings");
    let addresses =
        RingAddresses { descriptors: USER, available: USER + AVAILABLE, used: USER + USED };
    let mut ring = Ring::new(&memory, size, &addresses, how & 16 != 0).expect("a ring in memory");
    ring.go_on_from(ring.used_index().wrapping_add(begin.into()));
    // Answers go into the same memory, so that a guest may make itself new requests; some are
    // enough.
    let mut pool = BufferPool::default();
    for _ in 0..16 {
        let head = match ring.take() {
            Ok(Some(head)) => head,
            Ok(None) | Err(_) => break,
        };
        assert!(head < size);
        let descriptor = |index| {
            assert!(index < size);
            ring.descriptor(index)
        };
        let Ok(chain) = Chain::follow(&memory, head, size, how & 8 != 0, descriptor) else { break };
        // A piece is below 64 KiB here, and there are no more than 1024 of them.
        assert!(chain.readable.len().max(chain.writable.len()) <= 1024 * MEMORY_BYTES);
        let Ok(wanted) = block::parse(&chain, &memory, &volume, &mut pool) else { break };
        let (status, data) = answer_of(wanted, &volume, &chain);
        let len = block::answer(&chain, &memory, status, data.as_deref()).expect("room for it");
        assert!(u64::from(len) <= chain.writable.len());
        ring.put(head, len);
        ring.publish();
        ring.wants_signal();
        ring.wait();
    }
}

/// Checks what the engine would be asked for, and answers in its place.
fn answer_of(wanted: Wanted, volume: &Volume, chain: &Chain) -> (Status, Option<Vec<u8>>) {
    let range = |range| check_range(range, volume);
    match wanted {
        Wanted::Refused(status) => {
            assert_ne!(status, Status::Ok);
            (status, None)
        }
        Wanted::Id => (Status::Ok, Some(volume.id().to_vec())),
        Wanted::Operation(Operation::Read { range: read, .. }) => {
            range(read);
            assert!(read.bytes() <= IO_BYTES_MAX.into());
            assert_eq!(read.bytes() + 1, chain.writable.len());
            (Status::Ok, Some(vec![7; read.bytes() as usize]))
        }
        Wanted::Operation(Operation::Write { start, data }) => {
            range(LbaRange { start, blocks: data.len() as u64 / 512 });
            assert_eq!(data.len() as u64 + 16, chain.readable.len());
            (Status::Ok, None)
        }
        Wanted::Operation(
            Operation::Discard { range: zeroed } | Operation::WriteZeroes { range: zeroed, .. },
        ) => {
            range(zeroed);
            assert!(zeroed.blocks <= ZEROES_BLOCKS_MAX.into());
            (Status::Ok, None)
        }
        Wanted::Operation(Operation::Flush) => (Status::Ok, None),
        Wanted::Operation(other) => panic!("not a request of a guest: {other:?}"),
    }
}

pub(crate) fn record(input: &[u8]) {
    let mut program = Input(input);
    let used_index = u16::from(program.u8());
    let (file, announced) = Inflight::create(1, 16, UUID, true).expect("a record");
    // The last part is not the front-end's to make: with another there is nothing to go on from.
    let of_queue = announced.size as usize - 32;
    let bytes = &program.0[..program.0.len().min(of_queue)];
    let memory = SharedMemory::map(&file, 0, announced.size).expect("its memory");
    assert!(memory.write(0, bytes));
    let recover = || {
        let record = Inflight::open(&file, &announced, UUID).expect("our own record");
        let mut queue = record.queue(0, 16).expect("its queue");
        let left = queue.recover(used_index);
        (queue, left)
    };
    let (_, left) = recover();
    let mut heads = left.heads.clone();
    heads.sort_unstable();
    heads.dedup();
    assert_eq!(heads.len(), left.heads.len(), "sent again twice");
    assert!(heads.iter().all(|head| *head < 16));
    // A crash right then changes nothing; and each is done once.
    let (queue, again) = recover();
    assert_eq!(again.heads, left.heads);
    let mut used_index = used_index;
    for head in &left.heads {
        queue.about_to_publish(*head);
        used_index = used_index.wrapping_add(1);
        queue.published(*head, used_index);
    }
    let record = Inflight::open(&file, &announced, UUID).expect("our own record");
    assert_eq!(record.queue(0, 16).expect("its queue").recover(used_index).heads, [0_u16; 0]);
}
