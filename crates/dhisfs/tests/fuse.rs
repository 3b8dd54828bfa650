//! Real mounts of a file system in memory, used by other processes: a process must not use its own
//! mount.

mod common;
mod gated;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use dhisfs::fuse::{Connections, FuseOptions, MountHandle, mount};
use dhisfs::{FileSystem, MountOptions, Rules};
use gated::{Gate, Gated};

/// A directory that is gone at the end.
struct Site {
    directory: PathBuf,
}

impl Site {
    fn new(name: &str) -> Site {
        let directory = std::env::temp_dir().join(format!("dhisfs-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Site { directory }
    }

    fn mount(&self, device: Gated, rules: Rules, synchronous: bool) -> MountHandle<Gated> {
        // Little memory: blocks come and go.
        let options = MountOptions { cache_bytes: 4 << 20, rules, ..MountOptions::default() };
        let fs = FileSystem::mount(device.clone(), options).unwrap();
        let options = FuseOptions { synchronous, ..FuseOptions::default() };
        let connections =
            Connections { writer: device.clone(), readers: vec![device.clone(), device] };
        mount(fs, connections, &self.directory, &options).unwrap()
    }

    fn mount_read_only(&self, device: Gated) -> MountHandle<Gated> {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let fs = FileSystem::mount(device.clone(), options).unwrap();
        let connections = Connections { writer: device.clone(), readers: vec![device] };
        mount(fs, connections, &self.directory, &FuseOptions::default()).unwrap()
    }

    /// Starts a script in it.
    fn start(&self, script: &str) -> Child {
        let script = format!("set -e; cd {}; {script}", self.directory.display());
        Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Runs a script in it.
    fn sh(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        let script = format!("set -e; cd {}; {script}", self.directory.display());
        let output = command.args(["-c", &script]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{script}\n{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Runs [`worker`] in another process.
    fn work(&self, what: &str) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--nocapture"]);
        command.env("DHISFS_WORK", what).env("DHISFS_DIRECTORY", &self.directory);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}:\n{text}{errors}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Whether FUSE can be used here; if not, says so.
fn has_fuse(test: &str) -> bool {
    let is_there = File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !is_there {
        let line = format!("skipped: {test}: /dev/fuse cannot be opened\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(log) = std::env::var_os("DCD_SKIPPED_LOG") {
            let log = File::options().create(true).append(true).open(log);
            log.unwrap().write_all(line.as_bytes()).unwrap();
        }
    }
    is_there
}

fn made(blocks: u64) -> Gated {
    Gated::new(mounted(blocks).unmount().unwrap())
}

/// Whether it ends soon, and well.
fn ends(child: &mut Child) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn remounted(handle: MountHandle<Gated>) -> FileSystem<Gated> {
    let mut fs = FileSystem::mount(handle.unmount().unwrap(), MountOptions::default()).unwrap();
    check(&mut fs);
    fs
}

/// What the other process does.
#[test]
fn worker() {
    let Ok(work) = std::env::var("DHISFS_WORK") else { return };
    let directory = PathBuf::from(std::env::var_os("DHISFS_DIRECTORY").unwrap());
    let (what, seed) = work.split_once(' ').unwrap();
    let seed = seed.parse().unwrap();
    match what {
        "fsx" => fsx(&directory.join(format!("fsx-{seed}")), seed),
        "storm" => storm(&directory, seed),
        "unnamed" => unnamed(&directory),
        "long" => long_names(&directory),
        "lost" => lost(&directory),
        other => panic!("{other}"),
    }
}

/// Random reads, writes and cuts of a file, each read compared with what must be there.
fn fsx(path: &Path, seed: u64) {
    let mut random = Random::new(seed);
    let options = || {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    };
    let mut file = options();
    let mut model: Vec<u8> = Vec::new();
    for i in 0..4000 {
        let offset = random.below(600_000);
        let length = 1 + random.below(70_000);
        match random.below(10) {
            0..=3 => {
                let data = vec![random.below(256) as u8; length];
                file.write_all_at(&data, offset as u64).unwrap();
                model.resize(model.len().max(offset + length), 0);
                model[offset..offset + length].copy_from_slice(&data);
            }
            4..=7 => {
                let mut data = vec![0; length];
                let mut found = 0;
                while found < length {
                    let place = &mut data[found..];
                    match file.read_at(place, (offset + found) as u64).unwrap() {
                        0 => break,
                        count => found += count,
                    }
                }
                let end = model.len().min(offset + length);
                let expected = model.get(offset.min(end)..end).unwrap();
                assert!(data[..found] == *expected, "seed {seed}, op {i}: at {offset}");
            }
            8 => {
                let size = random.below(600_000);
                file.set_len(size as u64).unwrap();
                model.resize(size, 0);
            }
            _ => match random.below(4) {
                0 => file.sync_all().unwrap(),
                1 => {
                    drop(file);
                    file = options();
                }
                _ => assert_eq!(file.metadata().unwrap().len(), model.len() as u64),
            },
        }
    }
    assert!(fs::read(path).unwrap() == model);
}

/// Names come and go; compared with the model at the end.
fn storm(directory: &Path, seed: u64) {
    let mut random = Random::new(seed);
    let mut model = Model::default();
    let directory = &directory.join("storm");
    fs::create_dir(directory).unwrap();
    let at = |path: &str| directory.join(path);
    for i in 0..1500 {
        let op = model.random_op(&mut random);
        let result = match &op {
            Op::Create(path) => {
                OpenOptions::new().write(true).create_new(true).open(at(path)).map(|_| ())
            }
            Op::MakeDirectory(path) => fs::create_dir(at(path)),
            Op::Symlink(path) => std::os::unix::fs::symlink("somewhere", at(path)),
            Op::Link(old, _) if at(old).is_symlink() => Err(std::io::ErrorKind::Other.into()),
            Op::Link(old, new) => fs::hard_link(at(old), at(new)),
            Op::Unlink(path) => fs::remove_file(at(path)),
            Op::RemoveDirectory(path) => fs::remove_dir(at(path)),
            Op::Rename(old, new) => fs::rename(at(old), at(new)),
            Op::Write(path, offset, data) => OpenOptions::new()
                .write(true)
                .open(at(path))
                .and_then(|file| file.write_all_at(data, *offset)),
            Op::Truncate(path, size) => {
                OpenOptions::new().write(true).open(at(path)).and_then(|file| file.set_len(*size))
            }
            Op::Sync => File::open(directory).and_then(|directory| directory.sync_all()),
        };
        let expected = model.apply(&op);
        assert_eq!(result.is_ok(), expected, "seed {seed}, op {i}: {op:?}: {result:?}");
    }
    let mut found = 0;
    let mut open = vec![String::new()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(at(&path)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            found += 1;
            let seen = fs::symlink_metadata(at(&path)).unwrap();
            match model.nodes.get(&path) {
                Some(Node::Directory) => {
                    assert!(seen.is_dir(), "{path}");
                    open.push(path);
                }
                Some(Node::Link(target)) => {
                    assert_eq!(
                        fs::read_link(at(&path)).unwrap().as_os_str().as_encoded_bytes(),
                        target
                    );
                }
                Some(Node::File(file)) => {
                    let links = model.nodes.values().filter(|it| **it == Node::File(*file)).count();
                    assert_eq!(seen.nlink(), links as u64, "{path}");
                    assert!(fs::read(at(&path)).unwrap() == *model.files[*file], "{path}");
                }
                None => panic!("{path} should not be there"),
            }
        }
    }
    assert_eq!(found, model.nodes.len());
}

/// What is known goes on without a name: descriptors of any kind, working directories, open
/// directories.
fn unnamed(directory: &Path) {
    let at = |name: &str| directory.join(name);
    let special = |name: &str, flags: i32| {
        OpenOptions::new().read(true).custom_flags(flags).open(at(name)).unwrap()
    };
    let links = |file: &File| file.metadata().unwrap().nlink();
    for round in 0..3 {
        fs::write(at("file"), "contents").unwrap();
        let file = special("file", libc::O_PATH);
        let opened = special("file", 0);
        fs::remove_file(at("file")).unwrap();
        assert_eq!((links(&file), file.metadata().unwrap().len()), (0, 8), "{round}");
        assert_eq!(std::io::read_to_string(&opened).unwrap(), "contents");
        drop(opened);
        assert_eq!(links(&file), 0);

        let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        let pipe = OpenOptions::new().read(true).write(true).open(at("pipe")).unwrap();
        fs::remove_file(at("pipe")).unwrap();
        (&pipe).write_all(b"through").unwrap();
        let mut through = [0; 7];
        (&pipe).read_exact(&mut through).unwrap();
        assert_eq!((links(&pipe), &through), (0, b"through"));

        std::os::unix::fs::symlink("somewhere", at("link")).unwrap();
        let link = special("link", libc::O_PATH | libc::O_NOFOLLOW);
        fs::remove_file(at("link")).unwrap();
        assert!(link.metadata().unwrap().is_symlink());

        fs::create_dir(at("directory")).unwrap();
        fs::write(at("directory/inside"), "x").unwrap();
        let open = special("directory", 0);
        let mut listing = fs::read_dir(at("directory")).unwrap();
        std::env::set_current_dir(at("directory")).unwrap();
        fs::remove_file(at("directory/inside")).unwrap();
        fs::remove_dir(at("directory")).unwrap();
        assert!(open.metadata().unwrap().is_dir() && links(&open) == 0);
        assert!(fs::metadata(".").unwrap().is_dir());
        assert!(listing.next().is_none_or(|it| {
            it.is_ok() || it.is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
        }));
        assert_eq!(File::create("new").unwrap_err().raw_os_error(), Some(libc::ENOENT));

        // Another file, or directory, takes the place.
        fs::write(at("old"), "old").unwrap();
        let old = special("old", libc::O_PATH);
        fs::write(at("new"), "new").unwrap();
        fs::rename(at("new"), at("old")).unwrap();
        assert_eq!((links(&old), fs::read(at("old")).unwrap()), (0, b"new".to_vec()));
        fs::create_dir(at("one")).unwrap();
        fs::create_dir(at("other")).unwrap();
        let one = special("one", 0);
        fs::rename(at("other"), at("one")).unwrap();
        assert!(one.metadata().unwrap().is_dir() && links(&one) == 0);
        std::env::set_current_dir(directory).unwrap();
        fs::remove_dir(at("one")).unwrap();
        fs::remove_file(at("old")).unwrap();
    }
}

/// A name of 255 bytes is a name, and a longer one is told from one that is not there.
fn long_names(directory: &Path) {
    let longest = directory.join("x".repeat(255));
    fs::write(&longest, "x").unwrap();
    fs::create_dir(directory.join("d")).unwrap();
    fs::remove_file(&longest).unwrap();
    for length in [256, 300, 1000] {
        let long = directory.join("x".repeat(length));
        let d = directory.join("d");
        let tried = [
            fs::metadata(&long).map(|_| ()),
            File::open(&long).map(|_| ()),
            File::create(&long).map(|_| ()),
            fs::remove_file(&long),
            fs::create_dir(&long),
            fs::remove_dir(&long),
            fs::rename(&long, &d),
            fs::rename(&d, &long),
            fs::hard_link(&long, &d),
            std::os::unix::fs::symlink("x", &long),
        ];
        for (i, result) in tried.into_iter().enumerate() {
            let error = result.expect_err("it is too long");
            assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG), "{length}, {i}");
        }
    }
}

/// The disk takes nothing any more: who has written hears of it, by `write`, `fsync` or `close`.
fn lost(directory: &Path) {
    let file = File::create(directory.join("new")).unwrap();
    (&file).write_all(b"lost").unwrap();
    assert!(file.sync_all().is_err());
    assert!((&file).write_all(b"lost").is_err());
    assert_eq!(close(file.try_clone().unwrap().into()), Err(libc::EIO));
    assert_eq!(close(file.into()), Err(libc::EIO));
    let read = File::open(directory.join("old")).unwrap();
    assert_eq!(std::io::read_to_string(&read).unwrap(), "old");
    assert_eq!(close(read.into()), Ok(()));
}

fn close(descriptor: OwnedFd) -> Result<(), i32> {
    // SAFETY: it is owned, and nobody uses it afterwards.
    let result = unsafe { libc::close(descriptor.into_raw_fd()) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}

#[test]
fn what_is_known_goes_on_without_a_name() {
    if !has_fuse("what_is_known_goes_on_without_a_name") {
        return;
    }
    let site = Site::new("unnamed");
    let handle = site.mount(made(40_000), Rules::default(), false);
    site.work("unnamed 0");
    site.work("long 0");
    site.sh("rmdir d; mkdir w; cd w; rmdir ../w; stat . > /dev/null; test -z \"$(ls -A)\"");
    // Nothing of it is left, also of what is known when it ends.
    let mut fs = remounted(handle);
    let report = fs.check().unwrap();
    assert_eq!((report.files, report.directories, report.others), (0, 2, 0));
}

#[test]
fn a_read_only_volume_is_mounted_read_only() {
    if !has_fuse("a_read_only_volume_is_mounted_read_only") {
        return;
    }
    let site = Site::new("readonly");
    let device = made(40_000);
    let handle = site.mount(device.clone(), Rules::default(), false);
    site.sh("echo kept > f; mkdir d; cp f d/g");
    handle.unmount().unwrap();
    device.memory().lock().unwrap().set_read_only(true);
    let refused = FileSystem::mount(device.clone(), MountOptions::default()).err().unwrap();
    assert!(matches!(refused, dhisfs::FsError::ReadOnlyDevice), "{refused}");
    let handle = site.mount_read_only(device.clone());
    site.sh("test $(cat d/g) = kept; ls -l . > /dev/null; df . > /dev/null
         for try in 'echo x > n' 'rm -f f' 'mkdir m' 'mv f e' 'chmod 600 f' 'echo x >> f'; do
             if sh -c \"$try\" 2> /dev/null; then echo \"$try\"; exit 1; fi; done");
    handle.unmount().unwrap();
}

#[test]
fn who_writes_hears_that_nothing_is_written_any_more() {
    if !has_fuse("who_writes_hears_that_nothing_is_written_any_more") {
        return;
    }
    let site = Site::new("lost");
    let device = made(40_000);
    let handle = site.mount(device.clone(), Rules::default(), false);
    site.sh("echo -n old > old; sync old");
    device.memory().lock().unwrap().fail_after(0);
    site.work("lost 0");
    assert!(handle.unmount().is_err());
}

#[test]
fn random_work_on_files_and_names() {
    if !has_fuse("random_work_on_files_and_names") {
        return;
    }
    let site = Site::new("random");
    let handle = site.mount(made(40_000), Rules::default(), false);
    // Several at once.
    std::thread::scope(|scope| {
        for work in ["fsx 1", "fsx 2", "fsx 3", "storm 1"] {
            let site = &site;
            scope.spawn(move || site.work(work));
        }
    });
    site.sh("rm fsx-*");
    let mut fs = remounted(handle);
    let storm = find(&mut fs, "storm").unwrap();
    assert!(fs.list(storm).unwrap().len() > 3);
}

#[test]
fn everyday_work() {
    if !has_fuse("everyday_work") {
        return;
    }
    let site = Site::new("everyday");
    let text = "[[rule]]\nmatch = [\"*.c\"]\nset = \"important\"\n\
                [[rule]]\nmatch = [\"*.o\"]\nset = \"temporary\"\n";
    let rules = Rules::parse(text, "rules".as_ref()).unwrap();
    let handle = site.mount(made(40_000), rules, true);
    site.sh(
        "mkdir -p a/b/c; echo one > a/b/c/f; ln a/b/c/f a/g; ln -s b/c/f a/s; cat a/s; mkfifo a/p
         test $(stat -c %h a/g) = 2; chmod 640 a/g; test $(stat -c %a a/b/c/f) = 640
         touch -d '2001-02-03 04:05:06.789 UTC' a/g; test $(stat -c %Y a/g) = 981173106
         mv a/b/c/f a/b/h; test ! -e a/s; rm a/g; test $(cat a/b/h) = one
         for i in $(seq 300); do echo $i > a/b/c/n$i; done; test $(ls a/b/c | wc -l) = 300
         test $(cat a/b/c/n* | wc -l) = 300; rm -r a/b; test ! -e a/b; test $(ls a | wc -l) = 2
         ! rmdir a 2>/dev/null; ! cat a/none 2>/dev/null
         truncate -s 3G sparse; test $(stat -c %b sparse) = 0; rm sparse
         exec 3> open; rm open; echo kept >&3; exec 3>&-
         cp -a /etc/services .; cmp /etc/services services; df . > /dev/null",
    );
    if Command::new("cc").arg("--version").output().is_ok() {
        let made = site.sh("mkdir src; cd src
             for i in $(seq 12); do echo \"int f$i(int x) { return x + $i; }\" > f$i.c; done
             echo 'int f1(int), f12(int); int main(void) { return f1(0) + f12(0) - 13; }' > main.c
             for f in *.c; do cc -c $f; done; ar rcs libf.a f*.o; cc -o main main.o libf.a; ./main
             echo made");
        assert_eq!(made, "made\n");
    }
    let mut fs = remounted(handle);
    for (path, hint) in [("src/f1.c", "important"), ("src/f1.o", "temporary")] {
        if let Ok(file) = find(&mut fs, path) {
            let found = fs.extended(file, dhisfs::HINT_NAME).unwrap();
            assert_eq!(String::from_utf8(found).unwrap(), hint, "{path}");
        }
    }
}

#[test]
fn nobody_waits_for_the_disk_of_another() {
    if !has_fuse("nobody_waits_for_the_disk_of_another") {
        return;
    }
    let site = Site::new("gates");
    let device = made(40_000);
    let handle = site.mount(device.clone(), Rules::default(), false);
    site.sh("for i in 1 2 3; do head -c 50000 /dev/urandom > f$i; cp f$i d$i; done; sync f1");
    handle.unmount().unwrap();
    let handle = site.mount(device.clone(), Rules::default(), false);
    site.sh("ls -l f1 f2 f3 d1 d2 d3");

    // While a flush takes for ever, others read what is on the disk, write, and make files.
    device.close(Gate::Flush);
    let mut syncing = site.start("echo new > s; sync s");
    device.wait_until_held(1);
    let mut others =
        site.start("cmp f1 d1; echo more >> f2; mkdir m; echo new > m/n; test $(cat m/n) = new");
    assert!(ends(&mut others), "they wait for a flush");
    assert!(syncing.try_wait().unwrap().is_none(), "it is not durable");
    device.open();
    assert!(ends(&mut syncing));

    // While a read takes for ever, others read.
    device.close(Gate::FirstRead);
    let mut reading = site.start("cat f3");
    device.wait_until_held(1);
    let mut others = site.start("cat d2 d3; echo more >> f2; sync f2");
    assert!(ends(&mut others), "they wait for a read");
    assert!(reading.try_wait().unwrap().is_none(), "it is being read");
    device.open();
    assert!(ends(&mut reading));
    site.sh("cmp f3 d3; test $(wc -c < f2) = 50010");
    remounted(handle);
}
