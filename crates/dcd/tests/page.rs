//! Proves on the real program that the page and its API tell what is so, that only who may changes
//! something, that strangers are turned away, and that pages that are open cost nobody anything.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::nbd::Nbd;
use common::{Folder, Served};
use serde_json::{Value, json};

const SERVE: &str = "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --http 127.0.0.1:0 \
                     --memory-directory . --quiet --idle-max 1h --idle-min 1h";
const TOKEN: &str = "correct-horse-battery";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    let token = folder.path("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    folder
}

/// Where the page is, as the ready line tells.
fn address(ready: &str) -> String {
    let word = ready.split_whitespace().find_map(|word| word.strip_prefix("http=http://"));
    word.unwrap_or_else(|| panic!("{ready}")).trim_end_matches('/').to_owned()
}

/// Head and body of an answer.
fn ask(address: &str, method: &str, path: &str, more: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{more}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.to_owned(), body.to_owned())
}

fn get(address: &str, path: &str) -> Value {
    let (head, body) = ask(address, "GET", path, "", "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
    serde_json::from_str(&body).unwrap()
}

/// The stream, as a browser reads it.
struct Events(BufReader<TcpStream>);

impl Events {
    fn of(address: &str) -> Events {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET /api/v1/events HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        Events(BufReader::new(stream))
    }

    /// The next event with this name.
    fn next(&mut self, name: &str) -> Value {
        let mut is_it = false;
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            match line.trim_end().split_once(": ") {
                Some(("event", event)) => is_it = event == name,
                Some(("data", data)) if is_it => return serde_json::from_str(data).unwrap(),
                _ => {}
            }
        }
    }
}

fn dirty_in(map: &Value) -> u64 {
    map["dirty_lines"].as_array().unwrap().iter().map(|cell| cell.as_u64().unwrap()).sum()
}

fn writes(folder: &Folder, lines: impl IntoIterator<Item = u64>) {
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for line in lines {
        assert_eq!(nbd.write(line * 4096, &[7; 4096]), 0);
    }
}

#[test]
fn the_page_and_its_api_tell_what_is_so() {
    let folder = folder();
    let served = folder.serve(SERVE);
    let address = address(&served.ready);
    let (head, page) = ask(&address, "GET", "/", "", "");
    assert!(
        head.contains("Content-Type: text/html") && page.starts_with("<!DOCTYPE html>"),
        "{head}"
    );
    let nonce = page.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(
        head.contains(&format!("script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'")),
        "{head}"
    );
    let (_, again) = ask(&address, "GET", "/", "", "");
    assert!(!again.contains(nonce), "a nonce is for one answer");
    assert_eq!(get(&address, "/api/v1/openapi.json")["openapi"], "3.1.0");

    // 0 and 1 dirty lines, and some.
    let mut events = Events::of(&address);
    let hello = events.next("hello");
    assert_eq!((&hello["status"]["dirty_bytes"], &hello["may_change"]), (&json!(0), &json!(false)));
    let whole = get(&address, "/api/v1/map");
    assert_eq!((dirty_in(&whole), whole["start"].as_u64()), (0, Some(0)));
    writes(&folder, [4097]);
    let whole = get(&address, "/api/v1/map?cells=64");
    assert_eq!(dirty_in(&whole), 1);
    let cell = whole["cell_bytes"].as_u64().unwrap();
    assert_eq!(whole["dirty_lines"][(4097 * 4096 / cell) as usize], 1, "{whole}");
    let part = get(&address, &format!("/api/v1/map?start={}&bytes=65536&cells=16", 4096 * 4096));
    assert_eq!((&part["cell_bytes"], &part["dirty_lines"][1]), (&json!(4096), &json!(1)), "{part}");
    assert_eq!(dirty_in(&get(&address, "/api/v1/map?start=0&bytes=1048576")), 0);
    for odd in ["start=999999999999999999&bytes=1", "cells=0", "cells=99999999", "bytes=0"] {
        assert!(get(&address, &format!("/api/v1/map?{odd}"))["ok"].as_bool().unwrap(), "{odd}");
    }
    // What there is not, and what is asked in a way that it has not, is told as an object, too.
    for (method, path, status) in [
        ("GET", "/api/v1/nothing", "404"),
        ("PUT", "/api/v1/nothing", "404"),
        ("POST", "/api/v1/status", "405"),
        ("GET", "/api/v1/drain", "405"),
        ("GET", "/api/v1/settings/idle-max", "405"),
    ] {
        let (head, body) = ask(&address, method, path, "", "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {head}");
        let told: Value = serde_json::from_str(&body).unwrap();
        assert!(told["ok"] == false && told["error"].as_str().unwrap().contains(path), "{told}");
        assert!(told["hint"].is_string() && told["code"] == "bad-request", "{told}");
    }
    // What is no number would be taken for what was not said.
    for (wrong, named) in [
        ("map?start=abc", "start"),
        ("map?start=0&bytes=-1", "bytes"),
        ("map?cells=", "cells"),
        ("map?start=99999999999999999999", "start"),
        ("history?step=hour", "step"),
    ] {
        let (head, body) = ask(&address, "GET", &format!("/api/v1/{wrong}"), "", "");
        assert!(head.starts_with("HTTP/1.1 400 "), "{wrong}: {head}");
        let told: Value = serde_json::from_str(&body).unwrap();
        assert!(told["ok"] == false && told["error"].as_str().unwrap().contains(named), "{told}");
        assert!(told["hint"].is_string() && told["code"].is_string(), "{told}");
    }
    writes(&folder, 0..30);
    let second = loop {
        let second = events.next("second");
        if second["status"]["counters"]["writes"] == 31 {
            break second;
        }
    };
    assert!(second["status"]["segments"]["map"].as_str().unwrap().contains('b'), "{second}");
    let status: Value =
        serde_json::from_str(&folder.dcd("status --json --control ctl").ok()).unwrap();
    let told = get(&address, "/api/v1/status");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&told).len(), keys(&status).len());
    assert_eq!(told["dirty_bytes"], status["dirty_bytes"]);
    // All writes are somewhere in the history, by their time.
    events.next("second");
    let history = get(&address, "/api/v1/history");
    let rows = history["samples"].as_array().unwrap();
    let count = |row: &Value| -> u64 {
        row["times"][1].as_array().unwrap().iter().skip(1).map(|it| it.as_u64().unwrap()).sum()
    };
    assert_eq!(rows.iter().map(count).sum::<u64>(), 31, "{history}");
    assert_eq!(rows.iter().map(|row| row["n"][1].as_u64().unwrap()).sum::<u64>(), 31);
    assert_eq!(get(&address, "/api/v1/history?step=minute")["step_seconds"], 60);
    let settings = get(&address, "/api/v1/settings");
    assert!(settings["settings"].as_array().unwrap().iter().any(|it| it["key"] == "http"));
    let news = get(&address, "/api/v1/news");
    assert_eq!(news["news"][0]["what"], "dcd has begun to serve", "{news}");
    let (_, metrics) = ask(&address, "GET", "/metrics", "", "");
    assert!(metrics.contains("dcd_requests_total{request=\"write\"} 31\n"));
    folder.dcd("drain --control ctl").ok();
    assert_eq!(dirty_in(&get(&address, "/api/v1/map")), 0);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn only_who_has_the_token_changes_something() {
    let folder = folder();
    let served = folder.serve(SERVE);
    let of = address(&served.ready);
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    let body = "{\"value\":\"20ms\"}";
    let path = "/api/v1/settings/max-delay";
    assert!(ask(&of, "PUT", path, &right, body).0.starts_with("HTTP/1.1 403 "), "there is none");
    assert_eq!(served.stop().code, Some(0));

    let served = folder.serve(&format!("{SERVE} --http-token token"));
    let of = address(&served.ready);
    let status = |method: &str, path: &str, more: &str, body: &str| {
        let (head, _) = ask(&of, method, path, more, body);
        head.split(' ').nth(1).unwrap().to_owned()
    };
    for wrong in
        ["", "Authorization: Bearer correct-horse-batterx\r\n", "Authorization: Basic eA==\r\n"]
    {
        assert_eq!(status("PUT", path, wrong, body), "401");
        assert_eq!(status("POST", "/api/v1/drain", wrong, ""), "401");
    }
    let value = |key: &str| {
        let all = get(&of, "/api/v1/settings");
        let all = all["settings"].as_array().unwrap().clone();
        all.into_iter().find(|it| it["key"] == key).unwrap()["value"].clone()
    };
    assert_eq!(value("max-delay"), "100ms");
    assert_eq!(status("PUT", path, &right, body), "200");
    assert_eq!(value("max-delay"), "20ms");
    assert_eq!(status("PUT", path, &right, "{\"value\":\"soon\"}"), "400");
    assert_eq!(status("PUT", path, &right, "20ms"), "400");
    assert_eq!(status("PUT", "/api/v1/settings/nbd", &right, body), "400");
    assert_eq!(status("PUT", "/api/v1/settings/", &right, body), "404");
    assert_eq!(status("DELETE", path, &right, ""), "405");
    assert_eq!(status("POST", "/", &right, ""), "405");
    assert_eq!(status("DELETE", "/api/v1/drain", &right, ""), "409");
    writes(&folder, 0..20);
    assert_eq!(status("POST", "/api/v1/drain", &right, ""), "202");
    let until = Instant::now() + Duration::from_secs(30);
    while get(&of, "/api/v1/status")["dirty_bytes"] != 0 {
        assert!(Instant::now() < until);
    }
    let news = get(&of, "/api/v1/news").to_string();
    assert!(news.contains("max-delay was changed"), "{news}");
    assert!(!news.contains(TOKEN) && !get(&of, "/api/v1/settings").to_string().contains(TOKEN));
    assert_eq!(served.stop().code, Some(0));

    std::fs::set_permissions(folder.path("token"), PermissionsExt::from_mode(0o644)).unwrap();
    folder.dcd(&format!("{SERVE} --http-token token")).fails(
        1,
        "can be read by others",
        "chmod 600",
    );
}

#[test]
fn strangers_are_turned_away() {
    let folder = folder();
    let served = folder.serve(&format!("{SERVE} --http-token token --metrics 127.0.0.1:0"));
    let of = address(&served.ready);
    let raw = |to: &str, request: &str| {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    for (request, status) in [
        ("GET /api/v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "400"),
        (
            "OPTIONS /api/v1/drain HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n",
            "405",
        ),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
    ] {
        let answer = raw(&of, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(!answer.contains("Access-Control"), "{answer}");
    }
    // Where only metrics are, there are only metrics, by whatever name.
    let metrics = served.ready.split(' ').find_map(|word| word.strip_prefix("metrics=http://"));
    let metrics = metrics.unwrap().trim_end_matches("/metrics");
    assert!(
        raw(metrics, "GET /metrics HTTP/1.1\r\nHost: prometheus.example\r\n\r\n").contains("# EOF")
    );
    for path in ["/", "/api/v1/status", "/api/v1/events", "/api/v1/settings"] {
        let answer = raw(metrics, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    drop(served);
    // Only this machine.
    let refused = folder.dcd(&SERVE.replace("127.0.0.1:0", "0.0.0.0:0"));
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("which others can reach"), "{}", refused.stderr);
    let served = folder.serve(&SERVE.replace("127.0.0.1:0", "unix:page"));
    assert!(served.ready.contains(" http=unix:page"), "{}", served.ready);
    let mode = std::fs::metadata(folder.path("page")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(folder.path("page")).unwrap();
    stream.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: dcd.proxy.example\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(served.stop().code, Some(0));
    assert!(!folder.path("page").exists());
}

/// A hundred pages are open, one of which does not read; the daemon is killed and comes again at
/// the same port, and each page that asks again is told of the new one.
#[test]
fn a_hundred_pages_and_a_daemon_that_restarts() {
    let folder = folder();
    let served = folder.serve(SERVE);
    let of = address(&served.ready);
    let mut pages: Vec<Events> = (0..100).map(|_| Events::of(&of)).collect();
    let pid = pages[0].next("hello")["status"]["pid"].clone();
    writes(&folder, 0..50);
    for page in &mut pages[1..] {
        page.next("hello");
        page.next("second");
    }
    assert_eq!(get(&of, "/api/v1/status")["dirty_bytes"], 50 * 4096);
    drop(served.kill());
    assert_eq!(pages[50].0.read_to_end(&mut Vec::new()).ok().map(|_| ()), Some(()), "it has ended");
    let served = folder.serve(&SERVE.replace("127.0.0.1:0", &of));
    let mut page = Events::of(&of);
    let hello = page.next("hello");
    assert_ne!(hello["status"]["pid"], pid);
    assert_eq!(hello["status"]["dirty_bytes"], 50 * 4096);
    let news = page.next("second")["news"].to_string() + &hello["news"].to_string();
    assert!(news.contains("not ended in order"), "{news}");
    assert_eq!(served.stop().code, Some(0));
}

/// `dcd web`: a cache that answers, one that has gone.
#[test]
fn all_caches_are_on_one_page() {
    let folder = folder();
    std::fs::create_dir(folder.path("run")).unwrap();
    let served = folder.serve(&SERVE.replace("--control ctl", "--control run/sdb.ctl"));
    writes(&folder, 0..3);
    std::fs::write(folder.path("run/gone.ctl"), "").unwrap();
    let web: Served = folder.serve("web --http 127.0.0.1:0 --sockets run");
    let of = address(&web.ready);
    let (head, page) = ask(&of, "GET", "/", "", "");
    assert!(head.starts_with("HTTP/1.1 200 ") && page.contains("all caches"), "{head}");
    let mut events = Events::of(&of);
    let seen = loop {
        let seen = events.next("fleet");
        if seen["caches"][1]["status"]["dirty_bytes"] == 3 * 4096 {
            break seen;
        }
    };
    assert_eq!(seen["caches"][0]["name"], "gone");
    assert!(
        seen["caches"][0]["status"].is_null() && seen["caches"][0]["error"].is_string(),
        "{seen}"
    );
    assert_eq!(seen["caches"][1]["name"], "sdb");
    assert!(ask(&of, "POST", "/api/v1/fleet", "", "").0.starts_with("HTTP/1.1 405 "));
    drop(web.kill());
    assert_eq!(served.stop().code, Some(0));
    // Where nothing can ever be seen, none of it is shown.
    for (directory, why) in [("nosuch", "No such file"), ("run/gone.ctl", "Not a directory")] {
        let line = format!("web --http 127.0.0.1:0 --sockets {directory}");
        folder.dcd(&line).fails(1, &format!("list {directory}: {why}"), "");
    }
}
