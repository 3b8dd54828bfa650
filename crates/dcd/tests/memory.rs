//! Memory that outlives the process, where it is not where the next start looks: elsewhere, gone,
//! replaced, removed while it is served, of another name space. Nothing that was acknowledged is
//! lost without a word, and a start that fails leaves nothing behind.

mod harness;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use harness::nbd::Client;
use harness::{Daemon, Site, until};

const MIB: u64 = 1 << 20;

/// Nothing becomes durable, or is destaged, by itself.
const LAZY: &str = "--quiet --idle-max 1h --idle-min 1h --max-delay 1h";
const LINES: u64 = 50;

fn site() -> Site {
    let site = Site::new("16M", 64 * MIB);
    fs::create_dir(site.path("mem")).unwrap();
    site
}

fn serve_in(site: &Site, directory: &str, flags: &str) -> Daemon {
    let _ = fs::remove_file(site.path("sock"));
    let line = format!(
        "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --memory-directory {directory} {LAZY} {flags}"
    );
    site.start_line(&line).ready()
}

/// Acknowledged, and not flushed.
fn write(site: &Site, byte: u8) {
    let mut client = Client::connect(&site.socket());
    for line in 0..LINES {
        client.write(line * 8192, &[byte; 4096]).unwrap();
    }
}

fn holds(found: &[u8], byte: u8) -> u64 {
    let line = |line: &u64| &found[*line as usize * 8192..][..4096];
    (0..LINES).filter(|number| line(number) == [byte; 4096]).count() as u64
}

fn memory_files(site: &Site, directory: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(site.path(directory)).unwrap().flatten().map(|entry| entry.path());
    files.filter(|path| path.display().to_string().contains(".segments")).collect()
}

fn the_memory(site: &Site, directory: &str) -> PathBuf {
    let files = memory_files(site, directory);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// The disks, when no write that the kernel had of a killed daemon lands any more.
fn settled(site: &Site) -> (u64, u64) {
    loop {
        let before = site.disks();
        std::thread::sleep(std::time::Duration::from_millis(100));
        if site.disks() == before {
            return before;
        }
    }
}

#[test]
fn it_is_found_where_the_last_session_had_it() {
    let site = site();
    let daemon = serve_in(&site, "mem", "");
    write(&site, 1);
    daemon.kill();
    // Served from elsewhere, it stays where it is until the next stop in order.
    let daemon = serve_in(&site, ".", "");
    assert_ne!(daemon.told("from-memory"), Some("0"));
    assert_eq!(memory_files(&site, "."), Vec::<PathBuf>::new());
    write(&site, 2);
    daemon.kill();
    let daemon = serve_in(&site, ".", "");
    assert_eq!(holds(&Client::connect(&site.socket()).read_all().unwrap(), 2), LINES);
    daemon.stop();
    assert_eq!(memory_files(&site, "mem"), Vec::<PathBuf>::new());
    let daemon = serve_in(&site, ".", "");
    the_memory(&site, ".");
    daemon.stop();
    // And so does a detach without a word of where it was.
    let daemon = serve_in(&site, "mem", "");
    write(&site, 3);
    daemon.kill();
    site.dcd("detach --cache-disk c --data-disk d").ok();
    assert_eq!(holds(&fs::read(site.path("d")).unwrap(), 3), LINES);
    assert_eq!(memory_files(&site, "mem"), Vec::<PathBuf>::new());
}

#[test]
fn a_start_without_it_refuses_until_a_person_gives_it_up() {
    let site = site();
    let daemon = serve_in(&site, "mem", "");
    write(&site, 1);
    Client::connect(&site.socket()).flush().unwrap();
    write(&site, 2);
    daemon.kill();
    let memory = the_memory(&site, "mem");
    let away = site.path("away");
    fs::rename(&memory, &away).unwrap();
    let before = settled(&site);
    let serve = "serve --cache-disk c --data-disk d --nbd unix:sock2 --memory-directory .";
    let refused = |what: &str| {
        for line in [
            serve,
            "serve --cache-disk c --data-disk d --nbd unix:sock2 --memory-directory . --accept-damage",
            "detach --cache-disk c --data-disk d --memory-directory .",
            "detach --cache-disk c --data-disk d --accept-damage",
            "grow --cache-disk c --data-disk d --memory-directory .",
        ] {
            let outcome = site.dcd(line);
            let told = outcome.stderr.clone();
            for part in ["mem/dcd-", what] {
                assert!(told.contains(part), "{line}: {part}: {told}");
            }
            outcome.fails(1, "is not found", "--memory-lost");
        }
        assert!(site.disks() == before, "{what}: a disk was changed");
        assert_eq!(memory_files(&site, "."), Vec::<PathBuf>::new(), "{what}");
        assert!(!site.path("sock2").exists(), "{what}");
    };
    refused("nothing there");
    // A file of this name is not it because of that.
    fs::copy(&away, &memory).unwrap();
    fs::File::options().write(true).open(&memory).unwrap().write_all_at(&[9; 16], 4076).unwrap();
    refused("of another session");
    fs::remove_file(&memory).unwrap();
    assert!(site.dcd("check --cache-disk c").ok().contains("a start will refuse"));
    // It comes back: nothing is lost, and the flag takes nothing away.
    fs::rename(&away, site.path(memory.file_name().unwrap().to_str().unwrap())).unwrap();
    let daemon = serve_in(&site, ".", "--memory-lost");
    assert_eq!(holds(&Client::connect(&site.socket()).read_all().unwrap(), 2), LINES);
    write(&site, 3);
    daemon.kill();
    // And if it does not, what was flushed is there.
    fs::remove_file(the_memory(&site, ".")).unwrap();
    site.dcd(serve).fails(1, "is not found", "--memory-lost");
    let daemon = serve_in(&site, ".", "--memory-lost");
    assert!(daemon.log().contains("is lost, as was said"), "{}", daemon.log());
    let found = Client::connect(&site.socket()).read_all().unwrap();
    assert_eq!(holds(&found, 2) + holds(&found, 3), LINES, "each write is there or not");
    daemon.stop();
}

#[test]
fn nothing_is_missed_where_nothing_was_acknowledged_from_it() {
    let site = site();
    let daemon = serve_in(&site, "mem", "--ack durable");
    write(&site, 1);
    daemon.kill();
    fs::remove_file(the_memory(&site, "mem")).unwrap();
    let daemon = serve_in(&site, ".", "");
    assert_eq!(holds(&Client::connect(&site.socket()).read_all().unwrap(), 1), LINES);
    daemon.stop();
}

#[test]
fn one_that_is_removed_or_replaced_while_it_is_served_is_put_back() {
    let site = site();
    let mut daemon = serve_in(&site, "mem", "");
    let memory = the_memory(&site, "mem");
    for round in 1..=7 {
        write(&site, round);
        match round {
            1 => fs::remove_file(&memory).unwrap(),
            2 => {
                fs::write(site.path("other"), "somebody else's").unwrap();
                fs::rename(site.path("other"), &memory).unwrap();
            }
            3 => fs::rename(&memory, site.path("moved")).unwrap(),
            // What is no file is moved aside as well.
            5..=7 => {
                fs::remove_file(&memory).unwrap();
                match round {
                    5 => std::os::unix::fs::symlink("/etc/passwd", &memory).unwrap(),
                    6 => {
                        fs::create_dir(&memory).unwrap();
                        fs::write(memory.join("file"), "").unwrap();
                    }
                    _ => drop(site.tool("mkfifo", &[&memory])),
                }
            }
            // Of an earlier session.
            _ => {
                fs::copy(&memory, site.path("copy")).unwrap();
                fs::rename(site.path("copy"), &memory).unwrap();
            }
        }
        let report = until("it is put back", || {
            let report = site.status()["memory"].clone();
            (report["times_put_back"] == 1).then_some(report)
        });
        assert_eq!(report["is_missing"], false);
        assert_eq!(daemon.log().matches("is put back").count(), usize::from(round));
        write(&site, round + 100);
        daemon.assert_no_panic();
        daemon.kill();
        daemon = serve_in(&site, ".", "");
        let found = Client::connect(&site.socket()).read_all().unwrap();
        assert_eq!(holds(&found, round + 100), LINES, "round {round}");
        for left in memory_files(&site, "mem").iter().filter(|left| **left != memory) {
            assert!(left.display().to_string().ends_with(".displaced"), "{left:?}");
            if fs::remove_file(left).is_err() {
                fs::remove_dir_all(left).unwrap();
            }
        }
    }
    daemon.stop();
    assert_eq!(memory_files(&site, "mem"), Vec::<PathBuf>::new());
}

#[test]
fn one_that_cannot_be_put_back_is_done_without_durably() {
    let site = site();
    let daemon = serve_in(&site, "mem", "");
    write(&site, 1);
    fs::remove_dir_all(site.path("mem")).unwrap();
    until("it is missed", || (site.status()["memory"]["is_missing"] == true).then_some(()));
    assert_eq!(daemon.log().matches("cannot be put back").count(), 1, "{}", daemon.log());
    assert!(site.dcd("status --control ctl").ok().contains("MISSING"));
    assert!(site.dcd("metrics ctl").ok().contains("dcd_memory_missing 1"));
    // What was acknowledged before is durable in a moment, what is acknowledged now is at once.
    until("a flush has come", || {
        (site.status()["counters"]["flushes"].as_u64() > Some(0)).then_some(())
    });
    let mut client = Client::connect(&site.socket());
    let half = LINES / 2;
    for line in 0..half {
        client.write(line * 8192, &[2; 4096]).unwrap();
    }
    daemon.kill();
    site.dcd("detach --cache-disk c --data-disk d").fails(1, "is not found", "--memory-lost");
    site.dcd("detach --cache-disk c --data-disk d --memory-lost").ok();
    let found = fs::read(site.path("d")).unwrap();
    assert_eq!((holds(&found, 2), holds(&found, 1)), (half, LINES - half));
}

#[test]
fn one_that_is_cut_short_ends_the_process_with_a_word() {
    let site = site();
    let mut daemon = serve_in(&site, "mem", "");
    write(&site, 1);
    Client::connect(&site.socket()).flush().unwrap();
    let memory = the_memory(&site, "mem");
    fs::File::options().write(true).open(&memory).unwrap().set_len(4096).unwrap();
    let mut client = Client::connect(&site.socket());
    let _ = client.write(0, &[2; 4096]);
    until("it ends", || (!daemon.is_alive()).then_some(()));
    assert!(daemon.log().contains("has cut its file short"), "{}", daemon.log());
    site.dcd("detach --cache-disk c --data-disk d").fails(1, "may hold acknowledged writes", "");
}

#[test]
fn a_name_space_of_its_own_does_not_lose_it_silently() {
    skip_without!("a_name_space_of_its_own_does_not_lose_it_silently", "root", "unshare");
    let site = site();
    let serve = format!(
        "mount -t tmpfs none mem && exec {} serve --cache-disk c --data-disk d --nbd unix:sock --memory-directory mem {LAZY}",
        env!("CARGO_BIN_EXE_dcd")
    );
    let apart = || {
        let mut command = std::process::Command::new("timeout");
        command.args(["--signal=KILL", "60", "unshare", "-m", "sh", "-c", &serve]);
        command.current_dir(site.path("")).env("PATH", harness::search_path());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let mut first = apart();
    until("it is ready", || Client::try_connect(&site.socket()).ok());
    write(&site, 1);
    let client = std::process::Command::new("sh")
        .args(["-c", &format!("pkill -9 -P {}", first.id())])
        .status()
        .unwrap();
    assert!(client.success());
    first.wait().unwrap();
    fs::remove_file(site.path("sock")).unwrap();
    let told = apart().wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("is not found") && told.contains("nothing there"), "{told}");
}

/// A directory that was made for the memory of one cache goes with it, although the daemon has given
/// up most of its rights by then.
#[test]
fn a_serve_leaves_no_directory_behind() {
    let site = site();
    let daemon = site.start_line(&format!(
        "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl {LAZY}"
    ));
    let daemon = daemon.ready();
    write(&site, 1);
    let status = site.status();
    let (uuid, memory) = (status["uuid"].as_str().unwrap(), status["memory"]["path"].as_str());
    let directory = PathBuf::from(memory.unwrap()).parent().unwrap().to_owned();
    assert!(directory.ends_with(uuid) && directory.exists(), "{}", directory.display());
    daemon.stop();
    assert!(!directory.exists(), "{}", directory.display());
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let site = site();
    fs::write(site.path("file"), "").unwrap();
    let before = fs::read_dir(site.path("")).unwrap().count();
    let serve = "serve --cache-disk c --data-disk d --memory-directory .";
    for (rest, part) in [
        ("--nbd unix:none/sock", "none/sock"),
        ("--nbd unix:sock --control none/ctl", "none/ctl"),
        ("--nbd unix:sock --control file", "file"),
        ("--nbd unix:sock --metrics 192.0.2.1:1", "192.0.2.1"),
        ("--nbd unix:sock --control ctl --fuse none", "none"),
        ("--nbd unix:sock --control ctl --fuse file", "file"),
        ("--nbd unix:sock --data-disk file", ""),
        ("--nbd unix:sock --memory-max 1M", "MiB"),
    ] {
        let outcome = site.dcd(&format!("{serve} {rest}"));
        assert_eq!(outcome.code, Some(1), "{rest}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(part), "{rest}: {}", outcome.stderr);
        let left: Vec<_> = fs::read_dir(site.path("")).unwrap().flatten().collect();
        assert_eq!(left.len(), before, "{rest}: {left:?}");
        // Whatever had begun has ended in order.
        let state = site.dcd("check --cache-disk c --json").ok();
        assert!(!state.contains("\"open\""), "{rest}: {state}");
    }
}

fn listed_of(site: &Site) -> harness::Value {
    let told = site.dcd("list --memory-directory mem --json").ok();
    serde_json::from_str(&told).unwrap()
}

/// What becomes of the memories in `mem`, and why.
fn fates(site: &Site, list: &harness::Value) -> Vec<(String, String)> {
    let ours = site.path("mem").canonicalize().unwrap().display().to_string();
    let memories = list["memories"].as_array().unwrap().iter();
    let ours = memories.filter(|it| it["path"].as_str().unwrap().starts_with(&ours));
    let text = |it: &harness::Value, key: &str| it[key].as_str().unwrap().to_owned();
    ours.map(|it| (text(it, "fate"), text(it, "why"))).collect()
}

/// The cache-disk of its session is elsewhere, and may come back.
#[test]
fn memory_that_a_copy_of_the_cache_disk_does_not_know_is_not_stale() {
    let site = site();
    let copy = |from: &str, to: &str| {
        fs::copy(site.path(from), site.path(to)).unwrap();
    };
    serve_in(&site, "mem", "").stop();
    copy("c", "closed");
    let daemon = serve_in(&site, "mem", "");
    write(&site, 1);
    daemon.kill();
    copy("c", "open");
    copy("closed", "c");
    let found = fates(&site, &listed_of(&site));
    assert_eq!((found.len(), found[0].0.as_str()), (1, "perhaps-needed"), "{found:?}");
    assert!(found[0].1.contains("an older copy of its cache-disk"), "{found:?}");
    copy("open", "c");
    assert_eq!(fates(&site, &listed_of(&site))[0].0, "needed");
    // One that is open, and was open before: its own memory was another.
    serve_in(&site, "mem", "").stop();
    let daemon = serve_in(&site, "mem", "");
    write(&site, 2);
    daemon.kill();
    copy("open", "c");
    let found = fates(&site, &listed_of(&site));
    assert_eq!((found.len(), found[0].0.as_str()), (1, "perhaps-needed"), "{found:?}");
}

#[test]
fn the_list_tells_whose_memory_it_is_and_what_is_stale() {
    let site = site();
    let list = || listed_of(&site);
    let fate = |list: &harness::Value| fates(&site, list);
    let daemon = serve_in(&site, "mem", "");
    let listed = list();
    let daemons = listed["daemons"].as_array().unwrap();
    let pid = daemon.pid().as_raw_nonzero().get();
    let ours = daemons.iter().find(|it| it["process"] == pid).unwrap();
    assert!(ours["answers"] == true && ours["cache"].is_string(), "{ours}");
    assert!(ours["control"].as_str().unwrap().ends_with("/ctl"), "{ours}");
    let memory = the_memory(&site, "mem");
    assert_eq!(fate(&listed), [("in-use".into(), format!("process {pid} has it"))]);
    assert!(
        memory.file_name().unwrap().to_str().unwrap().contains(ours["cache"].as_str().unwrap())
    );
    write(&site, 1);
    daemon.kill();
    let found = fate(&list());
    assert_eq!((found.len(), found[0].0.as_str()), (1, "needed"), "{found:?}");
    assert!(site.dcd("list --memory-directory mem").ok().contains("NEEDED"));
    // A copy of it, when its cache has ended in order.
    let copy = site.path("mem/copy");
    fs::copy(&memory, &copy).unwrap();
    serve_in(&site, "mem", "").stop();
    fs::rename(&copy, &memory).unwrap();
    let found = fate(&list());
    assert_eq!((found.len(), found[0].0.as_str()), (1, "stale"), "{found:?}");
    assert!(found[0].1.contains("closed in order"), "{found:?}");
    let told = site.dcd("list --memory-directory mem").ok();
    assert!(told.contains(&format!("rm {}", memory.canonicalize().unwrap().display())), "{told}");
    // Without its cache-disk nobody knows; of another boot everybody does.
    fs::rename(site.path("c"), site.path("away")).unwrap();
    assert_eq!(fate(&list())[0].0, "perhaps-needed");
    let file = fs::File::options().write(true).open(&memory).unwrap();
    file.write_all_at(b"01234567", 4040).unwrap();
    assert_eq!(fate(&list())[0].1, "it is of an earlier boot");
    site.dcd("list --memory-directory none").fails(1, "none", "");
}
