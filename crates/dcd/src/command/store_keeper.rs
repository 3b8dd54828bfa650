//! `dcd store-keeper`: started by a `dcd` that opens an object store. It starts the worker that has
//! the store open, and another one when that dies.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use dcd_daemon::process::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::CommandError;

/// Between two workers.
const PAUSE: Duration = Duration::from_millis(500);

/// Have an object store open for a `dcd`. It is started by that, and by nobody else.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct StoreKeeperArguments {
    /// Be the one that is started again.
    #[arg(long)]
    worker: bool,
}

pub fn run(arguments: &StoreKeeperArguments) -> Result<(), CommandError> {
    // What ends the daemon is not for us: it has to end in order first, and then we end.
    let signals = Signals::install_with_hangup();
    let done = signals.and_then(|_signals| match arguments.worker {
        true => dcd_store::keeper::run(rustix::io::dup(io::stdin())?),
        false => keep(),
    });
    done.map_err(|source| CommandError::File {
        action: "hear what is wanted of",
        path: "the object store".into(),
        source,
    })
}

fn keep() -> io::Result<()> {
    let program = std::env::current_exe()?;
    loop {
        let mut worker = Command::new(&program);
        worker.args(["store-keeper", "--worker"]).stdin(Stdio::inherit());
        if worker.status()?.success() {
            return Ok(());
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.as_nanos() as i64 };
        let stdin = io::stdin();
        let mut control = [PollFd::new(&stdin, PollFlags::empty())];
        // Nobody is there any more who could want another one.
        if poll(&mut control, Some(&pause)).is_ok_and(|count| count > 0)
            && control[0].revents().contains(PollFlags::HUP)
        {
            return Ok(());
        }
    }
}

/// Lets disks be named `s3://...`.
pub fn plug_in() {
    if let Ok(program) = std::env::current_exe() {
        let arguments = vec!["store-keeper".into()];
        dcd_daemon::device::network::store::plug_in_stores(
            dcd_daemon::device::network::store::StoreProgram { program, arguments },
        );
    }
}
