//! What comes after the handshake: records to plaintext, plaintext to records.

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus, WriteTraffic};

use super::TlsFailure;
use super::handshake_step::encode;
use crate::frontend::nbd::staging::Staging;

/// Longest plaintext of a record, and what the record is longer, at most.
const PLAINTEXT_MAX: usize = 16 << 10;
const OVERHEAD_MAX: usize = 256;
/// Plaintext that becomes records together.
const GATHERED_MAX: usize = 64 << 10;
/// Room for received records: one of the greatest length, and a little.
const RECORDS_FIRST: usize = 20 << 10;
/// The same for a client that fills it.
const RECORDS_BUSY: usize = 256 << 10;

/// Something to be done with a connection that may write.
type Write<'a> = &'a mut dyn FnMut(
    &mut WriteTraffic<'_, ServerConnectionData>,
    &mut Vec<u8>,
) -> Result<(), TlsFailure>;

/// See the module.
pub(in crate::frontend::nbd) struct SecuredStream {
    tls: Box<UnbufferedServerConnection>,
    records: Staging,
    /// The last receive filled all the space there was.
    is_filled: bool,
    /// Plaintext that the protocol above has not taken yet, from `plain_start` on.
    plain: Vec<u8>,
    plain_start: usize,
    failure: Option<TlsFailure>,
    /// Nothing more comes from the client; it has said so.
    is_ended: bool,
    has_said_goodbye: bool,
}

impl SecuredStream {
    /// The stream of a handshake that is done; `records` may hold the first data.
    pub(in crate::frontend::nbd) fn new(
        tls: Box<UnbufferedServerConnection>,
        records: Staging,
    ) -> SecuredStream {
        SecuredStream {
            tls,
            records: records.enlarged(RECORDS_FIRST),
            is_filled: false,
            plain: Vec::new(),
            plain_start: 0,
            failure: None,
            is_ended: false,
            has_said_goodbye: false,
        }
    }

    /// The client's certificate.
    pub(in crate::frontend::nbd) fn client_certificate(&self) -> Option<&[u8]> {
        self.tls.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Where the next records go; never empty.
    pub(in crate::frontend::nbd) fn space(&mut self) -> &mut [u8] {
        if std::mem::take(&mut self.is_filled) && self.records.capacity() < RECORDS_BUSY {
            self.records = self.records.enlarged(RECORDS_BUSY);
        }
        self.records.space()
    }

    /// `count` bytes were put at the front of the space.
    pub(in crate::frontend::nbd) fn received(&mut self, count: usize) {
        self.records.received(count);
        self.is_filled = self.records.is_filled();
    }

    /// The next plaintext, if there is any. `out` gets what TLS has to answer.
    pub(in crate::frontend::nbd) fn plaintext(
        &mut self,
        out: &mut Vec<u8>,
    ) -> Result<&[u8], TlsFailure> {
        if self.is_drained() {
            self.plain.clear();
            self.plain_start = 0;
            self.turn(out, None);
            if self.plain.is_empty()
                && let Some(failure) = self.failure.clone()
            {
                return Err(failure);
            }
        }
        Ok(&self.plain[self.plain_start..])
    }

    /// The first `count` bytes of the plaintext were taken.
    pub(in crate::frontend::nbd) fn consume(&mut self, count: usize) {
        self.plain_start += count;
    }

    /// Whether the client has said that nothing more comes.
    pub(in crate::frontend::nbd) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether all plaintext was taken.
    pub(in crate::frontend::nbd) fn is_drained(&self) -> bool {
        self.plain_start == self.plain.len()
    }

    /// Appends records with the front of `slices` to `out`. Returns how many bytes of plaintext
    /// they hold. Fails, with an alert in `out`, if what was received is no TLS: it has to be read
    /// before anything is written.
    pub(in crate::frontend::nbd) fn encrypt<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<usize, TlsFailure> {
        // A reply is a small header and its data: gathered, they are one record instead of two.
        let mut gathered = Vec::new();
        for slice in slices {
            let count = slice.len().min(GATHERED_MAX - gathered.len());
            gathered.extend_from_slice(&slice[..count]);
            if gathered.len() == GATHERED_MAX {
                break;
            }
        }
        let mut taken = 0;
        if !gathered.is_empty() {
            let room = gathered.len() + gathered.len().div_ceil(PLAINTEXT_MAX) * OVERHEAD_MAX;
            self.turn(
                out,
                Some(&mut |traffic, out| {
                    let start = out.len();
                    out.resize(start + room, 0);
                    let length = traffic.encrypt(&gathered, &mut out[start..]);
                    out.truncate(start + *length.as_ref().unwrap_or(&0));
                    taken = gathered.len();
                    length.map(drop).map_err(|_| TlsFailure::Exhausted)
                }),
            );
            if taken == 0
                && let Some(failure) = self.failure.clone()
            {
                return Err(failure);
            }
        }
        Ok(taken)
    }

    /// Appends the end of our side to `out`, once.
    pub(in crate::frontend::nbd) fn say_goodbye(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_said_goodbye, true) {
            self.turn(
                out,
                Some(&mut |traffic, out| {
                    encode(out, |out| traffic.queue_close_notify(out).ok());
                    Ok(())
                }),
            );
        }
    }

    /// Whether our side has ended.
    pub(in crate::frontend::nbd) fn has_said_goodbye(&self) -> bool {
        self.has_said_goodbye
    }

    /// Has TLS go on with what was received: to the next plaintext, or, to `write`, until it may
    /// write. The records that wait are there in both cases, since it remembers places in them; so
    /// when writing plaintext may come too, of at most all of them.
    fn turn(&mut self, out: &mut Vec<u8>, mut write: Option<Write<'_>>) {
        if self.failure.is_some() {
            return;
        }
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(self.records.waiting_mut());
            let goes_on = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    match traffic.next_record() {
                        Some(Ok(record)) => {
                            discard += record.discard;
                            self.plain.extend_from_slice(record.payload);
                        }
                        Some(Err(error)) => self.failure = Some(TlsFailure::Tls(error)),
                        None => {}
                    }
                    self.plain.is_empty() || write.is_some()
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    encode(out, |out| message.encode(out).ok());
                    true
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    true
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_ended = true;
                    write.is_some()
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    if let Some(write) = write.take()
                        && let Err(failure) = write(&mut traffic, out)
                    {
                        self.failure = Some(failure);
                    }
                    false
                }
                Ok(_) => false,
                Err(error) => {
                    self.failure.get_or_insert(TlsFailure::Tls(error));
                    false
                }
            };
            self.records.consume(discard);
            // After a failure it is asked only for the alert that tells the client: rustls panics
            // if it has to fail twice.
            if self.failure.as_ref().map_or(!goes_on, |_| !self.tls.wants_write()) {
                return;
            }
        }
    }
}
