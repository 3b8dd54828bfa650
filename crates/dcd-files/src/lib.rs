//! Files that people write: read whole and within bounds, TOML with line and column of each
//! mistake, and what the file of a volume says. The command and the studies read the same files.

pub mod small_file;
pub mod toml_values;
pub mod volume_file;
