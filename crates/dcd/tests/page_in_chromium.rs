//! Proves in a real browser what the page looks like and does: Debian's Chromium, headless, spoken to
//! through a pipe. Where there is none the tests say so and are counted as passed; what can be
//! proved without it is in `dcd-daemon/src/http/page/tests.rs`. `DCD_CHROMIUM` names another one.
//!
//! Pictures are not compared byte by byte: fonts differ. Compared is what is where, that nothing is
//! wider than the window, and whether places that should be painted are.

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Folder;
use common::nbd::Nbd;
use serde_json::{Value, json};

const SERVE: &str = "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --http 127.0.0.1:0 \
                     --memory-directory . --quiet --idle-max 1h --idle-min 1h";

/// The program, if it is installed.
fn chromium() -> Option<String> {
    let named = std::env::var("DCD_CHROMIUM").ok();
    let found = named.or_else(|| {
        let paths = std::env::var_os("PATH")?;
        let mut all = std::env::split_paths(&paths).map(|path| path.join("chromium"));
        all.find(|path| path.exists()).map(|path| path.display().to_string())
    });
    if found.is_none() {
        eprintln!("SKIPPED: chromium is not installed (apt-get install chromium, or DCD_CHROMIUM)");
    }
    found
}

/// A browser with one page.
struct Browser {
    child: Child,
    to: File,
    from: File,
    read: Vec<u8>,
    next: u64,
    session: Option<String>,
    /// Errors that the page has told of.
    complaints: Vec<String>,
}

impl Browser {
    fn start(program: &str, folder: &Folder) -> Browser {
        let (ask, say) = (folder.path("ask"), folder.path("say"));
        let made = Command::new("mkfifo").args([&ask, &say]).status().unwrap();
        assert!(made.success());
        let profile = folder.path("profile").display().to_string();
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$ASK\" 4>\"$SAY\"", program])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                &format!("--user-data-dir={profile}"),
            ])
            .env("ASK", &ask)
            .env("SAY", &say)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // In the order in which the shell opens them: each waits for the other side.
        let to = File::options().write(true).open(&ask).unwrap();
        let from = File::open(&say).unwrap();
        let (read, complaints) = (Vec::new(), Vec::new());
        let mut browser = Browser { child, to, from, read, next: 0, session: None, complaints };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let asked = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", asked)["sessionId"].clone();
        browser.session = Some(session.as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.message();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            let is_complaint = answer["method"] == "Runtime.exceptionThrown"
                || answer["method"] == "Log.entryAdded"
                    && answer["params"]["entry"]["level"] == "error";
            // That a daemon is away is said by the page itself.
            if is_complaint && !answer.to_string().contains("net::ERR_") {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }

    fn message(&mut self) -> Value {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.read.drain(..=end).collect();
                return serde_json::from_slice(&message[..end]).unwrap();
            }
            let mut part = vec![0; 1 << 16];
            let read = self.from.read(&mut part).unwrap();
            assert!(read > 0, "the browser has ended");
            self.read.extend_from_slice(&part[..read]);
        }
    }

    fn size(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.until("document.documentElement?.dataset.ready === '1'");
    }

    fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    fn until(&mut self, expression: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.value(expression) != true {
            assert!(
                Instant::now() < until,
                "{expression}: {}",
                self.value("document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn text(&mut self, id: &str) -> String {
        self.value(&format!("document.getElementById('{id}').textContent"))
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Where each part of the page is: id, left, top, width, height.
    fn places(&mut self) -> BTreeMap<String, [f64; 4]> {
        let places = self.value(
            "Object.fromEntries([...document.querySelectorAll('[id]')].filter(e => e.offsetParent !== null)
             .map(e => { const r = e.getBoundingClientRect(); return [e.id, [r.left, r.top, r.width, r.height]]; }))",
        );
        serde_json::from_value(places).unwrap()
    }

    /// Of the picture of a canvas: how many pixels of how many are painted, in how many colours.
    fn painted(&mut self, id: &str) -> (u64, u64, u64) {
        let counted = self.value(&format!(
            "(() => {{ const c = document.getElementById('{id}'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
              let n = 0; const s = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3]) {{ n++; s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); }}
              return [n, d.length / 4, s.size]; }})()"
        ));
        serde_json::from_value(counted).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\":999999,\"method\":\"Browser.close\"}\0");
        let until = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > until {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    folder
}

fn url(ready: &str) -> String {
    ready.split_whitespace().find_map(|word| word.strip_prefix("http=")).unwrap().to_owned()
}

fn write(folder: &Folder, lines: impl IntoIterator<Item = u64>) {
    let mut nbd = Nbd::connect(&folder.path("sock"));
    for line in lines {
        assert_eq!(nbd.write(line * 4096, &[7; 4096]), 0);
    }
}

/// What a page of one cache shows, on a desk and on a telephone, in light and dark.
#[test]
fn it_shows_what_is_so_on_all_windows() {
    let Some(program) = chromium() else { return };
    let folder = folder();
    let served = folder.serve(SERVE);
    let mut browser = Browser::start(&program, &folder);
    browser.size(1200, 1500, "light");
    browser.open(&url(&served.ready));
    // Nothing is dirty, then one line, then some.
    assert_eq!(browser.text("lost"), "Nothing");
    assert_eq!(browser.text("dirty"), "0 B");
    browser
        .until("document.getElementById('map-range').textContent.includes(': 0 B dirty in 0 of')");
    write(&folder, [4097]);
    browser.until("document.getElementById('dirty').textContent === '4.0 KiB'");
    assert_eq!(browser.text("lost"), "4.0 KiB would be lost");
    browser.until(
        "document.getElementById('map-range').textContent.includes(': 4.0 KiB dirty in 1 of')",
    );
    let mut nbd = Nbd::connect(&folder.path("sock"));
    (0..400).for_each(|line| assert_eq!(nbd.write(line * 8192, &[1; 4096]), 0));
    browser.until("document.getElementById('heat-writes-says').textContent.startsWith('401,')");
    assert!(browser.text("ring-key").contains("dirty"));
    assert!(
        browser
            .text("news")
            .contains("dcd has begun to serve: the session before was ended in order")
    );
    for (width, scheme) in [(1200, "light"), (1200, "dark"), (390, "light"), (390, "dark")] {
        browser.size(width, 1500, scheme);
        browser.until("getComputedStyle(document.body).backgroundColor !== ''");
        std::thread::sleep(Duration::from_millis(300));
        let is_wider = browser.value("document.documentElement.scrollWidth > innerWidth");
        assert_eq!(is_wider, false, "{width} {scheme}: the page is wider than the window");
        let places = browser.places();
        for id in [
            "lost",
            "dirty",
            "eta",
            "ring",
            "map",
            "heat-writes",
            "heat-reads",
            "heat-flushes",
            "line-hits",
            "news",
            "settings-box",
        ] {
            let [left, _, wide, high] =
                *places.get(id).unwrap_or_else(|| panic!("{id} cannot be seen"));
            assert!(
                wide > 20.0 && high > 10.0 && left >= 0.0,
                "{width} {id}: {wide} x {high} at {left}"
            );
            assert!(left + wide <= f64::from(width), "{width} {id} ends at {}", left + wide);
        }
        // In this order from top to bottom.
        let tops = ["lost", "dirty", "map", "heat-writes", "heat-reads", "heat-flushes", "news"]
            .map(|id| places[id][1]);
        assert!(tops.is_sorted(), "{width} {tops:?}");
        let beside = places["ring"][1] < places["dirty"][1] + 200.0;
        assert_eq!(
            beside,
            width > 640,
            "figures and ring are beside each other where there is room"
        );
        let (ring, all, colours) = browser.painted("ring");
        assert!(
            ring * 100 / all > 15 && ring * 100 / all < 80 && colours >= 3,
            "{ring} of {all}, {colours}"
        );
        let (map, all, colours) = browser.painted("map");
        assert!(map * 100 / all > 60 && colours >= 2, "{map} of {all}, {colours}");
        assert!(browser.painted("heat-writes").0 > 100);
    }
    let back = browser.value("getComputedStyle(document.body).backgroundColor");
    assert_eq!(back, "rgb(20, 23, 26)", "it is dark now");
    // Zoomed with the keyboard: a cell is a line.
    browser.value("document.getElementById('map').focus()");
    for _ in 0..9 {
        for kind in ["keyDown", "keyUp"] {
            browser
                .call("Input.dispatchKeyEvent", json!({ "type": kind, "key": "+", "text": "+" }));
        }
    }
    browser.until("document.getElementById('map-range').textContent.includes('cells of 4.0 KiB')");
    assert_eq!(browser.complaints, Vec::<String>::new());
    assert_eq!(served.stop().code, Some(0));
}

/// A daemon that is killed and comes again at the same port: the page says so and goes on by itself.
#[test]
fn it_goes_on_after_a_restart() {
    let Some(program) = chromium() else { return };
    let folder = folder();
    let served = folder.serve(SERVE);
    let url = url(&served.ready);
    let mut browser = Browser::start(&program, &folder);
    browser.size(800, 1000, "light");
    browser.open(&url);
    write(&folder, 0..10);
    browser.until("document.getElementById('dirty').textContent === '40.0 KiB'");
    drop(served.kill());
    browser.until("document.getElementById('state').textContent.startsWith('no answer')");
    let port = url.trim_start_matches("http://").trim_end_matches('/');
    let served = folder.serve(&SERVE.replace("127.0.0.1:0", port));
    browser.until("document.getElementById('state').textContent === 'logging'");
    browser.until("document.getElementById('news').textContent.includes('not ended in order')");
    assert_eq!(browser.complaints, Vec::<String>::new());
    assert_eq!(served.stop().code, Some(0));
}

/// All has a name that is spoken, as the browser's own tree of accessibility has it; and the first
/// paint comes soon.
#[test]
fn it_can_be_heard_and_comes_soon() {
    let Some(program) = chromium() else { return };
    let folder = folder();
    let served = folder.serve(SERVE);
    let mut browser = Browser::start(&program, &folder);
    browser.size(1200, 1000, "light");
    let mut paints = Vec::new();
    for _ in 0..5 {
        browser.open(&url(&served.ready));
        browser.until("performance.getEntriesByName('first-contentful-paint').length > 0");
        let paint =
            browser.value("performance.getEntriesByName('first-contentful-paint')[0].startTime");
        paints.push(paint.as_f64().unwrap());
    }
    paints.sort_by(f64::total_cmp);
    println!("first contentful paint, ms: {paints:?}");
    // Other browsers and other work run beside it: this only notices a page that waits for something.
    assert!(paints[0] < 500.0, "{paints:?}");
    browser.value("document.getElementById('settings-box').open = true");
    browser.until("document.getElementById('settings').children.length > 20");
    browser.call("Accessibility.enable", json!({}));
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let mut named = 0;
    for node in tree["nodes"].as_array().unwrap() {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let wants_name = [
            "button",
            "textbox",
            "link",
            "image",
            "application",
            "region",
            "heading",
            "columnheader",
            "rowheader",
        ];
        if node["ignored"] == true || !wants_name.contains(&role) {
            continue;
        }
        let name = node["name"]["value"].as_str().unwrap_or_default();
        assert!(!name.trim().is_empty(), "{role} has no name: {node}");
        named += 1;
    }
    assert!(named > 80, "{named} things have names");
    assert_eq!(browser.complaints, Vec::<String>::new());
    assert_eq!(served.stop().code, Some(0));
}
