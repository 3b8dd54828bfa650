//! Proves that a bad command line or configuration file costs one line of error, one of hint and
//! the documented exit code, before any device is opened.

mod common;

use common::Folder;

#[test]
fn bad_words_end_with_2() {
    let folder = Folder::new();
    folder.dcd("").fails(2, "a word missing", "dcd --help");
    folder.dcd("frobnicate").fails(2, "unrecognized subcommand 'frobnicate'", "dcd --help");
    folder.dcd("crate").fails(2, "'crate'", "create");
    folder.dcd("create --cache-dsk c").fails(2, "--cache-dsk", "--cache-disk");
    folder.dcd("create --cache-disk c").fails(2, "--data-disk", "usage: dcd create");
    folder.dcd("serve --max-delay 5").fails(2, "--max-delay", "5ms or 5s");
    folder.dcd("serve --ack disk").fails(2, "'disk'", "");
}

#[test]
fn bad_words_of_serve_end_with_2() {
    let folder = Folder::new();
    folder.dcd("serve --dirty-high 200").fails(2, "not a share", "");
    folder.dcd("serve --nbd disk.sock").fails(2, "unix:PATH", "unix:");
    folder.dcd("serve --data-disk slow:f,read=8").fails(2, "read", "8ms");
    folder.dcd("detach --cache-disk c").fails(2, "--data-disk", "usage");
    folder.dcd("detach").fails(2, "required", "usage");
    folder.dcd("inspect nothing").fails(2, "'nothing'", "`dcd inspect --help` says");
}

#[test]
fn missing_settings_are_named() {
    let folder = Folder::new();
    folder.dcd("serve").fails(1, "--cache-disk is not set", "`cache-disk`");
    folder.dcd("serve --cache-disk c").fails(1, "--data-disk is not set", "`data-disk`");
    folder.dcd("serve --cache-disk c --data-disk d").fails(
        1,
        "none of --nbd, --fuse, --ublk and --vhost-user",
        "--nbd",
    );
    let looped = "serve --cache-disk c --data-disk d --nbd unix:s --loop";
    folder.dcd(looped).fails(1, "--loop needs --fuse", "");
    let settings = "serve --cache-disk c --data-disk d --nbd unix:s --dirty-low 90 --dirty-high 10";
    folder.dcd(settings).fails(1, "dirty-low must not be above dirty-high", "");
}

#[test]
fn bad_configuration_files_are_told_with_line_and_column() {
    let folder = Folder::new();
    let serve = |text: &str| {
        std::fs::write(folder.path("dcd.toml"), text).unwrap();
        folder.dcd("serve --config dcd.toml")
    };
    let unknown = "cache-disk = \"c\"\nbypass-treshold = \"64k\"\n";
    serve(unknown).fails(1, "dcd.toml:2:1: `bypass-treshold`", "did you mean `bypass-threshold`?");
    serve("max-delay = \"5q\"").fails(1, "dcd.toml:1:13: max-delay: unknown unit", "");
    serve("max-delay = true").fails(1, "dcd.toml:1:13: max-delay: expected a string", "quotes");
    serve("cache-disk = ").fails(1, "dcd.toml:1:", "");
    serve("accept-damage = true").fails(1, "only for the command line", "");
    serve("[device]\nack = \"log\"").fails(
        1,
        "dcd.toml:1:2: `device` is not a setting",
        "dcd serve",
    );
    folder.dcd("serve --config none.toml").fails(1, "none.toml: cannot read", "");
    // A good file, in which something is missing.
    serve("cache-disk = \"c\"\nbypass-threshold = \"64k\"").fails(1, "--data-disk is not set", "");
}

#[test]
fn a_dash_is_standard_input() {
    let folder = Folder::new();
    let mut dcd = std::process::Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(["serve", "--config", "-"])
        .current_dir(folder.path("."))
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut dcd.stdin.take().unwrap(), b"zzz = 1\nack = 3\n").unwrap();
    let output = dcd.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("-:1:1: `zzz`") && said.contains("-:2:7: ack: "), "{said}");
}

#[test]
fn nobody_on_the_control_socket_ends_with_6() {
    let folder = Folder::new();
    for verb in ["status", "flush", "drain", "detach"] {
        folder.dcd(&format!("{verb} --control none.ctl")).fails(6, "none.ctl", "--control socket");
    }
    // A socket file that a dead daemon left behind.
    drop(std::os::unix::net::UnixListener::bind(folder.path("dead.ctl")).unwrap());
    folder.dcd("status --control dead.ctl").fails(6, "dead.ctl", "--control socket");
}

/// What a new user may well type: each time one line that says what is wrong, one that helps.
#[test]
fn likely_mistakes_have_a_hint_that_fits() {
    let folder = Folder::new();
    folder.disk("d", 64 << 20);
    folder.disk("tiny", 17);
    folder.disk("odd", 1_000_000);
    folder.disk("zero", 0);
    std::fs::create_dir(folder.path("dir")).unwrap();
    let create = |cache: &str, data: &str| {
        let line = format!("create --cache-size 16M --cache-disk {cache} --data-disk {data}");
        folder.dcd(&line)
    };
    create("c", "tiny").fails(1, "17 bytes", "no disk image");
    create("c", "odd").fails(
        1,
        "1000000 bytes",
        "make it 1000448 bytes long: truncate -s %512 odd",
    );
    create("c", "zero").fails(1, "0 bytes", "truncate -s 1G");
    create("c", "none").fails(1, "does not exist", "check the name");
    create("c", "/dev/null").fails(1, "a character device", "block device");
    create("dir", "d").fails(1, "neither a file nor", "block device");
    create("nodir/c", "d").fails(1, "No such file", "directory must exist");
    create("d/c", "d").fails(1, "are the same disk", "two disks");
    create("c", "d").ok();
    let serve = |cache: &str, rest: &str| {
        let line = format!("serve --cache-disk {cache} --data-disk d --memory-directory . {rest}");
        folder.dcd(&line)
    };
    serve("tiny", "--nbd unix:s").fails(1, "17 bytes", "dcd create --cache-disk tiny");
    serve("none", "--nbd unix:s").fails(1, "does not exist", "dcd create --cache-disk none");
    let long = "x".repeat(200);
    serve("c", &format!("--nbd unix:{long}")).fails(1, "cannot listen", "107 bytes");
    serve("c", "--loop").fails(1, "--fuse", "add --fuse");
    serve("c", "--nbd unix:s --idle-min 5h").fails(1, "idle-min", "dcd serve --help");
    serve("c", "--config none").fails(1, "cannot read the configuration file", "--config");
    folder.dcd(&format!("status --control {long}")).fails(6, "no daemon", "107 bytes");
    folder.dcd("status --control d").fails(6, "no daemon", "d is no socket");
    folder.dcd("status --control dir").fails(6, "no daemon", "dir is no socket");
    folder.dcd("status --control none").fails(6, "no daemon", "--control socket");
    folder.dcd("check --cache-disk dir").fails(1, "neither a file nor", "block device");
}
