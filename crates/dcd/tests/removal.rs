//! Proves that the package is not removed while a cache holds what its data-disk does not, however
//! its settings are written: the very `prerm` script is run, on a machine in a directory
//! (`DPKG_ROOT`), and once in a root of its own with a `systemctl` that notes what it is told.

mod common;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::nbd::Nbd;
use common::{Folder, text};
use serde_json::Value;

/// Settings that name the disks `{0}/c` and `{0}/d`, as people may write them.
const WRITTEN: [(&str, &str); 8] = [
    ("plain", "cache-disk = \"{0}/c\"\ndata-disk = \"{0}/d\"\n"),
    ("single quotes", "cache-disk = '{0}/c'\ndata-disk = '{0}/d'\n"),
    ("quoted keys", "\"cache-disk\" = \"{0}/c\"\n'data-disk' = \"{0}/d\"\n"),
    ("tabs", "\tcache-disk\t=\t\"{0}/c\"\n\tdata-disk\t=\t\"{0}/d\"\t# the slow one\n"),
    (
        "a list over lines",
        "cache-disk = \"{0}/c\"\ndata-disk = [\n  # the slow one\n  \"{0}/d\",\n]\n",
    ),
    ("strings of several lines", "cache-disk = \"\"\"\n{0}/c\"\"\"\ndata-disk = '''{0}/d'''\n"),
    ("escapes", "cache-disk = \"{0}/\\u0063\"\ndata-disk = \"{0}/\\x64\"\n"),
    (
        "the data-disk in a comment",
        "# data-disk = \"/dev/null\"\r\ncache-disk = \"{0}/c\"\r\ndata-disk=\"{0}/d\"\r\n",
    ),
];

/// A machine in a directory, with the program where the package puts it.
struct Machine {
    folder: Folder,
    root: PathBuf,
}

impl Machine {
    fn new() -> Machine {
        let folder = Folder::new();
        for directory in
            ["root/etc/dcd", "root/run/dcd", "root/run/dcd-late", "root/proc", "root/usr/bin"]
        {
            std::fs::create_dir_all(folder.path(directory)).unwrap();
        }
        let root = folder.path("root").canonicalize().unwrap();
        symlink(env!("CARGO_BIN_EXE_dcd"), root.join("usr/bin/dcd")).unwrap();
        Machine { folder, root }
    }

    /// With a pair of disks, and data on the cache-disk that the data-disk does not have.
    fn with_dirty_pair() -> Machine {
        Machine::with_dirty_pair_and(|_| ())
    }

    fn with_dirty_pair_and(prepare: impl FnOnce(&Folder)) -> Machine {
        let machine = Machine::new();
        let folder = &machine.folder;
        prepare(folder);
        folder.disk("d", 64 << 20);
        folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
        let served = machine.serve("dcd/sdb.ctl");
        let mut nbd = Nbd::connect(&folder.path("sock"));
        assert_eq!(nbd.write(0, &[1; 4096]), 0);
        drop(nbd);
        assert_eq!(served.stop().code, Some(0));
        machine
    }

    fn serve(&self, control: &str) -> common::Served {
        self.folder.serve(&format!(
            "serve --cache-disk c --data-disk d --nbd unix:sock --control root/run/{control} \
             --memory-directory . --quiet --idle-max 1h --idle-min 1h",
        ))
    }

    fn here(&self) -> PathBuf {
        self.folder.path(".").canonicalize().unwrap()
    }

    fn settings(&self, written: &str) {
        let text = written.replace("{0}", &self.here().display().to_string());
        std::fs::write(self.root.join("etc/dcd/sdb.toml"), text).unwrap();
    }

    fn remove(&self) -> Output {
        let mut command = Command::new("sh");
        command.arg(packaging("deb/prerm")).arg("remove").env("DPKG_ROOT", &self.root);
        command.env("DCD_STATE_DIRECTORY", self.folder.state_directory());
        command.output().unwrap()
    }

    #[track_caller]
    fn is_refused(&self, what: &str, why: &str) {
        let output = self.remove();
        let text = text(&output);
        assert!(!output.status.success(), "{what}: {text}");
        assert!(text.contains(why) && text.contains("dcd: not removed: "), "{what}: {text}");
    }

    #[track_caller]
    fn is_let(&self, what: &str) {
        let output = self.remove();
        assert!(output.status.success(), "{what}: {}", text(&output));
    }

    fn probe(&self) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_dcd"))
            .args(["probe", "--all", "--json", "--root"])
            .arg(&self.root)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(i32::from(report["dirty"] == true)), "{report}");
        report
    }
}

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

#[test]
fn what_is_dirty_is_not_removed_however_it_is_written() {
    let machine = Machine::with_dirty_pair();
    for (what, written) in WRITTEN {
        machine.settings(written);
        machine.is_refused(what, "is attached to its cache");
        assert_eq!(machine.probe()["caches"][0]["state"], "attached", "{what}");
    }
    machine.folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    for (what, written) in WRITTEN {
        machine.settings(written);
        machine.is_let(what);
        assert_eq!(machine.probe()["caches"][0]["state"], "detached", "{what}");
    }
}

/// A cache-disk on which no cache is to be seen any more is not one on which none ever was.
#[test]
fn a_cache_disk_that_lost_its_cache_is_dirty() {
    let state = |folder: &Folder| std::fs::create_dir(folder.path("state")).unwrap();
    for is_recorded in [false, true] {
        let machine = match is_recorded {
            true => Machine::with_dirty_pair_and(state),
            false => Machine::with_dirty_pair(),
        };
        machine.settings(WRITTEN[0].1);
        let cache = machine.folder.path("c");
        let whole = std::fs::read(&cache).unwrap();
        let with = |bytes: &[u8]| std::fs::write(&cache, bytes).unwrap();
        let zeroed = |end: usize| {
            let mut bytes = whole.clone();
            bytes[..end].fill(0);
            bytes
        };
        with(&zeroed(128 << 10));
        machine.is_refused("no superblocks", "has lost its beginning");
        with(&zeroed(whole.len() / 2));
        machine.is_refused("no checkpoints", "has lost its beginning");
        with(&[]);
        machine.is_refused("empty", "was cut off");
        with(&zeroed(50_000)[..50_000]);
        machine.is_refused("cut", "was cut off");
        std::fs::remove_file(&cache).unwrap();
        machine.is_refused("missing", "cannot be read");
        with(&zeroed(whole.len()));
        if is_recorded {
            machine.is_refused("recorded", "holds no cache");
            let folder = &machine.folder;
            let pairs = folder.path("state/pairs");
            std::fs::rename(&pairs, folder.path("away")).unwrap();
            let mut attribute = [0; 256];
            let name = "user.dcd.pair";
            match rustix::fs::getxattr(folder.path("d"), name, &mut attribute[..]) {
                Ok(_) => machine.is_refused("known to the data-disk", "holds no cache"),
                Err(_) => println!("skipped: no attributes here"),
            }
            std::fs::rename(folder.path("away"), &pairs).unwrap();
        } else {
            machine.is_let("nobody knows of any");
        }
        with(&whole);
        let detach = "detach --cache-disk c --data-disk d --memory-directory . --wipe";
        machine.folder.dcd(detach).ok();
        assert!(std::fs::read(&cache).unwrap().iter().all(|byte| *byte == 0));
        machine.is_let("wiped");
    }
    let machine = Machine::new();
    machine.settings("cache-disk = \"/dev/zero\"\ndata-disk = \"{0}/d\"\n");
    machine.is_refused("no disk at all", "is neither a file nor a block device");
}

/// A directory that was named and is not there holds who knows what.
#[test]
fn a_directory_that_is_not_there_is_not_known() {
    let folder = Folder::new();
    for flags in ["--configurations nope", "--root nope"] {
        let outcome = folder.dcd(&format!("probe --all {flags}"));
        assert_eq!(outcome.code, Some(1), "{flags}: {}", outcome.stdout);
        assert!(outcome.stdout.contains("cannot be listed"), "{flags}: {}", outcome.stdout);
    }
    std::fs::create_dir(folder.path("root")).unwrap();
    folder.dcd("probe --all --root root").ok();
}

/// The disks are detached, so that it is the file alone which refuses.
#[test]
fn a_file_that_is_not_understood_is_dirty() {
    let machine = Machine::new();
    machine.is_let("nothing there");
    let file = machine.root.join("etc/dcd/sdb.toml");
    for (what, bytes, why) in [
        ("an unknown key", &b"cache-disk = \"/x\"\nbypass = 3\n"[..], "`bypass` is not a setting"),
        ("a value of another type", b"data-disk = 5\n", "expected a list of strings"),
        ("no TOML", b"cache-disk = \"/x\n", "sdb.toml:1:"),
        ("a key twice", b"data-disk = \"/x\"\ndata-disk = \"/y\"\n", "sdb.toml:2:"),
        ("no UTF-8", b"cache-disk = \"/\xff\"\n", "cannot read"),
        ("no disk", b"# later\n", "names no cache-disk"),
        ("a missing disk", b"cache-disk = \"/dev/gone\"\ndata-disk = \"/x\"\n", "cannot be read"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        machine.is_refused(what, why);
        assert_eq!(machine.probe()["caches"][0]["state"], "unknown", "{what}");
    }
    std::fs::remove_file(&file).unwrap();
    symlink("gone", &file).unwrap();
    machine.is_refused("a link to nowhere", "cannot be read");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    machine.is_refused("a directory", "is no file");
    std::fs::remove_dir(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap();
    machine.is_refused("a pipe", "is no file");
    std::fs::remove_file(&file).unwrap();

    // Root reads everything, but for its capabilities.
    let without = "--bounding-set=-dac_override,-dac_read_search";
    let locked = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |why: &str| {
        let output = match rustix::process::getuid().is_root() {
            false => machine.remove(),
            true => Command::new("setpriv")
                .args([without, "sh"])
                .arg(packaging("deb/prerm"))
                .arg("remove")
                .env("DPKG_ROOT", &machine.root)
                .output()
                .unwrap(),
        };
        assert!(!output.status.success() && text(&output).contains(why), "{}", text(&output));
    };
    if rustix::process::getuid().is_root()
        && !Command::new("setpriv").args([without, "true"]).status().is_ok_and(|it| it.success())
    {
        return println!("skipped: root reads every file, and setpriv cannot take that away");
    }
    std::fs::write(&file, "# secret\n").unwrap();
    locked(&file, 0);
    refused("Permission denied");
    std::fs::remove_file(&file).unwrap();
    let directory = machine.root.join("etc/dcd");
    locked(&directory, 0);
    refused("cannot be listed");
    locked(&directory, 0o755);
    machine.is_let("nothing there any more");
}

/// One that is alive but says nothing, and one that serves what no file names.
#[test]
fn daemons_are_asked_and_not_waited_for() {
    let machine = Machine::with_dirty_pair();
    for control in ["dcd/sdb.ctl", "dcd-late/sdb.ctl"] {
        let served = machine.serve(control);
        let mut nbd = Nbd::connect(&machine.folder.path("sock"));
        assert_eq!(nbd.write(0, &[2; 4096]), 0);
        drop(nbd);
        machine.is_refused(control, "cache sdb holds data that its data-disk does not have");
        assert_eq!(machine.probe()["caches"][0]["state"], "dirty");
        machine.folder.dcd(&format!("drain --control root/run/{control}")).ok();
        machine.is_refused(control, "cache sdb is being served");
        served.signal(rustix::process::Signal::STOP);
        let begun = std::time::Instant::now();
        machine.is_refused(control, "not known");
        assert!(begun.elapsed() < std::time::Duration::from_secs(40), "{:?}", begun.elapsed());
        served.signal(rustix::process::Signal::CONT);
        assert_eq!(served.stop().code, Some(0));
    }
    // Nobody listens at what a killed one has left, and nothing is attached by a file.
    let served = machine.serve("dcd/sdb.ctl");
    served.kill();
    assert!(machine.root.join("run/dcd/sdb.ctl").exists());
    machine.is_let("a socket that was left");
}

/// A prerm that cannot ask does not guess.
#[test]
fn without_an_answer_nothing_is_removed() {
    let machine = Machine::new();
    let program = machine.root.join("usr/bin/dcd");
    std::fs::remove_file(&program).unwrap();
    machine.is_refused("no program", "dcd");
    std::fs::write(&program, "#!/bin/sh\nkill -9 $$\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    machine.is_refused("one that is killed", "hint");
    // An upgrade asks nothing.
    let mut command = Command::new("sh");
    command.arg(packaging("deb/prerm")).args(["upgrade", "2"]).env("DPKG_ROOT", &machine.root);
    assert!(command.status().unwrap().success());
}

/// With systemd running, everything that could start it again is stopped before what runs, and only
/// when all is detached.
#[test]
fn sockets_and_services_are_stopped() {
    let machine = Machine::with_dirty_pair();
    let root = &machine.root;
    // Its own root: the programs that the script needs, and libraries of this machine.
    for directory in ["run/systemd/system", "usr/lib", "usr/lib64", "dev"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    for link in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{link}"), root.join(link)).unwrap();
    }
    for program in ["sh", "timeout"] {
        let found = ["/bin", "/usr/bin"].map(|it| Path::new(it).join(program));
        let Some(found) = found.iter().find(|path| path.exists()) else {
            return println!("skipped: no {program}");
        };
        std::fs::copy(found, root.join("usr/bin").join(program)).unwrap();
    }
    std::fs::remove_file(root.join("usr/bin/dcd")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_dcd"), root.join("usr/bin/dcd")).unwrap();
    std::fs::copy(packaging("deb/prerm"), root.join("prerm")).unwrap();
    let stub = root.join("usr/bin/systemctl");
    std::fs::write(&stub, "#!/bin/sh\necho \"$@\" >> /systemctl.log\nexit 1\n").unwrap();
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).unwrap();
    for disk in ["c", "d"] {
        std::fs::rename(machine.folder.path(disk), root.join(disk)).unwrap();
        symlink(root.join(disk), machine.folder.path(disk)).unwrap();
    }
    std::fs::write(root.join("etc/dcd/sdb.toml"), "'cache-disk' = '/c'\n'data-disk' = '/d'\n")
        .unwrap();
    let remove = || {
        let script = "mount --make-rprivate / && mount --bind /usr/lib \"$0/usr/lib\" && \
                      { [ ! -d /usr/lib64 ] || mount --bind /usr/lib64 \"$0/usr/lib64\"; } && \
                      : > \"$0/entered\" && exec env -u DPKG_ROOT chroot \"$0\" /bin/sh /prerm remove";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script])
            .arg(root)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.output()
    };
    let refused = remove();
    if !root.join("entered").exists() {
        return println!("skipped: no root of its own: {:?}", refused.map(|it| text(&it)));
    }
    let refused = refused.unwrap();
    assert!(
        !refused.status.success() && text(&refused).contains("is attached"),
        "{}",
        text(&refused)
    );
    assert!(!root.join("systemctl.log").exists(), "something was stopped");
    machine.folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    let removed = remove().unwrap();
    assert!(removed.status.success(), "{}", text(&removed));
    let told = std::fs::read_to_string(root.join("systemctl.log")).unwrap();
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(
        told,
        [
            "stop dcd-nbd@*.socket dcd-vhost@*.socket",
            "stop dcd@*.service dcd-late@*.service",
            "disable --quiet dcd.target",
        ]
    );
}
