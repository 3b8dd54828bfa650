//! Single blocks to large I/O: neighbours are read and written together.

use dcd_client::{BlockDevice, DeviceError, Read, Write};

/// Largest I/O.
const RUN_BYTES_MAX: usize = 1 << 20;
/// What is collected before it is given to the device.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// Writes blocks, which are in ascending order.
pub(crate) fn write_blocks<B: AsRef<[u8]>>(
    device: &mut impl BlockDevice,
    blocks: impl Iterator<Item = (u64, B)>,
) -> Result<(), DeviceError> {
    let block_bytes = device.geometry().block_bytes;
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut batched = 0;
    for (block, data) in blocks {
        let data = data.as_ref();
        if batched + data.len() > BATCH_BYTES_MAX {
            write_runs(device, &runs)?;
            runs.clear();
            batched = 0;
        }
        batched += data.len();
        match runs.last_mut() {
            Some((first, run))
                if *first + (run.len() / block_bytes) as u64 == block
                    && run.len() + data.len() <= RUN_BYTES_MAX =>
            {
                run.extend_from_slice(data);
            }
            _ => runs.push((block, data.to_vec())),
        }
    }
    write_runs(device, &runs)
}

fn write_runs(device: &mut impl BlockDevice, runs: &[(u64, Vec<u8>)]) -> Result<(), DeviceError> {
    if runs.is_empty() {
        return Ok(());
    }
    let writes: Vec<_> = runs.iter().map(|(block, data)| Write { block: *block, data }).collect();
    device.write(&writes)
}

/// Reads single blocks, one after the other into `data`; those without a number are left as they
/// are.
pub(crate) fn read_blocks(
    device: &mut impl BlockDevice,
    blocks: &[Option<u64>],
    data: &mut [u8],
) -> Result<(), DeviceError> {
    let block_bytes = device.geometry().block_bytes;
    let mut reads = Vec::new();
    let (mut rest, mut at) = (data, 0);
    while at < blocks.len() {
        let mut end = at + 1;
        if let Some(first) = blocks[at] {
            while end < blocks.len() && blocks[end] == Some(first + (end - at) as u64) {
                end += 1;
            }
        }
        let (run, behind) = rest.split_at_mut((end - at) * block_bytes);
        if let Some(block) = blocks[at] {
            reads.push(Read { block, data: run });
        }
        (rest, at) = (behind, end);
    }
    if reads.is_empty() { Ok(()) } else { device.read(&mut reads) }
}
