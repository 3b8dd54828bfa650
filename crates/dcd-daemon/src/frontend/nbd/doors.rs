//! What is needed before NBD can be served: certificates that are good, sockets that can be had,
//! descriptors for so many clients. All of it is looked at before anything is written to a disk.

use std::rc::Rc;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::frontend::error::FrontendError;
use crate::frontend::nbd::listen::{Listener, NbdAddress, NbdOptions, listen};
use crate::frontend::nbd::places::{DESCRIPTORS_OTHER, NEGOTIATING_MAX};
use crate::frontend::nbd::tls::files::TlsIdentity;
use crate::frontend::nbd::tls::handshake_thread::HandshakeThread;

/// See the module.
pub(crate) struct NbdDoors<'a> {
    options: &'a NbdOptions,
    handshakes: Option<Rc<HandshakeThread>>,
    quiet: bool,
}

impl NbdDoors<'_> {
    /// Reads the certificates, if there are any.
    pub(crate) fn new(options: &NbdOptions, quiet: bool) -> Result<NbdDoors<'_>, FrontendError> {
        let identity = options.tls.clone().map(TlsIdentity::load).transpose()?;
        let handshakes = identity
            .map(|identity| HandshakeThread::new(identity, quiet).map(Rc::new))
            .transpose()
            .map_err(FrontendError::system("make an eventfd"))?;
        Ok(NbdDoors { options, handshakes, quiet })
    }

    /// Starts what computes handshakes, which may do what the calling thread may.
    pub(crate) fn start(&self) -> Result<(), FrontendError> {
        let started = self.handshakes.as_ref().map_or(Ok(()), |thread| thread.start());
        started.map_err(FrontendError::system("start a thread for TLS"))
    }

    /// Opens the sockets.
    pub(crate) fn listen(&self, addresses: &[NbdAddress]) -> Result<Vec<Listener>, FrontendError> {
        if !addresses.is_empty() {
            self.allow_descriptors();
        }
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = listen(address, self.options, self.handshakes.as_ref())?;
            if listener.is_unprotected() && !self.quiet {
                eprintln!(
                    "dcd: {}: no TLS: every user of this machine{} may read and change the whole disk",
                    listener.address,
                    if self.options.insecure_tcp {
                        ", and whoever else reaches the port,"
                    } else {
                        ""
                    }
                );
            }
            listeners.push(listener);
        }
        Ok(listeners)
    }

    /// Raises the limit of open descriptors for the clients, as far as it may be.
    fn allow_descriptors(&self) {
        // Those that negotiate are not needed: with few descriptors there are fewer of them.
        let needed = (self.options.connections_max + DESCRIPTORS_OTHER) as u64;
        let wanted = needed + NEGOTIATING_MAX as u64;
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current.is_none_or(|current| current >= wanted) {
            return;
        }
        let allowed = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        limit.current = Some(allowed);
        let raised = setrlimit(Resource::Nofile, limit).is_ok();
        if (!raised || allowed < needed) && !self.quiet {
            eprintln!(
                "dcd: {} NBD clients need {needed} open files, and no more than {allowed} are allowed (ulimit -n)",
                self.options.connections_max
            );
        }
    }
}
