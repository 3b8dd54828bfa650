//! Memory that outlives the process, and other users of the machine: none of them can take its
//! name, or hold up a start with what he has put there; and what a daemon of another user has left
//! is found by root, which is never told to remove it.

mod harness;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use harness::nbd::Client;
use harness::{Site, missing_rights, skipped, until};

const MIB: u64 = 1 << 20;
const NOBODY: u32 = 65534;
const SHARED: &str = "/dev/shm";

/// Nothing becomes durable, or is destaged, by itself.
const SERVE: &str = "serve --cache-disk c --data-disk d --nbd unix:sock --control ctl --stop-timeout 0s --quiet \
                     --idle-max 1h --idle-min 1h --max-delay 1h";
const DETACH: &str = "detach --cache-disk c --data-disk d";

/// A site whose directory anybody may write to. What it leaves in memory goes with it.
struct Users {
    site: Site,
    uuid: String,
}

/// What a test cannot do without.
fn users(test: &str) -> Option<Users> {
    let as_nobody =
        || Command::new(env!("CARGO_BIN_EXE_dcd")).arg("--version").uid(NOBODY).output();
    let reason = missing_rights("root").or_else(|| match as_nobody() {
        Ok(output) if output.status.success() => None,
        _ => Some("user 65534 cannot run dcd here".into()),
    });
    if let Some(reason) = reason {
        skipped(test, &reason);
        return None;
    }
    let site = Site::new("16M", 64 * MIB);
    fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let inspected = site.dcd("inspect superblock --json --cache-disk c").ok();
    let (_, behind) = inspected.split_once("\"uuid\": \"").unwrap();
    let uuid = behind[..36].to_owned();
    Some(Users { site, uuid })
}

impl Users {
    fn command(&self, user: u32, line: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_dcd")]);
        command.args(line.split_whitespace()).current_dir(self.site.path(""));
        command.env("DCD_STATE_DIRECTORY", "").env_remove("XDG_RUNTIME_DIR");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if user != 0 {
            command.uid(user).gid(user);
        }
        command
    }

    fn run(&self, user: u32, line: &str) -> (bool, String) {
        let Output { status, stderr, .. } = self.command(user, line).output().unwrap();
        (status.success(), String::from_utf8_lossy(&stderr).into_owned())
    }

    /// A session of that user: what it tells of its memory. It is killed, or ends in order.
    fn session(&self, user: u32, flags: &str, byte: u8, is_killed: bool) -> PathBuf {
        for name in ["sock", "ctl"] {
            let _ = fs::remove_file(self.site.path(name));
        }
        let mut child = self.command(user, &format!("{SERVE} {flags}")).spawn().unwrap();
        let mut client = until("it serves", || {
            if child.try_wait().unwrap().is_some() {
                panic!("{}", String::from_utf8_lossy(&end(&mut child)));
            }
            Client::try_connect(&self.site.socket()).ok()
        });
        client.write(0, &[byte; 4096]).unwrap();
        let memory = until("it tells", || {
            let output = self.command(user, "status --control ctl --json").output().unwrap();
            let value: harness::Value = serde_json::from_slice(&output.stdout).ok()?;
            Some(PathBuf::from(value["memory"]["path"].as_str()?))
        });
        drop(client);
        let signal = if is_killed { "-KILL" } else { "-TERM" };
        let pid = child.id().to_string();
        assert!(Command::new("pkill").args([signal, "-P", &pid]).status().unwrap().success());
        child.wait().unwrap();
        memory
    }

    fn give(&self, name: &str, user: u32, mode: u32) {
        let path = self.site.path(name);
        chown(&path, Some(user), Some(user)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn first_byte(&self) -> u8 {
        fs::read(self.site.path("d")).unwrap()[0]
    }

    fn name(&self, directory: &str) -> PathBuf {
        Path::new(directory).join(format!("dcd-{}.segments", self.uuid))
    }
}

fn end(child: &mut std::process::Child) -> Vec<u8> {
    use std::io::Read;
    let mut told = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut told).unwrap();
    told
}

impl Drop for Users {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.name(SHARED));
        for base in ["/run/dcd", "/dev/shm/dcd-0", "/dev/shm/dcd-65534"] {
            let _ = fs::remove_dir_all(Path::new(base).join(&self.uuid));
        }
    }
}

/// Nobody else can make or take a name in any directory on the way.
fn assert_private(memory: &Path, user: u32) {
    let directory = memory.parent().unwrap();
    let found = fs::metadata(directory).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (user, 0o700), "{}", directory.display());
    for above in directory.ancestors().skip(1) {
        let found = fs::metadata(above).unwrap();
        let is_safe = found.mode() & 0o022 == 0 || found.mode() & 0o1000 != 0;
        assert!(is_safe && [0, user].contains(&found.uid()), "{}", above.display());
    }
}

fn write_as_nobody(path: &Path) {
    fs::write(path, "mine").unwrap();
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn nobody_else_can_take_its_name() {
    let Some(users) = users("nobody_else_can_take_its_name") else { return };
    // All names that it had once, or could have, as far as others may make them.
    write_as_nobody(&users.name(SHARED));
    let memory = users.session(0, "", 1, false);
    assert!(memory.parent().unwrap().parent() != Some(Path::new("/")), "{memory:?}");
    assert!(!memory.exists() && users.name(SHARED).exists());
    let memory = users.session(0, "", 2, true);
    assert_private(&memory, 0);
    assert_eq!(users.session(0, "", 3, true), memory);
    // The same where a person asks for a place where all may write.
    let memory = users.session(0, "--memory-directory /dev/shm", 4, false);
    assert_ne!(memory.parent(), Some(Path::new(SHARED)));
    let memory = users.session(0, "--memory-directory /dev/shm", 5, true);
    assert_private(&memory, 0);
    let (is_done, told) = users.run(0, &format!("{DETACH} --memory-directory /dev/shm"));
    assert!(is_done && users.first_byte() == 5, "{told}");
    assert_eq!(fs::read(users.name(SHARED)).unwrap(), b"mine");
}

#[test]
fn what_was_left_where_all_may_write_leaves_it() {
    let Some(users) = users("what_was_left_where_all_may_write_leaves_it") else { return };
    let memory = users.session(0, "--memory-directory /dev/shm", 1, true);
    assert_eq!(memory, users.name(SHARED));
    let memory = users.session(0, "", 2, true);
    assert_private(&memory, 0);
    assert!(!users.name(SHARED).exists());
    let (is_done, told) = users.run(0, DETACH);
    assert!(is_done && users.first_byte() == 2, "{told}");
    assert!(!memory.parent().unwrap().exists(), "its directory goes as well");
}

#[test]
fn root_finds_what_another_user_has_left() {
    let Some(users) = users("root_finds_what_another_user_has_left") else { return };
    // Whose the disks are, or who may only write to them.
    for (round, (owner, mode)) in [(NOBODY, 0o600), (0, 0o666)].into_iter().enumerate() {
        let byte = 1 + round as u8;
        users.give("c", owner, mode);
        users.give("d", owner, mode);
        let memory = users.session(NOBODY, "", byte, true);
        assert_private(&memory, NOBODY);
        // Served on: it is root's from now on, where nobody can cut it short.
        let served = users.session(0, "", byte + 10, true);
        assert_private(&served, 0);
        assert!(!memory.exists());
        users.session(0, "", byte + 20, false);
    }
    users.give("c", NOBODY, 0o600);
    users.give("d", NOBODY, 0o600);
    let memory = users.session(NOBODY, "", 77, true);
    assert!(users.site.dcd("list").ok().contains(memory.to_str().unwrap()));
    assert!(users.site.dcd("check --cache-disk c").ok().contains(memory.to_str().unwrap()));
    let (is_done, told) = users.run(0, DETACH);
    assert!(is_done && users.first_byte() == 77, "{told}");
    assert!(!memory.exists());
}

#[test]
fn what_is_another_users_is_said_to_hold_writes() {
    let Some(users) = users("what_is_another_users_is_said_to_hold_writes") else { return };
    users.give("c", 0, 0o666);
    users.give("d", 0, 0o666);
    for flags in ["--memory-directory mem", "--memory-directory /dev/shm"] {
        fs::create_dir_all(users.site.path("mem")).unwrap();
        fs::set_permissions(users.site.path("mem"), fs::Permissions::from_mode(0o755)).unwrap();
        let memory = users.session(0, flags, 1, true);
        let before = users.site.disks();
        for line in [DETACH, &format!("{DETACH} {flags}"), SERVE] {
            let (is_done, told) = users.run(NOBODY, line);
            assert!(!is_done, "{line}");
            assert!(told.contains("holds writes") && told.contains("user 0"), "{told}");
            assert!(!told.contains("remove"), "{told}");
        }
        assert!(memory.exists() && users.site.disks() == before);
        users.session(0, flags, 2, false);
        assert!(!memory.exists());
    }
}
