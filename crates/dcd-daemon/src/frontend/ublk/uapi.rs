//! Numbers and layouts of the kernel's ublk driver (`include/uapi/linux/ublk_cmd.h`), as far as
//! they are used here.
//!
//! Bytes only. All are in the order of the machine's bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Takes commands about devices.
pub const CONTROL_PATH: &str = "/dev/ublk-control";

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

/// The number of a command: direction, size of its argument, the letter of ublk, and which.
const fn code(direction: u32, size: usize, number: u32) -> u32 {
    direction << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | number
}

const fn control_code(direction: u32, number: u32) -> u32 {
    code(direction, size_of::<ControlCommand>(), number)
}

/// Which features the driver has (Linux 6.5).
pub const GET_FEATURES: u32 = control_code(READ, 0x13);
/// What a device is.
pub const GET_DEVICE_INFO: u32 = control_code(READ, 0x02);
/// Makes a device, which nobody sees yet but its server.
pub const ADD_DEVICE: u32 = control_code(READ_WRITE, 0x04);
/// Removes one that is stopped. Waits until nobody has it open.
pub const DELETE_DEVICE: u32 = control_code(READ_WRITE, 0x05);
/// Shows it to everybody. Waits until all tags are fetched; reads a partition table.
pub const START_DEVICE: u32 = control_code(READ_WRITE, 0x06);
/// Takes it away from its users.
pub const STOP_DEVICE: u32 = control_code(READ_WRITE, 0x07);
/// Sets size and limits, before the start.
pub const SET_PARAMETERS: u32 = control_code(READ_WRITE, 0x08);
/// Reads them.
pub const GET_PARAMETERS: u32 = control_code(READ, 0x09);
/// A new server takes over from a dead one.
pub const START_RECOVERY: u32 = control_code(READ_WRITE, 0x10);
/// It has fetched all tags.
pub const END_RECOVERY: u32 = control_code(READ_WRITE, 0x11);

/// The server waits for the first request of a tag.
pub const FETCH: u32 = code(READ_WRITE, 16, 0x20);
/// The server answers a request and waits for the next of the tag.
pub const COMMIT_AND_FETCH: u32 = code(READ_WRITE, 16, 0x21);

/// Requests wait for a new server when one dies.
pub const FEATURE_RECOVERY: u64 = 1 << 3;
/// What the dead one had taken and not answered is sent again.
pub const FEATURE_REISSUE: u64 = 1 << 4;
/// Commands are numbered as above.
pub const FEATURE_IOCTL_ENCODE: u64 = 1 << 6;

/// A device without a disk: not started yet, or stopped.
pub const STATE_DEAD: u16 = 0;
/// A device that is served.
pub const STATE_LIVE: u16 = 1;
/// A device whose server has died; requests wait.
pub const STATE_QUIESCED: u16 = 2;

/// Read.
pub const OPERATION_READ: u8 = 0;
/// Write.
pub const OPERATION_WRITE: u8 = 1;
/// Make durable what was written.
pub const OPERATION_FLUSH: u8 = 2;
/// Not wanted any more.
pub const OPERATION_DISCARD: u8 = 3;
/// Make it read as zeroes.
pub const OPERATION_WRITE_ZEROES: u8 = 5;

/// Metadata of a file system.
pub const FLAG_META: u32 = 1 << 11;
/// Answer when it is durable.
pub const FLAG_FUA: u32 = 1 << 13;
/// Zeroes that keep their space.
pub const FLAG_NO_UNMAP: u32 = 1 << 15;
/// A page of the swap space.
pub const FLAG_SWAP: u32 = 1 << 16;

/// Refuse writes.
pub const ATTRIBUTE_READ_ONLY: u32 = 1 << 0;
/// An answered write may be lost until a flush.
pub const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
/// FUA is understood.
pub const ATTRIBUTE_FUA: u32 = 1 << 3;

/// [`Parameters::basic`] counts.
pub const TYPE_BASIC: u32 = 1 << 0;
/// [`Parameters::discard`] counts.
pub const TYPE_DISCARD: u32 = 1 << 1;

/// The argument of a command about a device.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ControlCommand {
    /// Its number.
    pub device: u32,
    /// Always all: `u16::MAX`.
    pub queue: u16,
    /// Bytes at `address`.
    pub length: u16,
    /// What goes in or comes out.
    pub address: u64,
    /// A number that goes in.
    pub data: u64,
    /// Only for devices of ordinary users.
    pub path_length: u16,
    /// Zero.
    pub pad: u16,
    /// Zero.
    pub reserved: u32,
}

/// What a device is.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeviceInfo {
    /// Queues of requests.
    pub queues: u16,
    /// Tags of each.
    pub queue_depth: u16,
    /// `STATE_...`.
    pub state: u16,
    /// Zero.
    pub pad0: u16,
    /// Longest read or write in bytes.
    pub io_bytes_max: u32,
    /// Its number.
    pub device: u32,
    /// Who serves it.
    pub server_pid: i32,
    /// Zero.
    pub pad1: u32,
    /// `FEATURE_...`.
    pub features: u64,
    /// The server's own; the driver only keeps it. Says whose device it is.
    pub owner_mark: u64,
    /// Who made it.
    pub owner_uid: u32,
    /// Who made it.
    pub owner_gid: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Size and limits of reads and writes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Basic {
    /// `ATTRIBUTE_...`.
    pub attributes: u32,
    /// As a power of two.
    pub logical_block_shift: u8,
    /// As a power of two.
    pub physical_block_shift: u8,
    /// Best size of a request, as a power of two.
    pub io_best_shift: u8,
    /// Smallest size of a request that is not slow, as a power of two.
    pub io_least_shift: u8,
    /// Longest request in blocks of 512 bytes.
    pub blocks_max: u32,
    /// Requests do not cross multiples of this; 0: they may.
    pub chunk_blocks: u32,
    /// Size of the device in blocks of 512 bytes.
    pub device_blocks: u64,
    /// Zero.
    pub virtual_boundary_mask: u64,
}

/// Limits of discards and zeroes.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Discard {
    /// Of the first unit.
    pub alignment: u32,
    /// Unit in bytes.
    pub granularity: u32,
    /// Longest discard in blocks of 512 bytes.
    pub discard_blocks_max: u32,
    /// Longest write of zeroes in blocks of 512 bytes.
    pub zeroes_blocks_max: u32,
    /// Ranges in one request.
    pub segments_max: u16,
    /// Zero.
    pub reserved: u16,
}

/// All that is set of a device.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Parameters {
    /// Bytes of this.
    pub length: u32,
    /// Which parts count: `TYPE_...`.
    pub types: u32,
    /// Reads and writes.
    pub basic: Basic,
    /// Discards and zeroes.
    pub discard: Discard,
    /// Of a part that is never set.
    pub rest: u32,
}

/// A request, as the driver leaves it in shared memory.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Descriptor {
    /// `OPERATION_...` in the lowest eight bits, above them `FLAG_...`.
    pub operation_and_flags: u32,
    /// Length in blocks of 512 bytes.
    pub blocks: u32,
    /// First block of 512 bytes.
    pub start: u64,
    /// The server's buffer.
    pub address: u64,
}

const _: () = {
    assert!(size_of::<ControlCommand>() == 32);
    assert!(size_of::<DeviceInfo>() == 64);
    assert!(size_of::<Parameters>() == 64);
    assert!(size_of::<Descriptor>() == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_commands_are_the_kernels() {
        // As the preprocessor makes them from ublk_cmd.h.
        assert_eq!(GET_FEATURES, 0x8020_7513);
        assert_eq!(ADD_DEVICE, 0xc020_7504);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
    }
}
