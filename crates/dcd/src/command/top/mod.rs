//! `dcd top`: running daemons in the terminal, looked at again and again.

mod frame;
mod rates;
mod terminal;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use dcd_client::plain::plain;
use dcd_daemon::control::client::{ControlClient, ControlError, for_people};
use dcd_daemon::report::status_report::StatusReport;
use dcd_daemon::units_text::parse_duration;
use frame::{Seen, Size, frame};
use rates::Rates;
use serde::Serialize;
use terminal::{Key, Terminal};

use super::status_panel;
use crate::daemons;
use crate::error::CommandError;
use crate::output::Paint;
use crate::stdout::{print, print_json_line};

/// Watch running dcds in the terminal.
///
/// Requests and their response times in the last interval, the ring of segments, dirty data, how
/// fast it is destaged and when it will be gone, members of volumes. Arrows choose among several
/// daemons, q quits. Where stdout is no terminal, one picture is printed as plain text. Where none
/// of the daemons that are named answers, it fails as `dcd status` does.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd top
  dcd top sdb /run/sdc.ctl
  dcd top --once
  dcd top --json --interval 10s | jq .interval.writes.per_second")]
pub struct TopArguments {
    /// Running caches: names of services, UUIDs, devices that they serve, or control sockets
    /// [default: all services].
    #[arg(value_name = "CACHE")]
    pub daemons: Vec<PathBuf>,
    /// The same. May be given again.
    #[arg(long, value_name = "CACHE")]
    pub control: Vec<PathBuf>,
    /// How long an interval is.
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    pub interval: std::time::Duration,
    /// Print one picture as plain text, after one interval.
    #[arg(long)]
    pub once: bool,
    /// Print a line of JSON for each daemon and interval.
    #[arg(long)]
    pub json: bool,
    /// Where services have their control sockets, as NAME.ctl; others are not looked at.
    #[arg(long, value_name = "DIRECTORY", default_value = crate::daemons::DIRECTORY)]
    pub sockets: PathBuf,
}

/// An interval that does not keep daemons busy.
fn parse_interval(text: &str) -> Result<std::time::Duration, String> {
    let least = std::time::Duration::from_millis(100);
    match parse_duration(text) {
        Ok(interval) if interval >= least => Ok(interval),
        Ok(_) => Err(format!("expected at least 100ms, found {text:?}")),
        Err(error) => Err(error.to_string()),
    }
}

pub fn run(arguments: &TopArguments) -> Result<(), CommandError> {
    let mut watched = Watched::of(arguments)?;
    watched.look();
    watched.check_answers()?;
    if arguments.json || arguments.once || !is_terminal() {
        return show_lines(&mut watched, arguments);
    }
    let terminal = Terminal::take().map_err(|source| CommandError::Output { source })?;
    let mut selected = 0;
    let mut next_look = Instant::now() + FIRST_INTERVAL.min(arguments.interval);
    loop {
        let picture = frame(&watched.seen, selected, terminal.size(), Paint::for_stdout());
        terminal.show(&picture).map_err(|source| CommandError::Output { source })?;
        match terminal.wait(next_look.saturating_duration_since(Instant::now())) {
            Some(Key::Quit) => return Ok(()),
            Some(Key::Next) => selected = (selected + 1).min(watched.seen.len().saturating_sub(1)),
            Some(Key::Previous) => selected = selected.saturating_sub(1),
            None => {}
        }
        if Instant::now() >= next_look {
            watched.look();
            selected = selected.min(watched.seen.len().saturating_sub(1));
            next_look = Instant::now() + arguments.interval;
        }
    }
}

/// The first rates are wanted soon.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);
/// A daemon that hangs holds up the pictures of the others for so long.
const PATIENCE: Duration = Duration::from_secs(2);

fn is_terminal() -> bool {
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// Plain text or JSON: once, or without end.
fn show_lines(watched: &mut Watched, arguments: &TopArguments) -> Result<(), CommandError> {
    loop {
        std::thread::sleep(arguments.interval);
        watched.look();
        if arguments.once || !arguments.json {
            watched.check_answers()?;
        }
        if arguments.json {
            for seen in &watched.seen {
                print_json_line(&TopLine::of(seen))?;
            }
        } else {
            // A file, or a program, takes lines of any length.
            let shown = terminal::size();
            let cut = if std::io::stdout().is_terminal() { shown.cut } else { usize::MAX };
            let size = Size { height: usize::MAX, cut, ..shown };
            let pictures = (0..watched.seen.len().max(1))
                .map(|selected| frame(&watched.seen[selected..=selected], 0, size, Paint::plain()));
            print(&pictures.collect::<Vec<_>>().join("\n"))?;
        }
        if arguments.once || !arguments.json {
            return Ok(());
        }
    }
}

/// A line of `--json`.
#[derive(Serialize)]
struct TopLine<'a> {
    name: &'a str,
    /// Why there is nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<NowLine>,
    interval: &'a Rates,
}

/// What is so at the end of the interval.
#[derive(Serialize)]
struct NowLine {
    state: String,
    pid: u32,
    uptime_seconds: f64,
    dirty_bytes: u64,
    utilisation: f64,
    segments_free: u32,
    segments_empty: u32,
    segments_buffered: u32,
    segments_dirty: u32,
}

impl TopLine<'_> {
    fn of(seen: &Seen) -> TopLine<'_> {
        let now = seen.report.as_ref().ok().map(|report| NowLine {
            state: status_panel::state(report).0,
            pid: report.pid,
            uptime_seconds: report.uptime_seconds,
            dirty_bytes: report.dirty_bytes,
            utilisation: report.utilisation,
            segments_free: report.segments.free,
            segments_empty: report.segments.empty,
            segments_buffered: report.segments.buffered,
            segments_dirty: report.segments.dirty,
        });
        let error = seen.report.as_ref().err().map(String::as_str);
        TopLine { name: &seen.name, error, now, interval: &seen.rates }
    }
}

/// The daemons, and what was seen of them last.
struct Watched {
    /// Those that were named; else whoever is in the directory.
    named: Vec<PathBuf>,
    directory: PathBuf,
    connections: HashMap<PathBuf, ControlClient>,
    before: HashMap<PathBuf, StatusReport>,
    seen: Vec<Seen>,
    /// Why the first that did not answer did not, the last time.
    failed: Option<ControlError>,
}

impl Watched {
    fn of(arguments: &TopArguments) -> Result<Watched, CommandError> {
        let directory = arguments.sockets.clone();
        let all = arguments.daemons.iter().chain(&arguments.control);
        let named: Result<Vec<_>, _> = all.map(|named| daemons::find(named, &directory)).collect();
        let watched = Watched {
            named: named?,
            directory,
            connections: HashMap::new(),
            before: HashMap::new(),
            seen: Vec::new(),
            failed: None,
        };
        if watched.sockets().is_empty() {
            return Err(CommandError::NoDaemons { directory: watched.directory });
        }
        Ok(watched)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        match &self.named[..] {
            [] => daemons::all(&self.directory),
            named => named.to_vec(),
        }
    }

    /// A picture of named daemons of which none answers shows nothing: a script has to see that in
    /// the exit status, as that of `dcd status`.
    fn check_answers(&mut self) -> Result<(), ControlError> {
        let is_silent = !self.named.is_empty() && self.seen.iter().all(|it| it.report.is_err());
        self.failed.take().filter(|_| is_silent).map_or(Ok(()), Err)
    }

    /// Asks each.
    fn look(&mut self) {
        self.failed = None;
        self.seen = self.sockets().into_iter().map(|socket| self.look_at(socket)).collect();
    }

    fn look_at(&mut self, socket: PathBuf) -> Seen {
        let name = name_of(&socket);
        match self.ask(&socket) {
            Ok(report) => {
                let rates = self.before.get(&socket).map(|before| Rates::between(before, &report));
                self.before.insert(socket, report.clone());
                Seen { name, report: Ok(Box::new(report)), rates: rates.unwrap_or_default() }
            }
            Err(error) => {
                // It may come back.
                self.connections.remove(&socket);
                let why = plain(&error.to_string()).into_owned();
                self.failed.get_or_insert(error);
                Seen { name, report: Err(why), rates: Rates::default() }
            }
        }
    }

    fn ask(&mut self, socket: &Path) -> Result<StatusReport, ControlError> {
        if let Some(client) = self.connections.get_mut(socket) {
            return client.status().map(|report| for_people(&report));
        }
        let mut client = ControlClient::connect_within(socket, PATIENCE)?;
        let report = client.status()?;
        self.connections.insert(socket.to_owned(), client);
        Ok(for_people(&report))
    }
}

/// The last part of its path, without `.ctl`.
fn name_of(socket: &Path) -> String {
    let name = socket.file_stem().unwrap_or(socket.as_os_str());
    plain(&name.to_string_lossy()).into_owned()
}
