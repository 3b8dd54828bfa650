//! How often which part of the disk was touched when: cells of time and address, in bounded memory.
//! Ends of time and of addresses are not known before; both widths double when they must.

use super::time_bins::{Bin, TimeBins};
use super::{Operation, Request};

/// Most rows of addresses.
pub const ROWS_MAX: usize = 256;
const ROW_BYTES_MIN: u64 = 512;

/// Requests that touch each row in a bin of time: reads, writes.
#[derive(Debug, Default)]
pub struct Column(Vec<[u32; 2]>);

impl Column {
    /// Reads and writes that touched a row.
    pub fn touched(&self, row: usize) -> [u32; 2] {
        self.0.get(row).copied().unwrap_or_default()
    }

    fn row(&mut self, row: usize) -> &mut [u32; 2] {
        if row >= self.0.len() {
            self.0.resize(row + 1, [0; 2]);
        }
        &mut self.0[row]
    }
}

impl Bin for Column {
    fn join(&mut self, later: Column) {
        for (row, counts) in later.0.into_iter().enumerate() {
            add(self.row(row), counts);
        }
    }
}

fn add(to: &mut [u32; 2], more: [u32; 2]) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to = to.saturating_add(more));
}

/// All cells.
#[derive(Debug)]
pub struct HeatMap {
    columns: TimeBins<Column>,
    row_bytes: u64,
}

impl Default for HeatMap {
    fn default() -> HeatMap {
        HeatMap { columns: TimeBins::default(), row_bytes: ROW_BYTES_MIN }
    }
}

impl HeatMap {
    /// Notes a read or write, in each row that it touches.
    pub fn add(&mut self, request: &Request) {
        let direction = match request.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Discard | Operation::Flush => return,
        };
        let first_byte = request.offset_bytes;
        let last_byte = first_byte + request.size_bytes.saturating_sub(1);
        while last_byte / self.row_bytes >= ROWS_MAX as u64 {
            self.join_rows();
        }
        let rows = first_byte / self.row_bytes..=last_byte / self.row_bytes;
        let column = self.columns.at(request.time_ns);
        for row in rows {
            let count = &mut column.row(row as usize)[direction];
            *count = count.saturating_add(1);
        }
    }

    fn join_rows(&mut self) {
        for Column(cells) in self.columns.bins_mut() {
            let pairs = cells.chunks(2).map(|pair| {
                let mut sum = pair[0];
                pair.get(1).into_iter().for_each(|more| add(&mut sum, *more));
                sum
            });
            *cells = pairs.collect();
        }
        self.row_bytes *= 2;
    }

    /// Bins of time.
    pub fn columns(&self) -> &TimeBins<Column> {
        &self.columns
    }

    /// What a row spans; the first begins at 0.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// The first and the last row that was touched.
    pub fn rows_touched(&self) -> Option<(usize, usize)> {
        let mut rows = None;
        for (row, _) in self.columns.bins().iter().flat_map(|column| {
            column.0.iter().enumerate().filter(|(_, touched)| **touched != [0; 2])
        }) {
            let (first, last) = rows.unwrap_or((row, row));
            rows = Some((row.min(first), row.max(last)));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::reader_tests::read;

    /// ```text
    ///  row    at 0 s: W 0..1024    at 1 s: R 1024..1536
    ///   2                            R
    ///   1        W
    ///   0        W
    /// ```
    /// Then a write at 1 MiB: rows of 8 KiB, all of that in the first.
    #[test]
    fn requests_are_counted_in_each_row_that_they_touch() {
        let text = "t_us,op,off,len\n0,W,0,1024\n1000000,R,1024,512\n1000000,F,0,0\n\
                    1000000,W,1048576,1\n";
        let requests = read(text, None);
        let mut map = HeatMap::default();
        assert_eq!(map.rows_touched(), None);
        requests[..3].iter().for_each(|request| map.add(request));
        assert_eq!((map.row_bytes(), map.rows_touched()), (512, Some((0, 2))));
        let (first, last) = (&map.columns().bins()[0], map.columns().bins().last().unwrap());
        assert_eq!([0, 1, 2].map(|row| first.touched(row)), [[0, 1], [0, 1], [0, 0]]);
        assert_eq!(last.touched(2), [1, 0]);
        map.add(&requests[3]);
        assert_eq!((map.row_bytes(), map.rows_touched()), (8192, Some((0, 128))));
        let (first, last) = (&map.columns().bins()[0], map.columns().bins().last().unwrap());
        assert_eq!(
            (first.touched(0), last.touched(0), last.touched(128)),
            ([0, 2], [1, 0], [0, 1])
        );
    }

    #[test]
    fn the_last_byte_of_all_fits() {
        let text = format!("t_us,op,off,len\n0,W,0,1\n1,R,{},1000\n2,R,{0},0\n", u64::MAX - 1000);
        let mut map = HeatMap::default();
        read(&text, None).iter().for_each(|request| map.add(request));
        assert_eq!(map.rows_touched(), Some((0, 255)));
        assert_eq!(map.row_bytes(), 1 << 56);
    }
}
