//! A cache served over TCP with TLS in a process of its own, with clients that others wrote:
//! libnbd, nbdcopy, QEMU. The certificates are made by the recipe of docs/nbd.md, as it stands
//! there.
//!
//! The daemon is this test program itself, started again (see `child_daemon`). The same with the
//! whole command, and more of it: `dcd/tests/nbd_tls.rs`.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dcd_daemon::frontend::nbd::listen::NbdOptions;
use dcd_daemon::frontend::nbd::tls::files::TlsFiles;
use dcd_daemon::serve::{ServeOptions, serve};

const CACHE_BYTES: u64 = 32 << 20;
const DATA_BYTES: u64 = 32 << 20;
/// Set for the child that is a daemon: where its disks are; where it listens; most clients.
const CHILD: [&str; 3] = ["DCD_TEST_TLS_DIRECTORY", "DCD_TEST_TLS_ADDRESS", "DCD_TEST_TLS_CLIENTS"];
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test: the daemon, when its parent wants one.
#[test]
fn child_daemon() {
    let [Ok(directory), Ok(address), Ok(clients)] = CHILD.map(std::env::var) else { return };
    let directory = PathBuf::from(directory);
    let pki = directory.join("pki");
    let files = TlsFiles {
        certificate: pki.join("server-cert.pem"),
        key: pki.join("server-key.pem"),
        client_authority: pki.join("ca-cert.pem"),
        access: Default::default(),
    };
    let options = ServeOptions {
        nbd: vec![address.parse().unwrap()],
        nbd_options: NbdOptions {
            tls: address.starts_with("tcp:").then_some(files),
            connections_max: clients.parse().unwrap(),
            ..NbdOptions::default()
        },
        give_up_rights: true,
        quiet: false,
        ..support::options(&directory)
    };
    let ready = |address: &str| println!("\nready {address}");
    serve(options, &mut |told| ready(&told.nbd[0].to_string())).unwrap();
}

struct Site {
    directory: PathBuf,
}

impl Site {
    /// `None` if a program is missing; says so.
    fn new(name: &str, programs: &[&str]) -> Option<Site> {
        for program in programs {
            let found = ["/usr/bin", "/bin", "/usr/local/bin"]
                .iter()
                .any(|directory| Path::new(directory).join(program).exists());
            if !found {
                eprintln!("skipped: {name}: {program} is not installed");
                return None;
            }
        }
        let directory = std::env::temp_dir().join(format!("dcd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(directory.join("pki")).unwrap();
        let site = Site { directory };
        support::make_disks(&site.directory, [7; 16], CACHE_BYTES, DATA_BYTES);
        site.make_certificates("pki");
        Some(site)
    }

    fn make_certificates(&self, directory: &str) {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nbd.md");
        let document = std::fs::read_to_string(document).unwrap();
        let recipe = document.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
        std::fs::create_dir_all(self.directory.join(directory)).unwrap();
        let output = self.run(&["sh", "-ec", &format!("cd {directory}\n{recipe}")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn run(&self, line: &[&str]) -> Output {
        Command::new("timeout")
            .args(["--signal=KILL", "60"])
            .args(line)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn works(&self, line: &[&str]) -> String {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{line:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    fn serve(&self, clients: usize) -> Daemon {
        let log = std::fs::File::create(self.directory.join("log")).unwrap();
        let values = [self.directory.to_str().unwrap(), "tcp:127.0.0.1:0", &clients.to_string()]
            .map(str::to_owned);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_daemon", "--nocapture"])
            .envs(CHILD.into_iter().zip(values))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let address = stdout.by_ref().lines().map_while(Result::ok).find_map(|line| {
            Some(line.strip_prefix("ready ")?.rsplit(':').next()?.parse().unwrap())
        });
        let log = self.directory.join("log");
        let port = address.unwrap_or_else(|| panic!("{}", std::fs::read_to_string(&log).unwrap()));
        Daemon { child, _stdout: stdout, port, log }
    }

    fn uri(&self, daemon: &Daemon, directory: &str) -> String {
        let directory = self.directory.join(directory);
        format!("nbds://127.0.0.1:{}/?tls-certificates={}", daemon.port, directory.display())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

struct Daemon {
    child: Child,
    /// The test harness in the child writes to it, and dies when it cannot.
    _stdout: BufReader<ChildStdout>,
    port: u16,
    log: PathBuf,
}

impl Daemon {
    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn says(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(words) {
            assert!(Instant::now() < deadline, "expected `{words}` in: {}", self.log());
            std::thread::sleep(Duration::from_millis(5)); // the pace of polling
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert!(std::thread::panicking() || !self.log().contains("panicked"), "{}", self.log());
    }
}

#[test]
fn clients_of_others_bring_the_same_bytes_back() {
    let programs = ["openssl", "nbdinfo", "nbdcopy", "qemu-io", "qemu-img"];
    let Some(site) = Site::new("tls-clients", &programs) else { return };
    let daemon = site.serve(128);
    let uri = site.uri(&daemon, "pki");
    let info = site.works(&["nbdinfo", &uri]);
    assert!(info.contains("newstyle-fixed with TLS"), "{info}");
    daemon.says("NBD client connected with TLS: CN=backup,O=Example at 127.0.0.1:");
    let bytes: Vec<u8> =
        (0..DATA_BYTES as u32).map(|at| (at.wrapping_mul(2654435761) >> 24) as u8).collect();
    std::fs::write(site.directory.join("source"), &bytes).unwrap();
    site.works(&["nbdcopy", "--connections=4", "--requests=16", "--flush", "source", &uri]);
    site.works(&["nbdcopy", "--connections=4", "--requests=16", &uri, "back"]);
    assert!(std::fs::read(site.directory.join("back")).unwrap() == bytes);

    let pki = site.directory.join("pki");
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", pki.display());
    let image = format!("driver=nbd,host=127.0.0.1,port={},tls-creds=tls", daemon.port);
    let mut line = vec!["qemu-io", "--object", &object, "--image-opts", &image];
    for command in [
        "write -P 7 64k 1M",
        "flush",
        "read -P 7 64k 1M",
        "write -z 128k 64k",
        "read -P 0 128k 64k",
    ] {
        line.extend(["-c", command]);
    }
    let said = site.works(&line);
    assert!(!said.contains("failed"), "{said}");
    site.works(&["qemu-img", "info", "--object", &object, "--image-opts", &image]);
    assert!(!daemon.log().contains("broke the protocol"), "{}", daemon.log());
}

#[test]
fn clients_without_a_good_certificate_are_refused_and_the_server_goes_on() {
    let Some(site) = Site::new("tls-refused", &["openssl", "nbdinfo", "python3"]) else { return };
    site.make_certificates("strangers");
    let daemon = site.serve(128);
    std::fs::copy(
        site.directory.join("pki/ca-cert.pem"),
        site.directory.join("strangers/ca-cert.pem"),
    )
    .unwrap();
    std::fs::create_dir(site.directory.join("nothing")).unwrap();
    std::fs::copy(
        site.directory.join("pki/ca-cert.pem"),
        site.directory.join("nothing/ca-cert.pem"),
    )
    .unwrap();
    for (directory, words) in
        [("strangers", "invalid peer certificate"), ("nothing", "peer sent no certificates")]
    {
        assert!(!site.run(&["nbdinfo", &site.uri(&daemon, directory)]).status.success());
        daemon.says(words);
    }
    let plain = site.run(&["nbdinfo", &format!("nbd://127.0.0.1:{}", daemon.port)]);
    assert!(!plain.status.success());
    // The last version of TLS but one, by another library.
    let script = format!(
        "import socket, ssl
s = socket.create_connection(('127.0.0.1', {}))
s.recv(18, socket.MSG_WAITALL)
s.sendall(b'\\0\\0\\0\\3IHAVEOPT\\0\\0\\0\\5\\0\\0\\0\\0')
assert s.recv(20, socket.MSG_WAITALL)[12:16] == b'\\0\\0\\0\\1'
context = ssl.create_default_context(cafile='pki/ca-cert.pem')
context.load_cert_chain('pki/client-cert.pem', 'pki/client-key.pem')
context.maximum_version = ssl.TLSVersion.TLSv1_2
context.wrap_socket(s, server_hostname='disk.example')",
        daemon.port
    );
    assert!(!site.run(&["/usr/bin/python3", "-c", &script]).status.success());
    daemon.says("peer is incompatible");
    site.works(&["nbdinfo", &site.uri(&daemon, "pki")]);
}

#[test]
fn renewed_certificates_are_read_and_bad_ones_are_not_used() {
    let Some(site) = Site::new("tls-renewed", &["openssl", "nbdinfo"]) else { return };
    let daemon = site.serve(128);
    site.make_certificates("new");
    let connects = |pki| site.run(&["nbdinfo", &site.uri(&daemon, pki)]).status.success();
    assert!(connects("pki") && !connects("new"));
    let renew = |file: &str| {
        let (new, old) =
            (site.directory.join("new").join(file), site.directory.join("pki").join(file));
        std::fs::copy(new, old).unwrap();
    };
    // Half a renewal: the key does not belong to the certificate.
    renew("server-key.pem");
    assert!(connects("pki"), "{}", daemon.log());
    daemon.says("those before stay in use: the key");
    ["server-cert.pem", "ca-cert.pem"].into_iter().for_each(renew);
    assert!(connects("new"), "{}", daemon.log());
    daemon.says("were read again");
}

#[test]
fn half_open_handshakes_give_way() {
    let Some(site) = Site::new("tls-half", &["openssl", "nbdinfo"]) else { return };
    let daemon = site.serve(8);
    let hello = b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0";
    let mut idle = Vec::new();
    for stage in 0..8 {
        let mut client = TcpStream::connect(("127.0.0.1", daemon.port)).unwrap();
        client.read_exact(&mut [0; 18]).unwrap();
        // Some say nothing, some stop in the middle of an option, in front of TLS, or in its first
        // record.
        client.write_all(&hello[..[0, 10, hello.len()][stage % 3]]).unwrap();
        if stage == 5 {
            client.read_exact(&mut [0; 20]).unwrap();
            client.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
        }
        idle.push(client);
    }
    // They hold no places of those that transmit; after ten seconds all have ended.
    let deadline = Instant::now() + PATIENCE;
    while !site.run(&["nbdinfo", &site.uri(&daemon, "pki")]).status.success() {
        assert!(Instant::now() < deadline, "a good client never gets in: {}", daemon.log());
    }
    for mut client in idle {
        let _ = client.read_to_end(&mut Vec::new()); // until the server closes it
    }
    daemon.says("no handshake within 10 s");
}
