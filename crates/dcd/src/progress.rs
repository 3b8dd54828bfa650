//! Progress of what takes long, on stderr: a bar with the time left on a terminal, otherwise a
//! line now and then.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use dcd_daemon::units_text::format_size;
use dcd_engine::units::LINE_SIZE;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Progress of one piece of work.
pub struct Progress {
    what: &'static str,
    unit: Unit,
    display: Display,
    /// Something does not get on.
    is_held_up: bool,
}

/// What progress is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes, with speed.
    Bytes,
    /// Rounds of a measurement: the laboratory's alone.
    #[cfg_attr(not(feature = "lab"), expect(dead_code, reason = "a server measures nothing"))]
    Rounds,
    /// Seconds of a time that is given.
    Seconds,
}

impl Unit {
    fn template(self) -> &'static str {
        match self {
            Unit::Bytes => "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left ",
            Unit::Rounds => "{prefix} {wide_bar} {pos}/{len}, {eta} left ",
            Unit::Seconds => "{prefix} {wide_bar} {pos}/{len} s ",
        }
    }

    fn format(self, amount: u64) -> String {
        match self {
            Unit::Bytes => format_size(amount),
            Unit::Rounds => amount.to_string(),
            Unit::Seconds => format!("{amount} s"),
        }
    }
}

enum Display {
    Bar(ProgressBar),
    Lines { started: Instant, last: Instant },
}

impl Progress {
    /// Starts showing progress of `what` ("draining").
    pub fn new(what: &'static str, unit: Unit) -> Progress {
        let display = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(unit.template()) {
                bar.set_style(style);
            }
            bar.set_prefix(what);
            Display::Bar(bar)
        } else {
            let now = Instant::now();
            Display::Lines { started: now, last: now }
        };
        Progress { what, unit, display, is_held_up: false }
    }

    /// `done` of `total` bytes are done. The total may change as work comes in.
    pub fn update(&mut self, done: u64, total: u64) {
        match &mut self.display {
            Display::Bar(bar) => {
                if self.is_held_up {
                    bar.set_prefix(format!("{} (held up)", self.what));
                }
                bar.set_length(total);
                bar.set_position(done);
            }
            Display::Lines { started, last } if last.elapsed() >= LINE_INTERVAL => {
                *last = Instant::now();
                let left = match self.is_held_up {
                    true => ", held up".into(),
                    false => time_left(started.elapsed(), done, total),
                };
                let (done, total) = (self.unit.format(done), self.unit.format(total));
                // Progress is a courtesy: nothing fails because nobody can read it.
                eprintln!("dcd: {}: {done} of {total}{left}", self.what);
            }
            Display::Lines { .. } => {}
        }
    }

    /// What the daemon tells, which counts in lines.
    pub fn lines(&mut self, so_far: dcd_protocol::Progress) {
        self.is_held_up = so_far.is_held_up;
        self.update(so_far.done.saturating_mul(LINE_SIZE), so_far.total.saturating_mul(LINE_SIZE));
    }

    /// Takes the bar away.
    pub fn finish(self) {
        if let Display::Bar(bar) = self.display {
            bar.finish_and_clear();
        }
    }
}

/// Shows a study: each stage as progress of its own.
#[cfg(feature = "lab")]
#[derive(Default)]
pub struct ProgressWatcher {
    stage: Option<Progress>,
    /// Nobody sets it: a signal ends the process.
    is_over: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

#[cfg(feature = "lab")]
impl dcd_study::watch::Watcher for ProgressWatcher {
    fn begin(&mut self, what: &'static str, counted: dcd_study::watch::Counted) {
        self.stage = Some(Progress::new(
            what,
            match counted {
                dcd_study::watch::Counted::Bytes => Unit::Bytes,
                dcd_study::watch::Counted::Rounds => Unit::Rounds,
            },
        ));
    }

    fn update(&mut self, done: u64, total: u64) {
        if let Some(stage) = &mut self.stage {
            stage.update(done, total);
        }
    }

    fn end(&mut self) {
        if let Some(stage) = self.stage.take() {
            stage.finish();
        }
    }

    fn is_over(&self) -> std::sync::Arc<std::sync::atomic::AtomicBool> {
        self.is_over.clone()
    }
}

/// `, 12 s left`, as far as it can be told.
fn time_left(elapsed: Duration, done: u64, total: u64) -> String {
    if done == 0 || done >= total {
        return String::new();
    }
    let left = elapsed.as_secs_f64() / done as f64 * (total - done) as f64;
    format!(", {left:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_told_when_it_can_be() {
        assert_eq!(time_left(Duration::from_secs(10), 25, 100), ", 30 s left");
        assert_eq!(time_left(Duration::from_secs(10), 0, 100), "");
        assert_eq!(time_left(Duration::from_secs(10), 100, 100), "");
    }
}
