//! What a process is to the machine it runs on: signals, the rights that it gives up, its service
//! manager, its open files and its memory, and what it sees of other processes.

pub(crate) mod accept;
pub(crate) mod bell;
pub(crate) mod confine;
pub(crate) mod descriptors;
pub mod isolation;
pub mod log;
pub(crate) mod open_files;
pub mod pem_files;
pub(crate) mod privileges;
pub mod random;
pub mod service_manager;
pub mod shell;
pub mod signals;
pub(crate) mod supervisor;
pub(crate) mod users;
