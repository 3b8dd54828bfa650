//! Requests as columns, and back. The columns are those of traces as Parquet (`docs/traces.md`);
//! Python makes Arrow arrays of them without copying.

use std::ffi::c_int;
use std::sync::Arc;

use dcd_sim::trace::{Flags, Operation, Request, SIZE_BYTES_MAX};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use zerocopy::IntoBytes;

use crate::errors::error;

/// Bytes that Python reads where they lie.
#[pyclass(frozen, module = "dcd._dcd")]
pub struct Column(Values);

enum Values {
    Bytes(Vec<u8>),
    Words(Vec<u32>),
    Longs(Vec<u64>),
}

impl Column {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Values::Bytes(values) => values,
            Values::Words(values) => values.as_bytes(),
            Values::Longs(values) => values.as_bytes(),
        }
    }
}

#[pymethods]
impl Column {
    /// # Safety
    /// Python gives a view that may be written.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut pyo3::ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let bytes = slf.get().bytes();
        let length = bytes.len().try_into().map_err(|_| PyBufferError::new_err("too long"))?;
        // SAFETY: the bytes are as long, nobody changes them, and they stay as long as the object,
        // which the view keeps.
        let filled = unsafe {
            let start = bytes.as_ptr().cast_mut().cast();
            pyo3::ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Columns that grow.
#[derive(Default)]
pub struct Columns {
    count: usize,
    times: Vec<u64>,
    operations: Vec<u8>,
    devices: Vec<u32>,
    offsets: Vec<u64>,
    sizes: Vec<u64>,
    flags: Vec<u8>,
    latencies: Vec<u64>,
    /// A bit for each latency that is known, lowest first.
    known: Vec<u8>,
}

/// The order in which they are given: `t_ns`, `op` (place in `RWDF`), `dev`, `off`, `len`, `fl`,
/// `lat_ns`, and bits of those of it that are known.
pub type GivenColumns = (usize, Vec<Column>);

impl Columns {
    /// One more.
    pub fn push(&mut self, request: &Request) {
        if self.count.is_multiple_of(8) {
            self.known.push(0);
        }
        if request.latency_ns.is_some() {
            self.known[self.count / 8] |= 1 << (self.count % 8);
        }
        self.count += 1;
        self.times.push(request.time_ns);
        self.operations.push(match request.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Discard => 2,
            Operation::Flush => 3,
        });
        self.devices.push(request.device);
        self.offsets.push(request.offset_bytes);
        self.sizes.push(request.size_bytes);
        self.flags.push(request.flags.0);
        self.latencies.push(request.latency_ns.unwrap_or(0));
    }

    /// All of them.
    pub fn given(self) -> GivenColumns {
        let columns = [
            Values::Longs(self.times),
            Values::Bytes(self.operations),
            Values::Words(self.devices),
            Values::Longs(self.offsets),
            Values::Longs(self.sizes),
            Values::Bytes(self.flags),
            Values::Longs(self.latencies),
            Values::Bytes(self.known),
        ];
        (self.count, columns.map(Column).into())
    }
}

/// Requests that a study reads out of memory.
#[pyclass(frozen, module = "dcd._dcd")]
pub struct Requests(pub Arc<[Request]>);

#[pymethods]
impl Requests {
    /// Of columns in that order; operations as places in `RWDF`, latencies that are not known as
    /// the largest number.
    #[new]
    #[pyo3(signature = (times, operations, devices, offsets, sizes, flags, latencies))]
    #[expect(clippy::too_many_arguments, reason = "one for each column")]
    fn new(
        py: Python<'_>,
        times: PyBuffer<u64>,
        operations: PyBuffer<u8>,
        devices: PyBuffer<u32>,
        offsets: PyBuffer<u64>,
        sizes: PyBuffer<u64>,
        flags: PyBuffer<u8>,
        latencies: PyBuffer<u64>,
    ) -> PyResult<Requests> {
        let (times, offsets, sizes) = (times.to_vec(py)?, offsets.to_vec(py)?, sizes.to_vec(py)?);
        let (operations, flags) = (operations.to_vec(py)?, flags.to_vec(py)?);
        let (devices, latencies) = (devices.to_vec(py)?, latencies.to_vec(py)?);
        let count = times.len();
        let counts = [
            operations.len(),
            devices.len(),
            offsets.len(),
            sizes.len(),
            flags.len(),
            latencies.len(),
        ];
        if counts.iter().any(|other| *other != count) {
            return Err(error(py, "trace", "the columns are not of one length", None));
        }
        let mut requests = Vec::with_capacity(count);
        for row in 0..count {
            let refused = |column: &str, problem: &str| {
                let text = format!("row {row}: {column}: {problem}");
                error(py, "trace", &text, Some("docs/traces.md has the columns"))
            };
            let operation = match operations[row] {
                0 => Operation::Read,
                1 => Operation::Write,
                2 => Operation::Discard,
                3 => Operation::Flush,
                _ => return Err(refused("op", "expected R, W, D or F")),
            };
            let (offset_bytes, size_bytes) = (offsets[row], sizes[row]);
            let is_data = matches!(operation, Operation::Read | Operation::Write);
            if is_data && size_bytes > SIZE_BYTES_MAX {
                return Err(refused(
                    "len",
                    &format!("expected at most {SIZE_BYTES_MAX} bytes, found {size_bytes}"),
                ));
            }
            if offset_bytes.checked_add(size_bytes).is_none() {
                return Err(refused("len", "the request ends at or beyond 2^64"));
            }
            if flags[row] & !Flags::ALL.0 != 0 {
                return Err(refused(
                    "fl",
                    &format!("expected a sum of 1, 2, 4, 8 and 16, found {}", flags[row]),
                ));
            }
            requests.push(Request {
                time_ns: times[row],
                operation,
                device: devices[row],
                offset_bytes,
                size_bytes,
                flags: Flags(flags[row]),
                latency_ns: Some(latencies[row]).filter(|latency| *latency != u64::MAX),
                line: 0,
                column: 0,
            });
        }
        // Those of one time stay as they are; times count from the first request.
        requests.sort_by_key(|request| request.time_ns);
        let first_ns = requests.first().map_or(0, |request| request.time_ns);
        for (number, request) in (1..).zip(&mut requests) {
            request.time_ns -= first_ns;
            request.line = number;
        }
        Ok(Requests(requests.into()))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}
