//! What can be asked of a daemon.

use serde::{Deserialize, Serialize};

use crate::legs::LegCommand;
use crate::nvram::NvramCommand;
use crate::resize::ResizeAsked;
use crate::sequences::SequenceCommand;
use crate::settings::WantedSettings;
use crate::store::StoreCommand;
use crate::volumes::VolumeCommand;

/// What can be asked in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Nothing; shows that somebody is there.
    Ping,
    /// How everything is: `"status"` in the answer.
    Status,
    /// The text that Prometheus reads: `"metrics"` in the answer.
    Metrics,
    /// How many requests of which size a disk without a cache has had: `"requests"` in the answer.
    Requests,
    /// Make durable what was acknowledged.
    Flush,
    /// Bring everything to the data-disk.
    Drain,
    /// Bring everything to the data-disk, mark the pair as detached, end.
    Detach,
    /// End the drain, detach or change of the log's size that was asked for on this connection.
    Cancel,
    /// End the drains of all connections.
    CancelDrain,
    /// End the detach under way.
    CancelDetach,
    /// Tell of each request that is served, from now on: `"recorded"` lines.
    Record,
    /// End; dirty data stays in the cache.
    Shutdown,
}

/// A line of a client.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Request {
    /// A word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// What goes with [`Command::Detach`].
    #[serde(flatten)]
    pub detach: DetachAsked,
    /// Something about sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<SequenceCommand>,
    /// Something about the volume and its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeCommand>,
    /// Something about the legs of the cache-disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub legs: Option<LegCommand>,
    /// Something about the memory in front of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvram: Option<NvramCommand>,
    /// Something about snapshots of the object store that is its data-disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreCommand>,
    /// Another size of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeAsked>,
    /// Something about settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<WantedSettings>,
}

impl Request {
    /// The line that asks for this, with its end.
    ///
    /// # Panics
    /// Never: each of them has words.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("words");
        line.push('\n');
        line
    }
}

impl From<Command> for Request {
    fn from(command: Command) -> Request {
        Request { command: Some(command), ..Request::default() }
    }
}

impl From<SequenceCommand> for Request {
    fn from(sequence: SequenceCommand) -> Request {
        Request { sequence: Some(sequence), ..Request::default() }
    }
}

impl From<VolumeCommand> for Request {
    fn from(volume: VolumeCommand) -> Request {
        Request { volume: Some(volume), ..Request::default() }
    }
}

impl From<LegCommand> for Request {
    fn from(legs: LegCommand) -> Request {
        Request { legs: Some(legs), ..Request::default() }
    }
}

impl From<NvramCommand> for Request {
    fn from(nvram: NvramCommand) -> Request {
        Request { nvram: Some(nvram), ..Request::default() }
    }
}

impl From<StoreCommand> for Request {
    fn from(store: StoreCommand) -> Request {
        Request { store: Some(store), ..Request::default() }
    }
}

impl From<ResizeAsked> for Request {
    fn from(resize: ResizeAsked) -> Request {
        Request { resize: Some(resize), ..Request::default() }
    }
}

impl From<WantedSettings> for Request {
    fn from(set: WantedSettings) -> Request {
        Request { set: Some(set), ..Request::default() }
    }
}

impl From<DetachAsked> for Request {
    fn from(detach: DetachAsked) -> Request {
        Request { detach, ..Request::from(Command::Detach) }
    }
}

/// What goes with [`Command::Detach`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DetachAsked {
    /// Give up what is lost, as the last answer listed it.
    #[serde(default, skip_serializing_if = "is_not")]
    pub accept_lost: bool,
    /// Wait for those who use the disk.
    #[serde(default, skip_serializing_if = "is_not")]
    pub wait: bool,
    /// Take it away from them.
    #[serde(default, skip_serializing_if = "is_not")]
    pub force: bool,
}

fn is_not(flag: &bool) -> bool {
    !flag
}

/// How far a drain or detach has come, in lines of 4 KiB, those that become zeroes included. The
/// total grows when more is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Moved.
    pub done: u64,
    /// Moved and still to move.
    pub total: u64,
    /// Something does not get there: the status says why.
    #[serde(default)]
    pub is_held_up: bool,
}
