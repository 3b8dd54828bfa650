//! The page: one document with its style and its script in it, so that nothing else is loaded.

use std::io;

use crate::http::answer::Answer;
use crate::process::random::random_bytes;

const HTML: &str = include_str!("page/page.html");
const FLEET: &str = include_str!("page/fleet.html");
const STYLE: &str = include_str!("page/page.css");
const COMMON: &str = include_str!("page/common.js");
const SCRIPT: &str = include_str!("page/page.js");
const FLEET_SCRIPT: &str = include_str!("page/fleet.js");

/// The page of one cache.
///
/// # Errors
/// If the kernel gives no random bytes.
pub fn page() -> io::Result<Answer> {
    with_nonce(|nonce| document(HTML, SCRIPT, nonce))
}

/// The page of all caches of a machine.
///
/// # Errors
/// The same.
pub fn fleet() -> io::Result<Answer> {
    with_nonce(|nonce| document(FLEET, FLEET_SCRIPT, nonce))
}

/// Only a script and a style that have the nonce of this answer count: what somebody brings into
/// the page by a name of a disk does nothing.
fn with_nonce(document: impl Fn(&str) -> String) -> io::Result<Answer> {
    let random: [u8; 16] = random_bytes()?;
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Answer::page(document(&nonce), &nonce))
}

fn document(html: &str, script: &str, nonce: &str) -> String {
    let style = format!("<style nonce=\"{nonce}\">{STYLE}</style>");
    let script =
        format!("<script nonce=\"{nonce}\">\n\"use strict\";\n{COMMON}\n{script}</script>");
    html.replace("<!-- style -->", &style).replace("<!-- script -->", &script)
}

#[cfg(test)]
mod tests;
