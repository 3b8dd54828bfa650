//! Words for a person who types them into a shell.

use std::path::Path;

/// A path as a shell takes it.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |it: char| it.is_alphanumeric() || "/._-+,:@%=".contains(it);
    match text.chars().all(is_plain) && !text.starts_with('-') {
        true => text.into_owned(),
        // A name that begins with a hyphen would be a flag; one with a scheme is no file.
        false => {
            let prefix = if text.starts_with('-') { "./" } else { "" };
            format!("{prefix}'{}'", text.replace('\'', "'\\''"))
        }
    }
}
