//! What a sequence saves on a modelled disk (the ODSC thesis' Figures 4.1 to 4.3), for `dcd
//! sequence show`.

use clap::Args;
use dcd_sim::disk::profile::Profile;
use dcd_sim::plot::page;
use dcd_sim::sequence_pictures::{AccessTotals, SequencePictures, reads_of};
use dcd_sim::sequence_runs::{SequenceRunError, setup_for};
use dcd_sim::trace::is_standard;
use dcd_study::StudyError;
use serde_json::json;

use super::show::Saved;
use crate::error::CommandError;
use crate::output::{Align, Paint, Table};
use crate::page_file::{PageFile, PlotFile, parse_plot_file};

/// How all pictures of `dcd sequence show` begin, HTML and SVG.
const BEGINNING: &str = "<!-- dcd sequence show -->\n";

// What a sequence is simulated on; no doc comment, which would become the help of the verb.
#[derive(Args, Debug)]
pub struct ModelArguments {
    /// The model of the data-disk: name of a profile (`dcd disk list`), or path of a TOML file.
    #[arg(long, value_name = "PROFILE")]
    disk: Option<String>,
    /// The model of the cache-disk [default: the same disk, with one arm for both].
    #[arg(long, value_name = "PROFILE", requires = "disk")]
    cache_disk_profile: Option<String>,
    /// Draw seek distance and access time of each disk read to this file, NAME.html or NAME.svg; an
    /// earlier one of dcd sequence show is replaced, nothing else is.
    #[arg(long, value_name = "FILE", value_parser = parse_plot_file, requires = "disk")]
    plot: Option<PlotFile>,
}

impl ModelArguments {
    /// Whether the pictures could be written: asked before anything else is done.
    pub fn check(&self) -> Result<(), CommandError> {
        let check =
            |plot: &PlotFile| PageFile::check(&plot.path, "dcd sequence show", BEGINNING).map(drop);
        self.plot.as_ref().map_or(Ok(()), check)
    }

    /// Simulates these lines, and draws them, if that was asked for.
    pub fn simulate(&self, name: &str, lines: &[(u64, u8)]) -> Result<Option<Saved>, CommandError> {
        let Some(disk) = &self.disk else { return Ok(None) };
        let pictures = self.pictures(disk, lines)?;
        let (without, with) = (pictures.without.totals(), pictures.with.totals());
        let mut text = format!("\n{}", table(&without, &with));
        if let Some(plot) = &self.plot {
            let drawings = pictures.draw(name)?;
            let page = match plot.is_html {
                true => page::html(name, &facts(&without, &with), &drawings),
                false => page::svg(name, &drawings),
            };
            let file = PageFile::check(&plot.path, "dcd sequence show", BEGINNING)?;
            file.write(&format!("{BEGINNING}{page}"))?;
            if !is_standard(&plot.path) {
                text.push_str(&format!("drawn in {}\n", plot.path.display()));
            }
        }
        Ok(Some(Saved { text, without: json!(without), with: json!(with) }))
    }

    fn pictures(
        &self,
        disk_name: &str,
        lines: &[(u64, u8)],
    ) -> Result<SequencePictures, CommandError> {
        let disk = Profile::load(disk_name)?;
        let cache_disk = self.cache_disk_profile.as_deref().map(Profile::load).transpose()?;
        let setup = setup_for(&disk, cache_disk.as_ref(), lines.len() as u64, 0);
        let reads = reads_of(lines.iter().map(|(line, _)| *line));
        SequencePictures::of(&setup, &reads).map_err(|error| match error {
            SequenceRunError::Setup(error) => error.into(),
            SequenceRunError::Load(problem) => CommandError::from(StudyError::SequenceRun {
                problem: format!("the sequence does not fit on {disk_name}: {problem}"),
                hint: problem.hint(),
            }),
            error => CommandError::from(StudyError::SequenceRun {
                problem: error.to_string(),
                hint: "choose a larger disk: `dcd disk list`",
            }),
        })
    }
}

fn facts(without: &AccessTotals, with: &AccessTotals) -> Vec<(&'static str, String)> {
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
