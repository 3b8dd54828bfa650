//! The words of the control socket: what a client may ask, and what a daemon answers. No sockets
//! here, and no engine: the daemon, the command and the clients of volumes all speak with these
//! types.
//!
//! One JSON object per line, asked and answered in order:
//!
//! ```text
//! {"command":"status"}    {"ok":true,"status":{...}}
//! {"command":"drain"}     {"progress":{"done":3,"total":10}} ... {"ok":true}
//! {"sequence":...}        see [`sequences`]
//! {"legs":...}            see [`legs`]
//! {"nvram":...}           see [`nvram`]
//! {"resize":...}          see [`resize`]
//! {"volume":...}          see [`volumes`]
//! {"set":...}             see [`settings`]
//! anything else           {"ok":false,"code":"bad-request","error":"...","hint":"..."}
//! ```
//!
//! Whatever takes long is preceded by lines of progress, every two seconds at least: a client takes
//! a daemon that says nothing for 15 seconds for one that was stopped. A refusal is a [`Failure`]:
//! a [`Code`] for programs, and words for people, which may change.
//!
//! [`nbd`] has the words of another protocol: those of network disks; [`store`] those of data-disks
//! in an object store. [`units_text`] has sizes,
//! times and shares as people write them.

pub mod commands;
pub mod failure;
pub mod legs;
pub mod lines;
pub mod nbd;
pub mod nvram;
pub mod resize;
pub mod sequences;
pub mod settings;
pub mod store;
pub mod units_text;
pub mod volumes;

pub use commands::{Command, DetachAsked, Progress, Request};
pub use failure::{About, Code, Failure};
pub use legs::{LegCommand, LegReport, WitnessReport};
pub use lines::{LINE_BYTES_MAX, read_line};
pub use nvram::NvramCommand;
pub use resize::{ResizeAsked, ResizeDone};
pub use sequences::SequenceCommand;
pub use settings::WantedSettings;
pub use volumes::VolumeCommand;
