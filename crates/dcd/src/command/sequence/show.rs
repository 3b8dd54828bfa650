//! `dcd sequence show`: the blocks of a sequence, and what it saves on a modelled disk (the ODSC thesis' Figures 4.1
//! to 4.3).

use dcd_daemon::units_text::format_size;
use dcd_engine::units::LINE_SIZE;
use dcd_protocol::sequences::SequenceCommand;
use dcd_sim::disk::profile::Profile;
use dcd_sim::plot::page;
use dcd_sim::sequence_pictures::{AccessTotals, SequencePictures, reads_of};
use dcd_sim::sequence_runs::{SequenceRunError, setup_for};
use serde_json::json;

use super::{Control, ask, parse};
use crate::error::CommandError;
use crate::output::{Align, Paint, Table, print, print_json};
use crate::page_file::{PageFile, PlotFile};

/// How all pictures of `dcd sequence show` begin, HTML and SVG.
const BEGINNING: &str = "<!-- dcd sequence show -->\n";

/// What a sequence is simulated on.
pub struct Model<'a> {
    pub disk: &'a str,
    /// None: the first part of the same disk.
    pub cache_disk: Option<&'a str>,
    pub plot: Option<&'a PlotFile>,
}

pub fn show(
    control: &Control,
    name: &str,
    model: Option<Model>,
    as_json: bool,
) -> Result<(), CommandError> {
    let plot = model.as_ref().and_then(|model| model.plot);
    let check =
        |plot: &'_ PlotFile| PageFile::check(&plot.path, "dcd sequence show", BEGINNING).map(drop);
    plot.map_or(Ok(()), check)?;
    let answer = ask(control, SequenceCommand::Lines { name: name.to_owned() })?;
    let lines: Vec<(u64, u8)> = parse(control, &answer["lines"])?;
    let pictures = model.as_ref().map(|model| model.simulate(&lines)).transpose()?;
    let totals =
        pictures.as_ref().map(|pictures| (pictures.without.totals(), pictures.with.totals()));
    if let (Some(pictures), Some(plot)) = (&pictures, plot) {
        let drawings = pictures.draw(name)?;
        let text = match plot.is_html {
            true => page::html(name, &facts(totals.as_ref()), &drawings),
            false => page::svg(name, &drawings),
        };
        let file = PageFile::check(&plot.path, "dcd sequence show", BEGINNING)?;
        file.write(&format!("{BEGINNING}{text}"))?;
    }
    if as_json {
        let mut json = json!({ "sequence": name, "lines": lines });
        if let Some((without, with)) = totals {
            json["without"] = json!(without);
            json["with"] = json!(with);
        }
        return print_json(&json);
    }
    let mut text = String::new();
    for run in lines
        .chunk_by(|(a, is_copied), (b, next)| a.checked_add(1) == Some(*b) && is_copied == next)
    {
        let (first, is_copied) = run[0];
        let note = if is_copied == 1 { "" } else { "  not copied" };
        let length = run.len() as u64 * LINE_SIZE;
        text.push_str(&format!(
            "{:>15} {:>7}{note}\n",
            first.saturating_mul(LINE_SIZE),
            format_size(length)
        ));
    }
    if let Some((without, with)) = totals {
        text.push_str(&format!("\n{}", table(&without, &with)));
    }
    if let Some(plot) = plot {
        text.push_str(&format!("drawn in {}\n", plot.path.display()));
    }
    print(&text)
}

impl Model<'_> {
    fn simulate(&self, lines: &[(u64, u8)]) -> Result<SequencePictures, CommandError> {
        let disk = Profile::load(self.disk)?;
        let cache_disk = self.cache_disk.map(Profile::load).transpose()?;
        let setup = setup_for(&disk, cache_disk.as_ref(), lines.len() as u64, 0);
        let reads = reads_of(lines.iter().map(|(line, _)| *line));
        SequencePictures::of(&setup, &reads).map_err(|error| match error {
            SequenceRunError::Setup(error) => error.into(),
            SequenceRunError::Load(problem) => CommandError::SequenceRun {
                problem: format!("the sequence does not fit on {}: {problem}", self.disk),
                hint: problem.hint(),
            },
            error => CommandError::SequenceRun {
                problem: error.to_string(),
                hint: "choose a larger disk: `dcd disk list`",
            },
        })
    }
}

fn facts(totals: Option<&(AccessTotals, AccessTotals)>) -> Vec<(&'static str, String)> {
    let Some((without, with)) = totals else { return Vec::new() };
    [("without the sequence", without), ("with it", with)]
        .map(|(name, totals)| {
            let AccessTotals { disk_reads, seek_distance, access_ms, .. } = totals;
            let text = format!(
                "{disk_reads} disk reads, {seek_distance} blocks of seeks, {access_ms:.1} ms"
            );
            (name, text)
        })
        .into()
}

fn table(without: &AccessTotals, with: &AccessTotals) -> String {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("disk reads", Align::Right),
        ("of copies", Align::Right),
        ("seek distance, blocks", Align::Right),
        ("access time, ms", Align::Right),
    ]);
    for (name, totals) in [("without the sequence", without), ("with it", with)] {
        table.row(vec![
            name.into(),
            totals.disk_reads.to_string(),
            totals.copy_reads.to_string(),
            totals.seek_distance.to_string(),
            format!("{:.1}", totals.access_ms),
        ]);
    }
    table.render(Paint::for_stdout())
}
