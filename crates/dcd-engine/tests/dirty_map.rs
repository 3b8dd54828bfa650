//! The map of where a disk is dirty: the same as a look at each line, in cells of every size, in
//! parts that are small, and whole while lines come and go between two parts.

mod common;

use common::{Driver, never_idle};
use dcd_engine::engine::DirtyMap;
use dcd_engine::units::Line;

/// Three regions of the index: 96 MiB.
const LINES: u64 = 3 * 8192;

fn driver() -> Driver {
    Driver::never_idle(|options| options.data_disk.blocks = LINES * 8)
}

/// The whole map; how many parts it took.
fn map(d: &Driver, lines: std::ops::Range<u64>, cells_max: usize) -> (DirtyMap, u32) {
    let mut map = d.engine().begin_dirty_map(Line(lines.start)..Line(lines.end), cells_max);
    let mut parts = 1;
    while d.engine().continue_dirty_map(&mut map) {
        parts += 1;
    }
    (map, parts)
}

#[test]
fn it_is_what_a_look_at_each_line_would_find() {
    let mut d = driver();
    let dirty = [0, 1, 2, 63, 64, 8191, 8192, 16_000, LINES - 1];
    assert!(map(&d, 0..LINES, 100).0.cells().iter().all(|cell| *cell == 0));
    d.write_durably(dirty, 1);
    for (range, cells_max, cell_lines) in [
        (0..LINES, 1, 32_768),
        (0..LINES, 3, 8192),
        (0..LINES, 4096, 8),
        (0..LINES, 1 << 30, 8),
        (0..64, 64, 1),
        (60..70, 4, 4),
        (8190..8200, 16, 1),
        (LINES - 2..u64::MAX, 16, 1),
        (LINES..u64::MAX, 16, 1),
        (5..5, 16, 1),
    ] {
        let (map, _) = map(&d, range.clone(), cells_max);
        assert_eq!(map.cell_lines(), cell_lines, "{range:?} in {cells_max}");
        assert_eq!(map.start().0 % cell_lines, 0);
        assert!(map.cells().len() <= cells_max, "{range:?} in {cells_max}");
        for (cell, count) in (0..).zip(map.cells()) {
            let first = map.start().0 + cell * cell_lines;
            let there = dirty.iter().filter(|line| (first..first + cell_lines).contains(*line));
            assert_eq!(*count as usize, there.count(), "cell {cell} of {range:?} in {cells_max}");
        }
        let end = map.start().0 + map.cells().len() as u64 * cell_lines;
        assert!(end >= range.end.min(LINES), "{range:?} in {cells_max} ends at {end}");
    }
    d.drain();
    assert!(map(&d, 0..LINES, 3).0.cells().iter().all(|cell| *cell == 0));
}

/// Lines that stay are counted once, whatever comes and goes between two parts.
#[test]
fn it_may_be_made_while_lines_come_and_go() {
    let mut d = driver();
    d.write_durably(0..100, 1);
    let mut map = d.engine().begin_dirty_map(Line(0)..Line(100), 100);
    let mut other = 1000;
    while d.engine().continue_dirty_map(&mut map) {
        d.write_durably(other..other + 50, 2);
        other += 50;
    }
    assert_eq!(map.cells(), [1; 100]);
}

/// With a budget of the index only regions are known without the cache-disk.
#[test]
fn with_a_budget_cells_are_regions() {
    let mut d = Driver::with(|options| {
        never_idle(options);
        options.data_disk.blocks = LINES * 8;
        options.engine.index_bytes_max = 1 << 20;
    });
    d.write_durably([0, 1, 8192], 1);
    let (map, parts) = map(&d, 0..16, 16);
    assert_eq!((map.cell_lines(), map.cells(), parts), (8192, &[2][..], 1));
}
