//! Proves on the real program that `dcd top` shows running daemons where there is no terminal, as
//! text and as JSON, and says why it has nothing to show. Pictures are tested beside `frame.rs`.

mod common;

use common::Folder;
use common::nbd::Nbd;
use serde_json::Value;

#[test]
fn running_daemons_are_shown() {
    let folder = Folder::new();
    folder.dcd("top --sockets .").fails(
        6,
        "no control sockets (NAME.ctl) in .",
        "give the --control socket",
    );
    folder.dcd("top gone --sockets .").fails(6, "gone is no control socket", "");
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    std::fs::create_dir(folder.path("run")).unwrap();
    let served = folder.serve(
        "serve --cache-disk c --data-disk d --nbd unix:sock --control run/sdb.ctl --memory-directory . \
         --quiet --idle-max 1h --idle-min 1h",
    );
    // One that has died is shown beside it.
    drop(std::os::unix::net::UnixListener::bind(folder.path("run/dead.ctl")).unwrap());
    let mut nbd = Nbd::connect(&folder.path("sock"));
    let writer = std::thread::spawn(move || {
        for line in 0..400 {
            assert_eq!(nbd.write(line % 20 * 4096, &[7; 4096]), 0);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    let text = folder.dcd("top --interval 500ms --sockets run").ok();
    for words in
        ["sdb serves; process ", "dead does not answer: ", "  writes ", "unix:sock", "80 KiB dirty"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text:?}");
    // No terminal, so nothing is cut to the width of one.
    let dead = text.lines().find(|line| line.starts_with("dead does not answer")).unwrap();
    assert!(dead.len() > 80 && dead.ends_with("(os error 111)"), "{dead}");
    let json = folder.dcd("top --interval 500ms --once --json sdb --sockets run").ok();
    assert_eq!(json.lines().count(), 1, "{json}");
    let line: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&line["name"], &line["now"]["dirty_bytes"]), (&"sdb".into(), &(20 * 4096).into()));
    assert!(line["interval"]["writes"]["per_second"].as_f64().unwrap() > 0.0, "{json}");
    assert!(line["interval"]["seconds"].as_f64().unwrap() > 0.1, "{json}");
    writer.join().unwrap();
    // None of those that were asked for answers.
    for asked in ["--once --control run/nothing.ctl", "--once dead", "run/dead.ctl"] {
        let top = folder.dcd(&format!("top --interval 100ms --sockets run {asked}"));
        top.fails(6, "no daemon answers at run/", "");
        let json = folder.dcd(&format!("top --json --interval 100ms --sockets run {asked}"));
        assert_eq!((json.code, json.stdout.as_str()), (Some(6), ""));
    }
    folder.dcd("top --interval 100ms --sockets run --once sdb dead").ok();
    let outcome = folder.dcd("top --interval 1ms");
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    drop(served);
}
