//! How an error is told: `dcd: error: ...`, and what to do in a second line.

use std::error::Error as _;

use dcd_client::plain::plain;
use dcd_daemon::device::device_spec::DeviceSpecError;
use dcd_daemon::frontend::nbd::listen::ListenError;
use dcd_daemon::units_text::UnitError;

use super::CommandError;
#[cfg(feature = "lab")]
use super::lab::lab_hint;
use crate::output::{Colour, Paint};

impl CommandError {
    /// Tells it on stderr. Nothing is said of a reader that went away, nor of a stderr that did.
    pub fn report(&self) {
        if matches!(self, CommandError::ReaderClosed) {
            return;
        }
        let paint = Paint::for_stderr();
        report_line("error", Colour::Bad, &self.to_string(), paint);
        if let Some(hint) = self.hint() {
            report_line("hint", Colour::Warning, &hint, paint);
        }
    }
}

/// Tells of a bad command line in the same form: clap would take several lines.
pub fn report_command_line(error: &clap::Error) {
    let paint = Paint::for_stderr();
    let (text, hint) = command_line_words(error);
    report_line("error", Colour::Bad, &text, paint);
    report_line("hint", Colour::Warning, &hint, paint);
}

const HELP_HINT: &str = "`dcd --help` lists what can be done";

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

/// What is wrong with a command line, and what to do.
fn command_line_words(error: &clap::Error) -> (String, String) {
    let text = error.render().to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let text = "there is a word missing: what is to be done?";
        return (text.into(), HELP_HINT.into());
    }
    // A blank line ends what is wrong; "tip: " begins what may help; "Usage: " the rest.
    let wrong = text.split("\n\n").next().unwrap_or(&text);
    let wrong: Vec<&str> = wrong.lines().map(str::trim).collect();
    let wrong = wrong.join(" ");
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong).to_owned();
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
        .or_else(|| text.lines().find_map(|line| Some(line.trim().strip_prefix("tip: ")?.into())))
        .or_else(|| {
            let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "))?;
            Some(if usage == "dcd <COMMAND>" {
                HELP_HINT.into()
            } else {
                format!("usage: {usage}")
            })
        })
        .unwrap_or_else(|| HELP_HINT.into());
    (wrong, hint)
}

/// One line on stderr, whatever line ends and commands for terminals a path or an error may
/// contain.
pub fn report_line(kind: &str, colour: Colour, text: &str, paint: Paint) {
    use std::io::Write;
    let text = plain(text);
    let _ = writeln!(std::io::stderr(), "dcd: {}: {text}", paint.paint(colour, kind));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_command_lines_take_one_line_and_a_hint() {
        use clap::Parser;
        let words = |line: &str| {
            let error = crate::command::cli::Cli::try_parse_from(line.split(' ')).unwrap_err();
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
        let (text, hint) = words("dcd advise t --disk d --endurance-tbw -1");
        assert!(text.contains("'-1'") && hint.contains("negative"), "{text} {hint}");
        assert!(words("dcd trace generate zipf,theta=0 t").1.contains("workloads.md"));
        assert!(words("dcd trace summary t --format hp").1.contains("srt-256"));
    }
}
