//! `dcd demo`: runs the demonstration of the source tree, or tells where it is.

use std::path::Path;
use std::process::Command;

use crate::error::CommandError;

/// What `make demo` runs, from the root of the source tree.
const SCRIPT: &str = "scripts/demo";

pub fn run() -> Result<(), CommandError> {
    let script = Path::new(SCRIPT);
    if !script.exists() {
        return Err(CommandError::DemoMissing { path: script.to_owned() });
    }
    let status = Command::new(Path::new(".").join(script))
        .status()
        .map_err(CommandError::file("run", script))?;
    if status.success() { Ok(()) } else { Err(CommandError::DemoFailed { status }) }
}
