//! Proves that a picture fits, shows what matters, and has no colours unless asked for.

use super::*;
use dcd_daemon::report::status_report::SegmentsReport;

const TERMINAL: Size = Size { width: 80, height: 24, cut: 80 };

fn busy() -> Seen {
    let mut report = StatusReport {
        pid: 4711,
        uptime_seconds: 7384.0,
        cache_disk: "/dev/nvme0n1p4".into(),
        data_disk: "/dev/sdb".into(),
        ack: "memory".into(),
        frontends: vec!["/dev/ublkb0".into()],
        volume_bytes: 1 << 40,
        dirty_bytes: 115 << 20,
        utilisation: 0.25,
        idle_threshold_microseconds: 120_000.0,
        segments: SegmentsReport {
            total: 1024,
            size_bytes: 1 << 20,
            free: 768,
            empty: 0,
            buffered: 16,
            dirty: 240,
            map: "d".repeat(240) + &"b".repeat(16) + &"f".repeat(768),
        },
        ..StatusReport::default()
    };
    report.figures.read_hit_rate = 0.87;
    let mut rates = Rates { seconds: 1.0, ..Rates::default() };
    rates.writes.per_second = 12_345.0;
    rates.writes.bytes_per_second = 50e6;
    rates.writes.p99_microseconds = Some(256.0);
    rates.writes.classes = [0, 0, 100, 8000, 200, 1, 0, 0, 0, 0, 0, 0, 0, 7];
    rates.flushes.classes[5] = 3;
    rates.destage_bytes_per_second = 12e6;
    rates.empty_in_seconds = Some(9.5);
    Seen { name: "sdb".into(), report: Ok(Box::new(report)), rates }
}

fn assert_fits(text: &str, size: Size) {
    assert!(text.lines().count() <= size.height, "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= size.width, "{line:?}");
    }
}

#[test]
fn one_daemon_fills_a_small_terminal() {
    let text = frame(&[busy()], 0, TERMINAL, Paint::plain());
    assert_fits(&text, TERMINAL);
    for words in [
        "sdb serves; process ",
        "/dev/ublkb0, 1 TiB; /dev/sdb behind /dev/nvme0n1p4",
        "  writes      12345/s",
        "99% within 256us",
        "1024 segments of 1 MiB, 25% in use, 115 MiB dirty",
        "empty in 10s",
        "begins after 120ms of quiet",
        "87% hits",
        "# dirty 240   + in a buffer 16   - empty 0   . free 768",
        "   longer",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    // The ring: 1024 segments in three rows of 76 at most, five segments for each sign.
    let ring: String = text
        .lines()
        .filter(|line| {
            line.starts_with("  #") && !line.contains(' ')
                || line.starts_with("  ##")
                || line.starts_with("  ..")
        })
        .collect();
    let signs = |sign| ring.chars().filter(|c| *c == sign).count();
    assert_eq!((signs('#'), signs('+'), signs('.')), (48, 4, 153), "{text}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let text = frame(&[busy()], 0, TERMINAL, Paint::always());
    assert!(text.starts_with("\x1b[32msdb serves"), "{text:?}");
}

#[test]
fn many_daemons_have_a_line_each_and_one_is_shown_in_full() {
    let mut daemons: Vec<Seen> = (0..12).map(|_| busy()).collect();
    for (index, seen) in daemons.iter_mut().enumerate() {
        seen.name = format!("disk-{index}");
    }
    daemons[10].report = Err("connection refused".into());
    let text = frame(&daemons, 11, TERMINAL, Paint::plain());
    assert_fits(&text, TERMINAL);
    assert!(text.contains("> ") && text.contains("disk-11 serves"), "{text}");
    assert!(text.contains("disk-10  no answer"), "{text}");
    assert!(!text.contains("disk-1 "), "those around the selected one: {text}");
    let text = frame(&daemons, 10, TERMINAL, Paint::plain());
    assert!(text.contains("disk-10 does not answer: connection refused"), "{text}");
    // No room at all is no reason to fail.
    assert_fits(
        &frame(&daemons, 0, Size { width: 1, height: 1, cut: 1 }, Paint::plain()),
        Size { width: 1, height: 1, cut: 1 },
    );
    assert_eq!(frame(&[], 0, TERMINAL, Paint::plain()), "\n");
}

#[test]
fn trouble_is_seen() {
    let mut seen = busy();
    if let Ok(report) = &mut seen.report {
        report.cache_disk_failed = true;
        report.counters.cache_disk_errors = 3;
    }
    let text = frame(&[seen], 0, TERMINAL, Paint::plain());
    assert!(text.contains("refuses writes: the cache-disk has failed"), "{text}");
    assert!(text.contains("errors: cache-disk 3"), "{text}");
}

#[test]
fn a_sign_shows_what_has_most_to_lose() {
    //          ffdf  fbee  eeef  ffff
    let map = "ffdffbeeeeefffff";
    assert_eq!(ring(map, 4), ['#', '+', '-', '.']);
    assert_eq!(ring(map, 100).len(), 16);
    assert_eq!(ring("", 4), Vec::<char>::new());
}
