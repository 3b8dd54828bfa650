//! Recovery of whole images. An image built by the engine is changed, its checksums are put right
//! again, and the cache is opened: it must run or say why not. What runs must then work: every line
//! is read, some are written, everything is drained, and the cache is closed and opened again.
//! Lost or false data is no failure here: a forger may say what they like. A panic, an I/O beyond a
//! disk or an engine that does not come to rest is.

use dcd_engine::{AckMode, Buffer, EngineConfig, Lba, LbaRange, Operation, RequestError};

use crate::image::{DATA_LINES, Machine, base_images, config};
use crate::input::Input;

/// The first byte: which image (low three bits), whether the segment memory is there (8), whether
/// damage is accepted (16). Then what [`change_disk`](crate::image::Image::change_disk) takes.
pub(crate) fn recovery(input: &[u8]) {
    let mut program = Input(input);
    let how = program.u8();
    let bases = base_images();
    let mut image = bases[usize::from(how & 7) % bases.len()].clone();
    if how & 8 == 0 {
        image.forget_memory();
    }
    image.change_disk(&mut program);
    let config = EngineConfig { accept_damage: how & 16 != 0, ..config(AckMode::Memory) };
    open_and_work(image, config);
}

/// As above, but the disk is as the engine left it and the memory is changed.
pub(crate) fn segment_memory(input: &[u8]) {
    let mut program = Input(input);
    let how = program.u8();
    let bases = base_images();
    let mut image = bases[usize::from(how & 7) % bases.len()].clone();
    image.change_memory(&mut program);
    let config = EngineConfig { accept_damage: how & 16 != 0, ..config(AckMode::Memory) };
    open_and_work(image, config);
}

fn open_and_work(image: crate::image::Image, config: EngineConfig) {
    let mut machine = match Machine::open(image, config.clone()) {
        Ok(machine) => machine,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    machine.engine.check_invariants();
    for start in (0..DATA_LINES).step_by(64) {
        let range = LbaRange::new(start * 8, 64 * 8);
        let id = machine.submit(Operation::read(range));
        let reply = machine.wait_for(id);
        assert!(matches!(reply.result, Ok(()) | Err(RequestError::Io)), "{:?}", reply.result);
    }
    for n in 0..20 {
        let data = Buffer::zeroed(if n % 4 == 0 { 512 } else { 8192 });
        machine.submit(Operation::Write { start: Lba(n * 8 * 23 % (DATA_LINES * 8 - 16)), data });
    }
    let drain = machine.submit(Operation::Drain);
    machine.wait_for(drain);
    machine.engine.check_invariants();
    let shutdown = machine.submit(Operation::Shutdown);
    machine.wait_for(shutdown);
}
