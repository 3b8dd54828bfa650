//! Sessions with TLS, against the client side of rustls: what is protected, who gets in, and how it
//! ends.

use std::sync::{Arc, LazyLock};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use std::io::{Read, Write};

use super::super::tls::{HandshakeStep, TlsFailure, certificate_name};
use super::super::{Budget, Event, Session};
use super::*;

const SIZE: u64 = 1 << 20;

/// An authority, what it has signed for the server, and for clients.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

pub(super) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose, until: i32) -> Identity {
        let mut params = CertificateParams::new(vec!["disk.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.extended_key_usages = vec![purpose];
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Identity { chain: vec![certificate.der().clone()], key }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        Arc::new(roots)
    }

    fn client(&self, name: &str) -> Identity {
        self.sign(name, ExtendedKeyUsagePurpose::ClientAuth, 2999)
    }
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("test authority"));

static SERVER: LazyLock<Arc<ServerConfig>> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(AUTHORITY.roots(), provider.clone());
    let own = AUTHORITY.sign("server", ExtendedKeyUsagePurpose::ServerAuth, 2999);
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(own.chain, own.key);
    Arc::new(config.unwrap())
});

fn client_config(identity: Option<Identity>) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(AUTHORITY.roots());
    Arc::new(match identity {
        Some(Identity { chain, key }) => config.with_client_auth_cert(chain, key).unwrap(),
        None => config.with_no_client_auth(),
    })
}

/// A session with its disk and a client on the other side.
struct Pair {
    session: Session,
    disk: MemoryDisk,
    client: ClientConnection,
    closed: Option<Option<ProtocolError>>,
    secured: bool,
}

impl Pair {
    fn new(identity: Option<Identity>) -> Pair {
        let export = export(SIZE);
        let disk = MemoryDisk::new(&export);
        let session = Session::new(export, true, &Budget::new());
        let name = ServerName::try_from("disk.example").unwrap();
        let mut client = ClientConnection::new(client_config(identity), name).unwrap();
        client.set_buffer_limit(None);
        Pair { session, disk, client, closed: None, secured: false }
    }

    /// Up to the answer to STARTTLS.
    fn started_tls(identity: Option<Identity>) -> Pair {
        let mut pair = Pair::new(identity);
        let mut hello = client_flags(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        hello.extend(option_bytes(option::STARTTLS, &[]));
        assert!(pair.send_raw(&hello).is_empty());
        let sent = pair.take_raw();
        let mut answer = Reader(&sent[18..]);
        assert_eq!(answer.option_reply(), (option::STARTTLS, option_reply::ACK, &[][..]));
        pair
    }

    fn secured(identity: Option<Identity>) -> Pair {
        let mut pair = Pair::started_tls(identity);
        pair.talk();
        pair
    }

    /// Gives bytes to the session as they are, and returns what it did not want.
    fn send_raw<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while !bytes.is_empty() && self.session.wants_input() {
            let space = self.session.receive_space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.session.received(count);
            bytes = &bytes[count..];
            self.serve();
        }
        bytes
    }

    fn take_raw(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            self.session.transmit().for_each(|slice| bytes.extend_from_slice(slice));
            if bytes.len() == before {
                return bytes;
            }
            self.session.transmitted(bytes.len() - before);
            self.serve();
        }
    }

    /// What a driver does: handshakes, requests.
    fn serve(&mut self) {
        loop {
            if let Some(mut step) = self.session.take_handshake() {
                step.run(&SERVER);
                self.secured |= self.session.handshake_done(step);
                continue;
            }
            match self.session.poll_event() {
                None => return,
                Some(Event::Closed(how)) => self.closed = Some(how),
                Some(Event::Request { handle, operation, fua }) => {
                    let (result, buffer) = self.disk.handle_request(operation, fua);
                    self.session.complete(handle, result, buffer);
                }
                Some(Event::BlockStatus { handle, range, .. }) => {
                    self.session.complete_block_status(handle, &[(range.blocks, false)]);
                }
            }
        }
    }

    /// Moves records both ways until nothing moves. Returns the plaintext that the client got.
    fn talk(&mut self) -> Vec<u8> {
        let mut plain = Vec::new();
        loop {
            let mut records = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut records).unwrap();
            }
            assert!(self.send_raw(&records).is_empty() || !self.session.wants_input());
            let answer = self.take_raw();
            let mut rest = &answer[..];
            while !rest.is_empty() && self.client.wants_read() {
                self.client.read_tls(&mut rest).unwrap();
                if self.client.process_new_packets().is_err() {
                    return plain;
                }
                let _ = self.client.reader().read_to_end(&mut plain);
            }
            if records.is_empty() && answer.is_empty() {
                return plain;
            }
        }
    }

    /// Says something under TLS and returns the answer.
    fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(bytes).unwrap();
        self.talk()
    }

    fn failure(&self) -> &TlsFailure {
        match &self.closed {
            Some(Some(ProtocolError::Tls(failure))) => failure,
            other => panic!("not a failure of TLS: {other:?}"),
        }
    }
}

fn go() -> Vec<u8> {
    option_bytes(option::GO, &info_payload(b"", &[]))
}

#[test]
fn a_client_with_a_certificate_reads_what_it_wrote() {
    let mut pair = Pair::secured(Some(AUTHORITY.client("backup")));
    assert!(pair.secured && pair.session.in_handshake());
    let certificate = pair.session.client_certificate().and_then(certificate_name);
    assert_eq!(certificate.as_deref(), Some("CN=backup,O=Example"));
    pair.say(&go());
    assert!(!pair.session.in_handshake());
    // Longer than a record, and many at once.
    let data: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).take(292_864).collect();
    let mut requests = write_request(0, 1, 4096, &data);
    requests.extend(request(command::READ, 0, 2, 4096, data.len() as u32));
    for cookie in 3..100 {
        requests.extend(request(command::READ, 0, cookie, 8192, 4096));
    }
    let answer = pair.say(&requests);
    let mut answer = Reader(&answer);
    assert_eq!(answer.simple(), (1, 0));
    assert_eq!(answer.simple(), (2, 0));
    assert!(answer.take(data.len()) == data);
    for cookie in 3..100 {
        assert_eq!(answer.simple(), (cookie, 0));
        assert!(answer.take(4096) == &data[4096..8192]);
    }
    // New keys, whenever one side wants them.
    pair.client.refresh_traffic_keys().unwrap();
    let answer = pair.say(&request(command::READ, 0, 200, 4096, 512));
    assert_eq!(Reader(&answer).simple(), (200, 0));
    pair.say(&request(command::DISC, 0, 0, 0, 0));
    assert_eq!(pair.closed, Some(None));
    assert!(pair.session.is_finished());
}

#[test]
fn only_starttls_and_abort_are_understood_before_tls() {
    let mut pair = Pair::new(None);
    pair.send_raw(&client_flags(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
    pair.take_raw();
    let contexts = meta_payload(b"", &[CONTEXT_NAME]);
    for (number, payload) in [
        (option::GO, info_payload(b"", &[])),
        (option::INFO, info_payload(b"", &[])),
        (option::LIST, Vec::new()),
        (option::STRUCTURED_REPLY, Vec::new()),
        (option::LIST_META_CONTEXT, contexts.clone()),
        (option::SET_META_CONTEXT, contexts),
        (77, b"unknown".to_vec()),
    ] {
        pair.send_raw(&option_bytes(number, &payload));
        let answer = pair.take_raw();
        let (to, kind, _) = Reader(&answer).option_reply();
        assert_eq!((to, kind), (number, option_reply::ERR_TLS_REQD));
        assert!(pair.session.in_handshake() && pair.closed.is_none());
    }
    pair.send_raw(&option_bytes(option::ABORT, &[]));
    let answer = pair.take_raw();
    assert_eq!(Reader(&answer).option_reply().1, option_reply::ACK);
    assert_eq!(pair.closed, Some(None));
    assert!(pair.session.is_finished());

    let mut pair = Pair::new(None);
    pair.send_raw(&client_flags(FLAG_FIXED_NEWSTYLE));
    pair.send_raw(&option_bytes(option::EXPORT_NAME, &[]));
    assert_eq!(pair.closed, Some(Some(ProtocolError::TlsRequired)));
    assert!(pair.take_raw().len() == 18, "nothing but the greeting");
}

#[test]
fn what_was_agreed_before_tls_counts_no_more() {
    // Structured replies are refused before TLS, so that they could only be agreed to by mistake;
    // after TLS they are not there until they are asked for again, and STARTTLS is not possible
    // twice.
    let mut pair = Pair::secured(Some(AUTHORITY.client("a")));
    let contexts = option_bytes(option::SET_META_CONTEXT, &meta_payload(b"", &[CONTEXT_NAME]));
    let answer = pair.say(&contexts);
    assert_eq!(Reader(&answer).option_reply().1, option_reply::ERR_INVALID);
    let answer = pair.say(&option_bytes(option::STARTTLS, &[]));
    assert_eq!(Reader(&answer).option_reply().1, option_reply::ERR_INVALID);
    pair.say(&option_bytes(option::STRUCTURED_REPLY, &[]));
    pair.say(&contexts);
    let answer = pair.say(&go());
    assert_eq!(Reader(&answer).option_reply().1, option_reply::INFO);
    assert!(!pair.session.in_handshake());
}

#[test]
fn bytes_that_come_with_starttls_end_the_connection() {
    for injected in [go(), vec![0], option_bytes(option::STRUCTURED_REPLY, &[])] {
        let mut pair = Pair::new(None);
        pair.send_raw(&client_flags(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
        let mut bytes = option_bytes(option::STARTTLS, &[]);
        bytes.extend(injected);
        pair.send_raw(&bytes);
        assert_eq!(pair.closed, Some(Some(ProtocolError::BytesBehindStartTls)));
        assert_eq!(pair.take_raw().len(), 18, "not even STARTTLS is answered");
        assert!(pair.session.is_finished());
    }
}

#[test]
fn bytes_injected_after_the_answer_to_starttls_are_no_tls() {
    let mut pair = Pair::started_tls(Some(AUTHORITY.client("a")));
    pair.send_raw(&go());
    assert!(matches!(pair.failure(), TlsFailure::Tls(_)), "{:?}", pair.closed);
    let alert = pair.take_raw();
    assert_eq!(alert.first(), Some(&21), "an alert, and nothing of NBD: {alert:?}");
    assert!(pair.session.is_finished() && !pair.secured);
}

#[test]
fn who_has_no_good_certificate_gets_nothing() {
    let other = Authority::new("another authority");
    let expired = AUTHORITY.sign("old", ExtendedKeyUsagePurpose::ClientAuth, 2001);
    let server_only = AUTHORITY.sign("server", ExtendedKeyUsagePurpose::ServerAuth, 2999);
    for (identity, words) in [
        (None, "no certificate"),
        (Some(other.client("stranger")), "UnknownIssuer"),
        (Some(expired), "expired"),
        (Some(server_only), "certificate"),
    ] {
        let mut pair = Pair::started_tls(identity);
        // The client believes that it is connected, and asks at once: nothing of that may be done.
        pair.client.writer().write_all(&go()).unwrap();
        let mut write = write_request(0, 1, 0, &[9; 512]);
        write.extend(request(command::READ, 0, 2, 0, 512));
        pair.client.writer().write_all(&write).unwrap();
        assert_eq!(pair.talk(), b"");
        let text = pair.failure().to_string();
        assert!(text.contains(words), "{words}: {text}");
        assert!(!pair.secured && pair.session.is_finished() && pair.session.in_handshake());
        assert_eq!(pair.disk.handle_read(0, 512), [0; 512]);
    }
}

#[test]
fn a_cut_is_told_from_a_goodbye() {
    let mut pair = Pair::secured(Some(AUTHORITY.client("a")));
    pair.say(&go());
    pair.session.ended();
    pair.serve();
    assert_eq!(*pair.failure(), TlsFailure::Truncated);

    let mut pair = Pair::secured(Some(AUTHORITY.client("a")));
    pair.say(&go());
    // A request, and a goodbye behind it: it is answered, then we say goodbye too.
    pair.client.writer().write_all(&write_request(0, 7, 0, &[5; 4096])).unwrap();
    pair.client.send_close_notify();
    let answer = pair.talk();
    assert_eq!(Reader(&answer).simple(), (7, 0));
    assert!(pair.closed.is_none() && pair.session.is_finished());
    let state = pair.client.process_new_packets().unwrap();
    assert!(state.peer_has_closed(), "close_notify of the server");
    pair.session.ended();
    assert!(pair.closed.is_none());
}

#[test]
fn a_changed_record_ends_the_connection() {
    let mut pair = Pair::secured(Some(AUTHORITY.client("a")));
    pair.say(&go());
    pair.client.writer().write_all(&write_request(0, 1, 0, &[5; 512])).unwrap();
    let mut records = Vec::new();
    pair.client.write_tls(&mut records).unwrap();
    *records.last_mut().unwrap() ^= 1;
    pair.send_raw(&records);
    assert_eq!(*pair.failure(), TlsFailure::Tls(rustls::Error::DecryptError));
    assert_eq!(pair.disk.handle_read(0, 512), [0; 512]);
    pair.take_raw();
    assert!(pair.session.is_finished());
}

#[test]
fn a_step_that_comes_back_too_late_is_dropped() {
    let mut pair = Pair::started_tls(Some(AUTHORITY.client("a")));
    let mut hello = Vec::new();
    pair.client.write_tls(&mut hello).unwrap();
    let space = pair.session.receive_space();
    space[..hello.len()].copy_from_slice(&hello);
    pair.session.received(hello.len());
    let mut step: HandshakeStep = pair.session.take_handshake().unwrap();
    assert!(!pair.session.wants_input(), "while a step is elsewhere");
    pair.session.stop_receiving();
    step.run(&SERVER);
    assert!(!pair.session.handshake_done(step));
    assert!(pair.session.is_finished());
}

#[test]
fn without_tls_starttls_is_refused() {
    let mut connection = Connection::new(export(SIZE));
    feed(&mut connection, &client_flags(FLAG_FIXED_NEWSTYLE));
    feed(&mut connection, &option_bytes(option::STARTTLS, &[]));
    let sent = drain(&mut connection);
    assert_eq!(Reader(&sent[18..]).option_reply().1, option_reply::ERR_UNSUP);
}

#[test]
fn names_of_certificates_are_harmless_text() {
    assert_eq!(certificate_name(b""), None);
    assert_eq!(certificate_name(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    let odd = AUTHORITY.client("a,b=c\nx");
    assert_eq!(certificate_name(&odd.chain[0]).unwrap(), "CN=a?b?c?x,O=Example");
    let long = AUTHORITY.client(&"ä".repeat(1000));
    assert!(certificate_name(&long.chain[0]).unwrap().len() <= 256);
}
