//! A running cache is the first word of each verb that needs one, or given by `--control`:
//! `dcd volume fail sdb 2` is `dcd volume fail --control sdb 2`.
//!
//! Verbs with no other words have the two in their arguments ([`crate::daemons::RunningCache`]).
//! Behind others come members, disks, sizes, names: of these a command line alone tells no cache,
//! so the word gets its flag here, before it is read.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Command};

/// The flag that names a running cache.
const CONTROL: &str = "control";

/// Whether this is a verb that must have one.
fn needs_a_cache(command: &Command) -> bool {
    control_of(command).is_some_and(Arg::is_required_set)
}

fn control_of(command: &Command) -> Option<&Arg> {
    command.get_arguments().find(|argument| argument.get_id() == CONTROL)
}

/// Whether the words of a verb have the flag. What is behind `--` is somebody else's.
fn names_it(words: &[OsString]) -> bool {
    let own = words.iter().take_while(|word| *word != "--");
    own.into_iter().filter_map(|word| word.to_str()).any(|word| {
        word.strip_prefix("--control").is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// The command line, the program's name first, with the flag before the word that is the cache.
pub fn with_flag(command: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let is_flag = |word: &OsStr| word.as_encoded_bytes().starts_with(b"-");
    let (mut verb, mut at) = (command, 1);
    while let Some(word) = words.get(at) {
        match verb.find_subcommand(word) {
            Some(below) => verb = below,
            // Flags before a verb have no values.
            None if is_flag(word) && verb.has_subcommands() => {}
            None => break,
        }
        at += 1;
    }
    if needs_a_cache(verb) && !names_it(&words[at.min(words.len())..]) {
        // Flags may stand before the first word, and have values.
        while let Some(word) = words.get(at).filter(|word| is_flag(word) && *word != "--") {
            at += 1 + usize::from(has_value_behind(verb, word));
        }
        if words.get(at).is_some_and(|word| !is_flag(word)) {
            words.insert(at, format!("--{CONTROL}").into());
        }
    }
    words
}

/// Whether the next word is the value of a flag.
fn has_value_behind(verb: &Command, flag: &OsStr) -> bool {
    let Some(name) = flag.to_str().and_then(|flag| flag.strip_prefix("--")) else { return false };
    let mut arguments = verb.get_arguments();
    let found = arguments.find(|argument| argument.get_long() == Some(name));
    found.is_some_and(|it| matches!(it.get_action(), ArgAction::Set | ArgAction::Append))
}

/// Lets the usage of each such verb tell of the word.
pub fn with_usage(command: Command) -> Command {
    usages_below(command, "dcd")
}

fn usages_below(command: Command, path: &str) -> Command {
    let command = match needs_a_cache(&command) {
        true => {
            let usage = usage_of(&command, path);
            command.override_usage(usage)
        }
        false => command,
    };
    command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        usages_below(below, &path)
    })
}

fn usage_of(command: &Command, path: &str) -> String {
    let mut words = vec![path.to_owned(), "<CACHE>".to_owned()];
    let others = || command.get_arguments().filter(|it| it.get_id() != CONTROL);
    words.extend(others().filter(|it| !it.is_positional() && it.is_required_set()).map(said));
    words.push("[OPTIONS]".to_owned());
    words.extend(others().filter(|it| it.is_positional()).map(said));
    words.join(" ")
}

/// An argument as usages have it. (clap's own words for it need the command to be built.)
fn said(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.first().map_or_else(String::new, |name| format!("<{name}>"));
    let more = if matches!(argument.get_action(), ArgAction::Append) { "..." } else { "" };
    let last = if argument.is_last_set() { "-- " } else { "" };
    match (argument.get_long(), argument.is_required_set()) {
        (Some(flag), _) => format!("--{flag} {value}"),
        (None, true) => format!("{last}{value}{more}"),
        (None, false) if argument.is_last_set() => format!("[{last}{value}{more}]"),
        (None, false) => format!("{}{more}", value.replace('<', "[").replace('>', "]")),
    }
}

/// For a shell that asks what may come next: the verb with the word among its arguments, unless
/// the line has the flag.
pub fn with_word(command: Command, line: &[OsString]) -> Command {
    if !needs_a_cache(&command) || names_it(line.get(1..).unwrap_or_default()) {
        return command;
    }
    let mut index = 1;
    let command = command.mut_args(|argument| match argument.is_positional() {
        true => {
            index += 1;
            argument.index(index)
        }
        false => argument,
    });
    command.arg(Arg::new("the-first-word").value_name("CACHE").index(1).required(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::cli;

    fn flagged(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = with_flag(&cli::command(), words);
        words.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn the_first_word_is_the_cache() {
        for (given, meant) in [
            ("dcd volume fail sdb 2", "dcd volume fail --control sdb 2"),
            ("dcd volume status sdb --json", "dcd volume status --control sdb --json"),
            ("dcd --json volume status sdb", "dcd --json volume status --control sdb"),
            ("dcd volume fail --json sdb 2", "dcd volume fail --json --control sdb 2"),
            ("dcd volume grow --set 0 sdb", "dcd volume grow --set 0 --control sdb"),
            ("dcd volume grow --set=0 sdb", "dcd volume grow --set=0 --control sdb"),
            ("dcd volume spare add v /dev/x", "dcd volume spare add --control v /dev/x"),
            ("dcd cache-disk resize sdb", "dcd cache-disk resize --control sdb"),
            ("dcd cache-disk remove sdb 7", "dcd cache-disk remove --control sdb 7"),
            (
                "dcd sequence record sdb --name x -- run --control y",
                "dcd sequence record --control sdb --name x -- run --control y",
            ),
        ] {
            assert_eq!(flagged(given), meant);
        }
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        for line in [
            "dcd",
            "dcd volume",
            "dcd volume status",
            "dcd volume status --json",
            "dcd volume fail 2 --control sdb",
            "dcd volume fail 2 --control=sdb",
            "dcd cache-disk resize 10G --control sdb",
            "dcd volume fail --help",
            "dcd status sdb",
            "dcd set sdb mode=read-only",
            "dcd create x",
            "dcd nonsense sdb",
        ] {
            assert_eq!(flagged(line), line);
        }
    }

    #[test]
    fn usages_tell_of_the_word() {
        let usage = |path: &[&str]| {
            let mut command = cli::command();
            command.build();
            let mut at = &mut command;
            for name in path {
                at = at.find_subcommand_mut(name).unwrap();
            }
            at.render_usage().to_string()
        };
        assert_eq!(usage(&["volume", "fail"]), "Usage: dcd volume fail <CACHE> [OPTIONS] <MEMBER>");
        assert_eq!(
            usage(&["volume", "set"]),
            "Usage: dcd volume set <CACHE> --pointers <N> [OPTIONS]"
        );
        assert_eq!(
            usage(&["cache-disk", "resize"]),
            "Usage: dcd cache-disk resize <CACHE> [OPTIONS] [SIZE]"
        );
        let recorded = usage(&["sequence", "record"]);
        assert!(recorded.contains("<CACHE> --name <NAME> [OPTIONS]"), "{recorded}");
    }
}
