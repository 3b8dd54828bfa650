//! Proves on the real program that metrics come out, over the control socket and over HTTP, that
//! they count what was done, and that hostile HTTP clients are turned away and cost nobody else
//! anything.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::nbd::Nbd;
use common::{Folder, Served};

const SERVE: &str = "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --metrics 127.0.0.1:0 \
                     --memory-directory . --quiet --idle-max 1h --idle-min 1h";

fn served() -> (Folder, Served) {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    let served = folder.serve(SERVE);
    (folder, served)
}

/// Where metrics are served, as the ready line tells.
fn address(served: &Served) -> String {
    let word = served.ready.split(' ').find_map(|word| word.strip_prefix("metrics=http://"));
    word.unwrap_or_else(|| panic!("{}", served.ready)).trim_end_matches("/metrics").to_owned()
}

fn http(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // One that is refused may be so before all is written.
    let _ = stream.write_all(request);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in {text}")).parse().unwrap()
}

#[test]
fn what_was_done_is_counted() {
    let (folder, served) = served();
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for line in 0..20 {
        assert_eq!(nbd.write(line * 4096, &[7; 4096]), 0);
    }
    folder.dcd("flush --control ctl").ok();
    let text = folder.dcd("metrics ctl").ok();
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(value(&text, "dcd_requests_total{request=\"write\"}"), 20.0);
    assert_eq!(value(&text, "dcd_request_bytes_total{request=\"write\"}"), 20.0 * 4096.0);
    assert_eq!(value(&text, "dcd_dirty_bytes"), 20.0 * 4096.0);
    assert_eq!(value(&text, "dcd_response_time_seconds_count{request=\"write\"}"), 20.0);
    assert_eq!(value(&text, "dcd_state{dcd_state=\"logging\"}"), 1.0);
    let answer = http(&address(&served), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert_eq!(value(body, "dcd_requests_total{request=\"write\"}"), 20.0);
    assert!(body.ends_with("# EOF\n"));
    folder.dcd("drain --control ctl").ok();
    let text = folder.dcd("metrics ctl").ok();
    assert_eq!(value(&text, "dcd_dirty_bytes"), 0.0);
    assert!(value(&text, "dcd_destage_written_bytes_total") >= 20.0 * 4096.0);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_daemon_is_found_by_its_name_and_by_what_it_serves() {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    std::fs::create_dir(folder.path("run")).unwrap();
    let served = folder.serve(&SERVE.replace("--control ctl", "--control run/sdb.ctl"));
    let text = folder.dcd("metrics sdb --sockets run").ok();
    assert_eq!(value(&text, "dcd_one_disk"), value(&text, "dcd_one_disk"));
    folder.dcd("metrics sdc --sockets run").fails(
        6,
        "no dcd with one (NAME.ctl) in run has that name",
        "--control",
    );
    folder.dcd("metrics d --sockets run").fails(6, "has that name or serves that", "");
    let uuid = served.ready.split_whitespace().find_map(|word| word.strip_prefix("uuid=")).unwrap();
    let json = folder.dcd(&format!("metrics --control {uuid} --sockets run --json")).ok();
    let samples: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let one_disk = samples.iter().find(|sample| sample["name"] == "dcd_one_disk").unwrap();
    assert_eq!(one_disk["value"].as_f64(), Some(value(&text, "dcd_one_disk")), "{one_disk}");
    folder.dcd("metrics ./gone").fails(6, "no daemon answers", "");
    drop(served);
}

#[test]
fn hostile_clients_are_turned_away() {
    let (folder, served) = served();
    let address = address(&served);
    let long = vec![b'x'; 64 << 10];
    for (request, status) in [
        (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], "405"),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", "400"),
        (&long, "431"),
    ] {
        let answer = http(&address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    // Clients that say nothing take all places, one more is turned away at once, and users are
    // served meanwhile.
    let idle: Vec<TcpStream> = (0..160).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let began = Instant::now();
    let until = began + Duration::from_secs(30);
    let get = b"GET /metrics HTTP/1.1\r\n\r\n";
    while !http(&address, get).starts_with("HTTP/1.1 503 ") {
        assert!(Instant::now() < until, "idle clients leave no place");
    }
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.write(0, &[1; 4096]), 0);
    assert!(folder.dcd("metrics ctl").ok().contains("dcd_requests_total"));
    // Their time ends, and there is room again.
    while !http(&address, get).starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < until, "idle clients are left after a while");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(idle);
    // A daemon ends in order though somebody is connected.
    let _idle = TcpStream::connect(&address).unwrap();
    assert_eq!(served.stop().code, Some(0));
}
