//! Who uses the disk from above: file systems mounted from it, devices made of it, processes that
//! have it open, clients and guests that are connected. Taking it away from them loses what they
//! have not written yet, so they are named first.
//!
//! **Threads.** Nothing in here may run on the thread of the event loop: opening and syncing a
//! device may need its answers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::caretaker;
use crate::event_loop::submitter::Submitter;
use crate::frontend::vhost_user::Guest;
use crate::process::open_files::without_open_files;
use crate::process::users::{Users, look};

/// Where the disk can be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// The directory of the FUSE file.
    pub(crate) fuse: Option<PathBuf>,
    /// Its loop device.
    pub(crate) loop_device: Option<PathBuf>,
    /// The ublk device.
    pub(crate) ublk: Option<PathBuf>,
    /// Whether a guest is connected.
    pub(crate) guest: Option<Guest>,
}

/// Finds those who use it. Shared by whoever may end the daemon.
#[derive(Clone, Debug, Default)]
pub struct UserFinder(Arc<Mutex<Places>>);

/// For which end users are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A stop: the users of a ublk device, and a guest, wait for the next start.
    Stop,
    /// A restart: NBD clients connect again, too.
    Restart,
    /// The disk goes away for good.
    Detach,
}

impl UserFinder {
    /// What is looked at from now on.
    pub(crate) fn set(&self, places: Places) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }

    fn places(&self) -> Places {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is anything that only a look at the system shows.
    pub(crate) fn must_look(&self, purpose: Purpose) -> bool {
        let Places { fuse, ublk, guest, .. } = self.places();
        fuse.is_some() || purpose == Purpose::Detach && (ublk.is_some() || guest.is_some())
    }

    /// Looks. Not on the event loop's thread.
    pub(crate) fn find(&self, purpose: Purpose, submitter: &Submitter) -> Users {
        let places = self.places();
        let ublk = places.ublk.filter(|_| purpose == Purpose::Detach);
        let devices = places.loop_device.into_iter().chain(ublk).collect::<Vec<_>>();
        let fuse = places.fuse;
        // Who has given up his rights sees little of others.
        let mut users = caretaker::look(&devices).unwrap_or_else(|| {
            without_open_files(move || look(&devices, fuse.as_deref(), None)).unwrap_or_default()
        });
        if purpose != Purpose::Restart {
            users.names.extend(submitter.nbd_clients());
        }
        if purpose == Purpose::Detach && places.guest.is_some_and(|guest| guest.is_connected()) {
            users.names.push("a virtual machine is connected".into());
        }
        users
    }
}

/// Has what their file systems have cached written; it comes to us. May take as long as that does.
pub(crate) fn sync(users: &Users) {
    // Who has given up his rights cannot open what others have mounted.
    if !caretaker::sync() {
        users.sync();
    }
}
