//! One step of a TLS handshake: what has come goes in, what is to be sent comes out.
//!
//! A step owns all it needs, so that it can be computed on another thread;
//! [`super::super::Session`] hands it out and gets it back.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use super::TlsFailure;
use crate::frontend::nbd::staging::Staging;

/// Room for what a client sends in a handshake: its certificates are the longest part.
pub(super) const RECORDS_HANDSHAKE: usize = 20 << 10;
/// Room for the first message of a handshake; most clients of which there are too many never send
/// more.
const RECORDS_FIRST: usize = 2 << 10;

/// See the module.
pub struct HandshakeStep {
    tls: Option<Box<UnbufferedServerConnection>>,
    records: Staging,
    outgoing: Vec<u8>,
    outcome: Result<(), TlsFailure>,
}

/// What has become of a handshake after a step.
pub(in crate::frontend::nbd) enum Secured {
    /// More is needed of the client.
    NotYet(HandshakeStep),
    /// It is done; records may wait that came with the end of it.
    Yes { tls: Box<UnbufferedServerConnection>, records: Staging },
    /// It has failed.
    Failed(TlsFailure),
}

impl Default for HandshakeStep {
    fn default() -> HandshakeStep {
        HandshakeStep {
            tls: None,
            records: Staging::new(RECORDS_FIRST),
            outgoing: Vec::new(),
            outcome: Ok(()),
        }
    }
}

impl HandshakeStep {
    /// Where the next bytes go; never empty.
    pub(in crate::frontend::nbd) fn space(&mut self) -> &mut [u8] {
        // After a step there is room, or it has failed.
        self.records.space()
    }

    /// `count` bytes were put at the front of the space.
    pub(in crate::frontend::nbd) fn received(&mut self, count: usize) {
        self.records.received(count);
    }

    /// Computes the step. This takes up to milliseconds: signatures are made and verified.
    pub fn run(&mut self, config: &Arc<ServerConfig>) {
        self.outcome = self.advance(config);
    }

    fn advance(&mut self, config: &Arc<ServerConfig>) -> Result<(), TlsFailure> {
        let tls = match &mut self.tls {
            Some(tls) => tls,
            None => {
                let new = UnbufferedServerConnection::new(config.clone());
                self.tls.insert(Box::new(new.map_err(TlsFailure::Tls)?))
            }
        };
        let mut failure = None;
        loop {
            let UnbufferedStatus { discard, state } =
                tls.process_tls_records(self.records.waiting_mut());
            let goes_on = match state {
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    encode(&mut self.outgoing, |out| message.encode(out).ok());
                    true
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    true
                }
                Ok(_) => false,
                Err(error) => {
                    failure.get_or_insert(TlsFailure::Tls(error));
                    false
                }
            };
            self.records.consume(discard);
            // After a failure it is asked only for the alert that tells the client: rustls panics
            // if it has to fail twice.
            if failure.as_ref().map_or(!goes_on, |_| !tls.wants_write()) {
                break;
            }
        }
        if failure.is_none() && tls.is_handshaking() && self.records.space().is_empty() {
            if self.records.capacity() < RECORDS_HANDSHAKE {
                self.records = self.records.enlarged(RECORDS_HANDSHAKE);
            } else {
                failure = Some(TlsFailure::TooLong);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// What is to be sent.
    pub(in crate::frontend::nbd) fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// What the step has come to.
    pub(in crate::frontend::nbd) fn finish(self) -> Secured {
        match (self.outcome, self.tls) {
            (Err(failure), _) => Secured::Failed(failure),
            (Ok(()), Some(tls)) if !tls.is_handshaking() => {
                Secured::Yes { tls, records: self.records }
            }
            (Ok(()), tls) => Secured::NotYet(HandshakeStep { outcome: Ok(()), tls, ..self }),
        }
    }
}

/// Appends what `encode` writes; it returns `None` when there is too little room, and is then asked
/// again.
pub(super) fn encode(out: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Option<usize>) {
    let start = out.len();
    // More than any message that a server sends: its certificates are read from a file of at most
    // this size.
    for room in [1 << 10, 8 << 10, ENCODED_MAX] {
        out.resize(start + room, 0);
        if let Some(length) = encode(&mut out[start..]) {
            out.truncate(start + length);
            return;
        }
    }
    out.truncate(start);
}

/// Longest message that is encoded.
pub(super) const ENCODED_MAX: usize = 128 << 10;
