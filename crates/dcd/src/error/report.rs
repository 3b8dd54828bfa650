//! How an error is told: `dcd: error: ...`, and what to do in a second line; with `--json` as an
//! object in one line of stderr.

use std::error::Error as _;
use std::sync::OnceLock;

use clap::error::ErrorKind;
use dcd_client::plain::{plain, plain_json};
use dcd_daemon::device::device_spec::DeviceSpecError;
use dcd_daemon::frontend::nbd::listen::ListenError;
use dcd_daemon::process::log;
use dcd_daemon::report::lost::LostReport;
use dcd_daemon::units_text::UnitError;
use serde_json::json;

#[cfg(feature = "lab")]
use super::lab::lab_hint;
use super::{CommandError, exit_code};
use crate::config_file::ConfigFileError;
use crate::output::{Colour, Paint, wants_json};

impl CommandError {
    /// Tells it on stderr. Nothing is said of a reader that went away, nor of a stderr that did.
    pub fn report(&self) {
        if matches!(self, CommandError::ReaderClosed) {
            return;
        }
        let told = match self {
            CommandError::ConfigFile(ConfigFileError::Several(problems)) => {
                problems.iter().map(|one| Told::of(one.to_string(), one.hint())).collect()
            }
            _ => vec![Told::of(self.to_string(), self.hint().or_else(|| Some(help_hint())))],
        };
        let lost = match self {
            CommandError::Lost { lost, .. } => Some(lost),
            _ => None,
        };
        tell(&told, self.exit_code(), lost);
    }
}

/// One thing that is wrong, and what to do.
struct Told {
    error: String,
    hint: Option<String>,
}

impl Told {
    fn of(error: String, hint: Option<String>) -> Told {
        let is_root = rustix::process::geteuid().is_root();
        let hint = hint.map(|hint| if is_root { for_root(&hint) } else { hint });
        Told { error, hint }
    }
}

/// Tells what is wrong; as JSON the first of it, with the others in a list, and with what is lost,
/// which is told of elsewhere in words.
fn tell(all: &[Told], code: u8, lost: Option<&LostReport>) {
    use std::io::Write;
    if wants_json() {
        let object = |told: &Told| json!({ "message": told.error, "hint": told.hint });
        let Some((first, others)) = all.split_first() else { return };
        let mut error = object(first);
        error["code"] = kind(code).into();
        error["exit_code"] = code.into();
        if let Some(lost) = lost {
            error["lost"] = json!(lost);
        }
        if !others.is_empty() {
            error["others"] = others.iter().map(object).collect();
        }
        let text = plain_json(&json!({ "error": error }).to_string()).into_owned();
        let _ = writeln!(std::io::stderr(), "{text}");
        return;
    }
    let paint = Paint::for_stderr();
    for told in all {
        report_line("error", Colour::Bad, &told.error, paint);
        if let Some(hint) = &told.hint {
            report_line("hint", Colour::Warning, hint, paint);
        }
    }
}

/// The word for an exit code, as `code` of an error in JSON; docs/operations.md lists them.
fn kind(code: u8) -> &'static str {
    match code {
        exit_code::COMMAND_LINE => "command-line",
        exit_code::READER_CLOSED => "reader-closed",
        exit_code::DAMAGE => "damage",
        exit_code::DEVICE => "disk-failed",
        exit_code::NO_DAEMON => "no-daemon",
        exit_code::CANCELLED => "cancelled",
        exit_code::STUCK => "stuck",
        exit_code::BUG => "bug",
        _ => "refused",
    }
}

/// Who is root already is not told to become root.
fn for_root(hint: &str) -> String {
    const REFUSED: &str = "root is refused here, too: look for a read-only mount, an immutable file (lsattr), or a container without the right";
    let hint = hint
        .replace(", or run as root", "")
        .replace("it needs root, and tracefs", "it needs tracefs");
    match hint.strip_prefix("run as root, or ") {
        Some(other)
            if other.starts_with("give your user") || other.starts_with("choose a place") =>
        {
            REFUSED.into()
        }
        Some(other) => format!("{other}; {REFUSED}"),
        None => hint.replace(
            "ublk needs root (CAP_SYS_ADMIN)",
            "ublk needs CAP_SYS_ADMIN, which a container has only if it is given; --nbd needs none",
        ),
    }
}

/// Tells of a bad command line in the same form: clap would take several lines.
pub fn report_command_line(error: &clap::Error) {
    let (text, hint) = command_line_words(error);
    tell(&[Told::of(text, Some(hint))], exit_code::COMMAND_LINE, None);
}

/// What there is to ask for. Who reports errors knows no verbs: `main` says it.
static COMMAND_LINE: OnceLock<fn() -> clap::Command> = OnceLock::new();

/// Says what there is to ask for.
pub fn know_command_line(make: fn() -> clap::Command) {
    COMMAND_LINE.get_or_init(|| make);
}

/// Where to read on: the help of the verb that was asked for.
fn help_hint() -> String {
    help_of(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
}

fn help_of(words: impl Iterator<Item = String>) -> String {
    let Some(command) = COMMAND_LINE.get().map(|make| make()) else {
        return "`dcd --help` lists what can be done".into();
    };
    let (mut path, mut here) = ("dcd".to_owned(), &command);
    for word in words {
        let Some(verb) = here.find_subcommand(&word).filter(|verb| !verb.is_hide_set()) else {
            // Flags may stand before a verb.
            if word.starts_with('-') {
                continue;
            }
            break;
        };
        path += " ";
        path += verb.get_name();
        here = verb;
    }
    match here.has_subcommands() {
        true => format!("`{path} --help` lists what can be done"),
        false => format!("`{path} --help` says what it takes, and has examples"),
    }
}

#[cfg(feature = "lab")]
fn lab_hint_of(error: &clap::Error, _: &str) -> Option<String> {
    error.source().and_then(lab_hint)
}

#[cfg(not(feature = "lab"))]
fn lab_hint_of(_: &clap::Error, wrong: &str) -> Option<String> {
    crate::laboratory::hint(wrong)
}

fn source_of<E: std::error::Error + 'static>(error: &clap::Error) -> Option<&E> {
    error.source()?.downcast_ref()
}

/// What clap advises, except verbs that are for dcd itself.
fn tip(text: &str) -> Option<String> {
    let command = COMMAND_LINE.get().map(|make| make());
    let is_hidden = |word: &str| {
        let mut verbs = command.iter().flat_map(clap::Command::get_subcommands);
        verbs.any(|verb| verb.is_hide_set() && verb.get_name() == word)
    };
    let words: Vec<&str> = text.split('\'').skip(1).step_by(2).collect();
    if !words.iter().any(|word| is_hidden(word)) {
        return Some(text.into());
    }
    let shown = words.iter().filter(|word| !is_hidden(word)).map(|word| format!("'{word}'"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    (!shown.is_empty()).then(|| format!("similar subcommands: {shown}"))
}

/// What is wrong with a command line, and what to do.
fn command_line_words(error: &clap::Error) -> (String, String) {
    let text = error.render().to_string();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        let text = "there is a word missing: what is to be done?";
        return (text.into(), help_hint());
    }
    // A blank line ends what is wrong; "tip: " begins what may help; "Usage: " the rest.
    let wrong = text.split("\n\n").next().unwrap_or(&text);
    let wrong: Vec<&str> = wrong.lines().map(str::trim).collect();
    let wrong = wrong.join(" ");
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong);
    // The words of the standard library.
    let wrong = wrong
        .replace("invalid digit found in string", "expected a whole number")
        .replace("cannot parse integer from empty string", "expected a whole number, found nothing")
        .replace("number too large to fit in target type", "the number is too large");
    let units = source_of::<UnitError>(error);
    let devices = source_of::<DeviceSpecError>(error);
    let listen = source_of::<ListenError>(error);
    let is_number = |text: &str| text.starts_with(|character: char| character.is_ascii_digit());
    if wrong.strip_prefix("unexpected argument '-").is_some_and(is_number) {
        return (wrong, "no number is negative here".into());
    }
    let units_hint = "sizes are written like 4k, 16M, 1G, times like 50us, 8ms, 1s";
    let hint = units
        .map(|units| units.hint().unwrap_or_else(|| units_hint.into()))
        .or(devices.map(DeviceSpecError::hint))
        .or(listen.and_then(ListenError::hint))
        .or_else(|| lab_hint_of(error, &wrong))
        .or_else(|| text.lines().find_map(|line| tip(line.trim().strip_prefix("tip: ")?)))
        .or_else(|| {
            let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "))?;
            Some(match usage.strip_suffix(" [OPTIONS]") {
                _ if usage == "dcd [OPTIONS] <COMMAND>" => help_hint(),
                // Of a verb with words of its own that says nothing.
                Some(verb) => format!("`{verb} --help` says what it takes"),
                None => format!("usage: {usage}"),
            })
        })
        .unwrap_or_else(help_hint);
    (wrong, hint)
}

/// One line on stderr, whatever line ends and commands for terminals a path or an error may
/// contain.
pub fn report_line(kind: &str, colour: Colour, text: &str, paint: Paint) {
    use std::io::Write;
    let text = plain(text);
    let level = match kind {
        "error" => log::Level::Error,
        _ => log::Level::Notice,
    };
    if log::to_journal(level, kind, &text) {
        return;
    }
    let _ = writeln!(std::io::stderr(), "dcd: {}: {text}", paint.paint(colour, kind));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        for hint in [
            "run as root, or give your user the right",
            "run as root, or use --nbd",
            "install the package fuse3, or run as root",
            "ublk needs root (CAP_SYS_ADMIN)",
            "it needs root, and tracefs: mount -t tracefs nodev /sys/kernel/tracing",
        ] {
            let for_root = for_root(hint);
            assert!(
                !for_root.contains("as root") && !for_root.contains("needs root"),
                "{for_root}"
            );
        }
    }

    #[test]
    fn bad_command_lines_take_one_line_and_a_hint() {
        know_command_line(crate::command::cli::command);
        let words = |line: &str| {
            let given = line.split(' ').map(Into::into);
            let error = crate::command::cli::read(given).unwrap_err();
            command_line_words(&error)
        };
        let (text, hint) = words("dcd create --cache-disk c --cache-size 5q --data-disk d");
        assert!(text.contains("'5q'") && text.contains("--cache-size"), "{text}");
        assert!(!text.contains('\n') && !hint.is_empty());
        let (_, hint) = words("dcd serve --max-delay 5");
        assert_eq!(hint, "a duration needs a unit: 5ms or 5s");
        let (text, hint) = words("dcd create --cache-dsk c");
        assert!(text.contains("--cache-dsk") && hint.contains("--cache-disk"), "{text} {hint}");
        let (text, hint) = words("dcd create --cache-disk c");
        assert!(
            text.contains("--data-disk") && hint.starts_with("usage: dcd create"),
            "{text} {hint}"
        );
        assert!(words("dcd").1.contains("--help"));
        for line in ["dcd inspect --cache-disk c", "dcd inspect nonsense"] {
            assert_eq!(words(line).1, "`dcd inspect --help` says what it takes");
        }
        let help = |line: &str| help_of(line.split(' ').map(str::to_owned));
        assert_eq!(help("--json volume"), "`dcd volume --help` lists what can be done");
        assert!(help("volume fail x").starts_with("`dcd volume fail --help` says"));
        for hidden in ["dcd caretake", "dcd window-keepe", "dcd help-markdow"] {
            let (_, hint) = words(hidden);
            assert!(
                !["caretaker", "keeper", "markdown"].iter().any(|it| hint.contains(it)),
                "{hint}"
            );
        }
        let (text, hint) = words("dcd advise t --disk d --endurance-tbw -1");
        assert!(text.contains("'-1'") && hint.contains("negative"), "{text} {hint}");
        assert!(words("dcd trace generate zipf,theta=0 t").1.contains("workloads.md"));
        assert!(words("dcd trace summary t --format hp").1.contains("srt-256"));
    }
}
