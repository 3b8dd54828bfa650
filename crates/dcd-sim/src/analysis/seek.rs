//! How far it is to the nearest of n requests, and how long the arm takes (Haining 2000, section
//! 3.1.2, equations 3.7 to 3.10, after Denning).
//!
//! Assumptions: requests and the arm are on tracks drawn uniformly and independently from 1 to W; a
//! seek to the own track takes no time; the seek time grows linearly from S_min, one track, to
//! S_max, all of them. Distances are in tracks, times in the unit of S_min and S_max.
//!
//! E\[s_n\] is the time of *one* seek, to the nearest of n. The thesis takes it for that of
//! cleaning all n ("E\[s_n\] against n E\[s_1\]"). It is only the first of the n: cleaning them
//! takes about the sum of E\[s_n\] to E\[s_1\].
//!
//! Tests compare the closed form with the integral, that with the sum over whole tracks, and all
//! with simulation.

use super::{AnalysisError, check, check_size};

/// Tracks at most: the exact sum takes the square.
pub const TRACKS_MAX: u64 = 1 << 20;
/// Requests at most.
pub const REQUESTS_MAX: u64 = 1 << 20;
/// Terms of the exact sum at most.
pub const TERMS_MAX: u64 = 1 << 30;
/// Seek times at most.
const TIME_MAX: f64 = 1e15;
/// Intervals of Simpson's rule, for each of the two pieces of the integral and for the position of
/// the arm.
const INTERVALS: u32 = 512;

/// A disk whose seek time is linear in the distance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinearSeek {
    /// W, at least 3.
    pub tracks: u64,
    /// S_min: time for one track.
    pub time_min: f64,
    /// S_max: time for W - 1 tracks.
    pub time_max: f64,
}

impl LinearSeek {
    /// Equation 3.9: expected time of a scheduled seek, to the nearest of `requests`. Equation
    /// 3.10, the unscheduled one, is that of 1 request.
    ///
    /// Corrected: the printed 1/2 + S_min adds half a track, the lower limit of the integral, to a
    /// time. The track numbers stand for intervals of length 1 around them, so that S_min belongs
    /// to the distance 1/2, and the 1/2 is in S_min already.
    pub fn expected_time(&self, requests: u64) -> Result<f64, AnalysisError> {
        let distance = expected_distance(self.tracks, requests)?;
        check("S_min", "0 to 1e15", self.time_min, |time| (0.0..=TIME_MAX).contains(&time))?;
        check("S_max", "S_min to 1e15", self.time_max, |time| {
            (self.time_min..=TIME_MAX).contains(&time)
        })?;
        let moves = probability_of_a_move(self.tracks, requests);
        let per_track = (self.time_max - self.time_min) / (self.tracks - 1) as f64;
        Ok(moves * self.time_min + (distance - moves * 0.5) * per_track)
    }
}

/// The distance in equation 3.9: to the nearest of `requests`, in tracks, 0 if one is on the track
/// of the arm.
///
/// ((W-1)/W)^n (1/2 + (W-1) / (2(n+1)) * (1 + (W/(W-1))^(n+1) / (n+2))). Approximate, for tracks
/// are taken as continuous: too small by up to half a track, which shows when n is of the size of
/// W.
pub fn expected_distance(tracks: u64, requests: u64) -> Result<f64, AnalysisError> {
    check_numbers(tracks, requests)?;
    let (w, n) = (tracks as f64, requests as f64);
    let moves = probability_of_a_move(tracks, requests);
    // The product of moves and (W/(W-1))^(n+1) is W/(W-1): computed so, it does not overflow.
    let sum = moves + w / (w - 1.0) / (n + 2.0);
    Ok(moves * 0.5 + (w - 1.0) / (2.0 * (n + 1.0)) * sum)
}

/// Equation 3.8: probability that a request is at most `distance` away from the arm on track
/// `arm_track` (from 1), given that it is not on that track. A track counts as an interval of
/// length 1.
///
/// Corrected: the third piece is p u + p (2k-3) / 2; the printed one has lost the u, and jumps to 1
/// at its end.
pub fn distance_distribution(
    tracks: u64,
    arm_track: u64,
    distance: f64,
) -> Result<f64, AnalysisError> {
    check_numbers(tracks, 1)?;
    check("track of the arm", "1 to the last", arm_track as f64, |arm| {
        (1.0..=tracks as f64).contains(&arm)
    })?;
    check("distance", "a number", distance, |_| true)?;
    Ok(distribution_at(tracks as f64, nearer_end(tracks, arm_track as f64), distance))
}

/// Equation 3.7 with 3.8, by Simpson's rule: what `expected_distance` has in closed form.
pub fn expected_distance_by_integration(tracks: u64, requests: u64) -> Result<f64, AnalysisError> {
    check_numbers(tracks, requests)?;
    let (w, n) = (tracks as f64, requests as f64);
    let given_arm = |k: f64| {
        // F is 0 up to 1/2, and bends at each limit.
        let both = integrate(0.5, k - 0.5, |u| (1.0 - both_ways(w, u)).powf(n));
        let one = integrate(k - 0.5, w - k + 0.5, |u| (1.0 - one_way(w, k, u)).max(0.0).powf(n));
        0.5 + both + one
    };
    // The arm is anywhere in the outer half, each track an interval again. As in the closed form, k
    // begins at 1/2, and the first integral is negative up to 1.
    let mean = integrate(0.5, (w + 1.0) / 2.0, given_arm) / (w / 2.0);
    Ok(probability_of_a_move(tracks, requests) * mean)
}

/// Expected time to reach the nearest of `requests`, without approximation, for any seek curve:
/// `time` of each whole distance from 1 to W - 1. The sum over tracks and distances takes W^2 / 2
/// steps.
pub fn expected_time_exact(
    tracks: u64,
    requests: u64,
    time: impl Fn(u64) -> f64,
) -> Result<f64, AnalysisError> {
    check_numbers(tracks, requests)?;
    check_size("tracks, squared", TERMS_MAX, tracks * tracks)?;
    let times: Vec<f64> = (0..tracks).map(|d| if d == 0 { 0.0 } else { time(d) }).collect();
    for &time in &times {
        check("seek time", "0 to 1e15", time, |time| (0.0..=TIME_MAX).contains(&time))?;
    }
    let (w, n) = (tracks as f64, requests as f64);
    let mut sum = 0.0;
    for arm in 1..=tracks {
        // Probability that all requests are at least so far away.
        let mut all_beyond = 1.0;
        let mut tracks_within = 0;
        for distance in 0..tracks {
            let below = u64::from(arm > distance);
            let above = u64::from(arm + distance <= tracks);
            tracks_within += if distance == 0 { 1 } else { below + above };
            let beyond_this = (1.0 - tracks_within as f64 / w).max(0.0).powf(n);
            sum += times[distance as usize] * (all_beyond - beyond_this);
            all_beyond = beyond_this;
        }
    }
    Ok(sum / w)
}

/// F(u) for an arm at `k`, counted from the nearer end, on a disk of `w` tracks.
fn distribution_at(w: f64, k: f64, u: f64) -> f64 {
    if u <= 0.5 {
        0.0
    } else if u <= k - 0.5 {
        both_ways(w, u)
    } else if u <= w - k + 0.5 {
        one_way(w, k, u)
    } else {
        1.0
    }
}

/// The second piece of equation 3.8: there are tracks on both sides, each with probability p = 1 /
/// (W-1).
fn both_ways(w: f64, u: f64) -> f64 {
    (2.0 * u - 1.0) / (w - 1.0)
}

/// The third: on one side only.
fn one_way(w: f64, k: f64, u: f64) -> f64 {
    (u + (2.0 * k - 3.0) / 2.0) / (w - 1.0)
}

fn nearer_end(tracks: u64, arm: f64) -> f64 {
    arm.min(tracks as f64 + 1.0 - arm)
}

/// ((W-1)/W)^n: none of the requests is on the track of the arm.
fn probability_of_a_move(tracks: u64, requests: u64) -> f64 {
    (requests as f64 * (-1.0 / tracks as f64).ln_1p()).exp()
}

fn integrate(from: f64, to: f64, f: impl Fn(f64) -> f64) -> f64 {
    let step = (to - from) / f64::from(INTERVALS);
    let inner: f64 = (1..INTERVALS)
        .map(|i| if i % 2 == 1 { 4.0 } else { 2.0 } * f(from + f64::from(i) * step))
        .sum();
    (f(from) + inner + f(to)) * step / 3.0
}

fn check_numbers(tracks: u64, requests: u64) -> Result<(), AnalysisError> {
    check("tracks", "at least 3", tracks as f64, |tracks| tracks >= 3.0)?;
    check_size("tracks", TRACKS_MAX, tracks)?;
    check("requests", "at least 1", requests as f64, |requests| requests >= 1.0)?;
    check_size("requests", REQUESTS_MAX, requests)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn the_closed_form_is_the_integral() {
        for tracks in [3, 10, 1000, 100_000] {
            for requests in [1, 2, 10, 50] {
                let closed = expected_distance(tracks, requests).unwrap();
                let integral = expected_distance_by_integration(tracks, requests).unwrap();
                assert!(
                    (closed / integral - 1.0).abs() < 5e-6,
                    "{tracks} {requests} {closed} {integral}"
                );
            }
        }
    }

    #[test]
    fn the_closed_form_is_near_the_sum_over_whole_tracks() {
        for tracks in [100, 1000] {
            for requests in [1, 2, 10, 50, 10_000] {
                let closed = expected_distance(tracks, requests).unwrap();
                let exact = expected_time_exact(tracks, requests, |d| d as f64).unwrap();
                assert!((closed - exact).abs() < 0.5, "{tracks} {requests} {closed} {exact}");
            }
        }
    }

    #[test]
    fn the_nearest_of_random_requests_is_so_far() {
        let mut random = Random(1);
        for requests in [1, 4, 20] {
            let (mut sum, tries) = (0, 100_000);
            for _ in 0..tries {
                let arm = random.below(500);
                sum += (0..requests).map(|_| random.below(500).abs_diff(arm)).min().unwrap();
            }
            let simulated = sum as f64 / f64::from(tries);
            let exact = expected_time_exact(500, requests, |d| d as f64).unwrap();
            assert!((exact / simulated - 1.0).abs() < 0.02, "{requests} {exact} {simulated}");
        }
    }

    #[test]
    fn the_distribution_is_one() {
        for (tracks, arm) in [(100, 1), (100, 30), (100, 50), (101, 51), (100, 90), (3, 2)] {
            let at = |u| distance_distribution(tracks, arm, u).unwrap();
            assert_eq!((at(0.5), at(tracks as f64)), (0.0, 1.0));
            let mut before = 0.0;
            for step in 0..tracks * 8 {
                let f = at(step as f64 / 8.0);
                let jump = f - before;
                // Continuous: no steeper than two tracks. The printed third piece would jump.
                assert!((-1e-12..=2.0 / 8.0 / (tracks - 1) as f64 + 1e-12).contains(&jump));
                before = f;
            }
        }
    }

    /// Section 3.1.2: E[s_1] by 3.10, and "E[s_n] will always be less than n E[s_1] for n greater
    /// than one".
    #[test]
    fn scheduled_seeks_are_shorter() {
        let disk = LinearSeek { tracks: 1962, time_min: 3.0, time_max: 22.0 };
        let (w, once) = (1962.0f64, disk.expected_time(1).unwrap());
        let (ratio, span) = (w / (w - 1.0), 22.0 - 3.0);
        let printed = (3.0 + span / 4.0 * (1.0 + ratio * ratio / 3.0)) / ratio;
        assert!((once - printed).abs() < 1e-9, "3.10 without its half track");
        // A third of the way, as everybody knows.
        assert!((once - (3.0 + 19.0 / 3.0)).abs() < 0.01);
        let linear = |d: u64| 3.0 + 19.0 * (d - 1) as f64 / 1960.0;
        let mut before = f64::INFINITY;
        for requests in 1..100 {
            let scheduled = disk.expected_time(requests).unwrap();
            assert!(scheduled < before && scheduled <= requests as f64 * once);
            before = scheduled;
        }
        for requests in [1, 10, 100] {
            let exact = expected_time_exact(1962, requests, linear).unwrap();
            assert!((disk.expected_time(requests).unwrap() / exact - 1.0).abs() < 0.002);
        }
        // So many that one is always on the track of the arm.
        assert!(disk.expected_time(REQUESTS_MAX).unwrap() < 0.01);
    }

    /// What one E[s_n] is not: the time to clean n blocks.
    #[test]
    fn cleaning_takes_about_the_sum_of_the_seeks() {
        let (tracks, requests, tries) = (1000, 10, 20_000);
        let mut random = Random(2);
        let mut moved = 0;
        for _ in 0..tries {
            let mut arm = random.below(tracks);
            let mut waiting: Vec<usize> = (0..requests).map(|_| random.below(tracks)).collect();
            while let Some(nearest) = (0..waiting.len()).min_by_key(|&i| waiting[i].abs_diff(arm)) {
                moved += waiting[nearest].abs_diff(arm);
                arm = waiting.swap_remove(nearest);
            }
        }
        let simulated = moved as f64 / f64::from(tries);
        let at = |n| expected_distance(tracks as u64, n).unwrap();
        let sum: f64 = (1..=requests as u64).map(at).sum();
        assert!(simulated > 10.0 * at(requests as u64), "{simulated}");
        assert!((simulated / sum - 1.0).abs() < 0.15, "{simulated} {sum}");
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for (tracks, requests) in [(2, 1), (10, 0), (u64::MAX, 1), (10, u64::MAX)] {
            assert!(expected_distance(tracks, requests).is_err());
            assert!(expected_distance_by_integration(tracks, requests).is_err());
            assert!(expected_time_exact(tracks, requests, |_| 1.0).is_err());
        }
        assert!(expected_time_exact(TRACKS_MAX, 1, |_| 1.0).is_err());
        assert!(expected_time_exact(10, 1, |_| f64::NAN).is_err());
        for (time_min, time_max) in [(-1.0, 1.0), (2.0, 1.0), (0.0, f64::INFINITY)] {
            assert!(LinearSeek { tracks: 10, time_min, time_max }.expected_time(1).is_err());
        }
        for (arm, distance) in [(0, 1.0), (11, 1.0), (5, f64::NAN)] {
            assert!(distance_distribution(10, arm, distance).is_err());
        }
    }
}
