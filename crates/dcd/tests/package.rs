//! Proves that the Debian package is built, holds what it should, is installed, upgraded and
//! removed cleanly, and is not removed while it would take a disk away from somebody. It is
//! installed into a directory, with dpkg's own database there; scripts that would speak to systemd
//! and udev find none.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::nbd::Nbd;
use common::{Folder, text};

/// A machine in a directory.
struct Machine {
    folder: Folder,
    root: PathBuf,
}

impl Machine {
    fn new() -> Machine {
        let folder = Folder::new();
        let root = folder.path("root").canonicalize().unwrap_or_else(|_| {
            std::fs::create_dir(folder.path("root")).unwrap();
            folder.path("root").canonicalize().unwrap()
        });
        for directory in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "proc", "run/dcd", "etc"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
        Machine { folder, root }
    }

    /// The package, that of the laboratory, and the documents.
    fn build(&self, revision: &str) -> [PathBuf; 3] {
        let output = Command::new(repository("scripts/make-deb"))
            .args([env!("CARGO_BIN_EXE_dcd"); 2])
            .env("DEB_REVISION", revision)
            .env("DEB_COMPRESSION", "gzip")
            .env("DEB_OUTPUT", self.root.parent().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut names = std::str::from_utf8(&output.stdout).unwrap().lines().map(PathBuf::from);
        std::array::from_fn(|_| names.next().unwrap())
    }

    fn dpkg(&self, arguments: &[&str]) -> Output {
        let force = "--force-not-root,script-chrootless,depends,bad-path";
        Command::new("dpkg")
            .arg(format!("--root={}", self.root.display()))
            .arg(force)
            .args(arguments)
            .output()
            .unwrap()
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut directories = vec![self.root.join("usr"), self.root.join("etc")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => directories.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
        }
        files
    }
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn the_package_comes_and_goes_cleanly() {
    for tool in ["dpkg", "dpkg-deb", "gzip", "strip"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return println!("skipped: no {tool}");
        }
    }
    let machine = Machine::new();
    let [first, laboratory, documents] = machine.build("1");
    let installed = machine.dpkg(&["--install", first.to_str().unwrap()]);
    assert!(installed.status.success(), "{}", text(&installed));
    for path in [
        "usr/bin/dcd",
        "usr/lib/systemd/system/dcd@.service",
        "usr/lib/systemd/system/dcd.target",
        "usr/lib/systemd/system/dcd-nbd@.socket",
        "usr/lib/systemd/system/dcd-vhost@.socket",
        "usr/lib/udev/rules.d/62-dcd.rules",
        "usr/lib/udev/rules.d/99-dcd.rules",
        "usr/lib/sysusers.d/dcd.conf",
        "usr/share/man/man1/dcd-serve.1.gz",
        "usr/share/bash-completion/completions/dcd",
        "usr/share/dcd/grafana/dcd.json",
        "usr/share/dcd/prometheus/dcd.rules.yml",
        "usr/share/doc/dcd/copyright",
        "usr/share/doc/dcd/examples/example.toml",
        "etc/dcd",
    ] {
        assert!(machine.has(path), "{path}");
    }
    let installed = machine.dpkg(&["--install", laboratory.to_str().unwrap()]);
    assert!(installed.status.success(), "{}", text(&installed));
    assert!(machine.has("usr/bin/dcd-lab") && machine.has("usr/share/doc/dcd-lab/copyright"));
    let installed = machine.dpkg(&["--install", documents.to_str().unwrap()]);
    assert!(installed.status.success(), "{}", text(&installed));
    let read = |path: PathBuf| std::fs::read_to_string(&path).unwrap();
    let readme = read(machine.root.join("usr/share/doc/dcd/README.md"));
    assert_eq!(readme.lines().next(), read(repository("README.md")).lines().next());
    let removed = machine.dpkg(&["--purge", "dcd-doc"]);
    assert!(removed.status.success() && machine.has("usr/share/doc/dcd/copyright"));
    let removed = machine.dpkg(&["--remove", "dcd-lab"]);
    assert!(removed.status.success() && !machine.has("usr/bin/dcd-lab"), "{}", text(&removed));
    let version = Command::new(machine.root.join("usr/bin/dcd")).arg("--version").output().unwrap();
    assert!(version.status.success());

    // A cache that is served, as the service would.
    let folder = &machine.folder;
    folder.disk("d", 64 << 20);
    folder.dcd("create --cache-disk c --cache-size 16M --data-disk d").ok();
    let served = folder.serve(
        "serve --cache-disk c --data-disk d --nbd unix:sock --control root/run/dcd/sdb.ctl \
         --memory-directory . --quiet --idle-max 1h --idle-min 1h",
    );
    let mut nbd = Nbd::connect(&folder.path("sock"));
    assert_eq!(nbd.write(0, &[1; 4096]), 0);
    let refused = machine.dpkg(&["--remove", "dcd"]);
    assert!(!refused.status.success() && machine.has("usr/bin/dcd"), "{}", text(&refused));
    assert!(
        text(&refused).contains("cache sdb holds data that its data-disk does not have"),
        "{}",
        text(&refused)
    );

    // An upgrade meanwhile stops nothing.
    let [second, ..] = machine.build("2");
    let upgraded = machine.dpkg(&["--install", second.to_str().unwrap()]);
    assert!(upgraded.status.success(), "{}", text(&upgraded));
    assert_eq!(nbd.write(4096, &[2; 4096]), 0);
    let status = std::fs::read_to_string(machine.root.join("var/lib/dpkg/status")).unwrap();
    assert!(status.contains("-2\n") && status.contains("Status: install ok installed"), "{status}");

    // Emptied, stopped, but still a pair: the data-disk may get behind.
    folder.dcd("drain --control root/run/dcd/sdb.ctl").ok();
    drop(nbd);
    assert_eq!(served.stop().code, Some(0));
    let here = folder.path(".").canonicalize().unwrap();
    let settings = format!("cache-disk = \"{0}/c\"\ndata-disk = \"{0}/d\"\n", here.display());
    std::fs::write(machine.root.join("etc/dcd/sdb.toml"), settings).unwrap();
    let refused = machine.dpkg(&["--remove", "dcd"]);
    assert!(!refused.status.success(), "{}", text(&refused));
    assert!(text(&refused).contains("is attached to its cache"), "{}", text(&refused));

    folder.dcd("detach --cache-disk c --data-disk d --memory-directory .").ok();
    let removed = machine.dpkg(&["--remove", "dcd"]);
    assert!(removed.status.success(), "{}", text(&removed));
    assert_eq!(machine.files(), [machine.root.join("etc/dcd/sdb.toml")], "settings stay");
    std::fs::remove_file(machine.root.join("etc/dcd/sdb.toml")).unwrap();
    let purged = machine.dpkg(&["--purge", "dcd"]);
    assert!(purged.status.success(), "{}", text(&purged));
    assert!(machine.files().is_empty() && !machine.has("etc/dcd"));
}
