//! The FUSE file and loop devices on it, with the real kernel and a disk in memory.
//!
//! Proved: every byte goes where it should, also with several unaligned writers of one block and
//! with requests answered out of order; flushes, FUA, discards and zeroing reach the engine as
//! such; ext4 on a loop device comes through clean; and after a `kill -9`, also one in the middle
//! of attaching or detaching, the next daemon can mount at the same place.
//!
//! The file system is served by a second process (this program again, with `DCD_FUSE_SERVER` set),
//! because no process may use its own FUSE mount, see `frontend/fuse/`. It takes orders on its
//! standard input. Tests are skipped, with the reason, where `/dev/fuse`, loop devices or rights
//! are missing.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use dcd_daemon::device::loop_device::{self, LoopError};
use dcd_daemon::frontend::Submit;
use dcd_daemon::frontend::fuse::{self, FuseError};
use dcd_engine::buffer::Buffer;
use dcd_engine::io::{Operation, Reply, RequestError, RequestId};

const MIB: u64 = 1 << 20;

// The server: a disk in memory behind the frontend under test.

type Completion = Box<dyn FnOnce(Reply) + Send>;
type Job = (Operation, bool, Completion);

struct MemoryDisk {
    jobs: Mutex<mpsc::Sender<Job>>,
}

impl Submit for MemoryDisk {
    fn submit(&self, operation: Operation, fua: bool, completion: Completion) {
        let _ = self.jobs.lock().unwrap().send((operation, fua, completion));
    }
}

/// Starts the disk. It answers whatever has come in meanwhile, the newest first, so that nobody
/// can rely on order; `slow` makes every batch take that long. What it is asked (but for reads) is
/// written to `journal`.
fn memory_disk(size: u64, block_size: u64, slow: Duration, mut journal: File) -> MemoryDisk {
    let (jobs, inbox) = mpsc::channel::<Job>();
    std::thread::spawn(move || {
        let mut bytes = vec![0u8; size as usize];
        while let Ok(first) = inbox.recv() {
            std::thread::sleep(slow);
            let mut batch = vec![first];
            batch.extend(inbox.try_iter());
            for (operation, fua, completion) in batch.into_iter().rev() {
                let (result, buffer) =
                    perform(&mut bytes, block_size, operation, fua, &mut journal);
                completion(Reply { id: RequestId(0), result, buffer, answer: None });
            }
        }
    });
    MemoryDisk { jobs: Mutex::new(jobs) }
}

fn perform(
    bytes: &mut [u8],
    block_size: u64,
    operation: Operation,
    fua: bool,
    journal: &mut File,
) -> (Result<(), RequestError>, Option<Buffer>) {
    let check = |start: u64, length: u64| {
        assert!(start.is_multiple_of(block_size) && length.is_multiple_of(block_size));
        assert!(length > 0);
        start as usize..(start + length) as usize
    };
    let fua = if fua { " fua" } else { "" };
    match operation {
        Operation::Read { range, .. } => {
            let place = check(range.start.byte(), range.bytes());
            return (Ok(()), Some(Buffer::copy_of(&bytes[place])));
        }
        Operation::Write { start, data } => {
            let place = check(start.byte(), data.len() as u64);
            writeln!(journal, "write {} {}{fua}", start.0, data.len()).unwrap();
            if data.bytes().starts_with(b"please fail") {
                return (Err(RequestError::Io), Some(data));
            }
            if data.bytes().starts_with(b"please be full") {
                return (Err(RequestError::NoSpace), Some(data));
            }
            bytes[place].copy_from_slice(data.bytes());
            return (Ok(()), Some(data));
        }
        Operation::WriteZeroes { range, may_unmap } => {
            writeln!(journal, "zero {} {} {may_unmap}", range.start.0, range.blocks).unwrap();
            bytes[check(range.start.byte(), range.bytes())].fill(0);
        }
        Operation::Discard { range } => {
            writeln!(journal, "discard {} {}", range.start.0, range.blocks).unwrap();
            bytes[check(range.start.byte(), range.bytes())].fill(0);
        }
        Operation::Flush => writeln!(journal, "flush").unwrap(),
        Operation::Drain
        | Operation::CancelDrain { .. }
        | Operation::Sequence(_)
        | Operation::Volume(_)
        | Operation::FillLeg { .. }
        | Operation::TakeOutLeg { .. }
        | Operation::Resize { .. }
        | Operation::ResizeReadArea { .. }
        | Operation::CancelResize { .. }
        | Operation::RemoveNvram
        | Operation::CancelNvramChange { .. }
        | Operation::Detach
        | Operation::DetachAccepting { .. }
        | Operation::CancelDetach
        | Operation::Shutdown => unreachable!(),
    }
    (Ok(()), None)
}

/// Not a test: the other process.
#[test]
#[ignore = "run by the tests"]
fn server_process() {
    let Ok(directory) = std::env::var("DCD_FUSE_SERVER").map(PathBuf::from) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (size, block_size) = (number("DCD_FUSE_SIZE"), number("DCD_FUSE_BLOCK"));
    let slow = Duration::from_micros(number("DCD_FUSE_SLOW"));
    let read_only = number("DCD_FUSE_READ_ONLY") == 1;
    let journal =
        OpenOptions::new().append(true).open(std::env::var("DCD_FUSE_JOURNAL").unwrap()).unwrap();
    let disk = Arc::new(memory_disk(size, block_size, slow, journal));

    let stale = loop_device::detach_stale(&directory.join(fuse::FILE_NAME)).expect("detach stale");
    for device in &stale {
        println!("@stale {} {}", device.path.display(), device.still_open);
    }
    let mount = match fuse::mount(&directory, size, block_size as u32, read_only, true, disk) {
        Ok(mount) => mount,
        Err(error) => {
            println!("@error {error:?}; hint: {}", error.hint().unwrap_or_default());
            return;
        }
    };
    println!("@ready");
    let mut device = None;
    for order in std::io::stdin().lines() {
        match order.unwrap().as_str() {
            "attach" => {
                let attached =
                    loop_device::attach(&mount.file(), block_size as u32, read_only, &stale);
                match attached {
                    Ok(attached) => {
                        println!("@attached {}", attached.path().display());
                        device = Some(attached);
                    }
                    Err(error) => println!("@error {error:?}"),
                }
            }
            "detach" => match device.take().unwrap().detach() {
                Ok(()) => println!("@detached"),
                Err(LoopError::StillOpen { .. }) => println!("@still open"),
                Err(error) => println!("@error {error:?}"),
            },
            "unmount" => {
                match mount.unmount() {
                    Ok(()) => println!("@unmounted"),
                    Err(FuseError::Busy { .. }) => println!("@busy"),
                    Err(error) => println!("@error {error:?}"),
                }
                break;
            }
            order => unreachable!("{order}"),
        }
    }
}

// The client: starting and asking that process, and cleaning up after it.

struct Options {
    size: u64,
    block_size: u64,
    slow: Duration,
    read_only: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            size: 8 * MIB,
            block_size: 512,
            slow: Duration::from_micros(200),
            read_only: false,
        }
    }
}

/// A directory to mount at, and the journal beside it. Removes all that is left of the test.
struct Place {
    root: PathBuf,
}

impl Place {
    fn new(name: &str) -> Place {
        let root = std::env::temp_dir().join(format!("dcd-fuse-{}-{name}", std::process::id()));
        std::fs::create_dir_all(root.join("mount")).unwrap();
        std::fs::create_dir_all(root.join("ext4")).unwrap();
        File::create(root.join("journal")).unwrap();
        Place { root }
    }

    fn mount(&self) -> PathBuf {
        self.root.join("mount")
    }

    fn disk(&self) -> PathBuf {
        self.mount().join("disk")
    }

    /// What the disk was asked since the last call.
    fn journal(&self) -> Vec<String> {
        let path = self.root.join("journal");
        let lines = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        lines
    }

    fn start(&self, options: &Options) -> Server {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["server_process", "--exact", "--ignored", "--nocapture"])
            .env("DCD_FUSE_SERVER", self.mount())
            .env("DCD_FUSE_JOURNAL", self.root.join("journal"))
            .env("DCD_FUSE_SIZE", options.size.to_string())
            .env("DCD_FUSE_BLOCK", options.block_size.to_string())
            .env("DCD_FUSE_SLOW", options.slow.as_micros().to_string())
            .env("DCD_FUSE_READ_ONLY", u8::from(options.read_only).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The test harness may have put something in front.
                if let Some((_, answer)) = line.split_once('@') {
                    let _ = sender.send(answer.to_owned());
                }
            }
        });
        Server { child, orders, answers }
    }

    fn serve(&self, options: &Options) -> Server {
        let server = self.start(options);
        assert_eq!(server.answer(), "ready");
        server
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for directory in ["ext4", "mount"] {
            let _ = quiet("umount").arg("-l").arg(self.root.join(directory)).status();
        }
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

struct Server {
    child: Child,
    orders: ChildStdin,
    answers: mpsc::Receiver<String>,
}

impl Server {
    fn answer(&self) -> String {
        self.answers.recv_timeout(Duration::from_secs(30)).expect("an answer of the server")
    }

    fn order(&mut self, order: &str) -> String {
        self.order_only(order);
        self.answer()
    }

    fn order_only(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// Ends the process with SIGKILL and makes sure that it does end.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the killed server does not die");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A loop device that must be gone at the end of the test, however it ends. Its number may belong
/// to another test by then, so the kernel's count of attachments is remembered, too.
struct LoopGuard(PathBuf, String);

impl Drop for LoopGuard {
    fn drop(&mut self) {
        if self.attached() {
            let _ = quiet("losetup").arg("-d").arg(&self.0).status();
        }
    }
}

impl LoopGuard {
    fn of(answer: &str) -> LoopGuard {
        let path = answer.strip_prefix("attached ").expect(answer);
        let mut device = LoopGuard(path.into(), String::new());
        device.1 = device.sys("diskseq").unwrap_or_default();
        device
    }

    fn sys(&self, name: &str) -> Option<String> {
        let device = self.0.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(format!("/sys/block/{device}/{name}")).ok()?;
        Some(text.trim().to_owned())
    }

    fn attached(&self) -> bool {
        self.sys("loop/backing_file").is_some() && self.sys("diskseq").unwrap_or_default() == self.1
    }

    fn wait_until_gone(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.attached() {
            assert!(Instant::now() < deadline, "{} does not go", self.0.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// Unmounts; patiently, because a child of another test may hold our files between fork and exec.
fn unmount(directory: &Path) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !quiet("umount").arg(directory).status().unwrap().success() {
        assert!(Instant::now() < deadline, "cannot unmount {}", directory.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether to skip, and why.
fn skip(need_loop: bool) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let missing = |path: &str| !Path::new(path).exists();
    let cannot = |program: &str| quiet(program).arg("-V").status().is_err();
    let reason = if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        "/dev/fuse is missing or not for us"
    } else if !is_root && cannot("fusermount3") {
        "not root and no fusermount3"
    } else if need_loop && !is_root {
        "loop devices need root"
    } else if need_loop && missing("/dev/loop-control") {
        "no /dev/loop-control"
    } else if need_loop && (cannot("mkfs.ext4") || cannot("e2fsck")) {
        "no e2fsprogs"
    } else {
        return false;
    };
    eprintln!("skipped: {reason}");
    true
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// The system's error number of a result that must be an error.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

// The tests.

#[test]
fn shows_one_file_and_keeps_it() {
    if skip(false) {
        return;
    }
    let place = Place::new("names");
    let mut server = place.serve(&Options::default());
    let names: Vec<_> =
        std::fs::read_dir(place.mount()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["disk"]);
    let metadata = std::fs::metadata(place.disk()).unwrap();
    assert_eq!(metadata.len(), 8 * MIB);
    assert_eq!(metadata.blocks(), 8 * MIB / 512);
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    assert_eq!(metadata.uid(), rustix::process::geteuid().as_raw());

    let eperm = libc::EPERM;
    assert_eq!(errno(File::create(place.mount().join("other"))), eperm);
    assert_eq!(errno(File::create(place.disk())), eperm); // O_TRUNC
    assert_eq!(errno(std::fs::remove_file(place.disk())), eperm);
    assert_eq!(errno(std::fs::rename(place.disk(), place.mount().join("other"))), eperm);
    assert_eq!(errno(open(&place.disk()).set_len(MIB)), eperm);
    open(&place.disk()).set_len(8 * MIB).unwrap();
    open(&place.disk()).set_modified(std::time::SystemTime::now()).unwrap();
    assert_eq!(errno(std::fs::metadata(place.mount().join("none"))), libc::ENOENT);

    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = format!("dcd {} fuse.dcd ", place.mount().display());
    let line = mounts.lines().find(|line| line.starts_with(&mount)).expect("the mount");
    assert!(line.contains("default_permissions"));
    assert!(!line.contains("allow_other"));
    assert_eq!(server.order("unmount"), "unmounted");
    assert!(!place.disk().exists());
}

#[test]
fn reads_and_writes_at_any_byte() {
    if skip(false) {
        return;
    }
    for block_size in [512, 4096] {
        let place = Place::new(&format!("bytes-{block_size}"));
        let _server = place.serve(&Options { block_size, ..Options::default() });
        let file = open(&place.disk());
        let mut model = vec![0u8; 8 << 20];
        let mut random = pattern(8 * 400, block_size);
        for (i, chunk) in random.chunks_exact_mut(8).enumerate() {
            let number = u64::from_le_bytes(chunk.try_into().unwrap());
            let offset = (number >> 16) as usize % model.len();
            // Mostly small and odd; sometimes more than one request takes.
            let length = if i % 20 == 0 { 3 << 19 } else { number as usize % 9000 };
            let length = length.min(model.len() - offset);
            let data = pattern(length, number);
            file.write_all_at(&data, offset as u64).unwrap();
            model[offset..offset + length].copy_from_slice(&data);
            let from = offset.saturating_sub(700);
            let mut back = vec![0; (length + 1400).min(model.len() - from)];
            file.read_exact_at(&mut back, from as u64).unwrap();
            assert!(back == model[from..from + back.len()], "at {offset}, {length} bytes");
        }
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut open(&place.disk()), &mut all).unwrap();
        assert!(all == model);
    }
}

#[test]
fn direct_io_reaches_the_disk_as_it_is() {
    if skip(false) {
        return;
    }
    let place = Place::new("direct");
    let _server = place.serve(&Options::default());
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(place.disk())
        .unwrap();
    let mut buffer = Buffer::copy_of(&pattern(1 << 20, 1));
    file.write_all_at(buffer.bytes(), 512).unwrap();
    assert_eq!(place.journal(), ["write 1 1048576"], "one request for 1 MiB");
    let expected = buffer.clone();
    buffer.bytes_mut().fill(0);
    file.read_exact_at(buffer.bytes_mut(), 512).unwrap();
    assert!(buffer.bytes() == expected.bytes());
}

#[test]
fn the_end_is_the_end() {
    if skip(false) {
        return;
    }
    let place = Place::new("end");
    let _server = place.serve(&Options::default());
    let file = open(&place.disk());
    let mut buffer = [1; 1000];
    assert_eq!(file.read_at(&mut buffer, 8 * MIB - 100).unwrap(), 100);
    assert_eq!(file.read_at(&mut buffer, 8 * MIB).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 9 * MIB).unwrap(), 0);
    assert_eq!(file.write_at(&buffer, 8 * MIB - 100).unwrap(), 100);
    assert_eq!(errno(file.write_at(&buffer, 8 * MIB)), libc::ENOSPC);
    assert_eq!(file.metadata().unwrap().len(), 8 * MIB);
}

#[test]
fn flush_and_fua() {
    if skip(false) {
        return;
    }
    let place = Place::new("flush");
    let _server = place.serve(&Options::default());
    let file = open(&place.disk());
    file.write_all_at(&[1; 512], 0).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    drop(file);
    assert_eq!(place.journal(), ["write 0 512", "flush", "flush"], "no flush for the close");
    for flag in [libc::O_SYNC, libc::O_DSYNC] {
        let file = File::options().write(true).custom_flags(flag).open(place.disk()).unwrap();
        file.write_all_at(&[1; 512], 512).unwrap();
        assert_eq!(place.journal(), ["write 1 512 fua"]);
        file.write_all_at(&[1; 100], 1000).unwrap();
        assert_eq!(place.journal(), ["write 1 512 fua", "write 2 512 fua"]);
    }
}

#[test]
fn errors_come_through() {
    if skip(false) {
        return;
    }
    let place = Place::new("errors");
    let _server = place.serve(&Options::default());
    let file = open(&place.disk());
    let padded = |text: &str| {
        let mut data = text.as_bytes().to_vec();
        data.resize(512, 0);
        data
    };
    assert_eq!(errno(file.write_at(&padded("please fail"), 0)), libc::EIO);
    assert_eq!(errno(file.write_at(&padded("please be full"), 0)), libc::ENOSPC);
    assert_eq!(errno(file.write_at(b"please fail", 0)), libc::EIO); // read, change, write back
    file.write_all_at(b"fine", 0).unwrap();
}

#[test]
fn read_only() {
    if skip(false) {
        return;
    }
    let place = Place::new("read-only");
    let _server = place.serve(&Options { read_only: true, ..Options::default() });
    let opened = File::options().read(true).write(true).open(place.disk());
    assert_eq!(errno(opened), libc::EROFS);
    let mut buffer = [1; 100];
    File::open(place.disk()).unwrap().read_exact_at(&mut buffer, 3).unwrap();
    assert_eq!(buffer, [0; 100]);
}

fn fallocate(file: &File, mode: i32, offset: u64, length: u64) -> std::io::Result<()> {
    let flags = rustix::fs::FallocateFlags::from_bits_retain(mode as u32);
    Ok(rustix::fs::fallocate(file, flags, offset, length)?)
}

#[test]
fn punching_and_zeroing() {
    if skip(false) {
        return;
    }
    let place = Place::new("fallocate");
    let _server = place.serve(&Options::default());
    let file = open(&place.disk());
    let mut model = pattern(64 << 10, 5);
    file.write_all_at(&model, 0).unwrap();
    place.journal();

    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    fallocate(&file, PUNCH, 4096, 8192).unwrap();
    model[4096..12288].fill(0);
    assert_eq!(place.journal(), ["discard 8 16"]);
    fallocate(&file, PUNCH, 20000, 5000).unwrap();
    model[20000..25000].fill(0);
    assert_eq!(place.journal(), ["write 39 512", "discard 40 8", "write 48 512"]);
    fallocate(&file, ZERO | KEEP, 30000, 100).unwrap();
    model[30000..30100].fill(0);
    assert_eq!(place.journal(), ["write 58 512"]);
    fallocate(&file, ZERO, 32768, 512).unwrap();
    model[32768..33280].fill(0);
    assert_eq!(place.journal(), ["zero 64 1 false"]);
    let mut back = vec![0; model.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == model);

    fallocate(&file, 0, 0, 8 * MIB).unwrap();
    fallocate(&file, PUNCH, 7 * MIB, 2 * MIB).unwrap();
    assert_eq!(place.journal(), ["discard 14336 2048"], "cut at the end");
    assert_eq!(errno(fallocate(&file, 0, 0, 9 * MIB)), libc::ENOSPC);
    assert_eq!(errno(fallocate(&file, ZERO, 7 * MIB, 2 * MIB)), libc::ENOSPC);
    assert_eq!(errno(fallocate(&file, PUNCH, 8 * MIB, 512)), libc::ENOSPC);
    assert_eq!(errno(fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);
}

//  block:   |0                    |1                   |
//  writers:  0000 1111 ... 7777 0000 1111 ...            37 bytes each, all blocks shared
#[test]
fn unaligned_writers_of_one_block_do_not_undo_each_other() {
    if skip(false) {
        return;
    }
    const PIECE: usize = 37;
    const WRITERS: usize = 8;
    const PIECES: usize = 150;
    let place = Place::new("writers");
    let _server = place.serve(&Options::default());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let disk = place.disk();
            scope.spawn(move || {
                let file = open(&disk);
                for piece in 0..PIECES {
                    let at = (piece * WRITERS + writer) * PIECE;
                    file.write_all_at(&[writer as u8 + 1; PIECE], at as u64).unwrap();
                }
            });
        }
        // And one who writes whole blocks next to theirs, and punches holes there.
        let disk = place.disk();
        scope.spawn(move || {
            let file = open(&disk);
            for _ in 0..200 {
                file.write_all_at(&[0x77; 4096], MIB).unwrap();
                fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, MIB + 4000, 100).unwrap();
                file.write_all_at(&[0x78; 3000], MIB + 5000).unwrap();
            }
        });
    });
    let mut back = vec![0; PIECE * WRITERS * PIECES];
    let file = open(&place.disk());
    file.read_exact_at(&mut back, 0).unwrap();
    for (index, piece) in back.chunks_exact(PIECE).enumerate() {
        assert_eq!(piece, [(index % WRITERS) as u8 + 1; PIECE], "piece {index}");
    }
    let mut back = vec![0; 8000];
    file.read_exact_at(&mut back, MIB).unwrap();
    assert!(back[..4000].iter().all(|byte| *byte == 0x77));
    assert!(back[4000..4100].iter().all(|byte| *byte == 0));
    assert!(back[5000..8000].iter().all(|byte| *byte == 0x78));
}

#[test]
fn many_requests_are_in_flight_at_once() {
    if skip(false) {
        return;
    }
    // Each batch takes 20 ms. One after the other, 64 writes would take 1.3 s.
    let place = Place::new("depth");
    let slow = Duration::from_millis(20);
    let _server = place.serve(&Options { slow, ..Options::default() });
    let started = Instant::now();
    std::thread::scope(|scope| {
        for i in 0..64 {
            let disk = place.disk();
            scope.spawn(move || open(&disk).write_all_at(&[1; 4096], i * 4096).unwrap());
        }
    });
    let took = started.elapsed();
    assert!(took < Duration::from_millis(600), "64 writes took {took:?}");
}

#[test]
fn refuses_a_bad_directory_with_a_hint() {
    if skip(false) {
        return;
    }
    let place = Place::new("refuse");
    let _server = place.serve(&Options::default());
    let second = place.start(&Options::default()).answer();
    assert!(second.contains("AlreadyMounted"), "{second}");
    assert!(second.contains("umount"), "{second}");
    open(&place.disk()).write_all_at(b"the first one goes on", 0).unwrap();

    let missing = Place::new("missing");
    std::fs::remove_dir(missing.mount()).unwrap();
    let answer = missing.start(&Options::default()).answer();
    assert!(answer.contains("MissingDirectory") && answer.contains("mkdir"), "{answer}");
    File::create(missing.mount()).unwrap();
    let answer = missing.start(&Options::default()).answer();
    assert!(answer.contains("NotADirectory"), "{answer}");
}

#[test]
fn unmounting_while_busy_is_an_error_and_lets_go() {
    if skip(false) {
        return;
    }
    let place = Place::new("busy");
    let mut server = place.serve(&Options::default());
    let file = open(&place.disk());
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(server.order("unmount"), "busy");
    assert!(!place.disk().exists(), "the mount has been detached");
}

#[test]
fn mounts_over_the_mount_of_a_killed_server() {
    if skip(false) {
        return;
    }
    let place = Place::new("stale");
    let mut server = place.serve(&Options::default());
    let file = open(&place.disk()); // and it is still in use
    server.kill();
    assert_eq!(errno(file.write_at(b"x", 0)), libc::ENOTCONN);
    let mut server = place.serve(&Options::default());
    open(&place.disk()).write_all_at(b"new", 0).unwrap();
    assert_eq!(errno(file.write_at(b"x", 0)), libc::ENOTCONN);
    assert_eq!(server.order("unmount"), "unmounted");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(place.mount().to_str().unwrap()), "nothing is left:\n{mounts}");
}

fn ext4_round_trip(block_size: u64) {
    let place = Place::new(&format!("ext4-{block_size}"));
    let options = Options { size: 64 * MIB, block_size, ..Options::default() };
    let mut server = place.serve(&options);
    let device = LoopGuard::of(&server.order("attach"));
    assert_eq!(device.sys("loop/dio").as_deref(), Some("1"), "direct I/O");
    assert_eq!(device.sys("queue/logical_block_size"), Some(block_size.to_string()));
    assert_eq!(device.sys("loop/backing_file"), Some(place.disk().display().to_string()));
    let (path, mount) = (device.0.as_os_str(), place.root.join("ext4"));

    place.journal();
    run("mkfs.ext4", &["-q".as_ref(), path]);
    let journal = place.journal();
    assert!(journal.iter().any(|line| line.starts_with("discard")), "mkfs discards");
    run("mount", &[path, mount.as_os_str()]);
    let contents = pattern(5 << 20, 3);
    std::fs::write(mount.join("file"), &contents).unwrap();
    File::open(mount.join("file")).unwrap().sync_all().unwrap();
    assert!(place.journal().iter().any(|line| line == "flush"), "fsync flushes");
    unmount(&mount);
    run("e2fsck", &["-fn".as_ref(), path]);
    run("mount", &["-o".as_ref(), "ro".as_ref(), path, mount.as_os_str()]);
    assert!(std::fs::read(mount.join("file")).unwrap() == contents);
    unmount(&mount);

    // What is only in the page cache of the device is written when it is detached.
    open(&device.0).write_all_at(&[0x5a; 1 << 20], 63 * MIB).unwrap();
    assert_eq!(server.order("detach"), "detached");
    assert!(!device.attached());
    let mut back = vec![0; 1 << 20];
    open(&place.disk()).read_exact_at(&mut back, 63 * MIB).unwrap();
    assert!(back == [0x5a; 1 << 20]);
    assert_eq!(server.order("unmount"), "unmounted");
}

#[test]
fn ext4_on_a_loop_device() {
    if skip(true) {
        return;
    }
    ext4_round_trip(512);
    ext4_round_trip(4096);
}

fn make_partition(disk: &Path) {
    let mut sfdisk = quiet("sfdisk").arg(disk).stdin(Stdio::piped()).spawn().unwrap();
    sfdisk.stdin.take().unwrap().write_all(b"label: gpt\nsize=4MiB\n").unwrap();
    assert!(sfdisk.wait().unwrap().success());
}

/// Whether partitions appear on a loop device of a plain file.
fn kernel_reads_labels(file: &Path) -> bool {
    File::create(file).unwrap().set_len(16 << 20).unwrap();
    make_partition(file);
    let made = Command::new("losetup").args(["--find", "--show", "--partscan"]).arg(file).output();
    let made = String::from_utf8(made.unwrap().stdout).unwrap();
    let device = LoopGuard::of(&format!("attached {}", made.trim()));
    let name = device.0.file_name().unwrap().to_str().unwrap().to_owned();
    device.sys(&format!("{name}p1/size")).is_some()
}

#[test]
fn partitions_appear() {
    if skip(true) {
        return;
    }
    if quiet("sfdisk").arg("-v").status().is_err() {
        return eprintln!("skipped: no sfdisk");
    }
    let place = Place::new("partitions");
    if !kernel_reads_labels(&place.root.join("plain")) {
        return eprintln!("skipped: this kernel does not read GPT labels");
    }
    let mut server = place.serve(&Options::default());
    make_partition(&place.disk());
    let device = LoopGuard::of(&server.order("attach"));
    let name = device.0.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(device.sys(&format!("{name}p1/size")).is_some(), "the partition");
    assert_eq!(server.order("detach"), "detached");
}

#[test]
fn a_read_only_loop_device() {
    if skip(true) {
        return;
    }
    let place = Place::new("loop-read-only");
    let mut server = place.serve(&Options { read_only: true, ..Options::default() });
    let device = LoopGuard::of(&server.order("attach"));
    assert_eq!(device.sys("ro").as_deref(), Some("1"));
    assert_eq!(server.order("detach"), "detached");
    assert_eq!(server.order("unmount"), "unmounted");
}

#[test]
fn detaching_while_in_use_waits_for_the_last_user() {
    if skip(true) {
        return;
    }
    let place = Place::new("loop-busy");
    let mut server = place.serve(&Options::default());
    let device = LoopGuard::of(&server.order("attach"));
    let user = open(&device.0);
    assert_eq!(server.order("detach"), "still open");
    user.write_all_at(&[1; 4096], 0).unwrap();
    user.sync_all().unwrap();
    drop(user);
    device.wait_until_gone();
    assert_eq!(server.order("unmount"), "unmounted");
}

#[test]
fn loop_devices_of_a_killed_server_are_detached() {
    if skip(true) {
        return;
    }
    let place = Place::new("loop-stale");
    let mut server = place.serve(&Options::default());
    let device = LoopGuard::of(&server.order("attach"));
    open(&device.0).write_all_at(&[1; 1 << 20], 0).unwrap(); // dirty in the page cache
    server.kill();
    assert!(device.attached());
    let mut server = place.start(&Options::default());
    assert_eq!(server.answer(), format!("stale {} false", device.0.display()));
    assert_eq!(server.answer(), "ready");
    assert!(!device.attached());
    let again = LoopGuard::of(&server.order("attach"));
    assert_eq!(again.0, device.0, "it has its name again");
    let device = again;

    // The next one is still in use, and its mount has been removed before we are asked.
    let user = open(&device.0);
    server.kill();
    run("umount", &["-l".as_ref(), place.mount().as_os_str()]);
    let mut server = place.start(&Options::default());
    assert_eq!(server.answer(), format!("stale {} true", device.0.display()));
    assert_eq!(server.answer(), "ready");
    assert_eq!(errno(user.read_at(&mut [0; 512], MIB)), libc::EIO);
    drop(user);
    device.wait_until_gone();

    // One that works is not touched, whoever asks.
    let device = LoopGuard::of(&server.order("attach"));
    let second = place.start(&Options::default()).answer();
    assert!(second.contains("AlreadyMounted"), "{second}");
    assert!(device.attached());
    assert_eq!(server.order("detach"), "detached");
    assert_eq!(server.order("unmount"), "unmounted");
}

/// The hard case: the kill comes while the server itself waits for I/O on its own device.
#[test]
fn a_server_dies_while_it_attaches_or_detaches() {
    if skip(true) {
        return;
    }
    // So slow that the partition scan and the flush certainly last.
    let slow = Options { slow: Duration::from_millis(400), ..Options::default() };
    let place = Place::new("loop-killed");
    let mut server = place.serve(&slow);
    server.order_only("attach");
    std::thread::sleep(Duration::from_millis(200));
    server.kill();

    let mut server = place.start(&slow);
    let mut answer = server.answer();
    while answer.starts_with("stale") {
        answer = server.answer();
    }
    assert_eq!(answer, "ready");
    let device = LoopGuard::of(&server.order("attach"));
    // An open file keeps what is dirty from being written by the close.
    let user = open(&device.0);
    user.write_all_at(&[1; 4 << 20], 0).unwrap();
    server.order_only("detach");
    std::thread::sleep(Duration::from_millis(200));
    server.kill();
    drop(user);

    let mut server = place.start(&Options::default());
    let mut answer = server.answer();
    while answer.starts_with("stale") {
        answer = server.answer();
    }
    assert_eq!(answer, "ready");
    device.wait_until_gone();
    assert_eq!(server.order("unmount"), "unmounted");
}
