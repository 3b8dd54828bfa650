//! Many volumes at once: which of them are worth a log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dcd_files::small_file;
use dcd_sim::advise::page::{BEGINNING, page};
use dcd_sim::advise::recommendation::Verdict;
use dcd_sim::advise::row::RowFacts;
use dcd_sim::advise::{Advice, words};
use dcd_sim::sweep::Load;
use dcd_sim::trace::is_standard;
use dcd_study::StudyError;
use dcd_study::load::short_name;
use dcd_study::sweep::jobs_default;
use dcd_study::traces;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::AdviseArguments;
use crate::command::object_traces::ObjectTraces;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::{Align, Paint, Table, count};
use crate::page_file::PageFile;
use crate::progress::ProgressWatcher;
use crate::stdout::{print, print_json};

/// More than a shard of thousands of volumes tells.
const SHARD_BYTES_MAX: u64 = 256 << 20;

/// What the table tells of one of them, and of which shards make one table.
#[derive(Serialize, Deserialize)]
struct Line {
    /// From 1, among all volumes.
    number: usize,
    /// Of how many.
    of: usize,
    name: String,
    page: String,
    /// Why there is no advice.
    error: Option<String>,
    verdict: Option<Verdict>,
    log: Option<RecommendedLog>,
    bare_mean_ms: Option<f64>,
    bare_month_usd: Option<f64>,
}

/// Of a volume that is worth one.
#[derive(Serialize, Deserialize)]
struct RecommendedLog {
    bytes: Option<u64>,
    device: Option<String>,
    mean_ms: f64,
    /// Waiting in the load that is gone.
    saved_s: f64,
    fewer_disk_writes_percent: f64,
    month_usd: Option<f64>,
}

pub(super) fn run(arguments: &AdviseArguments) -> Result<(), CommandError> {
    // What can be wrong with all of them is told before the first is looked at.
    arguments.settings.grid()?;
    if is_standard(&arguments.out) {
        return Err(StudyError::FlagNeeds { flag: "--out -", needs: "one trace" }.into());
    }
    let objects = ObjectTraces::new();
    let fetching = objects.fetching();
    let input = &arguments.input;
    let mut loads: Vec<Load> =
        arguments.trace.iter().map(|trace| Load::Trace(input.source(trace))).collect();
    loads.extend(traces::loads(&arguments.traces, input, fetching.as_ref())?);
    let of = loads.len();
    let mine = arguments.shard.map(|shard| shard.rows(of));
    let is_mine = |index: &usize| mine.as_ref().is_none_or(|mine| mine.contains(index));
    let mine: Vec<usize> = (0..of).filter(is_mine).collect();
    if mine.is_empty() {
        return Err(StudyError::EmptyShard.into());
    }
    let paths: Vec<PathBuf> =
        mine.iter().map(|index| numbered(&arguments.out, index + 1)).collect();
    let pages = paths.iter().map(|path| PageFile::check(path, "dcd advise", BEGINNING));
    let pages: Vec<PageFile> = pages.collect::<Result<_, CommandError>>()?;
    let jobs = arguments.jobs.map_or_else(jobs_default, |jobs| jobs as usize);
    let (mut lines, mut told) = (Vec::new(), Vec::new());
    for ((index, page_file), path) in mine.into_iter().zip(pages).zip(&paths) {
        let load = &loads[index];
        if let Some(fetching) = &fetching {
            fetching.bring(std::iter::once(load))?;
        }
        // The next one may be as it should.
        let advice = match arguments.one(load, jobs) {
            Err(StudyError::Cancelled) => return Err(StudyError::Cancelled.into()),
            advice => advice.map_err(|error| error.to_string()),
        };
        if let Ok(advice) = &advice {
            page_file.write(&page(advice))?;
        }
        let line = Line::new(index + 1, of, short_name(load), path, &advice);
        told.push(line.facts(&advice));
        lines.push(line);
    }
    match arguments.json {
        true => print_json(&json!({ "volumes": told })),
        false => print(&in_words(lines)),
    }
}

/// One table of all shards.
pub(super) fn merge(arguments: &AdviseArguments) -> Result<(), CommandError> {
    let mut found: BTreeMap<usize, (Line, Value, &Path)> = BTreeMap::new();
    let mut of = None;
    for path in &arguments.merge {
        let no_shard = || CommandError::Lab(LabError::NoAdviceShard { path: path.clone() });
        let bytes = small_file::read(path, SHARD_BYTES_MAX);
        let bytes = bytes.map_err(CommandError::file("read", path))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|_| no_shard())?;
        for told in json["volumes"].as_array().ok_or_else(no_shard)? {
            let line: Line =
                serde_json::from_value(told["line"].clone()).map_err(|_| no_shard())?;
            if *of.get_or_insert(line.of) != line.of {
                return Err(no_shard());
            }
            if let Some((line, _, first)) = found.get(&line.number) {
                return Err(CommandError::Lab(LabError::RowTwice {
                    row: format!("volume {} ({})", line.number, line.name),
                    first: first.to_path_buf(),
                    second: path.clone(),
                }));
            }
            found.insert(line.number, (line, told.clone(), path));
        }
    }
    let of = of.unwrap_or_default();
    let missing: Vec<usize> = (1..=of).filter(|number| !found.contains_key(number)).collect();
    if let Some(first) = missing.first() {
        return Err(CommandError::Lab(LabError::RowsMissing {
            missing: missing.len(),
            of,
            first: format!("volume {first}"),
        }));
    }
    let (lines, told): (Vec<Line>, Vec<Value>) =
        found.into_values().map(|(line, told, _)| (line, told)).unzip();
    match arguments.json {
        true => print_json(&json!({ "volumes": told })),
        false => print(&in_words(lines)),
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

impl Line {
    fn new(
        number: usize,
        of: usize,
        name: String,
        page: &Path,
        advice: &Result<Advice, String>,
    ) -> Line {
        let mut line = Line {
            number,
            of,
            name,
            page: page.display().to_string(),
            error: advice.as_ref().err().cloned(),
            verdict: None,
            log: None,
            bare_mean_ms: None,
            bare_month_usd: None,
        };
        let Ok(advice) = advice else { return line };
        line.verdict = Some(advice.recommendation.verdict);
        let Some(bare) = &advice.bare.facts else { return line };
        let usd = |facts: &RowFacts| facts.cost.map(|cost| cost.month_usd);
        (line.bare_mean_ms, line.bare_month_usd) = (Some(bare.mean_ms), usd(bare));
        let row = advice.recommendation.row.and_then(|index| advice.rows.get(index));
        if let Some((row, own)) = row.and_then(|row| Some((row, row.facts.as_ref()?)))
            && line.is_worth_it()
        {
            line.log = Some(RecommendedLog {
                bytes: row.cache_bytes,
                device: row.cache_device.clone(),
                mean_ms: own.mean_ms,
                saved_s: (bare.waited_s - own.waited_s).max(0.0),
                fewer_disk_writes_percent: own.fewer_disk_writes_percent,
                month_usd: usd(own),
            });
        }
        line
    }

    fn is_worth_it(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Helps | Verdict::FewerWrites))
    }

    /// Less than nothing where no log is recommended.
    fn saved_s(&self) -> f64 {
        match &self.log {
            Some(log) => log.saved_s,
            None if self.error.is_none() => -1.0,
            None => -2.0,
        }
    }

    fn facts(&self, advice: &Result<Advice, String>) -> Value {
        let mut facts = match advice {
            Ok(advice) => {
                let mut facts = json!(advice);
                facts["page"] = json!(self.page);
                facts
            }
            Err(error) => json!({ "error": error }),
        };
        facts["name"] = json!(self.name);
        facts["line"] = json!(self);
        facts
    }

    fn cells(&self) -> Vec<String> {
        let verdict = match self.verdict {
            Some(Verdict::Helps) => "helps",
            Some(Verdict::FewerWrites) => "fewer writes",
            Some(Verdict::NoHelp) => "no",
            Some(Verdict::Overloaded) => "overloaded",
            Some(Verdict::Unknown) => "unknown",
            None => "failed",
        };
        let mut cells = vec![self.name.clone(), verdict.into()];
        if self.error.is_some() {
            cells.resize(COLUMNS.len(), String::new());
            return cells;
        }
        let none = || "-".to_owned();
        let usd = |usd: Option<f64>| usd.map_or_else(none, words::dollars);
        let bare_mean = self.bare_mean_ms.map_or_else(none, words::ms);
        match &self.log {
            Some(log) => cells.extend([
                log.bytes.map_or(String::new(), words::size),
                log.device.clone().unwrap_or_default(),
                bare_mean,
                words::ms(log.mean_ms),
                words::duration(log.saved_s),
                words::percent(log.fewer_disk_writes_percent),
                usd(self.bare_month_usd),
                usd(log.month_usd),
            ]),
            None => cells.extend([
                none(),
                none(),
                bare_mean,
                none(),
                none(),
                none(),
                usd(self.bare_month_usd),
                none(),
            ]),
        }
        cells.push(self.page.clone());
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

/// What saves most comes first.
fn in_words(mut lines: Vec<Line>) -> String {
    lines.sort_by(|one, two| two.saved_s().total_cmp(&one.saved_s()));
    let mut table = Table::new(&COLUMNS);
    lines.iter().for_each(|line| table.row(line.cells()));
    let mut text = table.render(Paint::for_stdout());
    for line in &lines {
        if let Some(error) = &line.error {
            text += &format!("{}: {error}\n", line.name);
        }
    }
    let worth = lines.iter().filter(|line| line.is_worth_it()).count();
    let all = count(lines.len() as u64, "volume");
    format!("{text}\n{worth} of {all} are worth a log; what each is worth: its page.\n")
}
