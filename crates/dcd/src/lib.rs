//! The settings of a served disk and the configuration file they may stand in. A library of its
//! own, so that the byte fuzzer reaches its parsers; the command is `main.rs`.

pub mod config_file;
pub mod settings;
