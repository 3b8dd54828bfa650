//! The commands of the pages of use (`docs/uses`), run as they stand.

use std::path::Path;
use std::process::Command;

use super::{Site, search_path};

/// Seconds that a page may take.
const PAGE_SECONDS: &str = "300";

/// What is in blocks `sh` below a heading.
fn commands(page: &str, heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/uses").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let part = text.split(&format!("\n## {heading}\n")).nth(1).expect("a part to try");
    let part = part.split("\n## ").next().unwrap();
    part.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

/// Gives them to a shell in the site's folder. What they print.
pub fn try_commands(site: &Site, page: &str, heading: &str) -> String {
    let commands = commands(page, heading);
    assert!(commands.lines().count() > 5, "{page}");
    std::fs::create_dir(site.folder.path("state")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_dcd")).parent().unwrap();
    let output = Command::new("timeout")
        .args(["--kill-after=10", PAGE_SECONDS, "bash", "-euc", &commands])
        .current_dir(site.folder.path(""))
        .env("PATH", format!("{}:{}", program.display(), search_path()))
        .env("DCD_STATE_DIRECTORY", site.folder.state_directory())
        .envs(site.variables.iter().cloned())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{page}: {}\n{said}\n{errors}", output.status);
    said
}
