//! The real program over TCP with TLS, against clients that others wrote: libnbd, nbdcopy, QEMU,
//! and Python's OpenSSL. The certificates are made by the recipe of docs/nbd.md, as it stands
//! there.

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use harness::random::Random;
use harness::{Daemon, Outcome, Site, seed, until};

const MIB: u64 = 1 << 20;
const TLS: &str =
    "--tls-cert pki/server-cert.pem --tls-key pki/server-key.pem --tls-ca pki/ca-cert.pem";

/// A site with the certificates of the document in `pki`.
fn site(data_bytes: u64) -> Site {
    let site = Site::new("16M", data_bytes);
    site.make_certificates("pki");
    site
}

/// Serves over TLS; the port.
fn serve(site: &Site, flags: &str) -> (Daemon, u16) {
    let line = "serve --cache-disk c --data-disk d --control ctl --memory-directory . --nbd tcp:127.0.0.1:0";
    let daemon = site.start_line(&format!("{line} {flags}")).ready();
    let port = daemon.told("nbd").and_then(|address| address.rsplit(':').next()).unwrap();
    let port = port.parse().unwrap();
    (daemon, port)
}

fn uri(site: &Site, port: u16, directory: &str) -> String {
    let directory = site.path(directory);
    format!("nbds://127.0.0.1:{port}/?tls-certificates={}", directory.display())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn libnbd_and_nbdcopy_bring_the_same_bytes_back() {
    skip_without!("libnbd_and_nbdcopy_bring_the_same_bytes_back", "nbdinfo", "nbdcopy", "openssl");
    let site = site(48 * MIB);
    let source = Random::new(seed()).bytes(48 << 20);
    fs::write(site.path("source"), &source).unwrap();
    let (daemon, port) = serve(&site, TLS);
    let uri = uri(&site, port, "pki");
    let info = site.run(&format!("nbdinfo {uri}"));
    assert!(info.contains("newstyle-fixed with TLS"), "{info}");
    site.run(&format!("nbdcopy --connections=4 --requests=16 --flush source {uri}"));
    site.run(&format!("nbdcopy --connections=4 --requests=16 {uri} back"));
    assert!(fs::read(site.path("back")).unwrap() == source);
    let log = daemon.log();
    assert!(
        log.contains("NBD client connected with TLS: CN=backup,O=Example at 127.0.0.1:"),
        "{log}"
    );
    assert!(!log.contains("broke the protocol") && !log.contains("cut off"), "{log}");
    daemon.assert_no_panic();
    daemon.stop();
    assert!(site.detach() == source);
}

#[test]
fn changes_over_tcp_are_durable_when_they_are_acknowledged() {
    let test = "changes_over_tcp_are_durable_when_they_are_acknowledged";
    skip_without!(test, "nbdsh", "openssl");
    let site = site(8 * MIB);
    // A commit of its own accord would come much later.
    let flags = format!("{TLS} --nbd unix:sock --max-delay 1h --quiet");
    let script = "h.pwrite(b'a' * 4096, 0)\nh.zero(4096, 8192)\nh.trim(4096, 16384)\n";
    for (more, fuas) in [("", 3), ("--tcp-ack same", 0)] {
        let (daemon, port) = serve(&site, &format!("{flags} {more}"));
        site.tool("nbdsh", &["-u", &site.uri(), "-c", script]);
        assert_eq!(site.status()["counters"]["fuas"], 0, "a unix socket keeps the mode of --ack");
        let connect = format!(
            "h.set_uri_allow_local_file(True)\nh.connect_uri('{}')\n",
            uri(&site, port, "pki")
        );
        site.tool("nbdsh", &["-c", &connect, "-c", script]);
        let status = site.status();
        assert_eq!(status["counters"]["fuas"], fuas, "{more}");
        assert_eq!(status["ack"], "memory");
        assert_eq!(status["tcp_ack"], if fuas > 0 { "durable" } else { "memory" });
        daemon.stop();
    }
}

#[test]
fn qemu_reads_and_writes() {
    skip_without!("qemu_reads_and_writes", "qemu-io", "qemu-img", "openssl");
    let site = site(16 * MIB);
    let (daemon, port) = serve(&site, TLS);
    let object =
        format!("tls-creds-x509,id=tls,endpoint=client,dir={}", site.path("pki").display());
    let image = format!("driver=nbd,host=127.0.0.1,port={port},tls-creds=tls");
    let commands = [
        "write -P 7 64k 1M",
        "flush",
        "read -P 7 64k 1M",
        "write -z 128k 64k",
        "read -P 0 128k 64k",
    ];
    let mut arguments = vec!["--object", &object, "--image-opts", &image];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    let output = site.tool("qemu-io", &arguments);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("failed"));
    site.tool("qemu-img", &["info", "--object", &object, "--image-opts", &image]);
    daemon.assert_no_panic();
    daemon.stop();
}

#[test]
fn clients_without_a_good_certificate_are_refused_and_the_server_goes_on() {
    let test = "clients_without_a_good_certificate_are_refused_and_the_server_goes_on";
    skip_without!(test, "nbdinfo", "nbdsh", "openssl");
    let site = site(4 * MIB);
    site.make_certificates("strangers");
    let (daemon, port) = serve(&site, TLS);
    let mut refused = 0;
    let mut fails = |arguments: &[&str], words: &str| {
        let output = site.try_tool(arguments[0], &arguments[1..]);
        assert!(!output.status.success(), "{arguments:?}");
        refused += 1;
        until("the server has said why", || daemon.log().contains(words).then_some(()));
    };
    // 1. Another authority: the client trusts the server, which does not trust the client.
    fs::copy(site.path("pki/ca-cert.pem"), site.path("strangers/ca-cert.pem")).unwrap();
    fails(&["nbdinfo", &uri(&site, port, "strangers")], "invalid peer certificate");
    // 2. No certificate.
    fs::create_dir(site.path("nothing")).unwrap();
    fs::copy(site.path("pki/ca-cert.pem"), site.path("nothing/ca-cert.pem")).unwrap();
    fails(&["nbdinfo", &uri(&site, port, "nothing")], "peer sent no certificates");
    // 3. No TLS: with the option that can be refused, and with the one that cannot.
    let output = site.try_tool("nbdinfo", &[format!("nbd://127.0.0.1:{port}")]);
    assert!(!output.status.success() && text(&output).contains("opt_go"), "{}", text(&output));
    // 4. The last version of TLS but one, by another library.
    let script = format!(
        "import socket, ssl
s = socket.create_connection(('127.0.0.1', {port}))
s.recv(18, socket.MSG_WAITALL)
s.sendall(b'\\0\\0\\0\\3IHAVEOPT\\0\\0\\0\\5\\0\\0\\0\\0')
assert s.recv(20, socket.MSG_WAITALL)[12:16] == b'\\0\\0\\0\\1'
context = ssl.create_default_context(cafile='pki/ca-cert.pem')
context.load_cert_chain('pki/client-cert.pem', 'pki/client-key.pem')
context.maximum_version = ssl.TLSVersion.TLSv1_2
context.wrap_socket(s, server_hostname='disk.example')"
    );
    fails(&["/usr/bin/python3", "-c", &script], "peer is incompatible");
    // 5. And the good one still gets in.
    site.run(&format!("nbdinfo {}", uri(&site, port, "pki")));
    daemon.assert_no_panic();
    daemon.stop();
}

#[test]
fn an_expired_certificate_is_refused() {
    skip_without!("an_expired_certificate_is_refused", "nbdinfo", "openssl");
    let site = site(4 * MIB);
    let sign = "cd pki && openssl x509 -req -in client.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial \
                -days -1 -extfile client.ext -out client-cert.pem";
    site.tool("sh", &["-c", sign]);
    let (daemon, port) = serve(&site, TLS);
    assert!(!site.try_tool("nbdinfo", &[uri(&site, port, "pki")]).status.success());
    until("the server has said why", || daemon.log().contains("Expired").then_some(()));
    daemon.stop();
}

#[test]
fn renewed_certificates_are_read_and_bad_ones_are_not_used() {
    skip_without!("renewed_certificates_are_read_and_bad_ones_are_not_used", "nbdinfo", "openssl");
    let site = site(4 * MIB);
    let (daemon, port) = serve(&site, TLS);
    site.make_certificates("new");
    let connects =
        |directory| site.try_tool("nbdinfo", &[uri(&site, port, directory)]).status.success();
    assert!(connects("pki") && !connects("new"));
    fs::copy(site.path("pki/server-key.pem"), site.path("old-key.pem")).unwrap();
    // Half a renewal: the key does not belong to the certificate. The clients' authority stays.
    fs::copy(site.path("new/server-key.pem"), site.path("pki/server-key.pem")).unwrap();
    assert!(connects("pki"), "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("those before stay in use") && log.contains("does not belong"), "{log}");
    // The whole.
    for file in ["server-cert.pem", "server-key.pem", "ca-cert.pem"] {
        fs::copy(site.path("new").join(file), site.path("pki").join(file)).unwrap();
    }
    assert!(connects("new"), "{}", daemon.log());
    assert!(daemon.log().contains("were read again"));
    daemon.stop();
}

#[test]
fn files_that_are_no_good_are_told_before_anything_is_opened() {
    skip_without!("files_that_are_no_good_are_told_before_anything_is_opened", "openssl");
    let site = site(4 * MIB);
    site.make_certificates("other");
    fs::write(site.path("empty.pem"), "").unwrap();
    fs::write(site.path("cut.pem"), "-----BEGIN CERTIFICATE-----\nMIIB\n").unwrap();
    fs::create_dir(site.path("directory.pem")).unwrap();
    let line = "serve --cache-disk c --data-disk d --memory-directory . --nbd tcp:127.0.0.1:0";
    let with = |certificate: &str, key: &str, authority: &str| -> Outcome {
        let before = site.disks();
        let flags = format!("--tls-cert {certificate} --tls-key {key} --tls-ca {authority}");
        let outcome = site.dcd(&format!("{line} {flags}"));
        assert!(site.disks() == before);
        harness::assert_no_panic(&outcome.stderr);
        assert!(outcome.stderr.contains("hint:"), "{}", outcome.stderr);
        outcome
    };
    let (certificate, key, authority) =
        ("pki/server-cert.pem", "pki/server-key.pem", "pki/ca-cert.pem");
    with("none.pem", key, authority).fails(1, "cannot read the certificate none.pem", "");
    with(certificate, "none.pem", authority).fails(1, "cannot read the private key none.pem", "");
    with(certificate, "other/server-key.pem", authority).fails(1, "does not belong to", "pubkey");
    with("empty.pem", key, authority).fails(1, "holds no certificate", "BEGIN CERTIFICATE");
    with("cut.pem", key, authority).fails(1, "is damaged", "");
    // As ssh refuses it, and soon enough when it is found while dcd runs.
    for mode in [0o640, 0o604, 0o644, 0o660] {
        fs::set_permissions(site.path(key), PermissionsExt::from_mode(mode)).unwrap();
        with(certificate, key, authority).fails(1, "may be read by others", "chmod 600");
    }
    fs::set_permissions(site.path(key), PermissionsExt::from_mode(0o600)).unwrap();
    with(certificate, certificate, authority).fails(1, "holds no private key", "BEGIN PRIVATE KEY");
    with(certificate, key, "empty.pem").fails(1, "holds no certificate", "");
    let some = site.dcd(&format!("{line} --tls-cert {certificate} --tls-ca {authority}"));
    some.fails(1, "--tls-key is missing", "docs/nbd.md");
    let unix = "serve --cache-disk c --data-disk d --memory-directory . --nbd unix:sock";
    site.dcd(&format!("{unix} {TLS}")).fails(1, "no --nbd tcp:", "");
    site.dcd(&format!("{line} {TLS} --insecure-tcp")).fails(1, "--insecure-tcp", "");
    site.dcd(&format!("{line} --connections-max 0")).fails(1, "--connections-max", "");
}

/// Names of certificates decide who may connect, and who may write.
#[test]
fn lists_of_names_decide_who_may_do_what() {
    skip_without!("lists_of_names_decide_who_may_do_what", "nbdinfo", "nbdcopy", "openssl");
    let site = site(4 * MIB);
    fs::write(site.path("source"), vec![7; 1 << 20]).unwrap();
    // The certificate of the document is that of CN=backup.
    let with = |flags: &str| {
        let (daemon, port) = serve(&site, &format!("{TLS} {flags}"));
        let uri = uri(&site, port, "pki");
        let info = site.try_tool("nbdinfo", &["--json", &uri]);
        let copied = site.try_tool("nbdcopy", &["source", &uri]).status.success();
        let log = daemon.log();
        daemon.assert_no_panic();
        daemon.stop();
        let info =
            info.status.success().then(|| String::from_utf8_lossy(&info.stdout).into_owned());
        (info, copied, log)
    };
    for flags in
        ["--tls-allow other", "--tls-read-only other", "--tls-allow back --tls-allow Example"]
    {
        let (info, copied, log) = with(flags);
        assert!(info.is_none() && !copied, "{flags}");
        assert!(log.contains("CN=backup,O=Example is not on the list"), "{flags}: {log}");
    }
    for flags in ["--tls-read-only backup", "--tls-allow backup --tls-read-only backup"] {
        let (info, copied, _) = with(flags);
        let info = info.unwrap().replace(' ', "");
        assert!(info.contains("\"is_read_only\":true") && !copied, "{flags}: {info}");
    }
    let (info, copied, _) = with("--tls-allow other --tls-allow backup --tls-read-only other");
    let info = info.unwrap().replace(' ', "");
    assert!(info.contains("\"is_read_only\":false") && copied, "{info}");
    let line = "serve --cache-disk c --data-disk d --memory-directory . --nbd tcp:127.0.0.1:0";
    site.dcd(&format!("{line} --tls-allow a")).fails(1, "--tls-cert is missing", "docs/nbd.md");
}

#[test]
fn tcp_without_tls_is_told_loudly() {
    let site = Site::new("3M", 4 * MIB);
    let (daemon, _) = serve(&site, "");
    assert!(daemon.log().contains("no TLS: every user of this machine may"), "{}", daemon.log());
    daemon.stop();
}

#[test]
fn half_open_handshakes_give_way() {
    skip_without!("half_open_handshakes_give_way", "nbdinfo", "openssl");
    let site = site(4 * MIB);
    let (mut daemon, port) = serve(&site, &format!("{TLS} --connections-max 8"));
    let hello = b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0";
    let mut idle = Vec::new();
    for stage in 0..8 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut greeting = [0; 18];
        client.read_exact(&mut greeting).unwrap();
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
    until("a good client gets in", || {
        site.try_tool("nbdinfo", &[uri(&site, port, "pki")]).status.success().then_some(())
    });
    for mut client in idle {
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest); // ends when the server closes it
    }
    assert!(daemon.log().contains("no handshake within 10 s"), "{}", daemon.log());
    assert!(daemon.is_alive());
    daemon.assert_no_panic();
    daemon.stop();
}
