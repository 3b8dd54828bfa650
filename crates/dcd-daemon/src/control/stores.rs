//! What is asked about the object store that is the data-disk: its snapshots.
//!
//! ```text
//! {"store":{"snapshot":{"name":"a"}}}          {"ok":true} when it is kept, as of the last window
//! {"store":{"remove-snapshot":{"name":"a"}}}   {"ok":true}
//! ```
//! The process that has the store open does it; only this client waits for that.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;

use dcd_protocol::store::{StoreCommand, StoreFailure};
use dcd_protocol::{Code, Progress};
use serde_json::{Value, json};

use crate::control::answers::{SIGN_OF_LIFE_INTERVAL, failure, success, write_line};
use crate::control::shared::Shared;
use crate::device::network::{store::change_snapshots, store_of};

/// Runs a request of the client of this connection.
pub(super) fn run(
    stream: &UnixStream,
    shared: &Shared,
    command: StoreCommand,
) -> io::Result<Value> {
    let Some(store) = store_of(Path::new(&shared.facts.data_disk)) else {
        let data_disk = &shared.facts.data_disk;
        return Ok(failure(
            Code::NotSupported,
            &format!("the data-disk {data_disk} is in no object store: it has no snapshots here"),
            "snapshots are of s3://BUCKET/PREFIX; of other data-disks --window-hook has them made",
        ));
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("dcd-snapshot".into()).spawn(move || {
        let _ = sender.send(change_snapshots(&store, command));
    })?;
    loop {
        match receiver.recv_timeout(SIGN_OF_LIFE_INTERVAL) {
            Ok(Ok(())) => return Ok(success()),
            Ok(Err(StoreFailure { problem, hint, .. })) => {
                return Ok(failure(Code::Store, &problem, &hint.unwrap_or_default()));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Ok(failure(Code::Store, "the store was not asked", "ask again"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                write_line(stream, &json!({ "progress": Progress::default() }))?;
            }
        }
    }
}
