//! Many volumes at once: which of them are worth a log.

use std::path::{Path, PathBuf};

use dcd_sim::advise::page::{BEGINNING, page};
use dcd_sim::advise::recommendation::Verdict;
use dcd_sim::advise::row::{Row, RowFacts};
use dcd_sim::advise::{Advice, words};
use dcd_sim::sweep::Load;
use dcd_sim::trace::is_standard;
use dcd_study::StudyError;
use dcd_study::load::short_name;
use dcd_study::sweep::jobs_default;
use serde_json::{Value, json};

use super::AdviseArguments;
use crate::error::CommandError;
use crate::output::{Align, Paint, Table, count};
use crate::page_file::PageFile;
use crate::progress::ProgressWatcher;
use crate::stdout::{print, print_json};

/// One of them.
struct Volume {
    name: String,
    page: PathBuf,
    advice: Result<Advice, String>,
}

pub(super) fn run(arguments: &AdviseArguments) -> Result<(), CommandError> {
    // What can be wrong with all of them is told before the first is looked at.
    arguments.settings.grid()?;
    if is_standard(&arguments.out) {
        return Err(StudyError::FlagNeeds { flag: "--out -", needs: "one trace" }.into());
    }
    let page_of = |number| numbered(&arguments.out, number);
    let paths: Vec<PathBuf> = (1..=arguments.trace.len()).map(page_of).collect();
    let pages = paths.iter().map(|path| PageFile::check(path, "dcd advise", BEGINNING));
    let pages: Vec<PageFile> = pages.collect::<Result<_, CommandError>>()?;
    let jobs = arguments.jobs.map_or_else(jobs_default, |jobs| jobs as usize);
    let mut volumes = Vec::new();
    for ((trace, page_file), path) in arguments.trace.iter().zip(pages).zip(&paths) {
        let load = Load::Trace(arguments.input.source(trace));
        let name = short_name(&load);
        // The next one may be as it should.
        let advice = match arguments.one(&load, jobs) {
            Err(StudyError::Cancelled) => return Err(StudyError::Cancelled.into()),
            advice => advice.map_err(|error| error.to_string()),
        };
        if let Ok(advice) = &advice {
            page_file.write(&page(advice))?;
        }
        volumes.push(Volume { name, page: path.clone(), advice });
    }
    let told: Vec<Value> = volumes.iter().map(Volume::facts).collect();
    volumes.sort_by(|one, two| two.saved_s().total_cmp(&one.saved_s()));
    match arguments.json {
        true => print_json(&json!({ "volumes": told })),
        false => print(&in_words(&volumes)),
    }
}

impl AdviseArguments {
    fn one(&self, load: &Load, jobs: usize) -> Result<Advice, StudyError> {
        if let Load::Trace(source) = load {
            source.check()?;
        }
        let grid = self.settings.grid()?;
        self.settings.advise(grid, load, short_name(load), jobs, &mut ProgressWatcher::default())
    }
}

/// `advice.html`: `advice-3.html`.
fn numbered(out: &Path, number: usize) -> PathBuf {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    let name = match out.extension() {
        Some(extension) => format!("{stem}-{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    out.with_file_name(name)
}

impl Volume {
    fn recommended(&self) -> Option<(&RowFacts, &RowFacts, &Row)> {
        let advice = self.advice.as_ref().ok()?;
        let row = advice.rows.get(advice.recommendation.row?)?;
        Some((advice.bare.facts.as_ref()?, row.facts.as_ref()?, row))
    }

    fn is_worth_it(&self) -> bool {
        let verdict = self.advice.as_ref().map(|advice| advice.recommendation.verdict);
        matches!(verdict, Ok(Verdict::Helps | Verdict::FewerWrites))
    }

    /// Waiting in the load that is gone; less than nothing where no log is recommended.
    fn saved_s(&self) -> f64 {
        match self.recommended().filter(|_| self.is_worth_it()) {
            Some((bare, own, _)) => (bare.waited_s - own.waited_s).max(0.0),
            None if self.advice.is_ok() => -1.0,
            None => -2.0,
        }
    }

    fn facts(&self) -> Value {
        match &self.advice {
            Ok(advice) => {
                let mut facts = json!(advice);
                facts["page"] = json!(self.page.display().to_string());
                facts["name"] = json!(self.name);
                facts
            }
            Err(error) => json!({ "name": self.name, "error": error }),
        }
    }

    fn cells(&self) -> Vec<String> {
        let advice = match &self.advice {
            Ok(advice) => advice,
            Err(_) => {
                let mut cells = vec![self.name.clone(), "failed".into()];
                cells.resize(COLUMNS.len(), String::new());
                return cells;
            }
        };
        let verdict = match advice.recommendation.verdict {
            Verdict::Helps => "helps",
            Verdict::FewerWrites => "fewer writes",
            Verdict::NoHelp => "no",
            Verdict::Overloaded => "overloaded",
            Verdict::Unknown => "unknown",
        };
        let mut cells = vec![self.name.clone(), verdict.into()];
        let mean = |facts: &RowFacts| words::ms(facts.mean_ms);
        let usd =
            |facts: &RowFacts| facts.cost.map_or("-".into(), |cost| words::dollars(cost.month_usd));
        match self.recommended().filter(|_| self.is_worth_it()) {
            Some((bare, own, row)) => cells.extend([
                row.cache_bytes.map_or(String::new(), words::size),
                row.cache_device.clone().unwrap_or_default(),
                mean(bare),
                mean(own),
                words::duration((bare.waited_s - own.waited_s).max(0.0)),
                words::percent(own.fewer_disk_writes_percent),
                usd(bare),
                usd(own),
            ]),
            None => {
                let bare = advice.bare.facts.as_ref();
                let of = |of: &dyn Fn(&RowFacts) -> String| bare.map_or("-".into(), of);
                let none = || "-".to_owned();
                let (mean, usd) = (of(&mean), of(&usd));
                cells.extend([none(), none(), mean, none(), none(), none(), usd, none()]);
            }
        }
        cells.push(self.page.display().to_string());
        cells
    }
}

const COLUMNS: [(&str, Align); 11] = [
    ("volume", Align::Left),
    ("worth it", Align::Left),
    ("log", Align::Right),
    ("on", Align::Left),
    ("mean, bare", Align::Right),
    ("with it", Align::Right),
    ("saves", Align::Right),
    ("fewer writes", Align::Right),
    ("USD/month", Align::Right),
    ("with it", Align::Right),
    ("page", Align::Left),
];

fn in_words(volumes: &[Volume]) -> String {
    let mut table = Table::new(&COLUMNS);
    volumes.iter().for_each(|volume| table.row(volume.cells()));
    let mut text = table.render(Paint::for_stdout());
    for volume in volumes {
        if let Err(error) = &volume.advice {
            text += &format!("{}: {error}\n", volume.name);
        }
    }
    let worth = volumes.iter().filter(|volume| volume.is_worth_it()).count();
    let all = count(volumes.len() as u64, "volume");
    format!("{text}\n{worth} of {all} are worth a log; what each is worth: its page.\n")
}
