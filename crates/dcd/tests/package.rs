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

/// A file that an older version had in another package is taken over, in whatever order dpkg gets
/// the new ones: both ways, since a verb may move from or to the laboratory.
#[test]
fn a_file_may_move_from_one_package_to_another() {
    for tool in ["dpkg", "dpkg-deb", "gzip", "strip"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return println!("skipped: no {tool}");
        }
    }
    let machine = Machine::new();
    let newer = machine.build("2");
    // Older ones, as if these files had not moved yet; they need no program.
    let moved = [
        &["usr/share/doc/dcd/README.md", "usr/share/man/man1/dcd-lab.1.gz"][..],
        &["usr/share/man/man1/dcd-serve.1.gz"],
        &["usr/share/dcd/grafana/dcd.json"],
    ];
    let older: [PathBuf; 3] = std::array::from_fn(|place| {
        let tree = machine.folder.path("tree");
        let package = machine.folder.path(&format!("older-{place}.deb"));
        let run = |arguments: &[&str]| {
            let mut tool = Command::new("dpkg-deb");
            let output = tool.args(arguments).current_dir(machine.folder.path(".")).output();
            assert!(output.as_ref().unwrap().status.success(), "{}", text(&output.unwrap()));
        };
        run(&["--raw-extract", newer[place].to_str().unwrap(), tree.to_str().unwrap()]);
        let control = std::fs::read_to_string(tree.join("DEBIAN/control")).unwrap();
        std::fs::write(tree.join("DEBIAN/control"), control.replace("-2", "-1")).unwrap();
        let _ = std::fs::remove_dir_all(tree.join("usr/bin"));
        for path in moved.iter().copied().flatten() {
            let _ = std::fs::remove_file(tree.join(path));
        }
        for path in moved[place] {
            std::fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
            std::fs::write(tree.join(path), "older").unwrap();
        }
        run(&["--build", "-Znone", tree.to_str().unwrap(), package.to_str().unwrap()]);
        std::fs::remove_dir_all(&tree).unwrap();
        package
    });
    let install = |packages: &[PathBuf; 3], order: [usize; 3]| {
        let mut arguments = vec!["--auto-deconfigure", "--install"];
        arguments.extend(order.map(|place| packages[place].to_str().unwrap()));
        let installed = machine.dpkg(&arguments);
        assert!(installed.status.success(), "{}", text(&installed));
    };
    install(&older, [0, 1, 2]);
    install(&newer, [2, 1, 0]);
    let status = std::fs::read_to_string(machine.root.join("var/lib/dpkg/status")).unwrap();
    assert_eq!(status.matches("Status: install ok installed").count(), 3, "{status}");
    for path in ["usr/share/doc/dcd/README.md", "usr/share/dcd/grafana/dcd.json"] {
        assert_ne!(std::fs::read(machine.root.join(path)).unwrap(), b"older", "{path}");
    }
}

/// What the RPM runs before it goes: nothing on an upgrade; on a removal it asks first, and then
/// what serves is stopped and not started again.
#[test]
fn an_upgrade_of_the_rpm_stops_nothing() {
    let folder = Folder::new();
    let spec = std::fs::read_to_string(repository("packaging/rpm/dcd.spec")).unwrap();
    let script = spec.split("\n%preun\n").nth(1).unwrap().split("\n%postun\n").next().unwrap();
    let here = folder.path(".").canonicalize().unwrap();
    let script = script
        .replace("/usr/bin/dcd", here.join("dcd").to_str().unwrap())
        .replace("/run/systemd/system", here.to_str().unwrap());
    for (name, end) in [("dcd", "exit $(cat dirty)"), ("systemctl", "")] {
        let path = folder.path(name);
        std::fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >> said\n{end}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    let run = |left: &str, dirty: &str| {
        std::fs::write(folder.path("dirty"), dirty).unwrap();
        std::fs::write(folder.path("said"), "").unwrap();
        let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", &script, "preun", left]).env("PATH", path);
        let output = shell.current_dir(&here).output().unwrap();
        (output.status.success(), std::fs::read_to_string(folder.path("said")).unwrap())
    };
    assert_eq!(run("1", "1"), (true, String::new()), "an upgrade");
    let (is_removed, said) = run("0", "1");
    assert!(!is_removed && said.starts_with("dcd probe --all"), "{said}");
    assert!(!said.contains("systemctl"), "{said}");
    let (is_removed, said) = run("0", "0");
    let sockets = said.find("systemctl stop dcd-nbd@*.socket dcd-vhost@*.socket\n");
    let services = said.find("systemctl stop dcd@*.service dcd-late@*.service\n");
    assert!(is_removed && sockets.is_some() && sockets < services, "{said}");
    assert!(said.ends_with("systemctl disable --quiet dcd.target\n"), "{said}");
}
