//! Two classes of blocks: against `lru_fcfs`, against what the thesis says, and at the limits.

use super::super::lru_fcfs::References;
use super::*;

fn cache(hot: u64, cold: u64, ratio: f64, cache: u64) -> HotColdCache {
    HotColdCache::new(HotColdParameters {
        hot_blocks: hot,
        cold_blocks: cold,
        hot_to_cold_ratio: ratio,
        cache_blocks: cache,
    })
    .unwrap()
}

fn references(cache: &HotColdCache) -> References {
    let mut all = vec![cache.kappa; cache.hot as usize];
    all.resize((cache.hot + cache.cold) as usize, cache.lambda);
    References::new(all).unwrap()
}

#[test]
fn fault_rates_are_those_of_the_enumeration() {
    for (hot, cold, ratio, size) in
        [(2, 5, 6.0, 3), (3, 4, 20.0, 4), (1, 6, 2.0, 1), (4, 4, 1.0, 4), (3, 3, 5.0, 6)]
    {
        let cache = cache(hot, cold, ratio, size);
        let enumerated = references(&cache).fault_rates(size as usize).unwrap();
        assert!((cache.lru_fault_rate() - enumerated.lru).abs() < 1e-12);
        assert!((cache.fcfs_fault_rate() - enumerated.fcfs).abs() < 1e-12);
    }
}

#[test]
fn states_are_those_of_the_enumeration_and_within_their_bounds() {
    let cache = cache(3, 5, 8.0, 4);
    let references = references(&cache);
    // Blocks 0 to 2 are hot. Both orders of as many as there are of each: hot first, cold first.
    for (hot, states) in [
        (0, [[3, 4, 5, 6], [3, 4, 5, 6]]),
        (2, [[3, 4, 0, 1], [0, 1, 3, 4]]),
        (3, [[3, 0, 1, 2], [0, 1, 2, 3]]),
    ] {
        let extremes = cache.lru_state_extremes(hot).unwrap();
        let bounds = cache.lru_state_bounds(hot as f64).unwrap();
        let [least, most] = states.map(|s| references.lru_state_probability(&s).unwrap().ln());
        assert!((extremes.lower - least).abs() < 1e-12 && (extremes.upper - most).abs() < 1e-12);
        assert!(bounds.lower <= least && most <= bounds.upper, "{hot}: {bounds:?} {extremes:?}");
        let fcfs = references.fcfs_state_probability(&states[0]).unwrap().ln();
        assert!((cache.ln_fcfs_state(hot as f64).unwrap() - fcfs).abs() < 1e-12);
    }
}

#[test]
fn bounds_hold_for_large_caches() {
    for (hot, cold, ratio, size) in [
        (100, 900, 10.0, 10),
        (20, 980, 100.0, 10),
        (5, 7, 3.0, 12),
        (40, 4000, 1e6, 300),
        (1, 1, 2.0, 1),
    ] {
        let cache = cache(hot, cold, ratio, size);
        let least = size.saturating_sub(cold);
        for held in least..=hot.min(size) {
            let bounds = cache.lru_state_bounds(held as f64).unwrap();
            let extremes = cache.lru_state_extremes(held).unwrap();
            let slack = 1e-9 * bounds.lower.abs();
            assert!(bounds.lower <= extremes.lower + slack, "{held}: {bounds:?} {extremes:?}");
            assert!(extremes.lower <= extremes.upper + slack);
            assert!(extremes.upper <= bounds.upper + slack, "{held}: {bounds:?} {extremes:?}");
        }
    }
}

#[test]
fn the_printed_upper_bound_of_3_6_is_none() {
    let cache = cache(100, 900, 10.0, 10);
    let printed_upper = cache.ln_product(0.0); // l = 0: divided by 1 to the power m
    assert!(cache.lru_state_extremes(0).unwrap().lower > printed_upper);
}

#[test]
fn stirling_bounds_hold_from_none_on_and_the_printed_ones_do_not() {
    let mut ln_factorial = 0.0;
    for n in 0..200u32 {
        ln_factorial += f64::from(n.max(1)).ln();
        let bounds = ln_factorial_bounds(f64::from(n));
        let slack = 1e-12 * ln_factorial;
        assert!(
            bounds.lower <= ln_factorial + slack && ln_factorial <= bounds.upper + slack,
            "{n}"
        );
        assert!(bounds.upper - bounds.lower < 0.007);
    }
    // sqrt(2 pi n) (n/e)^(n + 1/(12n)) of 1 is below 1!.
    let cormen = 0.5 * (2.0 * std::f64::consts::PI).ln() - (1.0 + 1.0 / 12.0);
    assert!(cormen < 0.0);
    // And 1.3n/12 is no exponent of an upper bound at all.
    let printed = 0.5 * (2.0 * std::f64::consts::PI * 1000.0f64).ln()
        + 1.3 * 1000.0 / 12.0 * (1000.0f64.ln() - 1.0);
    assert!(printed < ln_factorial_bounds(1000.0).lower);
    let cache = cache(100, 900, 1.0, 10);
    let exact: f64 = (0..10).map(|i| -f64::from(1000 - i).ln()).sum();
    let bounds = cache.uniform_state_bounds();
    assert!(bounds.lower <= exact && exact <= bounds.upper);
    assert!((cache.ln_fcfs_state(3.0).unwrap() - exact).abs() < 1e-9, "alpha = 1 is uniform");
}

#[test]
fn all_states_together_have_probability_1() {
    for cache in [cache(50, 950, 30.0, 10), cache(5, 8, 4.0, 12), cache(300, 70_000, 500.0, 1000)] {
        for held in [cache.hot_blocks_lru(), cache.hot_blocks_fcfs()] {
            assert!((held.iter().sum::<f64>() - 1.0).abs() < 1e-6);
        }
    }
}

/// Section 3.1.1: "the steady state fault rate of an LRU cache is likely to be lower than that of
/// an FCFS cache".
#[test]
fn lru_is_never_worse_than_fcfs_and_holds_more_hot_blocks() {
    for hot in [1, 10, 100, 500] {
        for ratio in [1.0, 2.0, 10.0, 100.0, 1e4] {
            for size in [1, 2, 10, 50, 400] {
                let cache = cache(hot, 1000 - hot, ratio, size);
                let (lru, fcfs) = (cache.lru_fault_rate(), cache.fcfs_fault_rate());
                assert!(lru <= fcfs + 1e-12, "{cache:?}: {lru} {fcfs}");
                let lru = cache.expected_hot_blocks_lru();
                assert!(lru >= cache.expected_hot_blocks_fcfs() - 1e-9, "{cache:?}");
                assert!(lru <= cache.expected_hot_blocks_with_replacement() + 1e-9, "{cache:?}");
                assert!(lru <= hot as f64 + 1e-9);
            }
        }
    }
}

/// Equation 4.1 and its correction; section 4.1: the hit rate grows quickly until all hot blocks
/// are expected in the cache, then slowly: a knee.
#[test]
fn expected_hot_blocks_and_the_knee() {
    let at = |size| cache(100, 10_000, 100.0, size);
    // Half of the writes are to hot blocks: 5 of 10.
    assert!((at(10).expected_hot_blocks_with_replacement() - 5.0).abs() < 1e-12);
    assert!((at(10).expected_hot_blocks_lru() - 5.0).abs() < 0.2);
    assert!(at(1000).expected_hot_blocks_with_replacement() > 400.0, "of 100");
    assert!((at(1000).expected_hot_blocks_lru() - 100.0).abs() < 0.1);
    let hits_per_block =
        |from, to| (at(from).lru_fault_rate() - at(to).lru_fault_rate()) / (to - from) as f64;
    assert!(hits_per_block(10, 20) > 30.0 * hits_per_block(1000, 1010));
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let good = HotColdParameters {
        hot_blocks: 10,
        cold_blocks: 90,
        hot_to_cold_ratio: 5.0,
        cache_blocks: 20,
    };
    let wrong = [
        HotColdParameters { hot_blocks: 0, ..good },
        HotColdParameters { cold_blocks: 0, ..good },
        HotColdParameters { cold_blocks: u64::MAX, ..good },
        HotColdParameters { hot_to_cold_ratio: 0.5, ..good },
        HotColdParameters { hot_to_cold_ratio: f64::NAN, ..good },
        HotColdParameters { hot_to_cold_ratio: f64::INFINITY, ..good },
        HotColdParameters { cache_blocks: 0, ..good },
        HotColdParameters { cache_blocks: 101, ..good },
    ];
    for parameters in wrong {
        assert!(HotColdCache::new(parameters).is_err(), "{parameters:?}");
    }
    let cache = HotColdCache::new(HotColdParameters { cache_blocks: 95, ..good }).unwrap();
    for held in [-1.0, 4.0, 11.0, f64::NAN] {
        assert!(cache.lru_state_bounds(held).is_err(), "{held}");
        assert!(cache.ln_fcfs_state(held).is_err(), "{held}");
        assert!(cache.fault_probability(held).is_err(), "{held}");
    }
    assert!(cache.lru_state_extremes(4).is_err());
    assert_eq!(cache.fault_probability(10.0).unwrap(), 5.0 * cache.lambda);
}
