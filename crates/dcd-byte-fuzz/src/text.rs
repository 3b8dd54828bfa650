//! What people and programs write: units, device specs, fault rules, the configuration file,
//! commands on the control socket.

use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use dcd_daemon::control::recording::RecordedBatch;
use dcd_daemon::control::sequences::read_ranges;
use dcd_daemon::control::settings::SettingsBook;
use dcd_daemon::control::{Asked, read_command};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::disk::fault_rules::{FaultTarget, find_fault, parse_rules};
use dcd_daemon::frontend::nbd::listen::NbdAddress;
use dcd_daemon::http::request::{
    BODY_BYTES_MAX, HEAD_BYTES_MAX, HttpStatus, Parsed, parse_request,
};
use dcd_daemon::pair::book::parse_attribute;
use dcd_daemon::pair::record::{PairRecord, SLOT_BYTES};
use dcd_daemon::units_text::{format_duration, format_size, parse_duration, parse_size};
use dcd_engine::format::checksum::crc32c;
use dcd_files::volume_file;
use dcd_protocol::settings::SettingOrigin;
use dcd_protocol::{Failure, LINE_BYTES_MAX, WantedSettings};
use dcd_settings::running_settings::RunningSettings;
use dcd_settings::settings::{Settings, parse_percent};
use dcd_settings::static_metadata::ReadAt;
use dcd_settings::{config_file, hint_rules, static_metadata};

/// Messages go to terminals and logs: a line each, and nothing that could steer a terminal.
#[track_caller]
pub(crate) fn assert_shown_safely(message: &str) {
    let bad = message.chars().find(|c| c.is_control());
    assert_eq!(bad, None, "in the message {message:?}");
}

pub(crate) fn units(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_size(text) {
        Ok(size) => {
            if let Ok(plain) = text.trim().parse::<u64>() {
                assert_eq!(size, plain);
            }
            let back = parse_size(&format_size(size)).ok();
            // What is shown has one decimal; the largest sizes are rounded to beyond the end.
            let near = back.is_none_or(|back| back.abs_diff(size) <= size / 20 + 1);
            assert!(near, "{size} is shown as {}", format_size(size));
        }
        Err(error) => {
            assert_shown_safely(&error.to_string());
            let _ = error.hint();
        }
    }
    match parse_duration(text) {
        Ok(duration) => {
            let shown = format_duration(duration);
            // The largest is rounded to beyond the end.
            let Ok(back) = parse_duration(&shown) else {
                assert!(duration > Duration::from_nanos(u64::MAX / 1000 * 999), "{shown}");
                return;
            };
            let difference = back.abs_diff(duration);
            assert!(difference <= duration / 1000 + Duration::from_nanos(1), "{shown}");
        }
        Err(error) => {
            assert_shown_safely(&error.to_string());
            let _ = error.hint().map(|hint| assert_shown_safely(&hint));
        }
    }
    match parse_percent(text) {
        Ok(percent) => assert!(percent <= 100),
        Err(error) => assert_shown_safely(&error.to_string()),
    }
    match text.parse::<NbdAddress>() {
        Ok(address) => assert!(!address.uri().is_empty()),
        Err(error) => assert_shown_safely(&error.to_string()),
    }
}

pub(crate) fn device_spec(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<DeviceSpec>() {
        Ok(spec) => {
            let shown = spec.to_string();
            assert_eq!(shown.parse(), Ok(spec), "shown as {shown}");
        }
        Err(error) => {
            assert_shown_safely(&error.to_string());
            assert_shown_safely(&error.hint());
        }
    }
}

pub(crate) fn fault_rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_rules(text) {
        Ok(mut rules) => {
            assert!(rules.len() <= text.lines().count());
            for target in [FaultTarget::Read, FaultTarget::Write] {
                for range in [0..512, 4096..8192, u64::MAX - 512..u64::MAX] {
                    find_fault(&mut rules, target, Some(range));
                }
            }
            find_fault(&mut rules, FaultTarget::Flush, None);
        }
        Err(error) => {
            assert_shown_safely(&error.to_string());
            assert_shown_safely(error.hint());
        }
    }
}

pub(crate) fn config_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match config_file::parse(Path::new("dcd.toml"), text) {
        // Whether the settings fit together is told in words too.
        Ok(settings) => {
            if let Err(error) = settings.engine_config().validate() {
                assert_shown_safely(&error.to_string());
            }
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("dcd.toml:"), "{message}");
            assert_shown_safely(&message);
            let _ = error.hint().map(|hint| assert_shown_safely(&hint));
        }
    }
}

/// A volume that is accepted can be, on members of any size.
pub(crate) fn volume_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let told = |error: &dcd_files::volume_file::VolumeFileError| {
        let message = error.to_string();
        assert!(message.starts_with("v.toml:"), "{message}");
        assert_shown_safely(&message);
        let _ = error.hint().map(|hint| assert_shown_safely(&hint));
    };
    let file = match volume_file::parse(Path::new("v.toml"), text) {
        Ok(file) => file,
        Err(error) => return told(&error),
    };
    for members in [&[][..], &[1 << 20], &[1 << 28; 3], &[1 << 30, 5 << 30, 1 << 50, u64::MAX]] {
        match file.plan(members) {
            Ok(volume) => assert_eq!(volume.validate(), Ok(())),
            Err(error) => told(&error),
        }
    }
}

pub(crate) fn hint_rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match hint_rules::parse(Path::new("r.toml"), text) {
        Ok(rules) => {
            for path in
                ["main.c", "build/a/main.o", "a/../b", "", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
            {
                let said = rules.attributes(Path::new(path));
                assert!(said.is_none_or(|said| said.contradiction().is_none()));
            }
        }
        Err(error) => {
            assert_shown_safely(&error.to_string());
            let _ = error.hint().map(|hint| assert_shown_safely(&hint));
        }
    }
}

/// Superblocks of file systems: what is found is in order, and no more is read than there are
/// descriptors.
pub(crate) fn static_metadata(bytes: &[u8]) {
    struct Counted<'a> {
        disk: &'a [u8],
        bytes: u64,
    }
    impl ReadAt for Counted<'_> {
        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
            self.bytes += buffer.len() as u64;
            self.disk.read_at(offset, buffer)
        }
    }
    let mut disk = Counted { disk: bytes, bytes: 0 };
    match static_metadata::static_metadata(&mut disk) {
        Ok(found) => {
            let mut end = 0;
            for range in &found.ranges {
                assert!(range.start < range.end && (range.start > end || end == 0), "{range:?}");
                end = range.end;
            }
        }
        Err(error) => assert_shown_safely(&error.to_string()),
    }
    // The journal's tree has a bound, and reads beyond the end are errors.
    assert!(disk.bytes <= (bytes.len() as u64 + (2048 << 16)) * 2, "{}", disk.bytes);
}

/// What this host remembers of a pair, and what a file says of its cache. A body gets its title;
/// the bytes are tried as they are, too.
pub(crate) fn pair_record(bytes: &[u8]) {
    let title = format!("dcd pair 1 {} {:08x}\n", bytes.len(), crc32c(bytes));
    for input in [bytes, &[title.as_bytes(), bytes].concat()] {
        match PairRecord::decode(input) {
            Ok(record) => {
                let written = record.encode();
                assert!(written.len() <= SLOT_BYTES);
                let back = PairRecord::decode(&written).expect("what is written is read");
                // A name that is too long is left out.
                let names = |record: &PairRecord| {
                    let disks = std::iter::once(&record.cache_disk).chain(&record.data_disks);
                    disks.map(|disk| disk.path.clone()).collect::<Vec<_>>()
                };
                for (back, was) in names(&back).iter().zip(names(&record)) {
                    assert!(*back == was || back.as_os_str().is_empty());
                }
                assert_eq!((back.cache, back.generation), (record.cache, record.generation));
                assert_eq!(back.encode(), written);
            }
            Err(error) => assert_shown_safely(&error.to_string()),
        }
        let _ = PairRecord::newest(input);
    }
    let _ = parse_attribute(bytes);
}

pub(crate) fn control_request(bytes: &[u8]) {
    // What may follow the request to store a sequence. An end without an end line is the client's.
    if let Ok(Err(refusal)) = read_ranges(&mut BufReader::with_capacity(64, bytes)) {
        assert!(refusal["error"].is_string() && !refusal.to_string().contains('\n'));
    }
    // A buffer shorter than most lines, as sockets give them in pieces.
    let mut reader = BufReader::with_capacity(64, bytes);
    let lines = bytes.split(|byte| *byte == b'\n');
    let longest = lines.clone().map(<[u8]>::len).max().unwrap_or(0);
    let mut answers = 0;
    loop {
        let asked = read_command(&mut reader).expect("memory has no errors");
        match asked {
            None => break,
            Some(Asked::Command(command)) => assert!(!format!("{command:?}").is_empty()),
            Some(Asked::Detach(asked)) => assert!(!format!("{asked:?}").is_empty()),
            Some(Asked::Volume(command)) => assert!(!format!("{command:?}").is_empty()),
            Some(Asked::Legs(command)) => assert!(!format!("{command:?}").is_empty()),
            Some(Asked::Nvram(command)) => assert!(!format!("{command:?}").is_empty()),
            Some(Asked::Store(command)) => assert!(!format!("{command:?}").is_empty()),
            Some(Asked::Resize(asked)) => assert!(!format!("{asked:?}").is_empty()),
            Some(Asked::Sequence(command)) => assert!(!format!("{command:?}").is_empty()),
            Some(Asked::Set(wanted)) => set_by_name(&wanted),
            Some(Asked::Refused(answer)) => {
                assert_eq!(answer["ok"], false);
                // An answer is one line, too.
                assert!(answer["error"].is_string() && !answer.to_string().contains('\n'));
            }
            Some(Asked::TooLong(answer)) => {
                assert_eq!(answer["ok"], false);
                assert!(longest > LINE_BYTES_MAX - 1);
                return;
            }
        }
        answers += 1;
    }
    let not_blank = |line: &&[u8]| !line.iter().all(u8::is_ascii_whitespace);
    assert_eq!(answers, lines.filter(not_blank).count());
}

/// Whoever may speak to the control socket may write anything for a setting: it is refused in one
/// line, or listed so that the same may be set again.
fn set_by_name(wanted: &WantedSettings) {
    let mut book = RunningSettings::new(None, Settings::default(), Settings::default());
    let one_line = |failure: Box<Failure>| {
        let words = failure.to_value().to_string();
        assert!(!words.contains('\n') && failure.hint.is_some(), "{words}");
    };
    if let Err(failure) = book.set(wanted, &mut |_| Ok(())) {
        return one_line(failure);
    }
    let set = book.list().into_iter().filter(|report| report.origin == SettingOrigin::Set);
    let again = set.map(|report| (report.key, report.value)).collect();
    assert_eq!(book.set(&again, &mut |_| Ok(())), Ok(Vec::new()), "as it was: {again:?}");
}

/// A request over HTTP: what is there already decides the same as when more comes, no request grows
/// without end, and one that is whole can be answered: nothing in it is larger than it may be.
pub(crate) fn http_request(bytes: &[u8]) {
    let asked = parse_request(bytes);
    let first = (0..=bytes.len()).map(|end| parse_request(&bytes[..end]));
    match first.clone().find(|asked| *asked != Parsed::Unfinished) {
        None => {
            assert!(asked == Parsed::Unfinished);
            assert!(bytes.len() < HEAD_BYTES_MAX + BODY_BYTES_MAX);
        }
        // A byte at a time, it is too long at the latest when it is.
        Some(Parsed::Refused(HttpStatus::HeadTooLarge)) => assert!(bytes.len() >= HEAD_BYTES_MAX),
        Some(first) => assert_eq!(asked, first),
    }
    if let Parsed::Request(request) = asked {
        assert!(request.path.starts_with('/') && !request.path.contains('?'));
        assert!(request.body.len() <= BODY_BYTES_MAX);
        let texts = [
            Some(&request.path),
            Some(&request.query),
            request.host.as_ref(),
            request.token.as_ref(),
        ];
        for text in texts.into_iter().flatten() {
            assert!(text.len() < HEAD_BYTES_MAX && !text.contains(['\r', '\n', '\0']), "{text:?}");
        }
        let _ = (request.number("start"), request.word("step"));
    }
}

/// What a daemon tells while it is recorded: what is accepted is the same when it is written and
/// read again.
pub(crate) fn recorded_batch(bytes: &[u8]) {
    let Some(batch) = RecordedBatch::parse(bytes) else { return };
    for request in &batch.requests {
        assert!(request.offset_bytes.checked_add(request.size_bytes).is_some());
        assert!(request.received <= request.answered);
    }
    let again = serde_json::json!({ "recorded": batch }).to_string();
    assert_eq!(RecordedBatch::parse(again.as_bytes()), Some(batch));
}
