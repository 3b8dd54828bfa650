//! `dcd list` over caches that are served, closed, killed, detached, and whose disks are missing.

mod harness;

use harness::nbd::Client;
use harness::{Daemon, Folder, Site, Value, missing_rights, skipped, until};
use rustix::process::{Signal, kill_process};

const VOLUME: u64 = 8 << 20;
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h --memory-directory .";

/// A host that keeps records.
fn empty() -> Site {
    let site = Site::empty();
    std::fs::create_dir(site.path("state")).unwrap();
    site
}

/// Caches with their disks, sockets and records in one folder.
fn start(site: &Site, name: &str, cache_disks: &str) -> Daemon {
    site.start_line(&format!(
        "serve {cache_disks} --data-disk {name}-d --nbd unix:{name}-sock --control {name}-ctl {LAZY}"
    ))
    .ready()
}

fn make(site: &Site, name: &str) -> Daemon {
    site.folder.disk(&format!("{name}-d"), VOLUME);
    site.dcd(&format!(
        "create --cache-disk {name}-c --cache-size 4M --segment-size 64k --data-disk {name}-d"
    ))
    .ok();
    start(site, name, &format!("--cache-disk {name}-c"))
}

fn write(folder: &Folder, name: &str) {
    let mut client = Client::connect(&folder.path(&format!("{name}-sock")));
    client.write_fua(0, &[7; 8192]).unwrap();
}

/// What is told of the cache whose cache-disk has this name.
fn told(site: &Site, cache_disk: &str) -> Option<Value> {
    let list: Value = serde_json::from_str(&site.dcd("list --json").ok()).unwrap();
    let is_it = |cache: &&Value| cache["cache_disk"].as_str().unwrap_or("").contains(cache_disk);
    list["caches"].as_array().unwrap().iter().find(is_it).cloned()
}

#[test]
fn caches_are_listed_as_they_are() {
    let site = empty();
    let [a, b, c, mut d, e] =
        ["list-a", "list-b", "list-c", "list-d", "list-e"].map(|name| make(&site, name));
    for name in ["list-a", "list-b", "list-c", "list-e"] {
        write(&site.folder, name);
    }
    b.stop();
    c.kill();
    site.dcd("detach --control list-d-ctl").ok();
    assert_eq!(d.wait_code(), Some(0));
    e.kill();
    std::fs::remove_file(site.path("list-e-c")).unwrap();

    let of = |name: &str| {
        told(&site, &format!("{name}-c"))
            .unwrap_or_else(|| panic!("{name}: {}", site.dcd("list").ok()))
    };
    let state = |name: &str| of(name)["state"].as_str().unwrap().to_owned();
    let states = ["list-a", "list-b", "list-c", "list-d", "list-e"].map(state);
    assert_eq!(states, ["served", "closed", "killed", "detached", "missing"]);
    let dirty = ["list-a", "list-b", "list-c", "list-d", "list-e"]
        .map(|name| of(name)["may_be_dirty"].as_bool().unwrap());
    assert_eq!(dirty, [true, true, true, false, true]);
    assert_eq!(of("list-a")["dirty_bytes"], 8192);
    assert_eq!(of("list-d")["dirty_bytes"], 0);
    assert!(of("list-a")["control"].as_str().unwrap().ends_with("list-a-ctl"));
    assert!(of("list-a")["problem"].is_null() && of("list-b")["problem"].is_null());
    for (name, problem, way) in [
        ("list-c", "did not end in order", "dcd detach --cache-disk"),
        ("list-e", "is not there", "create"),
    ] {
        assert!(of(name)["problem"].as_str().unwrap().contains(problem));
        assert!(of(name)["what_to_do"].as_str().unwrap().contains(way));
    }
    let text = site.dcd("list").ok();
    for words in ["8 KiB", "KILLED", "MISSING", "perhaps", "yes", "is not there"] {
        assert!(text.contains(words), "{words}: {text}");
    }

    // What is told to do is right.
    let detach = of("list-c")["what_to_do"].as_str().unwrap().to_owned();
    let (_, detach) = detach.split_once("or dcd ").unwrap();
    site.dcd(detach).ok();
    assert_eq!(state("list-c"), "detached");
    // A cache-disk that was used again is no cache any more; one that was not given up is missing.
    std::fs::write(site.path("list-d-c"), vec![0; 1 << 20]).unwrap();
    assert!(told(&site, "list-d-c").is_none());
    std::fs::write(site.path("list-b-c"), vec![0; 1 << 20]).unwrap();
    assert_eq!(state("list-b"), "missing");
    // Who does not answer holds nobody up.
    kill_process(a.pid(), Signal::STOP).unwrap();
    let hung = of("list-a");
    assert_eq!(hung["state"], "unknown");
    assert!(hung["problem"].as_str().unwrap().contains("does not answer"), "{hung}");
    kill_process(a.pid(), Signal::CONT).unwrap();
    a.stop();
}

/// A cache whose disk is gone for good need not be listed for ever; one that somebody may come back
/// to stays.
#[test]
fn a_cache_that_is_gone_is_forgotten_when_somebody_says_so() {
    let site = empty();
    let daemon = make(&site, "list-h");
    write(&site.folder, "list-h");
    let uuid = told(&site, "list-h-c").unwrap()["cache"].as_str().unwrap().to_owned();
    let forget = format!("list --forget {uuid}");
    site.dcd(&forget).fails(1, "serves it", "kill");
    daemon.stop();
    site.dcd(&forget).fails(1, "list-h-c, and not detached", "dcd detach --cache-disk");
    // It is there, and only cannot be read: both superblocks are damaged.
    let whole = std::fs::read(site.path("list-h-c")).unwrap();
    let mut damaged = whole.clone();
    for superblock in [0, 65_536] {
        damaged[superblock + 200] ^= 1;
    }
    std::fs::write(site.path("list-h-c"), damaged).unwrap();
    site.dcd(&forget).fails(1, "cannot be read, and may be it", "dcd salvage");
    std::fs::remove_file(site.path("list-h-c")).unwrap();
    assert_eq!(told(&site, "list-h-c").unwrap()["state"], "missing");
    let way = told(&site, "list-h-c").unwrap()["what_to_do"].as_str().unwrap().to_owned();
    assert!(way.contains(&format!("dcd {forget}")), "{way}");
    let gone: Value = serde_json::from_str(&site.dcd(&format!("{forget} --json")).ok()).unwrap();
    assert_eq!((&gone["cache"], &gone["may_be_dirty"]), (&uuid.clone().into(), &true.into()));
    let removed = gone["removed"][0].as_str().unwrap();
    assert!(removed.ends_with(&format!("{uuid}.pair")) && gone["removed"][1].is_null(), "{gone}");
    assert!(!std::path::Path::new(removed).exists());
    assert!(told(&site, "list-h-c").is_none());
    site.dcd(&forget).fails(1, "no record of this host is of cache", "dcd list");
    site.dcd("list --forget me").fails(2, "invalid value 'me'", "");
    // As people read it.
    let daemon = make(&site, "list-i");
    let uuid = told(&site, "list-i-c").unwrap()["cache"].as_str().unwrap().to_owned();
    daemon.kill();
    std::fs::write(site.path("list-i-c"), vec![0; 1 << 20]).unwrap();
    let text = site.dcd(&format!("list --forget {uuid}")).ok();
    for words in ["is forgotten: it was on", "list-i-d", "removed", "is given up"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Nobody can be asked, and yet nothing is wrong.
#[test]
fn one_without_a_control_socket_was_not_killed() {
    let site = empty();
    let daemon = make(&site, "list-g");
    daemon.stop();
    let daemon = site.start_line(&format!(
        "serve --cache-disk list-g-c --data-disk list-g-d --nbd unix:list-g-sock {LAZY}"
    ));
    let daemon = daemon.ready();
    let list: Value = serde_json::from_str(&site.dcd("list --json").ok()).unwrap();
    let is_it = |cache: &&Value| cache["cache_disk"].as_str().unwrap_or("").contains("list-g-c");
    let found: Vec<&Value> = list["caches"].as_array().unwrap().iter().filter(is_it).collect();
    let [cache] = found.as_slice() else { panic!("{found:?}") };
    assert!(cache["state"] == "unknown" && cache["problem"].is_null(), "{cache}");
    assert!(cache["cache"].is_string() && cache["process"] == daemon.pid().as_raw_nonzero().get());
    daemon.stop();
}

/// It is healthy, and who may not open its socket hears whose it is.
#[test]
fn one_of_another_user_does_not_hang() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let dcd = || std::process::Command::new(env!("CARGO_BIN_EXE_dcd"));
    let runs = |output: &std::process::Output| output.status.success();
    if missing_rights("root").is_some()
        || !dcd().arg("--version").uid(NOBODY).output().is_ok_and(|it| runs(&it))
    {
        return skipped("one_of_another_user_does_not_hang", "user 65534 cannot run dcd here");
    }
    let site = empty();
    let daemon = make(&site, "list-h");
    daemon.stop();
    let control = site.path("list-h-ctl").canonicalize().unwrap_or(site.path("list-h-ctl"));
    let daemon = site.start_line(&format!(
        "serve --cache-disk list-h-c --data-disk list-h-d --nbd unix:list-h-sock --control {} {LAZY}",
        control.display()
    ));
    let daemon = daemon.ready();
    let list = |flag: &[&str]| {
        let mut command = dcd();
        command.arg("list").args(flag).env("DCD_STATE_DIRECTORY", "");
        let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
        assert!(runs(&output), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let told: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let is_it = |cache: &&Value| cache["control"].as_str() == control.to_str();
    let cache = told["caches"].as_array().unwrap().iter().find(is_it).unwrap();
    let words = |field: &str| cache[field].as_str().unwrap();
    assert!(words("problem").contains("belongs to another user"), "{cache}");
    assert_eq!(words("what_to_do"), "use sudo, or the user of the daemon");
    assert!(list(&[]).contains("list-h-ctl (another user's)"));
    daemon.stop();
}

#[test]
fn what_is_wrong_with_one_that_is_served_is_told() {
    let site = empty();
    site.folder.disk("list-f-d", VOLUME);
    site.dcd(
        "create --cache-disk list-f-c --cache-disk list-f-e --cache-size 4M --segment-size 64k --data-disk list-f-d",
    )
    .ok();
    let legs = "--cache-disk list-f-c --cache-disk faulty:list-f-e,control=faults";
    let daemon = start(&site, "list-f", legs);
    assert!(told(&site, "list-f-c").unwrap()["problem"].is_null());
    site.faults("faults", "gone");
    let problem = until("it is told", || {
        write(&site.folder, "list-f");
        told(&site, "list-f-c").unwrap()["problem"].as_str().map(str::to_owned)
    });
    assert!(problem.contains("a leg of the cache-disk"), "{problem}");
    let what = told(&site, "list-f-c").unwrap()["what_to_do"].as_str().unwrap().to_owned();
    let what = what.strip_prefix("dcd ").unwrap();
    assert!(site.dcd(what).ok().contains("failed"));
    daemon.kill();
    // Of one leg alone the record knows how it was left.
    assert_eq!(told(&site, "list-f-").unwrap()["state"], "killed");
}
