//! Wrong calls as people make them, in a table: each ends with its documented exit code, says what
//! is wrong and what to do next, and with `--json` says the same as an object with a code. None of
//! them changes a disk.

mod common;

use common::Folder;
use serde_json::Value;

/// The words, the exit code, a part of what is said.
const CALLS: &[(&str, i32, &str)] = &[
    ("", 2, "a word missing"),
    ("frobnicate", 2, "'frobnicate'"),
    ("stat", 2, "'stat'"),
    ("creat", 2, "'creat'"),
    ("caretake", 2, "'caretake'"),
    ("window-keepe", 2, "'window-keepe'"),
    ("help-markdow", 2, "'help-markdow'"),
    ("--versio", 2, "'--versio'"),
    ("help frob", 2, "'frob'"),
    ("create", 2, "--cache-disk"),
    ("create --cache-disk n", 2, "--data-disk"),
    ("create --cache-disk n --data-disk d", 1, "--cache-size"),
    ("create --cache-disk n --cache-size 5q --data-disk d", 2, "unknown unit"),
    ("create --cache-disk n --cache-size -1 --data-disk d", 2, "'-1'"),
    ("create --cache-disk n --cache-size 1.2.3M --data-disk d", 2, "1.2.3M"),
    ("create --cache-disk n --cache-size 1M --data-disk d", 1, "at least 1732608"),
    ("create --cache-disk n --cache-size 99999999T --data-disk d", 2, "too large"),
    ("create --cache-disk n --cache-size 16M --data-disk nothere", 1, "does not exist"),
    ("create --cache-disk n --cache-size 16M --data-disk d --segment-size 3k", 1, "power of two"),
    ("create --cache-disk n --cache-size 16M --data-disk d d2", 2, "'d2'"),
    ("create --cache-disk n --cache-size 16M --data-disk d --data-disk d2", 1, "--volume"),
    (
        "create --cache-disk n --cache-size 16M --data-disk d --volume nothere.toml",
        1,
        "nothere.toml",
    ),
    ("create --cache-disk n --cache-size 16M --data-disk d --volume badv.toml", 1, "badv.toml:1:"),
    ("create --cache-disk nodir/n --cache-size 16M --data-disk d", 1, "nodir/n"),
    ("create --cache-disk text --cache-size 16M --data-disk d", 1, "not zero"),
    ("create --cache-disk n --cache-size 16M --data-disk .", 1, "a directory"),
    ("create --cache-disk . --cache-size 16M --data-disk d", 1, "neither a file"),
    ("create --cache-disk d --data-disk d", 1, "twice"),
    ("create --cache-disk n --cache-size 16M --data-disk nbd://", 2, "a host"),
    ("create --cache-disk n --cache-size 16M --data-disk d --read-area 1", 1, "--read-area"),
    ("create --cache-disk n --cache-size 16M --data-disk d --uuid zz", 2, "'zz'"),
    ("serve", 1, "--cache-disk"),
    ("serve --cache-disk c", 1, "--data-disk"),
    ("serve --cache-disk c --data-disk d", 1, "nothing to serve on"),
    ("serve --cache-disk c --data-disk d --nbd sock", 2, "unix:PATH"),
    ("serve --cache-disk c --data-disk d --nbd tcp:0.0.0.0:10809", 1, "TLS"),
    ("serve --cache-disk c --data-disk d --nbd unix:nodir/sock", 1, "nodir/sock"),
    ("serve --cache-disk nothere --data-disk d --nbd unix:s", 1, "nothere"),
    ("serve --cache-disk c --data-disk nothere --nbd unix:s", 1, "nothere"),
    ("serve --cache-disk d --data-disk c --nbd unix:s", 1, "swapped"),
    ("serve --cache-disk text --data-disk d --nbd unix:s", 1, "6 bytes"),
    ("serve --cache-disk c --data-disk d --loop --nbd unix:s", 1, "--fuse"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --max-delay 5", 2, "no unit in \"5\""),
    ("serve --cache-disk c --data-disk d --nbd unix:s --max-delay 5parsec", 2, "parsec"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --dirty-high 101", 2, "101"),
    (
        "serve --cache-disk c --data-disk d --nbd unix:s --dirty-high 10 --dirty-low 20",
        1,
        "dirty-low",
    ),
    ("serve --cache-disk c --data-disk d --nbd unix:s --ack disk", 2, "'disk'"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --mode writeback", 2, "'writeback'"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --metrics 9465", 2, "9465"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --http 0.0.0.0:80", 2, "loopback"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --tls-cert x", 1, "--tls-key"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --cpu 100000", 1, "100000"),
    (
        "serve --cache-disk c --data-disk d --nbd unix:s --http-token nothere --http 127.0.0.1:0",
        1,
        "token",
    ),
    ("serve --cache-disk c --data-disk d --nbd unix:s --control nodir/ctl", 1, "nodir/ctl"),
    ("serve --cache-disk c --data-disk d --fuse nodir", 1, "nodir"),
    ("serve --cache-disk c --data-disk d --ublk x", 2, "'x'"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --segment-buffers 0", 1, "segment-buffers"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --index-max 1", 1, "index-max"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --nvram-survives power", 1, "--nvram"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --replace-member 1", 2, "'1'"),
    ("serve --cache-disk c --data-disk d --nbd unix:s --share x", 1, "no shares"),
    ("serve --config nothere.toml", 1, "nothere.toml"),
    ("serve --config bad.toml", 1, "bad.toml:1:7"),
    ("serve --config bad.toml --config bad2.toml", 1, "bad.toml:1:7"),
    ("serve --cache-dsk c", 2, "--cache-dsk"),
    ("status", 2, "CACHE"),
    ("status nobody", 6, "nobody"),
    ("status --control nobody", 6, "nobody"),
    ("status text", 6, "text"),
    ("status 0b5c9e8a-3f1d-4c62-9a77-5d2e8f0146b3", 6, "0b5c9e8a"),
    ("status a b", 2, "'b'"),
    ("status a --control b", 2, "--control"),
    ("metrics", 2, "CACHE"),
    ("metrics nobody", 6, "nobody"),
    ("metrics --control nobody", 6, "nobody"),
    ("top nobody", 6, "nobody"),
    ("top --control nobody", 6, "nobody"),
    ("top --interval 0s", 2, "0s"),
    ("top --sockets nodir", 6, "nodir"),
    ("list --frob", 2, "--frob"),
    ("set", 2, "which cache"),
    ("set max-delay=1s", 2, "which cache"),
    ("set nobody max-delay", 2, "max-delay"),
    ("set nobody =1", 2, "=1"),
    ("set nobody max-delay=1s max-delay=2s", 1, "twice"),
    ("set nobody max-delay=1s", 6, "nobody"),
    ("set --control nobody max-delay=1s", 6, "nobody"),
    ("flush", 2, "CACHE"),
    ("flush nobody", 6, "nobody"),
    ("drain nobody", 6, "nobody"),
    ("drain --cancel", 2, "CACHE"),
    ("detach", 2, "CACHE"),
    ("detach nobody", 6, "nobody"),
    ("detach --cache-disk c", 2, "--data-disk"),
    ("detach --cache-disk c --control x", 2, "--control"),
    ("detach --cache-disk nothere --data-disk d", 1, "nothere"),
    ("detach nobody --cancel --wipe", 2, "--wipe"),
    ("detach --cache-disk c --data-disk d --force", 2, "--force"),
    ("grow --cache-disk c", 2, "--data-disk"),
    ("check", 2, "--cache-disk"),
    ("check --cache-disk nothere", 1, "nothere"),
    ("check --cache-disk d", 1, "magic"),
    ("salvage --cache-disk d --to x", 1, "magic"),
    ("inspect", 1, "to be inspected"),
    ("inspect superblock", 2, "--cache-disk"),
    ("inspect superblock --cache-disk d", 1, "magic"),
    ("inspect segment 99999 --cache-disk c", 1, "99999"),
    ("inspect segment x --cache-disk c", 2, "expected a whole number"),
    ("inspect label --data-disk d", 1, "label"),
    ("inspect nvram --nvram d", 1, "memory"),
    ("inspect --file text", 2, "--control"),
    ("inspect --file text --control nobody", 6, "nobody"),
    ("cache-disk", 2, "a word missing"),
    ("cache-disk status", 2, "--control"),
    ("cache-disk status --control nobody", 6, "nobody"),
    ("volume", 2, "a word missing"),
    ("volume status --control nobody", 6, "nobody"),
    ("volume fail x --control nobody", 2, "expected a whole number"),
    ("volume import --cache-disk n", 2, "--data-disk"),
    ("hint set wrong text --control nobody", 2, "'wrong'"),
    ("hint get text", 2, "PATH"),
    ("hint get nobody text", 6, "nobody"),
    ("volume fail nobody 2", 6, "nobody"),
    ("volume fail 2", 2, "MEMBER"),
    ("cache-disk status nobody", 6, "nobody"),
    ("sequence", 2, "a word missing"),
    ("sequence list --control nobody", 6, "nobody"),
    ("sequence record --control nobody --name n", 2, "COMMAND"),
    ("slow-disk", 2, "--disk"),
    ("slow-disk --disk nothere --nbd unix:s", 1, "nothere"),
    ("ublk remove x", 2, "expected a whole number"),
    ("dhisfs", 2, "a word missing"),
    ("dhisfs mkfs --control nobody", 2, "--nbd"),
    ("probe", 2, "DEVICE"),
    ("completions", 2, "SHELL"),
    ("completions tcsh", 2, "'tcsh'"),
    ("man nodir", 1, "nodir"),
    ("web --http 0.0.0.0:80", 2, "loopback"),
    ("web --http unix:nodir/s", 1, "nodir/s"),
];

/// Those of the laboratory.
#[cfg(feature = "lab")]
const LAB_CALLS: &[(&str, i32, &str)] = &[
    ("bench nothing", 2, "'nothing'"),
    ("demo --users 0", 2, "'0'"),
    ("fuzz --runs x", 2, "expected a whole number"),
    ("fuzz --shard 3/2 --runs 1", 2, "'3/2'"),
    ("disk show nodisk", 1, "nodisk"),
    ("trace summary nothere", 1, "nothere"),
    ("trace record nothere out.csv", 1, "nothere does not exist"),
    ("advise --live nothere --disk wd-4tb", 1, "nothere does not exist"),
    ("trace summary text", 1, "text:1:1"),
    ("trace summary text --format zip", 2, "zip"),
    ("trace convert text", 2, "OUT"),
    ("trace generate zipf,theta=0 t", 2, "theta"),
    ("trace generate nothing t", 2, "nothing"),
    ("trace plot text --out x.png", 2, "x.png"),
    ("trace record /dev/null out", 1, "no block device"),
    ("trace replay text --nbd s", 2, "--overwrite"),
    ("advise nothere --disk wd-4tb", 1, "nothere"),
    ("advise text --disk nodisk", 1, "nodisk"),
    ("simulate nothere", 2, "nothere"),
    ("figures nothing", 2, "nothing"),
];

#[cfg(not(feature = "lab"))]
const LAB_CALLS: &[(&str, i32, &str)] = &[];

/// The word that an error of this exit code has in JSON.
fn word_of(code: i32) -> &'static str {
    match code {
        2 => "command-line",
        4 => "damage",
        5 => "disk-failed",
        6 => "no-daemon",
        7 => "cancelled",
        8 => "stuck",
        _ => "refused",
    }
}

#[test]
fn wrong_calls_say_what_is_wrong_and_what_to_do() {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.disk("d2", 32 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    let write = |name: &str, text: &str| std::fs::write(folder.path(name), text).unwrap();
    write("text", "hello\n");
    write("bad.toml", "ack = 3\nzzz = 1\n");
    write("bad2.toml", "ack = 4\n");
    write("badv.toml", "[[set\n");
    let before = std::fs::read(folder.path("c")).unwrap();
    let calls: Vec<_> = CALLS.iter().chain(LAB_CALLS).collect();
    assert!(CALLS.len() >= 120, "{} calls", CALLS.len());
    let mut wrong = Vec::new();
    for (line, code, part) in calls {
        let mut complain =
            |what: &str, said: &str| wrong.push(format!("dcd {line}: {what}: {said}"));
        let outcome = folder.dcd(line);
        let said = &outcome.stderr;
        if outcome.code != Some(*code) {
            complain(&format!("ended with {:?}, not {code}", outcome.code), said);
        }
        if !outcome.stdout.is_empty() {
            complain("said something on stdout", &outcome.stdout);
        }
        let first = said.lines().next().unwrap_or_default();
        if !first.starts_with("dcd: error: ") || !first.contains(part) {
            complain(&format!("does not say {part:?}"), said);
        }
        let hint = said.lines().find_map(|line| line.strip_prefix("dcd: hint: "));
        if hint.is_none() {
            complain("no next step", said);
        }
        let json = folder.dcd(&format!("--json {line}"));
        let object: Value = serde_json::from_str(&json.stderr).unwrap_or_default();
        let error = &object["error"];
        if json.code != Some(*code)
            || error["exit_code"] != *code
            || error["code"] != word_of(*code)
        {
            complain("has another code with --json", &json.stderr);
        }
        if first.strip_prefix("dcd: error: ") != error["message"].as_str()
            || hint != error["hint"].as_str()
        {
            complain("says something else with --json", &json.stderr);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(std::fs::read(folder.path("c")).unwrap() == before, "the cache-disk has changed");
}

/// What is to be read must be there itself; of what is made, its directory.
#[cfg(feature = "lab")]
#[test]
fn what_is_missing_is_what_the_hint_is_about() {
    let folder = Folder::new();
    for (line, hint) in [
        ("advise --live nothere --disk wd-4tb", "`lsblk` lists block devices"),
        ("trace summary nothere", "check the name"),
        ("trace convert text nodir/out", "the directory must exist"),
    ] {
        std::fs::write(folder.path("text"), "0,0,W,0,512\n").unwrap();
        let said = folder.dcd(line).stderr;
        let told = said.lines().find_map(|line| line.strip_prefix("dcd: hint: ")).unwrap_or("");
        assert!(told.contains(hint), "{line}: {said}");
    }
}
