//! `dcd.h`: [`dcd_client`] for programs in C. The only file of this crate with `unsafe`; what each
//! function demands of its caller stands in the header and, as far as memory is concerned, at each
//! block here.
//!
//! Nothing unwinds into C: these functions do not panic, and a program that makes them do so is
//! aborted.

#![allow(clippy::missing_safety_doc)] // the header says it

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use dcd_client::{
    Allocation, AttributeChange, Attributes, BlockDevice, Device, DeviceError, PointerChange,
    PointerVerb, Read, VolumeError, Write,
};

/// Numbers of Linux that the header promises.
const EINVAL: c_int = 22;
const EIO: c_int = 5;
const ENOENT: c_int = 2;
const ENOSPC: c_int = 28;
const EEXIST: c_int = 17;

/// `dcd_device`.
pub struct DcdDevice {
    /// Nothing if it could not be opened.
    device: Option<Device>,
    error: CString,
    hint: CString,
}

impl DcdDevice {
    fn note(&mut self, error: &DeviceError) -> c_int {
        let text = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
        self.error = text(error.to_string());
        self.hint = text(error.hint().unwrap_or_default());
        let number = match error {
            _ if error.is_no_room() => ENOSPC,
            DeviceError::Volume(VolumeError::PointerExists { .. }) => EEXIST,
            DeviceError::Volume(VolumeError::NoPointer { .. } | VolumeError::NotAllocated(_)) => {
                ENOENT
            }
            DeviceError::Range { .. } | DeviceError::Volume(_) | DeviceError::Refused { .. } => {
                EINVAL
            }
            _ => EIO,
        };
        -number
    }

    fn invalid(&mut self, what: &CStr) -> c_int {
        (self.error, self.hint) = (what.to_owned(), CString::default());
        -EINVAL
    }

    /// Does it, if there is a device.
    fn run(&mut self, work: impl FnOnce(&mut Device) -> Result<(), DeviceError>) -> c_int {
        match self.device.as_mut().map(work) {
            Some(Ok(())) => 0,
            Some(Err(error)) => self.note(&error),
            None => self.invalid(c"the device is not open"),
        }
    }
}

/// `dcd_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_open(
    control_socket: *const c_char,
    nbd_socket: *const c_char,
    device: *mut *mut DcdDevice,
) -> c_int {
    if device.is_null() {
        return -EINVAL;
    }
    let mut opened =
        DcdDevice { device: None, error: CString::default(), hint: CString::default() };
    let result = if control_socket.is_null() || nbd_socket.is_null() {
        opened.invalid(c"a socket is missing")
    } else {
        // SAFETY: not null, and the caller gives strings that end with a zero and do not change
        // meanwhile.
        let [control, nbd] = [control_socket, nbd_socket]
            .map(|socket| unsafe { CStr::from_ptr(socket) }.to_bytes().to_vec());
        let path = |bytes| Path::new(OsStr::from_bytes(bytes));
        match Device::connect(path(&control), path(&nbd)) {
            Ok(connected) => {
                opened.device = Some(connected);
                0
            }
            Err(error) => opened.note(&error),
        }
    };
    // SAFETY: not null, and the caller gives a place for a pointer. `dcd_close` takes the box back.
    unsafe { *device = Box::into_raw(Box::new(opened)) };
    result
}

/// `dcd_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_close(device: *mut DcdDevice) {
    if !device.is_null() {
        // SAFETY: it comes from `dcd_open`, and the caller does not use it again.
        drop(unsafe { Box::from_raw(device) });
    }
}

/// The device that C holds, for as long as one call takes.
///
/// # Safety
/// `device` is null or comes from `dcd_open` and was not closed, and no other thread uses it.
unsafe fn device_of<'a>(device: *mut DcdDevice) -> Option<&'a mut DcdDevice> {
    // SAFETY: as demanded of the caller.
    unsafe { device.as_mut() }
}

/// A list that C gives.
///
/// # Safety
/// There are `count` elements at `first`, which nobody changes for as long as the call takes; null
/// only with a count of 0.
unsafe fn list_of<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: not null, and as demanded of the caller.
    unsafe { slice::from_raw_parts(first, count) }
}

/// `dcd_error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_error(device: *const DcdDevice) -> *const c_char {
    // SAFETY: null, or from `dcd_open`, and not closed.
    let device = unsafe { device.as_ref() };
    device.map_or(c"no device".as_ptr(), |device| device.error.as_ptr())
}

/// `dcd_hint`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_hint(device: *const DcdDevice) -> *const c_char {
    // SAFETY: null, or from `dcd_open`, and not closed.
    let device = unsafe { device.as_ref() };
    device.map_or(c"".as_ptr(), |device| device.hint.as_ptr())
}

/// `dcd_block_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_block_bytes(device: *const DcdDevice) -> usize {
    // SAFETY: null, or from `dcd_open`, and not closed.
    let device = unsafe { device.as_ref() }.and_then(|device| device.device.as_ref());
    device.map_or(0, |device| device.geometry().block_bytes)
}

/// `dcd_blocks`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_blocks(device: *const DcdDevice) -> u64 {
    // SAFETY: null, or from `dcd_open`, and not closed.
    let device = unsafe { device.as_ref() }.and_then(|device| device.device.as_ref());
    device.map_or(0, |device| device.geometry().blocks)
}

/// `dcd_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_read(
    device: *mut DcdDevice,
    block: u64,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller gives what `dcd_open` gave.
    let Some(device) = (unsafe { device_of(device) }) else { return -EINVAL };
    if data.is_null() && bytes > 0 {
        return device.invalid(c"no place for the data");
    }
    let data = match bytes {
        0 => &mut [],
        // SAFETY: not null, and the caller gives room for so many bytes, which nobody else uses.
        _ => unsafe { slice::from_raw_parts_mut(data.cast::<u8>(), bytes) },
    };
    if !is_whole(device, bytes) {
        return device.invalid(c"not a number of whole blocks");
    }
    device.run(|device| device.read(&mut [Read { block, data }]))
}

/// `dcd_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_write(
    device: *mut DcdDevice,
    block: u64,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller gives what `dcd_open` gave, and so many bytes.
    let (device, data) = unsafe { (device_of(device), list_of(data.cast::<u8>(), bytes)) };
    let Some(device) = device else { return -EINVAL };
    if data.len() != bytes || !is_whole(device, bytes) {
        return device.invalid(c"not a number of whole blocks");
    }
    device.run(|device| device.write(&[Write { block, data }]))
}

fn is_whole(device: &DcdDevice, bytes: usize) -> bool {
    let block_bytes = device.device.as_ref().map(|device| device.geometry().block_bytes);
    block_bytes.is_some_and(|block_bytes| bytes.is_multiple_of(block_bytes))
}

/// `dcd_flush`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_flush(device: *mut DcdDevice) -> c_int {
    // SAFETY: the caller gives what `dcd_open` gave.
    let Some(device) = (unsafe { device_of(device) }) else { return -EINVAL };
    device.run(BlockDevice::flush)
}

fn attributes_of(bits: u32) -> Option<Attributes> {
    Attributes::from_bits(u16::try_from(bits).ok()?)
}

/// `dcd_allocate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_allocate(
    device: *mut DcdDevice,
    near: u64,
    attributes: u32,
    blocks: *mut u64,
    count: usize,
    found: *mut usize,
) -> c_int {
    // SAFETY: the caller gives what `dcd_open` gave.
    let Some(device) = (unsafe { device_of(device) }) else { return -EINVAL };
    let Some(attributes) = attributes_of(attributes) else {
        return device.invalid(c"attributes that do not exist, or contradict each other");
    };
    if blocks.is_null() && count > 0 {
        return device.invalid(c"no place for the blocks");
    }
    let near = (near != u64::MAX).then_some(near);
    let mut number = 0;
    let result = device.run(|device| {
        let mut first_error = None;
        for allocated in device.allocate(&vec![Allocation { near, attributes }; count]) {
            match allocated {
                Ok(block) => {
                    // SAFETY: not null, the caller gives room for `count`, and there are not more
                    // answers.
                    unsafe { *blocks.add(number) = block };
                    number += 1;
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    });
    // SAFETY: null, or the caller gives room for a number.
    if let Some(found) = unsafe { found.as_mut() } {
        *found = number;
    }
    result
}

/// `dcd_create_pointers`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_create_pointers(
    device: *mut DcdDevice,
    from: *const u64,
    to: *const u64,
    count: usize,
) -> c_int {
    // SAFETY: the caller gives what is demanded here, too.
    unsafe { change_pointers(device, PointerVerb::Create, from, to, count) }
}

/// `dcd_delete_pointers`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_delete_pointers(
    device: *mut DcdDevice,
    from: *const u64,
    to: *const u64,
    count: usize,
) -> c_int {
    // SAFETY: the caller gives what is demanded here, too.
    unsafe { change_pointers(device, PointerVerb::Delete, from, to, count) }
}

/// # Safety
/// That of [`device_of`] and [`list_of`].
unsafe fn change_pointers(
    device: *mut DcdDevice,
    verb: PointerVerb,
    from: *const u64,
    to: *const u64,
    count: usize,
) -> c_int {
    // SAFETY: as demanded of the caller.
    let (device, from, to) =
        unsafe { (device_of(device), list_of(from, count), list_of(to, count)) };
    let Some(device) = device else { return -EINVAL };
    if from.len() != count || to.len() != count {
        return device.invalid(c"a list of blocks is missing");
    }
    let pairs = from.iter().zip(to);
    let changes: Vec<_> = pairs.map(|(&from, &to)| PointerChange { verb, from, to }).collect();
    device.run(|device| device.change_pointers(&changes).into_iter().collect())
}

/// `dcd_set_attributes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_set_attributes(
    device: *mut DcdDevice,
    blocks: *const u64,
    count: usize,
    set: u32,
    clear: u32,
) -> c_int {
    // SAFETY: the caller gives what `dcd_open` gave, and so many blocks.
    let (device, blocks) = unsafe { (device_of(device), list_of(blocks, count)) };
    let Some(device) = device else { return -EINVAL };
    if blocks.len() != count {
        return device.invalid(c"the list of blocks is missing");
    }
    // Those that go may contradict each other: neither is true any more.
    let known = Attributes::NAMES.into_iter().map(|(_, one)| one);
    let cleared = known.filter(|one| clear & u32::from(one.bits()) != 0);
    let clear_all = cleared.fold(Attributes::NONE, Attributes::or);
    match attributes_of(set) {
        Some(set) if u32::from(clear_all.bits()) == clear => {
            let change = AttributeChange { set, clear: clear_all };
            device.run(|device| device.set_attributes(blocks, change))
        }
        _ => device.invalid(c"attributes that do not exist, or contradict each other"),
    }
}

/// `dcd_get_attributes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_get_attributes(
    device: *mut DcdDevice,
    block: u64,
    attributes: *mut u32,
) -> c_int {
    // SAFETY: the caller gives what `dcd_open` gave, and room for a number.
    let (device, attributes) = unsafe { (device_of(device), attributes.as_mut()) };
    let Some(device) = device else { return -EINVAL };
    let Some(attributes) = attributes else {
        return device.invalid(c"no place for the attributes");
    };
    device.run(|device| {
        let found = device.attributes(&[block])?;
        *attributes = found.first().map_or(0, |own| own.bits().into());
        Ok(())
    })
}

/// `dcd_collect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dcd_collect(device: *mut DcdDevice, freed: *mut u64) -> c_int {
    // SAFETY: the caller gives what `dcd_open` gave, and null or room for a number.
    let (device, freed) = unsafe { (device_of(device), freed.as_mut()) };
    let Some(device) = device else { return -EINVAL };
    device.run(|device| {
        let count = device.collect()?;
        *freed.unwrap_or(&mut 0) = count;
        Ok(())
    })
}

/// That what the header says of attributes is what they are.
const _: () = {
    assert!(Attributes::IMPORTANT.bits() == 0x1 && Attributes::RANDOM.bits() == 0x2);
    assert!(Attributes::SEQUENTIAL.bits() == 0x4 && Attributes::HOT.bits() == 0x8);
    assert!(Attributes::COLD.bits() == 0x10 && Attributes::READ_MOST.bits() == 0x20);
    assert!(Attributes::WRITE_MOST.bits() == 0x40 && Attributes::TEMPORARY.bits() == 0x80);
    assert!(Attributes::METADATA.bits() == 0x100 && Attributes::ROOT.bits() == 0x200);
};
