//! The frontends that have threads of their own, together: there may be a FUSE mount, a ublk
//! device, a vhost-user socket, several of them or none.

use std::path::PathBuf;
use std::sync::Arc;

use dcd_engine::{DataDiskInfo, Uuid};

use crate::event_loop::submitter::Submitter;
use crate::frontend::error::FrontendError;
use crate::frontend::fuse::thread::{FuseOptions, FuseReady, FuseThread, MadeBefore};
use crate::frontend::nbd::listen::UnixSocket;
use crate::frontend::ublk::thread::UblkThread;
use crate::frontend::vhost_user::thread::VhostUserThread;
use crate::frontend::{EventLoopHandle, Frontends, StopKind, ublk, vhost_user};
use crate::serve::UblkNumber;
use crate::users::{Places, UserFinder};

/// What they show.
pub(crate) struct Shown {
    /// Which disk; its first half marks a ublk device.
    pub(crate) uuid: Uuid,
    pub(crate) info: DataDiskInfo,
    pub(crate) read_only: bool,
    /// Whether a trim gives space back.
    pub(crate) trim: bool,
}

/// Which of them there are to be.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Where the FUSE file is shown.
    pub(crate) fuse: Option<PathBuf>,
    /// And a loop device above it.
    pub(crate) loop_device: bool,
    /// What of that was made while the process might still mount.
    pub(crate) made_before: Option<MadeBefore>,
    pub(crate) ublk: Option<UblkNumber>,
    pub(crate) vhost_user: Option<(PathBuf, UnixSocket)>,
    /// No messages about clients.
    pub(crate) quiet: bool,
}

/// Their threads.
pub(crate) struct Begun {
    pub(crate) fuse: Option<FuseThread>,
    pub(crate) ublk: Option<UblkThread>,
    pub(crate) vhost_user: Option<VhostUserThread>,
}

/// Starts those that are wanted. They run where the caller runs.
pub(crate) fn begin(
    wanted: Wanted,
    shown: &Shown,
    submitter: &Submitter,
) -> Result<Begun, FrontendError> {
    let Shown { uuid, info, read_only, trim } = *shown;
    let event_loop: Arc<dyn EventLoopHandle> = Arc::new(submitter.clone());
    let unit = u64::from(info.logical_block_size);
    let fuse = wanted.fuse.map(|directory| FuseOptions {
        directory,
        size_bytes: info.bytes() / unit * unit,
        block_size: info.logical_block_size,
        read_only,
        trim,
        loop_device: wanted.loop_device,
        made: wanted.made_before,
    });
    let fuse = fuse.map(|fuse| FuseThread::start(fuse, event_loop.clone())).transpose()?;
    let ublk = wanted.ublk.map(|number| {
        let (mark, _) = uuid.0.split_first_chunk().expect("a UUID has sixteen bytes");
        let volume = ublk::Volume {
            mark: u64::from_be_bytes(*mark),
            blocks: info.blocks,
            logical_block_size: info.logical_block_size,
            physical_block_size: info.physical_sector_size,
            read_only,
            trim,
        };
        UblkThread::start(number.said(), volume, event_loop.clone())
    });
    let ublk = ublk.transpose()?;
    let vhost_user = wanted.vhost_user.map(|(path, socket)| {
        let volume = vhost_user::Volume {
            uuid,
            blocks: info.blocks,
            logical_block_size: info.logical_block_size,
            physical_block_size: info.physical_sector_size,
            read_only,
            trim,
        };
        VhostUserThread::start(path, socket, volume, event_loop.clone(), wanted.quiet)
    });
    Ok(Begun { fuse, ublk, vhost_user: vhost_user.transpose()? })
}

/// What they have made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// The FUSE file and loop device, if asked for.
    pub(crate) fuse: Option<FuseReady>,
    /// The block device, if asked for.
    pub(crate) ublk: Option<PathBuf>,
    /// The socket for a virtual machine, if asked for.
    pub(crate) vhost_user: Option<PathBuf>,
}

/// Calls `ready` once, when all that was asked for is there.
pub(crate) struct DeviceFrontends<'a> {
    pub(crate) fuse: Option<FuseThread>,
    pub(crate) ublk: Option<UblkThread>,
    pub(crate) vhost_user: Option<VhostUserThread>,
    made: Made,
    ready: Option<&'a mut dyn FnMut(Made)>,
    users: UserFinder,
}

impl<'a> DeviceFrontends<'a> {
    /// Of threads that have begun.
    pub(crate) fn new(
        Begun { fuse, ublk, vhost_user }: Begun,
        ready: &'a mut dyn FnMut(Made),
        users: UserFinder,
    ) -> DeviceFrontends<'a> {
        let mut frontends = DeviceFrontends {
            fuse,
            ublk,
            vhost_user,
            made: Made::default(),
            ready: Some(ready),
            users,
        };
        frontends.tell_places();
        frontends.tell_when_ready();
        frontends
    }

    fn each(&mut self) -> impl Iterator<Item = &mut dyn Frontends> {
        let fuse = self.fuse.iter_mut().map(|thread| thread as &mut dyn Frontends);
        let ublk = self.ublk.iter_mut().map(|thread| thread as &mut dyn Frontends);
        let vhost_user = self.vhost_user.iter_mut().map(|thread| thread as &mut dyn Frontends);
        fuse.chain(ublk).chain(vhost_user)
    }

    /// Whoever ends the daemon looks there for users.
    fn tell_places(&self) {
        let fuse = self.made.fuse.as_ref();
        self.users.set(Places {
            fuse: fuse.and_then(|fuse| fuse.file.parent().map(PathBuf::from)),
            loop_device: fuse.and_then(|fuse| fuse.loop_device.clone()),
            ublk: self.made.ublk.clone(),
            guest: self.vhost_user.as_ref().map(VhostUserThread::guest),
        });
    }

    fn tell_when_ready(&mut self) {
        let has_fuse = self.fuse.is_none() || self.made.fuse.is_some();
        let has_ublk = self.ublk.is_none() || self.made.ublk.is_some();
        if let Some(socket) = self.vhost_user.as_mut().and_then(VhostUserThread::take_ready) {
            self.made.vhost_user = Some(socket);
        }
        if has_fuse
            && has_ublk
            && let Some(ready) = self.ready.take()
        {
            ready(self.made.clone());
        }
    }
}

impl Frontends for DeviceFrontends<'_> {
    fn turn(&mut self) -> Result<(), FrontendError> {
        for thread in self.each() {
            thread.turn()?;
        }
        if let Some(fuse) = self.fuse.as_mut().and_then(FuseThread::take_ready) {
            self.made.fuse = Some(fuse);
            self.tell_places();
        }
        if let Some(ublk) = self.ublk.as_mut().and_then(UblkThread::take_ready) {
            self.made.ublk = Some(ublk);
            self.tell_places();
        }
        self.tell_when_ready();
        Ok(())
    }

    fn begin_stop(&mut self, kind: StopKind) {
        self.each().for_each(|thread| thread.begin_stop(kind));
    }

    fn have_stopped(&mut self) -> bool {
        // Each is asked, so that each is joined.
        self.each().filter_map(|thread| (!thread.have_stopped()).then_some(())).count() == 0
    }
}
