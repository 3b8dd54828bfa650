//! The way of an NBD connection into TLS, with a real client on the other side whose bytes are cut,
//! changed and mixed with bytes of nobody.
//!
//! The first byte: whether valid client flags come first (1), whether the client has a certificate
//! (2). What follows is a list of things to do, see [`Pair::act`]. Keys and nonces are new each
//! time, so a run is not repeated exactly; what must hold is the same for all: before TLS nothing
//! is granted, after it everything is TLS, and requests come only from a client with a certificate.

use std::io::{Read, Write};
use std::sync::{Arc, LazyLock};

use dcd_daemon::frontend::nbd::protocol::{
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC, command,
    option, option_reply,
};
use dcd_daemon::frontend::nbd::tls::{TlsAccess, certificate_name, certificate_names};
use dcd_daemon::frontend::nbd::{Budget, Event, Export, Session};
use dcd_engine::{Buffer, Operation};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

use crate::input::Input;

/// Things to do in one run.
const ACTS_MAX: usize = 64;
/// The greeting of the server.
const GREETING_BYTES: usize = 18;

struct Configs {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    stranger: Arc<ClientConfig>,
}

static CONFIGS: LazyLock<Configs> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let own = params.self_signed(&key).expect("an authority").der().clone();
    let authority = Issuer::new(params, key);
    let sign = || -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key in DER");
        (vec![certificate.der().clone()], key)
    };
    let mut roots = RootCertStore::empty();
    roots.add(own).expect("an authority");
    let roots = Arc::new(roots);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let versions = [&rustls::version::TLS13];
    let (chain, key) = sign();
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .expect("TLS 1.3")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(chain, key);
    let client = || {
        ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .expect("TLS 1.3")
            .with_root_certificates(roots.clone())
    };
    let (chain, key) = sign();
    Configs {
        server: Arc::new(server.expect("a server")),
        client: Arc::new(client().with_client_auth_cert(chain, key).expect("a client")),
        stranger: Arc::new(client().with_no_client_auth()),
    }
});

struct Pair {
    session: Session,
    client: ClientConnection,
    /// It has said goodbye, and reads no more: rustls asserts that it has no error to tell
    /// afterwards.
    client_has_left: bool,
    has_certificate: bool,
    is_secured: bool,
    /// What the server sent so far, of which the client was given the front.
    sent: Vec<u8>,
    /// Where TLS begins in it.
    tls_starts: Option<usize>,
    given: usize,
}

pub(crate) fn run(input: &[u8]) {
    let mut program = Input(input);
    certificate_name(program.0);
    let names = certificate_names(program.0);
    let listed = TlsAccess { allow: names.clone(), read_only: Vec::new() };
    assert!(listed.check(program.0).is_ok());
    assert!(!listed.is_read_only(program.0));
    let how = program.u8();
    let has_certificate = how & 2 != 0;
    let config = if has_certificate { &CONFIGS.client } else { &CONFIGS.stranger };
    let name = ServerName::try_from("localhost").expect("a name");
    let export = Export {
        size_bytes: 1 << 20,
        minimum_block: 512,
        preferred_block: 4096,
        maximum_payload: 1 << 20,
        read_only: false,
        trim: true,
        description: String::new(),
    };
    let mut pair = Pair {
        session: Session::new(export, true, &Budget::new()),
        client: ClientConnection::new(config.clone(), name).expect("a client"),
        client_has_left: false,
        has_certificate,
        is_secured: false,
        sent: Vec::new(),
        tls_starts: None,
        given: 0,
    };
    if how & 1 != 0 {
        pair.receive(&u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    }
    for _ in 0..ACTS_MAX {
        if program.is_empty() {
            break;
        }
        pair.act(&mut program);
    }
    pair.session.ended();
    pair.serve();
    assert!(pair.session.is_finished(), "nothing is left of a client that has gone");
    pair.check();
}

impl Pair {
    fn act(&mut self, program: &mut Input<'_>) {
        match program.u8() % 9 {
            0 => {
                let count = program.u8();
                let bytes: Vec<u8> = (0..count).map(|_| program.u8()).collect();
                self.receive(&bytes);
            }
            1 => self.receive(&option_bytes(option::STARTTLS, &[])),
            2 => {
                let bytes =
                    option_bytes(program.u8().into(), &[0; 6][..usize::from(program.u8() % 7)]);
                self.receive(&bytes);
            }
            3 => self.exchange(|_| {}),
            4 => {
                let (place, bits) = (usize::from(program.u16()), program.u8());
                self.exchange(|records| {
                    let place = place.checked_rem(records.len()).unwrap_or(0);
                    if let Some(byte) = records.get_mut(place) {
                        *byte ^= bits;
                    }
                });
            }
            5 => {
                let keep = usize::from(program.u16());
                self.exchange(|records| records.truncate(keep));
            }
            6 => {
                let words = match program.u8() % 4 {
                    0 => option_bytes(option::GO, &[0; 6]),
                    1 => option_bytes(program.u8().into(), &[]),
                    2 => request(command::READ, 4096, &[]),
                    _ => request(command::WRITE, 512, &[7; 512]),
                };
                let _ = self.client.writer().write_all(&words);
            }
            7 => {
                let _ = self.client.refresh_traffic_keys();
            }
            _ => {
                self.client.send_close_notify();
                self.client_has_left = true;
            }
        }
    }

    /// What the client wants to send arrives as `change` makes it; then it reads what came.
    fn exchange(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut records = Vec::new();
        while self.client.wants_write() && self.client.write_tls(&mut records).is_ok() {}
        change(&mut records);
        self.receive(&records);
        let Some(start) = self.tls_starts else { return };
        self.given = self.given.max(start);
        while !self.client_has_left
            && let Some(mut rest) = self.sent.get(self.given..).filter(|rest| !rest.is_empty())
        {
            match self.client.read_tls(&mut rest) {
                Ok(count) if count > 0 => self.given += count,
                _ => return,
            }
            if self.client.process_new_packets().is_err() {
                return;
            }
            let _ = self.client.reader().read_to_end(&mut Vec::new());
        }
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        self.serve();
        while !bytes.is_empty() && self.session.wants_input() {
            let space = self.session.receive_space();
            let count = space.len().min(bytes.len());
            assert!(count > 0, "what is wanted has room");
            space[..count].copy_from_slice(&bytes[..count]);
            self.session.received(count);
            bytes = &bytes[count..];
            self.serve();
        }
    }

    /// What a driver does, until there is nothing more.
    fn serve(&mut self) {
        loop {
            let before = self.sent.len();
            self.session.transmit().for_each(|slice| self.sent.extend_from_slice(slice));
            self.session.transmitted(self.sent.len() - before);
            if let Some(mut step) = self.session.take_handshake() {
                // The answer to STARTTLS has left, and no byte of TLS yet.
                self.tls_starts.get_or_insert(self.sent.len());
                step.run(&CONFIGS.server);
                if self.session.handshake_done(step) {
                    self.is_secured = true;
                    assert!(self.has_certificate && self.session.client_certificate().is_some());
                }
                continue;
            }
            match self.session.poll_event() {
                None if self.sent.len() == before => return,
                None | Some(Event::Closed(_)) => {}
                Some(Event::Request { handle, operation, .. }) => {
                    assert!(self.is_secured, "a request of nobody");
                    let buffer = match operation {
                        Operation::Read { range, .. } => {
                            Some(Buffer::zeroed(range.bytes() as usize))
                        }
                        Operation::Write { data, .. } => Some(data),
                        _ => None,
                    };
                    self.session.complete(handle, Ok(()), buffer);
                }
                Some(Event::BlockStatus { handle, .. }) => {
                    assert!(self.is_secured, "a query of nobody");
                    self.session.complete_block_status(handle, &[]);
                }
            }
        }
    }

    /// All that the server has sent.
    fn check(&self) {
        let (plain, records) = self.sent.split_at(self.tls_starts.unwrap_or(self.sent.len()));
        // 1. Before TLS: the greeting, refusals, and the answer to STARTTLS or ABORT.
        let mut plain = plain.get(GREETING_BYTES..).expect("a greeting");
        while let Some((header, rest)) = plain.split_at_checked(20) {
            let word =
                |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("4 bytes"));
            assert_eq!(header[..8], OPTION_REPLY_MAGIC.to_be_bytes());
            let granted = word(12) & 1 << 31 == 0;
            if granted {
                assert!(matches!(word(8), option::STARTTLS | option::ABORT), "option {}", word(8));
                assert_eq!((word(12), word(16)), (option_reply::ACK, 0));
            }
            plain = rest.get(word(16) as usize..).expect("as long as it says");
        }
        assert!(plain.is_empty());
        // 2. From then on: records.
        let mut records = records;
        while let Some((&[kind, 3, 3, high, low], rest)) = records.split_first_chunk() {
            assert!((20..=23).contains(&kind), "a record of kind {kind}");
            let length = usize::from(u16::from_be_bytes([high, low]));
            assert!(length <= (16 << 10) + 256);
            records = rest.get(length..).expect("as long as it says");
        }
        assert!(records.is_empty(), "no record: {:?}", &records[..records.len().min(8)]);
    }
}

fn option_bytes(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn request(number: u16, length: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(number.to_be_bytes());
    bytes.extend([0; 16]);
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}
