//! The verbs that this program was built without: another one beside it may have them.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The program that has them.
const PROGRAM: &str = "dcd-lab";
/// What it is for.
const VERBS: [&str; 9] =
    ["advise", "bench", "demo", "disk", "figures", "fuzz", "simulate", "sweep", "trace"];

/// Whether the command line begins with one of its verbs; of `sequence`, it has one.
fn is_asked() -> bool {
    let is_flag = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let mut words = std::env::args_os().skip(1).skip_while(is_flag);
    words.next().is_some_and(|word| {
        VERBS.iter().any(|verb| word == *verb)
            || word == "sequence" && words.next().is_some_and(|word| word == "add")
    })
}

/// Becomes the laboratory, if that is there and asked for. Otherwise the command line is read on.
pub fn run_if_asked() {
    let own = std::env::current_exe().ok();
    if let (true, Some(program)) = (is_asked(), own.map(|own| own.with_file_name(PROGRAM)))
        && program.exists()
    {
        // It returns only with an error, which is that of a program that is not there.
        let _ = Command::new(program).args(std::env::args_os().skip(1)).exec();
    }
}

/// What to do about a word that is none of our verbs.
pub fn hint(wrong: &str) -> Option<String> {
    let mut verbs = VERBS.iter().chain(&["add"]);
    let verb = verbs.find(|verb| wrong.contains(&format!("'{verb}'")) && is_asked())?;
    Some(format!(
        "`{verb}` is of the laboratory: `apt install {PROGRAM}`, or build dcd with its feature `lab`"
    ))
}
