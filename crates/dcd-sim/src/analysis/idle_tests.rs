//! Response times with idle detection: against simulated events, and at the limits.

use super::super::random::Random;
use super::*;

/// Table 5.1, with the moments of its first two lines.
fn table(idle_seconds: f64) -> IdleParameters {
    IdleParameters {
        service: ServiceTime::symmetric(0.015, 0.008).unwrap(),
        reads_per_second: 12.0,
        writes_per_second: 8.0,
        p_clean: 0.03,
        cleaning_writes: 52.0,
        idle_seconds,
        detection: Detection::Windows,
    }
}

/// Mean response times of reads and writes of a disk that is cleaned every `cycle_seconds`, event
/// by event. Service times are uniform from 0 to `service_max`.
fn simulated(parameters: &IdleParameters, service_max: f64, cycles: u32) -> (f64, f64) {
    let cycle_seconds = 1.0 / (parameters.p_clean * parameters.writes_per_second);
    let idle = parameters.idle_seconds;
    let mut random = Random(11);
    let (mut read_at, mut disk_free, mut reads, mut read_sum) = (0.0f64, 0.0f64, 0u32, 0.0);
    let mut write_sum = 0.0;
    let mean_gap = 1.0 / parameters.reads_per_second;
    for cycle in 0..cycles {
        let demand = f64::from(cycle) * cycle_seconds;
        // Reads in their order, until the disk was idle for long enough after the demand.
        let mut quiet_since = demand;
        loop {
            let found = quiet_since + idle;
            if read_at >= found {
                break;
            }
            let response = random.unit() * service_max;
            disk_free = disk_free.max(read_at) + response;
            read_sum += disk_free - read_at;
            reads += 1;
            if read_at >= demand {
                quiet_since = match parameters.detection {
                    Detection::Gap => read_at,
                    Detection::Windows => {
                        demand + ((read_at - demand) / idle).floor() * idle + idle
                    }
                };
            }
            read_at += random.exponential(mean_gap);
        }
        // The queue drains, the writes follow; writes that came meanwhile have waited half of it on
        // average.
        let start = disk_free.max(quiet_since + idle);
        write_sum += (start - demand) * (start - demand) / 2.0;
        disk_free = start;
        for _ in 0..parameters.cleaning_writes as u32 {
            disk_free += random.unit() * service_max;
        }
    }
    let seconds = f64::from(cycles) * cycle_seconds;
    (read_sum / f64::from(reads), write_sum / seconds)
}

#[test]
fn response_times_are_those_of_simulated_disks() {
    // Uniform up to 30 ms: E[s^2] = 30^2 / 3, E[s^3] = 30^3 / 4.
    let service = ServiceTime::new(0.015, 0.0003, 6.75e-6).unwrap();
    let near = |found: f64, wanted: f64, error: f64| (found / wanted - 1.0).abs() < error;
    for (reads_per_second, idle_seconds, detection, cleaning_writes) in [
        (12.0, 0.0, Detection::Gap, 52.0),
        (2.0, 0.05, Detection::Windows, 20.0),
        (2.0, 0.05, Detection::Gap, 20.0),
        (5.0, 0.1, Detection::Gap, 5.0),
        (12.0, 0.1, Detection::Windows, 52.0),
        (12.0, 0.1, Detection::Gap, 52.0),
    ] {
        let parameters = IdleParameters {
            service,
            reads_per_second,
            writes_per_second: 10.0,
            p_clean: 0.02,
            cleaning_writes,
            idle_seconds,
            detection,
        };
        let cycle = parameters.cycle().unwrap();
        let (read, write) = simulated(&parameters, 0.03, 20_000);
        assert!(near(cycle.read_response_seconds, read, 0.03), "{parameters:?} {cycle:?} {read}");
        assert!(
            near(cycle.write_response_seconds, write, 0.05),
            "{parameters:?} {cycle:?} {write}"
        );
        let printed = cycle.read_response_printed_seconds;
        assert!(printed < read, "printed: too small, {printed} of {read}");
    }
}

/// Figure 5.7 in words: "idle detection may do little to improve read response time, and increase
/// write response time"; section 7.3: both constant for small idle times.
#[test]
fn figure_5_7_is_as_the_thesis_says() {
    let at = |idle_seconds| table(idle_seconds).cycle().unwrap();
    let (none, some, long) = (at(0.0), at(0.01), at(0.2));
    assert!(some.read_response_seconds < none.read_response_seconds);
    assert!(long.read_response_seconds > 0.98 * none.read_response_seconds);
    assert_eq!(long.drain, Interval::NONE);
    assert!(long.write_response_seconds > 100.0 * none.write_response_seconds);
    assert!(none.write_response_seconds < 0.000_1 && long.write_response_seconds > 0.5);
    // "An increasing value of t_idle quickly produced values of t_detect that were larger than
    // t_cycle".
    assert!(matches!(table(0.25).cycle(), Err(AnalysisError::CycleTooShort { .. })));
}

#[test]
fn without_load_it_is_service_and_waiting_for_the_cleaning() {
    let quiet = IdleParameters { reads_per_second: 0.0, idle_seconds: 0.5, ..table(0.0) };
    for detection in [Detection::Windows, Detection::Gap] {
        let cycle = IdleParameters { detection, ..quiet }.cycle().unwrap();
        assert_eq!(cycle.detect, Interval { mean: 0.5, variance: 0.0 });
        assert_eq!(cycle.drain, Interval::NONE);
        let writes = 52.0 * 0.015;
        let deviation = 52.0 * 0.008 * 0.008;
        let waits = 0.24 * (writes * writes + deviation) / 2.0;
        assert!((cycle.read_response_seconds - 0.015 - waits).abs() < 1e-12);
        assert!((cycle.write_response_seconds - 0.24 * 0.125).abs() < 1e-12);
    }
}

#[test]
fn waiting_times_are_those_of_m_m_1() {
    // Exponential service, mean 1, half busy: waiting has mean 1 and E[W^2] = 4.
    let queue = queue_wait(ServiceTime::new(1.0, 2.0, 6.0).unwrap(), 0.5);
    assert!((queue.mean - 1.0).abs() < 1e-12 && (queue.variance - 3.0).abs() < 1e-12);
}

#[test]
fn detection_takes_as_long_as_simulated() {
    let mut random = Random(5);
    for (which, rate, idle) in [(Detection::Windows, 8.0, 0.1), (Detection::Gap, 8.0, 0.1)] {
        let (mut sum, mut squares, tries) = (0.0, 0.0, 100_000);
        for _ in 0..tries {
            let mut found = 0.0;
            loop {
                let gap = random.exponential(1.0 / rate);
                found += if gap >= idle || which == Detection::Windows { idle } else { gap };
                if gap >= idle {
                    break;
                }
            }
            sum += found;
            squares += found * found;
        }
        let mean = sum / f64::from(tries);
        let variance = squares / f64::from(tries) - mean * mean;
        let computed = detection(which, rate, idle);
        assert!((computed.mean / mean - 1.0).abs() < 0.01, "{which:?} {computed:?} {mean}");
        assert!((computed.variance / variance - 1.0).abs() < 0.05, "{which:?} {computed:?}");
    }
    // The two forms of the gap meet.
    let (below, above) =
        (detection(Detection::Gap, 1.0, 0.999e-4), detection(Detection::Gap, 1.0, 1e-4));
    assert!((below.mean / above.mean - 0.999).abs() < 1e-6);
    assert!((below.variance / above.variance - 0.999f64.powi(3)).abs() < 1e-3);
}

#[test]
fn the_moments_of_table_5_1_are_of_no_distribution() {
    assert!(ServiceTime::new(0.015, 0.0012, 0.000_006).is_err());
    // Not of 30 ms either.
    assert!(ServiceTime::new(0.030, 0.0012, 0.000_006).is_err());
    let corrected = ServiceTime::symmetric(0.015, 0.008).unwrap();
    assert!((corrected.second - 0.000_289).abs() < 1e-9);
    assert!((corrected.third - 0.000_006_255).abs() < 1e-9);
    assert!(ServiceTime::symmetric(0.015, 0.0).is_ok());
}

#[test]
fn what_makes_no_sense_is_an_error() {
    for wrong in [
        IdleParameters { reads_per_second: -1.0, ..table(0.0) },
        IdleParameters { reads_per_second: f64::NAN, ..table(0.0) },
        IdleParameters { writes_per_second: 0.0, ..table(0.0) },
        IdleParameters { p_clean: 0.0, ..table(0.0) },
        IdleParameters { p_clean: 1.5, ..table(0.0) },
        IdleParameters { p_clean: 1e-310, writes_per_second: 1e-310, ..table(0.0) },
        IdleParameters { cleaning_writes: 0.0, ..table(0.0) },
        IdleParameters { idle_seconds: -0.1, ..table(0.0) },
        IdleParameters { idle_seconds: f64::INFINITY, ..table(0.0) },
        IdleParameters { idle_seconds: 1e300, ..table(0.0) },
        IdleParameters { idle_seconds: 1000.0, detection: Detection::Gap, ..table(0.0) },
    ] {
        assert!(wrong.cycle().is_err(), "{wrong:?}");
    }
    assert!(matches!(
        IdleParameters { reads_per_second: 70.0, ..table(0.0) }.cycle(),
        Err(AnalysisError::Overload { .. })
    ));
    assert!(ServiceTime::new(0.0, 0.0, 0.0).is_err());
    assert!(ServiceTime::new(f64::NAN, 1.0, 1.0).is_err());
    assert!(ServiceTime::symmetric(0.015, f64::NAN).is_err());
}
