//! What a process is to the machine it runs on: signals, the rights that it gives up and the
//! caretaker that keeps them, its service manager, and who uses its disk.

pub(crate) mod accept;
pub mod caretaker;
pub(crate) mod confine;
pub mod isolation;
pub(crate) mod open_files;
pub(crate) mod privileges;
pub mod random;
pub mod service_manager;
pub mod signals;
pub mod small_file;
pub mod users;
