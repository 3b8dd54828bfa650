//! A device in memory that several have, on which something can take for ever.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use dcd_client::{
    Allocation, AttributeChange, Attributes, BlockDevice, DeviceError, Geometry, MemoryDevice,
    PointerChange, Read, Usage, Write,
};

/// What waits until the gate is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Flush,
    /// Only one; the others go on.
    FirstRead,
}

#[derive(Default)]
struct Gates {
    closed: Option<Gate>,
    held: usize,
}

#[derive(Clone)]
pub struct Gated {
    device: Arc<Mutex<MemoryDevice>>,
    gates: Arc<(Mutex<Gates>, Condvar)>,
}

impl Gated {
    pub fn new(device: MemoryDevice) -> Gated {
        Gated { device: Arc::new(Mutex::new(device)), gates: Arc::default() }
    }

    /// What is behind it.
    pub fn memory(&self) -> &Mutex<MemoryDevice> {
        &self.device
    }

    pub fn close(&self, gate: Gate) {
        *self.gates.0.lock().unwrap() = Gates { closed: Some(gate), held: 0 };
    }

    pub fn open(&self) {
        self.gates.0.lock().unwrap().closed = None;
        self.gates.1.notify_all();
    }

    pub fn wait_until_held(&self, count: usize) {
        let gates = self.gates.0.lock().unwrap();
        drop(self.gates.1.wait_while(gates, |gates| gates.held < count).unwrap());
    }

    fn pass(&self, gate: Gate) {
        let mut gates = self.gates.0.lock().unwrap();
        if gates.closed != Some(gate) || gate == Gate::FirstRead && gates.held > 0 {
            return;
        }
        gates.held += 1;
        self.gates.1.notify_all();
        drop(self.gates.1.wait_while(gates, |gates| gates.closed.is_some()).unwrap());
    }
}

impl BlockDevice for Gated {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read(&mut self, reads: &mut [Read<'_>]) -> Result<(), DeviceError> {
        self.pass(Gate::FirstRead);
        self.device.read(reads)
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), DeviceError> {
        self.device.write(writes)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.pass(Gate::Flush);
        self.device.flush()
    }

    fn allocate(&mut self, wanted: &[Allocation]) -> Vec<Result<u64, DeviceError>> {
        self.device.allocate(wanted)
    }

    fn change_pointers(&mut self, changes: &[PointerChange]) -> Vec<Result<(), DeviceError>> {
        self.device.change_pointers(changes)
    }

    fn set_attributes(
        &mut self,
        blocks: &[u64],
        change: AttributeChange,
    ) -> Result<(), DeviceError> {
        self.device.set_attributes(blocks, change)
    }

    fn discard(&mut self, blocks: &[Range<u64>]) -> Result<(), DeviceError> {
        self.device.discard(blocks)
    }

    fn attributes(&mut self, blocks: &[u64]) -> Result<Vec<Attributes>, DeviceError> {
        self.device.attributes(blocks)
    }

    fn collect(&mut self) -> Result<u64, DeviceError> {
        self.device.collect()
    }

    fn mapped(&mut self, range: Range<u64>) -> Result<Vec<Range<u64>>, DeviceError> {
        self.device.mapped(range)
    }

    fn settle(&mut self) -> Result<(), DeviceError> {
        self.device.settle()
    }

    fn make_pointer_room(&mut self, pointers: u64) -> Result<(), DeviceError> {
        self.device.make_pointer_room(pointers)
    }

    fn usage(&mut self) -> Result<Usage, DeviceError> {
        self.device.usage()
    }
}
