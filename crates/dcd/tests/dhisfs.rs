//! `dcd dhisfs` on a volume in memory behind sockets, and on a real one: make, mount, use, kill -9
//! of either program, mount again, check.

mod common;
#[path = "../../dcd-client/tests/server/mod.rs"]
mod server;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use common::Folder;
use server::Server;

/// A mount that is gone at the end, also of a test that fails.
struct Mounted {
    child: Child,
    directory: std::path::PathBuf,
}

impl Mounted {
    fn start(folder: &Folder, sockets: &str, more: &str) -> Mounted {
        let directory = folder.path("mnt");
        std::fs::create_dir_all(&directory).unwrap_or_default();
        let mut child = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(format!("dhisfs mount {sockets} {more}").split_whitespace())
            .arg(&directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("mounted on "), "{ready}");
        Mounted { child, directory }
    }

    fn sh(&self, script: &str) -> String {
        let script = format!("set -e; cd {}; {script}", self.directory.display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn fails(&self, script: &str) {
        let script = format!("cd {} && {script}", self.directory.display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(!output.status.success(), "{script}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut unmount = Command::new("umount");
        let _ = unmount.arg("-l").arg(&self.directory).stderr(Stdio::null()).status();
    }
}

fn has_fuse(test: &str) -> bool {
    let is_there = File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !is_there {
        skipped(test, "/dev/fuse cannot be opened");
    }
    is_there
}

fn skipped(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(log) = std::env::var_os("DCD_SKIPPED_LOG") {
        let log = File::options().create(true).append(true).open(log);
        log.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn what_was_synced_survives_kill_9() {
    if !has_fuse("what_was_synced_survives_kill_9") {
        return;
    }
    let folder = Folder::new();
    let server = Server::start("dhisfs", 20_000);
    let sockets =
        format!("--control {} --nbd {}", server.control().display(), server.nbd().display());
    let fsck = || folder.dcd(&format!("dhisfs fsck {sockets}"));
    fsck().fails(8, "there is no dhisfs", "mkfs");
    let made = folder.dcd(&format!("dhisfs mkfs {sockets}")).ok();
    assert!(made.contains("78.1 MiB"), "{made}");
    folder.dcd(&format!("dhisfs mkfs {sockets}")).fails(1, "in use", "--force");
    // The kernel would take it, and answer everything with EIO.
    std::fs::write(folder.path("file"), "x").unwrap();
    let mount = folder.dcd(&format!("dhisfs mount {sockets} file"));
    mount.fails(1, "cannot mount on file: Not a directory", "give a directory");
    assert_eq!(std::fs::read(folder.path("file")).unwrap(), b"x");
    let rules = folder.path("rules.toml");
    std::fs::write(&rules, "[[rule]]\nmatch = [\"*.o\"]\nset = \"temporary\"\n").unwrap();
    let rules = format!("--rules {}", rules.display());

    let mut kept = 0;
    for round in 0..6 {
        let mounted = Mounted::start(&folder, &sockets, &rules);
        assert_eq!(mounted.sh("ls | wc -l").trim(), kept.to_string());
        fsck().fails(8, "another `dcd dhisfs` uses this file system", "unmount it");
        // Some of it while the program is killed.
        mounted.sh(&format!(
            "echo kept {round} > k{round}; cp /etc/services x{round}.o; sync k{round} x{round}.o"
        ));
        kept += 2;
        let script = format!("for i in $(seq 200); do echo $i > lost{round}; rm lost{round}; done");
        let mut busy = Command::new("sh");
        busy.args(["-c", &script]).current_dir(&mounted.directory).stderr(Stdio::null());
        let mut busy = busy.spawn().unwrap();
        if round % 2 == 0 {
            mounted.kill();
            let _ = busy.wait();
        } else {
            let _ = busy.wait();
            mounted.stop();
        }
        let report = fsck().ok();
        assert!(report.contains(" files, 2 directories"), "{report}");
        // What was not synced may be there or not.
        let mounted = Mounted::start(&folder, &sockets, "--sync");
        mounted.sh(&format!("rm -f lost*; test \"$(cat k{round})\" = \"kept {round}\""));
        mounted.sh(&format!("cmp /etc/services x{round}.o"));
        mounted.stop();
    }
    fsck().ok();

    // Damage is found: a file whose inode has changed. The journal has copies of inodes, which know
    // where they belong.
    let mut device = server.device.lock().unwrap();
    let blocks = dcd_client::BlockDevice::geometry(&*device).blocks;
    let mut damaged = 0;
    for block in 1..blocks {
        let mut data = vec![0; 4096];
        let reads = &mut [dcd_client::Read { block, data: &mut data }];
        dcd_client::BlockDevice::read(&mut *device, reads).unwrap();
        let is_file = data.starts_with(b"DHIN") && data[32..36] != [0xed, 0x41, 0, 0];
        if is_file && damaged == 0 && data[8..16] == block.to_le_bytes() {
            data[200] ^= 1;
            damaged = block;
            let writes = &[dcd_client::Write { block, data: &data }];
            dcd_client::BlockDevice::write(&mut *device, writes).unwrap();
        }
    }
    drop(device);
    let found = fsck();
    assert_eq!(found.code, Some(4), "{}", found.stderr);
    assert!(found.stdout.contains(&format!("block {damaged} is damaged")), "{}", found.stdout);
    let mended = folder.dcd(&format!("dhisfs fsck {sockets} --repair"));
    assert_eq!(mended.code, Some(1), "{}{}", mended.stdout, mended.stderr);
    assert!(mended.stdout.contains("has no inode: removed"), "{}", mended.stdout);
    fsck().ok();

    folder.dcd(&format!("dhisfs mkfs {sockets} --force")).ok();
    fsck().ok();
}

/// A folder with a cache and a volume of these members; what serves it, and where it is met then.
fn with_volume(members: &[&str], volume: &str) -> (Folder, String, String) {
    let folder = Folder::new();
    members.iter().for_each(|name| drop(folder.disk(name, 64 << 20)));
    let disks: Vec<String> = members.iter().map(|name| format!("--data-disk {name}")).collect();
    let disks = disks.join(" ");
    std::fs::write(folder.path("v.toml"), volume).unwrap();
    folder.dcd(&format!("create --cache-disk c --cache-size 32M {disks} --volume v.toml")).ok();
    let serve = format!(
        "serve --cache-disk c {disks} --nbd unix:sock --control ctl --memory-directory . --quiet \
         --idle-max 20ms"
    );
    let sockets = format!(
        "--control {} --nbd {}",
        folder.path("ctl").display(),
        folder.path("sock").display()
    );
    (folder, serve, sockets)
}

const VOLUME: &str = "extent = \"4k\"\ntemporary = \"10%\"\n\
    [[set]]\nlevel = 1\nshare = \"40%\"\ncopies = 2\n\
    [[set]]\nlevel = 5\nshare = \"20%\"\n\
    [[set]]\nlevel = 0\n";

#[test]
fn a_real_volume_keeps_what_was_synced_when_dcd_is_killed() {
    if !has_fuse("a_real_volume_keeps_what_was_synced_when_dcd_is_killed") {
        return;
    }
    let (folder, serve, sockets) = with_volume(&["m0", "m1", "m2", "m3"], VOLUME);
    let rules = folder.path("rules.toml");
    std::fs::write(&rules, "[[rule]]\nmatch = [\"*.o\"]\nset = \"temporary\"\n").unwrap();
    let rules = format!("--rules {}", rules.display());

    let mut served = folder.serve(&serve);
    folder.dcd(&format!("dhisfs mkfs {sockets}")).ok();
    for round in 0..4 {
        let mounted = Mounted::start(&folder, &sockets, &rules);
        mounted.sh(&format!(
            "mkdir d{round}; for i in $(seq 60); do cp /etc/services d{round}/f$i.o; done
             echo kept > d{round}/kept; rm d{round}/f1*; sync d{round}/kept; ls d{round} > list"
        ));
        let script = "for i in $(seq 400); do cp /etc/passwd busy$i; mv busy$i b; done";
        let mut busy = Command::new("sh");
        busy.args(["-c", script]).current_dir(&mounted.directory).stderr(Stdio::null());
        let mut busy = busy.spawn().unwrap();
        if round % 2 == 0 {
            // What comes next is refused: what was in memory is lost.
            served.kill();
            let _ = busy.wait();
            mounted.fails("touch x; sync x");
            mounted.kill();
            served = folder.serve(&serve);
        } else {
            mounted.kill();
            let _ = busy.wait();
        }
        let report = folder.dcd(&format!("dhisfs fsck {sockets}")).ok();
        assert!(!report.contains("inode"), "{report}");
        let mounted = Mounted::start(&folder, &sockets, &rules);
        mounted.sh(&format!(
            "test $(cat d{round}/kept) = kept; test $(ls d{round} | wc -l) = 50
             for i in 2 3 20 60; do cmp /etc/services d{round}/f$i.o; done; rm -rf d{round}"
        ));
        mounted.stop();
        folder.dcd(&format!("dhisfs fsck {sockets}")).ok();
    }
    served.stop();
}

/// Two logs that grow beside each other get blocks ahead, as many as those before them had, unless
/// somebody does not want that.
#[test]
fn logs_that_grow_beside_each_other_lie_in_few_pieces() {
    if !has_fuse("logs_that_grow_beside_each_other_lie_in_few_pieces") {
        return;
    }
    let (folder, serve, sockets) =
        with_volume(&["m0", "m1"], "extent = \"4k\"\n[[set]]\nlevel = 1\n");
    let served = folder.serve(&serve);
    folder.dcd(&format!("dhisfs mkfs {sockets}")).ok();
    let block = [7; 4096];
    let most = ["", "--no-projection"].map(|flag| {
        let mounted = Mounted::start(&folder, &sockets, flag);
        mounted.sh("for i in 1 2 3 4; do head -c 200000 /dev/zero > old$i.log; done");
        let path = |number| mounted.directory.join(format!("new{number}.log"));
        let mut logs = [1, 2].map(|number| File::create(path(number)).unwrap());
        for _ in 0..40 {
            for log in &mut logs {
                log.write_all(&block).unwrap();
                log.sync_all().unwrap();
            }
        }
        let pieces = [1, 2].map(|number| {
            let mut told = [0; 4096];
            let name = "user.dcd.blocks";
            let length = rustix::fs::getxattr(path(number), name, &mut told[..]).unwrap();
            let lines = told[..length].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines.count() - 1
        });
        drop(logs);
        mounted.sh("rm new*");
        mounted.stop();
        pieces.into_iter().max().unwrap()
    });
    assert!(most[0] <= 4 && most[1] >= 20, "{most:?} pieces, with and without");
    folder.dcd(&format!("dhisfs fsck {sockets}")).ok();
    served.stop();
}

/// A volume with few pointers is full when they are used up, which is no harm: what does not fit is
/// refused, and there can be more at any time. Served read-only it is mounted read-only.
#[test]
fn a_volume_with_few_pointers_is_full_and_nothing_else() {
    if !has_fuse("a_volume_with_few_pointers_is_full_and_nothing_else") {
        return;
    }
    let volume =
        "extent = \"4k\"\npointers = 3000\njournal = \"4M\"\n[[set]]\nlevel = 1\ncopies = 2\n";
    let (folder, serve, sockets) = with_volume(&["m0", "m1"], volume);
    let served = folder.serve(&serve);
    let made = folder.dcd(&format!("dhisfs mkfs {sockets}"));
    assert!(made.stderr.contains("room for 3000 pointers"), "{}", made.stderr);
    assert!(made.stderr.contains("\ndcd: hint: for all of it"), "{}", made.stderr);
    assert!(made.stderr.contains("dcd volume set --pointers 1"), "{}", made.stderr);
    made.ok();

    let mounted = Mounted::start(&folder, &sockets, "--commit-interval 300ms");
    mounted.sh("echo precious > precious; sync precious");
    // A program that only writes: all that it is told is there is there.
    let fill = "for i in $(seq 1000); do
                    head -c 100000 /dev/zero | tr '\\0' x > f$i 2> ../why || { rm f$i; break; }
                    whole=$i; done; grep -q 'No space left' ../why; echo $whole";
    let whole: u64 = mounted.sh(fill).trim().parse().unwrap();
    assert!((80..120).contains(&whole), "{whole}");
    let available: u64 = mounted.sh("df --output=avail . | tail -1").trim().parse().unwrap();
    assert!(available < 400, "{available} KiB");
    mounted.sh("echo changed > precious; sync precious");
    mounted.stop();
    folder.dcd(&format!("dhisfs fsck {sockets}")).ok();

    let mounted = Mounted::start(&folder, &sockets, "--commit-interval 300ms");
    let all = format!(
        "test $(cat precious) = changed; for i in $(seq {whole}); do
             test $(tr -d x < f$i | wc -c) = 0; test $(wc -c < f$i) = 100000; done"
    );
    mounted.sh(&all);
    mounted.sh("exec 3< f1; rm f1 f2 f3; cat <&3 | wc -c; sync precious; head -c 150000 /dev/zero > g; rm g");
    // More, while it is mounted.
    let told = folder.dcd("volume set --pointers 20000 --control ctl").ok();
    assert!(told.starts_with("room for 20160 pointers"), "{told}");
    mounted.sh("for i in 1 2 3; do head -c 100000 /dev/zero | tr '\\0' x > f$i; done; head -c 20M /dev/zero > h; sync h");
    mounted.sh(&all);
    // Which blocks it has.
    let file = mounted.directory.join("precious").display().to_string();
    let got = folder.dcd(&format!("hint get {file} --control ctl --json")).ok();
    assert!(got.contains("\"level\": 1") || got.contains("\"level\":1"), "{got}");
    folder.dcd(&format!("hint set hot {file} --control ctl")).ok();
    let inspected = folder.dcd(&format!("inspect --file {file} --control ctl")).ok();
    assert!(inspected.contains("hot") && inspected.contains("a dhisfs"), "{inspected}");
    let both = folder.dcd(&format!("hint get {file} {file}-none --control ctl"));
    // One is shown, and the other is told of before the end.
    assert!(both.stdout.contains("precious") && both.stderr.contains("1 of 2 paths"));
    assert_eq!(both.code, Some(1));
    mounted.kill();
    served.kill();

    let served = folder.serve(&serve);
    folder.dcd(&format!("dhisfs fsck {sockets}")).ok();
    let inspected = folder.dcd("volume status --control ctl --json").ok();
    assert!(inspected.contains("20160"), "{inspected}");
    folder.dcd("volume set --pointers 4000000 --control ctl").fails(
        1,
        "can have room for",
        "journal",
    );
    served.stop();
    assert!(folder.dcd("inspect volume --cache-disk c --json").ok().contains("20160"));

    let served = folder.serve(&format!("{serve} --read-only"));
    let mounted = Mounted::start(&folder, &sockets, "");
    mounted.sh(&all);
    mounted.fails("echo x > new");
    mounted.fails("rm f1");
    mounted.stop();
    folder.dcd(&format!("dhisfs fsck {sockets}")).fails(8, "served read-only", "--read-only");
    served.stop();
}

#[test]
fn mistakes_are_told() {
    let folder = Folder::new();
    folder.dcd("dhisfs fsck --control nowhere --nbd nowhere").fails(
        8,
        "no daemon answers at nowhere",
        "dcd serve",
    );
    std::fs::write(folder.path("rules"), "[[rule]]\nmatch = [\"*\"]\nset = \"warm\"\n").unwrap();
    folder.dcd("dhisfs mount --control nowhere --nbd nowhere --rules rules mnt").fails(
        1,
        "there is no attribute `warm`",
        "important",
    );
}
