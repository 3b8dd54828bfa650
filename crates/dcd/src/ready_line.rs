//! The line that says that something can be used from now on: `ready`, then words of the form
//! `name=value`, for people and scripts; with `--json` an object in one line. `tests/serve.rs` reads
//! both.

use std::fmt::{Display, Write as _};
use std::path::PathBuf;

use dcd_daemon::frontend::nbd::listen::NbdAddress;
use dcd_daemon::serve::FuseReady;
use serde_json::{Map, Value};

use crate::error::CommandError;
use crate::output::wants_json;
use crate::stdout::{print, print_json_line};

/// Such a line, as it is made.
pub struct ReadyLine {
    text: String,
    object: Map<String, Value>,
}

impl ReadyLine {
    /// One that says no more than that.
    pub fn new() -> ReadyLine {
        let object = Map::from_iter([("state".into(), "ready".into())]);
        ReadyLine { text: "ready".into(), object }
    }

    /// One of words of its own.
    pub fn in_words(text: &str) -> ReadyLine {
        ReadyLine { text: text.into(), ..ReadyLine::new() }
    }

    /// One more word.
    pub fn word(&mut self, name: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, " {name}={value}");
    }

    /// One more field of the object.
    pub fn field(&mut self, name: &str, value: impl Into<Value>) {
        self.object.insert(name.into(), value.into());
    }

    /// Both, with the same value.
    pub fn add(&mut self, name: &str, value: impl Display) {
        self.field(&name.replace('-', "_"), value.to_string());
        self.word(name, value);
    }

    /// Where NBD clients are awaited, and the file and its loop device.
    pub fn nbd_and_file(&mut self, nbd: &[NbdAddress], fuse: Option<&FuseReady>) {
        nbd.iter().for_each(|address| self.word("nbd", address));
        self.field("nbd", nbd.iter().map(NbdAddress::to_string).collect::<Vec<_>>());
        let Some(fuse) = fuse else { return };
        self.add("file", fuse.file.display());
        if let Some(device) = &fuse.loop_device {
            self.add("loop", device.display());
        }
    }

    /// The block device, and where a virtual machine is awaited.
    pub fn devices(&mut self, ublk: Option<&PathBuf>, vhost_user: Option<&PathBuf>) {
        if let Some(device) = ublk {
            self.add("ublk", device.display());
        }
        if let Some(socket) = vhost_user {
            self.add("vhost-user", socket.display());
        }
    }

    /// Says it.
    pub fn print(self) -> Result<(), CommandError> {
        match wants_json() {
            true => print_json_line(&self.object),
            false => print(&(self.text + "\n")),
        }
    }
}
