//! What the command reads from files and disks of others: the settings of a served disk and the
//! configuration file they may stand in, rules for hints,
//! superblocks of file systems. A library of its own, so that the byte fuzzer reaches its parsers;
//! the command is `main.rs`.

pub mod config_file;
pub mod hint_rules;
pub mod nvram_settings;
pub mod one_cache;
pub mod running_settings;
pub mod settings;
pub mod static_metadata;
