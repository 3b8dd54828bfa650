//! `dcd bench engine` measures something.

use std::cell::Cell;
use std::time::Duration;

use dcd_sim::engine_bench;

#[test]
fn each_round_has_its_figures() {
    let ticks = Cell::new(0);
    let clock = || {
        ticks.set(ticks.get() + 1);
        Duration::from_millis(ticks.get())
    };
    let measured = engine_bench::run(64 << 20, 1, &clock, &mut |_| {});
    for rates in [&measured.writes, &measured.sustained, &measured.read_hits, &measured.lookups] {
        assert_eq!(rates.len(), 1, "{measured:?}");
        assert!(rates[0] > 0.0, "{measured:?}");
    }
    assert!(measured.index_bytes_per_gib > 0);
}
