//! What code can do that runs inside a daemon which serves: this program is the daemon, and its
//! call when all is served tries what somebody would who had got hold of it. Nothing that is not
//! the daemon's own may be opened, changed, removed, connected to, signalled, executed or mounted.

mod support;

use std::ffi::CString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dcd_daemon::caretaker::{self, CaretakerProgram};
use dcd_daemon::event_loop::submitter::StopKind;
use dcd_daemon::frontend::nbd::listen::NbdAddress;
use dcd_daemon::serve::{ServeOptions, serve};

/// Set for the child that is a daemon.
const CHILD: &str = "DCD_TEST_CONFINED_DIRECTORY";
/// Set if it serves a file over FUSE; to `loop`, if a loop device of that as well.
const FUSE: &str = "DCD_TEST_CONFINED_FUSE";
const PARENT: &str = "DCD_TEST_CONFINED_PARENT";

fn path(text: &Path) -> CString {
    CString::new(text.as_os_str().as_bytes()).unwrap()
}

fn outcome(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the call, whatever it does.
fn call(number: libc::c_long, arguments: [i64; 5]) -> io::Result<()> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: none of the calls that are tried writes to memory of this process; those that get a
    // pointer get one to a string, or to zeroes, that lives as long as the call.
    outcome(unsafe { libc::syscall(number, a, b, c, d, e) })
}

/// Tries everything; tells each by name.
fn try_all(directory: &Path, parent: i32) {
    let other = directory.join("other");
    let secret = other.join("secret");
    let named = path(&secret);
    let pointer = named.as_ptr() as i64;
    let here = i64::from(libc::AT_FDCWD);
    let mut zeroes = [0u8; 256];
    let zeroes = zeroes.as_mut_ptr() as i64;
    let name = c"user.dcd".as_ptr() as i64;
    let parent = i64::from(parent);
    let tell = |what: &str, result: io::Result<()>| match result {
        Ok(()) => println!("tried {what}: ALLOWED"),
        Err(error) => println!("tried {what}: {error}"),
    };
    tell("reading a file", std::fs::read(&secret).map(drop));
    tell("reading /etc/passwd", std::fs::read("/etc/passwd").map(drop));
    tell("writing a file", std::fs::write(&secret, "x"));
    tell("making a file", std::fs::write(other.join("new"), "x"));
    tell("making a file in /dev/shm", std::fs::write("/dev/shm/dcd-confined", "x"));
    tell("making a directory", std::fs::create_dir(other.join("directory")));
    tell("a link", std::os::unix::fs::symlink(&secret, other.join("link")));
    tell("another name", std::fs::hard_link(&secret, other.join("name")));
    tell("renaming", std::fs::rename(&secret, other.join("renamed")));
    tell("removing", std::fs::remove_file(&secret));
    tell("removing what is beside a socket", std::fs::remove_file(directory.join("beside")));
    tell("removing a socket", std::fs::remove_file(directory.join("nbd")));
    tell("listing", std::fs::read_dir(&other).map(drop));
    for device in
        ["/dev/vda", "/dev/sda", "/dev/loop0", "/dev/mem", "/dev/kmsg", "/dev/loop-control"]
    {
        let open = || std::fs::File::options().read(true).open(device).map(drop);
        if Path::new(device).exists() {
            tell(device, open());
        }
    }
    tell("truncating", call(libc::SYS_truncate, [pointer, 1, 0, 0, 0]));
    tell("chmod", call(libc::SYS_fchmodat, [here, pointer, 0o777, 0, 0]));
    tell("newer chmod", call(libc::SYS_fchmodat2, [here, pointer, 0o777, 0, 0]));
    tell("chown", call(libc::SYS_fchownat, [here, pointer, 1, 1, 0]));
    tell("times", call(libc::SYS_utimensat, [here, pointer, 0, 0, 0]));
    tell("attributes", call(libc::SYS_setxattr, [pointer, name, zeroes, 1, 0]));
    #[cfg(target_arch = "x86_64")]
    {
        tell("older chmod", call(libc::SYS_chmod, [pointer, 0o777, 0, 0, 0]));
        tell("older chown", call(libc::SYS_chown, [pointer, 1, 1, 0, 0]));
        // chmod by the numbers of x32, where the kernel has them.
        tell("chmod of x32", call(0x4000_0000 + libc::SYS_chmod, [pointer, 0o777, 0, 0, 0]));
    }
    // Through what is open: standard output is the parent's.
    tell("fchmod", call(libc::SYS_fchmod, [1, 0o777, 0, 0, 0]));

    tell("a unix socket", UnixStream::connect(other.join("socket")).map(drop));
    tell("a unix datagram", UnixDatagram::unbound().map(drop));
    for (what, family, kind) in [
        ("TCP", libc::AF_INET, libc::SOCK_STREAM),
        ("UDP", libc::AF_INET, libc::SOCK_DGRAM),
        ("UDP of IPv6", libc::AF_INET6, libc::SOCK_DGRAM),
        ("netlink", libc::AF_NETLINK, libc::SOCK_RAW),
        ("packets", libc::AF_PACKET, libc::SOCK_RAW),
        ("vsock", libc::AF_VSOCK, libc::SOCK_STREAM),
        ("keys", libc::AF_ALG, libc::SOCK_SEQPACKET),
    ] {
        let (family, kind) = (i64::from(family), i64::from(kind));
        tell(what, call(libc::SYS_socket, [family, kind, 0, 0, 0]));
    }
    tell("listening", std::net::TcpListener::bind("127.0.0.1:0").map(drop));
    tell("a ring of its own", call(libc::SYS_io_uring_setup, [1, zeroes, 0, 0, 0]));

    let signal = i64::from(libc::SIGURG);
    tell("a signal", call(libc::SYS_kill, [parent, signal, 0, 0, 0]));
    tell("a signal to all", call(libc::SYS_kill, [-1, 0, 0, 0, 0]));
    tell("a signal to a thread", call(libc::SYS_tkill, [parent, signal, 0, 0, 0]));
    tell("a signal to a thread of it", call(libc::SYS_tgkill, [parent, parent, signal, 0, 0]));
    tell("a signal by file", call(libc::SYS_pidfd_open, [parent, 0, 0, 0, 0]));
    let owner = i64::from(libc::F_SETOWN);
    tell("a signal by readiness", call(libc::SYS_fcntl, [0, owner, parent, 0, 0]));
    tell("limits of another", call(libc::SYS_prlimit64, [parent, 7, 0, zeroes, 0]));
    tell("looking into another", std::fs::read(format!("/proc/{parent}/environ")).map(drop));
    let of_kernel = std::fs::write("/proc/sys/kernel/core_pattern", "|/bin/false");
    tell("a setting of the kernel", of_kernel);

    tell("executing", Command::new("/bin/true").status().map(drop));
    let directory = path(&other);
    let kind = c"tmpfs".as_ptr() as i64;
    tell("mounting", call(libc::SYS_mount, [kind, directory.as_ptr() as i64, kind, 0, 0]));
    tell("unmounting", call(libc::SYS_umount2, [c"/".as_ptr() as i64, 2, 0, 0, 0]));
    let user = i64::from(libc::CLONE_NEWUSER);
    tell("a name space", call(libc::SYS_unshare, [user, 0, 0, 0, 0]));
    tell("a name space of a child", call(libc::SYS_clone, [user | 17, 0, 0, 0, 0]));
    tell("newer clone", call(libc::SYS_clone3, [zeroes, 64, 0, 0, 0]));
    println!("tried all");
}

/// Not a test by itself: what the daemon has others do.
#[test]
fn child_caretaker() {
    if std::env::var_os(CHILD).is_some() {
        caretaker::run().unwrap();
    }
}

/// Not a test by itself: the daemon.
#[test]
fn child_daemon() {
    let Some(directory) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let parent = std::env::var(PARENT).unwrap().parse().unwrap();
    let options = ServeOptions {
        one_disk: Some(false),
        nbd: vec![NbdAddress::Unix(directory.join("nbd"))],
        fuse: std::env::var_os(FUSE).map(|_| directory.join("mount")),
        loop_device: std::env::var_os(FUSE).is_some_and(|it| it == "loop"),
        vhost_user: Some(directory.join("vhost")),
        give_up_rights: true,
        caretaker: Some(CaretakerProgram {
            program: std::env::current_exe().unwrap(),
            arguments: ["--exact", "child_caretaker", "--nocapture"].map(Into::into).into(),
        }),
        control: Some(directory.join("control")),
        memory_directory: Some(directory.join("memory")),
        ..support::options(&directory)
    };
    let outcome = serve(options, &mut |ready| {
        try_all(&directory, parent);
        ready.submitter.stop(StopKind::Shutdown, |_| ());
    });
    println!("ended {outcome:?}");
}

fn start_daemon(directory: &Path, fuse: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_daemon", "--nocapture"]).env(CHILD, directory);
    command.env(PARENT, std::process::id().to_string());
    fuse.map(|fuse| command.env(FUSE, fuse));
    command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap()
}

fn make_pair(directory: &Path) {
    let _ = std::fs::remove_dir_all(directory);
    for name in ["memory", "other", "mount"] {
        std::fs::create_dir_all(directory.join(name)).unwrap();
    }
    let mut uuid = *b"confined-------.";
    uuid[4] = directory.as_os_str().len() as u8;
    support::make_disks(directory, uuid, 16 << 20, 32 << 20);
}

/// Whether the kernel has what it takes; what it has not is not tried.
fn landlock_version() -> i64 {
    // SAFETY: with this flag the call looks at none of its other arguments.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) }
}

#[test]
fn code_inside_it_reaches_nothing_that_is_not_its_own() {
    tries_in_vain("nbd", None);
}

#[test]
fn nor_where_a_file_is_served_over_fuse() {
    if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return println!("skipped: /dev/fuse cannot be opened");
    }
    tries_in_vain("fuse", Some("file"));
}

#[test]
fn nor_where_a_loop_device_is_made_of_that() {
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if std::fs::File::options().read(true).write(true).open(device).is_err() {
            return println!("skipped: {device} cannot be opened");
        }
    }
    tries_in_vain("loop", Some("loop"));
}

fn tries_in_vain(name: &str, fuse: Option<&str>) {
    if landlock_version() < 6 {
        return println!("skipped: this kernel has no Landlock, or an older one");
    }
    let name = format!("dcd-confined-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    make_pair(&directory);
    let secret = directory.join("other/secret");
    std::fs::write(&secret, "secret").unwrap();
    std::fs::write(directory.join("beside"), "").unwrap();
    let _listener = UnixListener::bind(directory.join("other/socket")).unwrap();
    let mut daemon = start_daemon(&directory, fuse);
    let mut allowed = Vec::new();
    let mut tried = 0;
    for line in BufReader::new(daemon.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("{line}");
        if line.ends_with("ALLOWED") {
            allowed.push(line);
        } else if line.starts_with("tried ") {
            tried += 1;
        } else if line.starts_with("ended ") {
            assert!(line.contains("Ok(ShutDown"), "{line}");
        }
    }
    assert!(daemon.wait().unwrap().success());
    assert!(tried > 45 && allowed.is_empty(), "{tried}: {allowed:?}");
    assert_eq!(std::fs::read(secret).unwrap(), b"secret");
    // What is its own it has removed, and nothing is mounted any more.
    std::fs::remove_dir(directory.join("mount")).unwrap();
    for name in ["nbd", "vhost", "control"] {
        assert!(!directory.join(name).exists(), "{name}");
    }
    assert_eq!(std::fs::read_dir(directory.join("memory")).unwrap().count(), 0);
    std::fs::remove_dir_all(directory).unwrap();
}
