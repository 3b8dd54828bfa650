//! The command `dcd`: reads the command line, runs one verb, ends with a documented exit code.
//!
//! [`command::cli`] and the library beside this ([`settings`], [`config_file`]) say what can be
//! asked for, `command/` does it (one file per verb), [`stdout`], [`output`] and [`progress`] tell
//! about it, [`error`] says what went wrong. [`daemons`] finds who is running, [`image`] reads
//! cache-disks for `check` and `inspect`, which never write.

use std::process::ExitCode;

use dcd_settings::{
    config_file, hint_rules, nvram_settings, running_settings, settings, static_metadata,
};

/// Messages for people. Nothing fails, and nothing panics, because nobody can read them: a full
/// disk, a pipe whose reader has gone, a terminal that was closed. In place of the macro of the
/// standard library, for this whole crate.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let words = format!("{}\n", format_args!($($words)*));
        let words = dcd_client::plain::plain_lines(&words, false);
        let _ = std::io::stderr().write_all(words.as_bytes());
    }};
}

mod command;
mod daemons;
mod error;
mod file_blocks;
mod image;
#[cfg(not(feature = "lab"))]
mod laboratory;
mod lost_list;
#[cfg(feature = "lab")]
mod modelled_drive;
#[cfg(feature = "lab")]
mod new_file;
mod output;
#[cfg(feature = "lab")]
mod page_file;
mod progress;
mod ready_line;
mod stdout;
mod volume_client;

fn main() -> ExitCode {
    command::completions::answer_a_shell();
    dcd_daemon::process::service_manager::inherit_descriptors();
    #[cfg(feature = "lab")]
    dcd_daemon::disk::drive::plug_in_drives(modelled_drive::open);
    #[cfg(feature = "s3")]
    command::store_keeper::plug_in();
    std::panic::set_hook(Box::new(report_bug));
    #[cfg(not(feature = "lab"))]
    laboratory::run_if_asked();
    error::know_command_line(command::cli::command);
    output::want_json(std::env::args_os().skip(1));
    let arguments = match command::cli::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => return help(&error),
        Err(error) => {
            error::report_command_line(&error);
            return ExitCode::from(error::exit_code::COMMAND_LINE);
        }
    };
    match command::run(arguments.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report();
            ExitCode::from(error.exit_code())
        }
    }
}

/// Prints what --help and --version ask for.
fn help(text: &clap::Error) -> ExitCode {
    // Not `Error::exit`: it ends with 0 also when nobody could read it.
    match text.print() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = stdout::stdout_error(error);
            error.report();
            ExitCode::from(error.exit_code())
        }
    }
}

/// A broken invariant stops the whole process at once, whichever thread finds it: the log is as it
/// was, and the next start recovers it (contract C27).
fn report_bug(panic: &std::panic::PanicHookInfo<'_>) {
    let paint = output::Paint::for_stderr();
    let what = panic.payload_as_str().unwrap_or("unknown");
    let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
    let text = format!("this is a bug in dcd: {what}{}", place.unwrap_or_default());
    error::report_line("error", output::Colour::Bad, &text, paint);
    let backtrace = std::backtrace::Backtrace::capture();
    let hint = if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "{backtrace}");
        "please report it, with the lines above"
    } else {
        "please report it, with what you did; RUST_BACKTRACE=1 tells more"
    };
    error::report_line("hint", output::Colour::Warning, hint, paint);
    std::process::exit(i32::from(error::exit_code::BUG));
}
