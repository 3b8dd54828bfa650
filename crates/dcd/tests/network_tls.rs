//! Proves on the real program that the way to a network disk may be secured with TLS: servers that
//! others wrote, and dcd itself, which are killed under load; who is not the server that was meant
//! is refused before anything is written, with words; and certificates that were renewed count when
//! the connection is made again. The certificates are made by the recipe of docs/nbd.md.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::model::{Mix, difference};
use harness::nbd::Client;
use harness::random::Random;
use harness::{Helper, Site, seed, until};

const MIX: Mix =
    Mix { volume: 8 << 20, sectors_max: 96, flush_every: 40, fua_every: 20, zero_every: 15 };
const FLAGS: &str =
    "--quiet --idle-max 5ms --idle-min 1ms --segment-buffers 4 --dirty-high 6 --dirty-low 1";
/// nbdkit, which wants a certificate of its clients.
const NBDKIT: &str = "nbdkit -f -U v.sock --tls=require --tls-certificates=pki --tls-verify-peer";
const URI: &str = "nbds+unix:///?socket=v.sock&tls-certificates=pki";

fn site() -> Site {
    let site = Site::empty();
    site.folder.disk("remote", MIX.volume);
    site.make_certificates("pki");
    site
}

fn start(site: &Site, line: &str) -> Helper {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(site.path(""));
    Helper::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn network(site: &Site) -> serde_json::Value {
    site.status()["network_disks"][0].clone()
}

/// Load on a server that is killed amid it and comes back; what it has at the end.
fn under_load(site: &Site, uri: &str, mut come_back: impl FnMut() -> Helper, rounds: u64) {
    let mut random = Random::new(seed());
    let mut server = come_back();
    let create =
        format!("create --cache-disk c --cache-size 12M --segment-size 64k --data-disk {uri}");
    until("the server answers", || (site.dcd(&create).code == Some(0)).then_some(()));
    let daemon = site.serve_disks("c", uri, FLAGS);
    let mut client = Client::connect(&site.socket());
    let mut volume = vec![0; MIX.volume as usize];
    for round in 0..rounds {
        for _ in 0..80 {
            let op = MIX.op(&mut random);
            client.do_op(&op).unwrap_or_else(|e| panic!("{uri}: {op:?}: {e:?}\n{}", daemon.log()));
            op.apply(&mut volume);
        }
        server.kill_now();
        std::thread::sleep(Duration::from_millis(random.below(30))); // dcd has work meanwhile
        server = come_back();
        let found = client.read_all().unwrap();
        assert_eq!(difference(&found, &volume), None, "{uri}, round {round}: {}", daemon.log());
    }
    // More than a socket and its records hold at once, in both directions.
    let large = random.bytes(6 << 20);
    client.write(1 << 20, &large).unwrap();
    volume[1 << 20..7 << 20].copy_from_slice(&large);
    site.dcd("drain --control ctl").ok();
    let found = client.read_all().unwrap();
    assert_eq!(difference(&found, &volume), None, "{uri}: {}", daemon.log());
    let is_back = || (network(site)["reconnects"].as_u64() >= Some(1)).then_some(());
    until("it was connected again", is_back);
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    daemon.assert_no_panic();
    server.kill_now();
    let found = fs::read(site.path("remote")).unwrap();
    assert_eq!(difference(&found, &volume), None, "{uri}: behind the detach");
}

#[test]
fn nbdkit_is_a_data_disk() {
    skip_without!("nbdkit_is_a_data_disk (TLS)", "nbdkit", "openssl");
    let site = site();
    let come_back = || {
        let _ = fs::remove_file(site.path("v.sock"));
        start(&site, &format!("{NBDKIT} file remote"))
    };
    under_load(&site, URI, come_back, 4);
}

#[test]
fn qemu_nbd_is_a_data_disk() {
    skip_without!("qemu_nbd_is_a_data_disk (TLS)", "qemu-nbd", "openssl");
    let site = site();
    let port = free_port();
    let line = format!(
        "qemu-nbd -t -f raw -b 127.0.0.1 -p {port} --tls-creds tls --object \
         tls-creds-x509,id=tls,endpoint=server,dir=pki,verify-peer=yes remote"
    );
    let uri = format!("nbds://127.0.0.1:{port}/?tls-certificates=pki");
    under_load(&site, &uri, || start(&site, &line), 4);
}

/// One dcd on another, by the name in its certificate.
#[test]
fn another_dcd_is_a_data_disk() {
    skip_without!("another_dcd_is_a_data_disk (TLS)", "openssl");
    let site = site();
    let port = free_port();
    site.dcd("create --cache-disk below --cache-size 5M --data-disk remote").ok();
    let dcd = env!("CARGO_BIN_EXE_dcd");
    let line = format!(
        "{dcd} serve --cache-disk below --data-disk remote --nbd tcp:127.0.0.1:{port} --memory-directory . --quiet \
         --control below.ctl --tls-cert pki/server-cert.pem --tls-key pki/server-key.pem --tls-ca pki/ca-cert.pem"
    );
    let uri = format!("nbds://127.0.0.1:{port}/?tls-certificates=pki&tls-hostname=disk.example");
    let mut random = Random::new(seed());
    let server = start(&site, &line);
    let create = format!("create --cache-disk c --cache-size 5M --data-disk {uri}");
    until("the server answers", || (site.dcd(&create).code == Some(0)).then_some(()));
    let daemon = site.serve_disks("c", &uri, FLAGS);
    let mut client = Client::connect(&site.socket());
    let mut volume = vec![0; MIX.volume as usize];
    for _ in 0..200 {
        let op = MIX.op(&mut random);
        client.do_op(&op).unwrap_or_else(|e| panic!("{op:?}: {e:?}\n{}", daemon.log()));
        op.apply(&mut volume);
    }
    assert_eq!(difference(&client.read_all().unwrap(), &volume), None);
    assert_eq!(network(&site)["connections"], 4, "{}", network(&site));
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    site.dcd("detach --control below.ctl --wait").ok();
    drop(server);
    let found = fs::read(site.path("remote")).unwrap();
    assert_eq!(difference(&found, &volume), None);
}

/// Each is told what it is, and no cache is made.
#[test]
fn who_is_not_meant_is_refused() {
    skip_without!("who_is_not_meant_is_refused", "nbdkit", "openssl");
    let site = site();
    site.make_certificates("others");
    fs::create_dir(site.path("anonymous")).unwrap();
    fs::copy(site.path("pki/ca-cert.pem"), site.path("anonymous/ca-cert.pem")).unwrap();
    let refused = |uri: &str, words: &str, hint: &str| {
        let line = format!("create --cache-disk c --cache-size 5M --data-disk {uri}");
        let outcome = site.dcd(&line);
        let text = outcome.stderr.clone();
        assert!(!matches!(outcome.code, Some(0) | None), "{uri}: {text}");
        assert!(text.contains(words) && text.contains(hint), "{uri}: {text}");
        assert!(!site.path("c").exists(), "{uri}: nothing is made");
        outcome
    };
    refused("nbds://h/x", "needs ?tls-certificates=DIRECTORY", "ca-cert.pem");
    refused("nbd://h/x?tls-certificates=pki", "is no part of the name", "");
    refused("nbds://h/x?tls-certificates=none", "cannot read the authority of the server", "name");
    refused("nbds://h/x?tls-certificates=pki&tls-psk-file=x", "\"tls-psk-file=x\"", "");

    {
        let _clear = start(&site, "nbdkit -f -U v.sock file remote");
        until("it listens", || site.path("v.sock").exists().then_some(()));
        refused(URI, "the server has no TLS", "--tls=require");
    }
    let _ = fs::remove_file(site.path("v.sock"));
    let _server = start(&site, &format!("{NBDKIT} file remote"));
    until("it listens", || site.path("v.sock").exists().then_some(()));
    refused("nbd+unix:///?socket=v.sock", "only with TLS", "nbds+unix://");
    let at = "nbds+unix:///?socket=v.sock";
    refused(
        &format!("{at}&tls-certificates=others"),
        "invalid peer certificate",
        "is not in ca-cert.pem",
    );
    let other_name = format!("{URI}&tls-hostname=other.example");
    refused(&other_name, "not valid for name", "tls-hostname=NAME");
    refused(&format!("{at}&tls-certificates=anonymous"), "v.sock", "client-cert.pem");

    // Half of a pair, the key of another, one that others may read.
    let key = site.path("anonymous/client-key.pem");
    let anonymous = format!("{at}&tls-certificates=anonymous");
    fs::copy(site.path("pki/client-cert.pem"), site.path("anonymous/client-cert.pem")).unwrap();
    refused(&anonymous, "cannot read the private key", "");
    fs::copy(site.path("others/client-key.pem"), &key).unwrap();
    refused(&anonymous, "does not belong to the certificate", "openssl");
    fs::copy(site.path("pki/client-key.pem"), &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&anonymous, "may be read by others", "chmod 600");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let create = format!("create --cache-disk c --cache-size 5M --data-disk {anonymous}");
    site.dcd(&create).ok();
    let other =
        format!("serve --cache-disk c --data-disk {at}&tls-certificates=others --nbd unix:s");
    assert!(site.dcd(&other).stderr.contains("invalid peer certificate"));
}

/// Whoever sits on the way says yes to TLS, and goes on in the clear, or not at all.
#[test]
fn nothing_is_believed_in_the_clear() {
    skip_without!("nothing_is_believed_in_the_clear", "openssl");
    let agree = b"NBDMAGICIHAVEOPT\0\x03\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x05\0\0\0\x01\0\0\0\0";
    let structured = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\0\0\0\x01\0\0\0\0";
    for (say, words) in [
        ([&agree[..], structured].concat(), "TLS: "),
        ([&agree[..], &[0x16; 4000]].concat(), "TLS: "),
        (agree.to_vec(), "has not answered within"),
    ] {
        let site = site();
        let listener = UnixListener::bind(site.path("v.sock")).unwrap();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let say = say.clone();
                std::thread::spawn(move || {
                    let _ = client.write_all(&say);
                    while client.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
                });
            }
        });
        let line = format!("create --cache-disk c --cache-size 5M --data-disk {URI}");
        let outcome = site.dcd(&line);
        assert!(!matches!(outcome.code, Some(0) | None), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
        assert!(!site.path("c").exists());
    }
}

/// Certificates of another authority on both sides: what is there counts when the connection is
/// made again, also for a daemon that has given up its rights.
#[test]
fn renewed_certificates_count() {
    skip_without!("renewed_certificates_count", "nbdkit", "openssl");
    let site = site();
    let serve = || {
        let _ = fs::remove_file(site.path("v.sock"));
        start(&site, &format!("{NBDKIT} file remote"))
    };
    let mut server = serve();
    let create = format!("create --cache-disk c --cache-size 5M --data-disk {URI}");
    until("the server answers", || (site.dcd(&create).code == Some(0)).then_some(()));
    let daemon = site.serve_disks("c", URI, FLAGS);
    let mut client = Client::connect(&site.socket());
    client.write(0, &[7; 4096]).unwrap();
    site.dcd("drain --control ctl").ok();
    server.kill_now();

    site.make_certificates("pki");
    server = serve();
    let reconnects = |least| (network(&site)["reconnects"].as_u64() >= Some(least)).then_some(());
    until("the new ones are used", || reconnects(1));
    client.write(4096, &[8; 4096]).unwrap();
    site.dcd("drain --control ctl").ok();
    server.kill_now();

    // The server alone has new ones: it is refused, and told of, until the other side has them.
    site.make_certificates("new");
    fs::rename(site.path("pki"), site.path("old")).unwrap();
    fs::rename(site.path("new"), site.path("pki")).unwrap();
    server = serve();
    until("it listens", || site.path("v.sock").exists().then_some(()));
    fs::rename(site.path("pki"), site.path("new")).unwrap();
    fs::rename(site.path("old"), site.path("pki")).unwrap();
    until("it is told", || {
        network(&site)["problem"].as_str().unwrap_or_default().contains("TLS: ").then_some(())
    });
    client.write(8192, &[9; 4096]).unwrap();
    fs::rename(site.path("pki"), site.path("old")).unwrap();
    fs::rename(site.path("new"), site.path("pki")).unwrap();
    until("both have them", || reconnects(2));
    drop(client);
    site.dcd("detach --control ctl --wait").ok();
    daemon.assert_no_panic();
    server.kill_now();
    let found = fs::read(site.path("remote")).unwrap();
    for (at, byte) in [(0, 7), (4096, 8), (8192, 9)] {
        assert!(found[at..at + 4096].iter().all(|it| *it == byte), "at {at}");
    }
}
