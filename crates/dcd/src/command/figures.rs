//! `dcd figures`: the papers' experiments on this engine, as pictures, tables and statements.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use dcd_sim::analysis::figures::{figure_3_1, figure_3_2, figure_5_5, figure_5_7};
use dcd_sim::figures::dcd_nt::{self, NtRuns};
use dcd_sim::figures::dcd_unix::{self, UnixRuns};
use dcd_sim::figures::dhis;
use dcd_sim::figures::dhis_runs::DhisRuns;
use dcd_sim::figures::odsc::OdscRun;
use dcd_sim::figures::service_times::{self, Part};
use dcd_sim::figures::{
    Compared, Disk, ExperimentError, Experiments, Figure, Finding, Picture, figures, findings,
    hplajw_0, shown, snake_5, snake_6, tables,
};
use dcd_sim::plot::svg::escaped;
use dcd_sim::sweep::{Load, TraceSource};
use dcd_study::load::parse_workload;
use serde_json::json;

use crate::error::CommandError;
use crate::output::{Align, Colour, Paint, Table};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

/// Do the experiments of the papers again, with this engine.
///
/// Writes the figures as SVG files and one page, what the papers print beside our numbers, and
/// their findings as statements that hold or do not. The papers: Haining's thesis, "Non-volatile
/// cache management for improving write response time with rotating magnetic media" (2000), Figures
/// 3.1, 3.2, 4.1, 5.5, 5.7, 6.2, 6.3, 7.1 to 7.13 and Tables 7.1 to 7.3; "The Design and
/// Implementation of a DCD Device Driver for UNIX" (USENIX 1999), Figures 7 to 12; "A DCD Filter
/// Driver for Windows NT 4", Figures 7 and 8; "On-Disk Sequence Cache" (2005), Table 4.2 and
/// Figures 4.1 to 4.3, of a trace that you have; "DHIS: Discriminating Hierarchical Storage" (2009),
/// Figures 6 to 11, on simulated volumes. Where their traces or programs are not to be had, a
/// made-up load takes their place (docs/workloads.md), and the figure says so.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd figures
  dcd figures --paper unix --paper nt --out dcd-papers
  dcd figures --hplajw hplajw_disk0.csv.zst --out thesis --json")]
pub struct FiguresArguments {
    /// Only of this paper; may be given several times [default: all].
    #[arg(long, value_name = "PAPER")]
    pub paper: Vec<PaperArgument>,
    /// A trace of disk 0 of HP's workstation `hplajw`, for the figures of that disk.
    #[arg(long, value_name = "FILE")]
    pub hplajw: Option<PathBuf>,
    /// A trace of its disk 1 with measured service times, for the second part of Figure 6.2.
    #[arg(long, value_name = "FILE")]
    pub hplajw_disk1: Option<PathBuf>,
    /// A trace of the start of a program or of a system with cold caches, for the figures of the
    /// on-disk sequence cache.
    #[arg(long, value_name = "FILE")]
    pub start: Option<PathBuf>,
    /// Where to put them; made if it is missing. Figures of before are overwritten.
    #[arg(long, value_name = "DIRECTORY", default_value = "figures")]
    pub out: PathBuf,
    /// Threads [default: one for each processor].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `--paper`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PaperArgument {
    /// Haining 2000
    Thesis,
    /// Nightingale, Hu, Yang, USENIX 1999
    Unix,
    /// He, Yang
    Nt,
    /// Slade 2005
    Odsc,
    /// Yalamanchili, Vijayasankar, Zadok, Sivathanu 2009
    Dhis,
}

/// What has been done so far.
#[derive(Default)]
struct Results {
    figures: Vec<Figure>,
    compared: Vec<Compared>,
    findings: Vec<Finding>,
    /// What there is no figure of, and why.
    left_out: Vec<String>,
}

pub fn run(arguments: &FiguresArguments) -> Result<(), CommandError> {
    let traces = [&arguments.hplajw, &arguments.hplajw_disk1, &arguments.start].map(|path| {
        path.clone().map(|path| TraceSource { path, format: None, device: None, name: None })
    });
    for trace in traces.iter().flatten() {
        trace.check()?;
    }
    let is_wanted = |paper| arguments.paper.is_empty() || arguments.paper.contains(&paper);
    let mut results = Results::default();
    if is_wanted(PaperArgument::Thesis) {
        let [disk_0, disk_1, _] = &traces;
        results.add_figure_6_2(disk_0.as_ref(), disk_1.as_ref())?;
    }
    let out = &arguments.out;
    std::fs::create_dir_all(out).map_err(CommandError::file("make", out))?;
    let jobs = arguments.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, |count| count.get()),
        |jobs| jobs as usize,
    );
    let [hplajw_0_trace, _, start] = traces;
    if is_wanted(PaperArgument::Thesis) {
        results.add_thesis(hplajw_0_trace, jobs)?;
    }
    if is_wanted(PaperArgument::Unix) {
        let runs = with_progress("simulating USENIX 1999", |told| UnixRuns::run(jobs, told))?;
        results.figures.extend(dcd_unix::figures(&runs));
        results.compared.extend(dcd_unix::tables(&runs));
        results.findings.extend(dcd_unix::findings(&runs));
    }
    if is_wanted(PaperArgument::Nt) {
        let runs = with_progress("simulating NT", |told| NtRuns::run(jobs, told))?;
        results.figures.extend(dcd_nt::figures(&runs));
        results.compared.extend(dcd_nt::tables(&runs));
        results.findings.extend(dcd_nt::findings(&runs));
    }
    if is_wanted(PaperArgument::Odsc) {
        results.add_odsc(start.as_ref())?;
    }
    if is_wanted(PaperArgument::Dhis) {
        let runs = with_progress("simulating DHIS", |told| DhisRuns::run(jobs, told))?;
        results.figures.extend(dhis::figures(&runs));
        results.compared.extend(dhis::tables(&runs));
        results.findings.extend(dhis::findings(&runs));
        let why = "Figures 4 and 5 of DHIS, which are what processors take for layers and pointers: docs/benchmarks.md has \
                   that of the real program";
        results.left_out.push(why.into());
    }
    results.write(out)?;
    if arguments.json {
        return print_json(&json!({
            "tables": results.compared,
            "findings": results.findings,
            "figures": results.figures.iter().map(|figure| &figure.name).collect::<Vec<_>>(),
            "left_out": results.left_out,
        }));
    }
    results.show(out)
}

fn with_progress<T>(
    what: &'static str,
    work: impl FnOnce(&mut (dyn FnMut(usize, usize) + Send)) -> Result<T, ExperimentError>,
) -> Result<T, ExperimentError> {
    let mut progress = Progress::new(what, Unit::Rounds);
    let result = work(&mut |done, total| progress.update(done as u64, total as u64));
    progress.finish();
    result
}

/// Those that need no simulation.
fn analysis_figures() -> Vec<Figure> {
    [("3.1", figure_3_1()), ("3.2", figure_3_2()), ("5.5", figure_5_5()), ("5.7", figure_5_7())]
        .into_iter()
        .map(|(number, plot)| Figure {
            name: format!("figure-{number}"),
            picture: Picture::Curves(plot.expect("its parameters are constants")),
            notes: Vec::new(),
        })
        .collect()
}

impl Results {
    /// Its two parts are of measured traces, and of nothing else.
    fn add_figure_6_2(
        &mut self,
        disk_0: Option<&TraceSource>,
        disk_1: Option<&TraceSource>,
    ) -> Result<(), CommandError> {
        for (part, flag, trace) in [
            (service_times::HPLAJW_0, "--hplajw", disk_0),
            (service_times::HPLAJW_1, "--hplajw-disk1", disk_1),
        ] {
            let Part { number, disk, .. } = part;
            let Some(trace) = trace else {
                let why = format!(
                    "Figure {number}, which compares with measured times of {disk}: give its trace with {flag}"
                );
                self.left_out.push(why);
                continue;
            };
            match service_times::measured(part, &trace.path) {
                Ok((figure, rows)) => {
                    self.figures.push(figure);
                    self.compared.extend(rows);
                }
                // The other figures of disk 0 can do without measured times.
                Err(ExperimentError::Trace(error)) if flag == "--hplajw" => {
                    self.left_out.push(format!("Figure {number}: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn add_thesis(
        &mut self,
        hplajw_0_trace: Option<TraceSource>,
        jobs: usize,
    ) -> Result<(), CommandError> {
        self.figures.extend(analysis_figures());
        let snake =
            |disk: u32| parse_workload(&format!("snake,disk={disk}")).expect("a workload of ours");
        for (part, load) in [(service_times::SNAKE_5, snake(5)), (service_times::SNAKE_6, snake(6))]
        {
            let (figure, rows) = service_times::made_up(part, &load)?;
            self.figures.push(figure);
            self.compared.extend(rows);
        }
        let mut disks = vec![snake_5(Load::Workload(snake(5))), snake_6(Load::Workload(snake(6)))];
        match hplajw_0_trace {
            Some(trace) => disks.push(hplajw_0(Load::Trace(trace))),
            None => {
                let why = "Tables 7.1 and 7.2 and Figures 4.1 and 7.1 to 7.13 of hplajw disk 0: give its trace with --hplajw";
                self.left_out.push(why.into());
            }
        }
        for disk in &disks {
            let runs =
                with_progress("simulating the thesis", |told| Experiments::run(disk, jobs, told))?;
            self.add_disk(disk, &runs)?;
        }
        Ok(())
    }

    fn add_odsc(&mut self, start: Option<&TraceSource>) -> Result<(), CommandError> {
        let Some(trace) = start else {
            let why = "Table 4.2 and Figures 4.1 to 4.3 of the on-disk sequence cache: give a trace of a start with --start";
            self.left_out.push(why.into());
            return Ok(());
        };
        let run = OdscRun::of(trace)?;
        self.figures.extend(run.figures());
        self.compared.extend(run.tables());
        self.findings.extend(run.findings());
        Ok(())
    }

    fn add_disk(&mut self, disk: &Disk, runs: &Experiments) -> Result<(), CommandError> {
        self.figures.extend(figures(disk, runs));
        let failed = |problem| ExperimentError::Failed { what: disk.name.into(), problem };
        self.compared.extend(tables(disk, runs).map_err(failed)?);
        self.findings.extend(findings(disk, runs));
        Ok(())
    }

    /// All files.
    fn write(&self, out: &Path) -> Result<(), CommandError> {
        let mut page = self.page_beginning();
        for figure in &self.figures {
            let drawn = figure.svg().expect("numbers of simulations can be drawn");
            write(&out.join(format!("{}.svg", figure.name)), &drawn)?;
            page += &drawn;
        }
        page += "</body></html>\n";
        write(&out.join("index.html"), &page)
    }

    fn page_beginning(&self) -> String {
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <title>The papers' experiments with dcd</title><style>{STYLE}</style></head><body>\n\
             <h1>The papers' experiments with dcd</h1>\n\
             <p>Thesis: T. R. Haining, Non-volatile cache management for improving write response time with rotating \
             magnetic media, 2000. USENIX 1999: T. Nightingale, Y. Hu, Q. Yang, The Design and Implementation of a DCD \
             Device Driver for UNIX. NT: X. He, Q. Yang, A DCD Filter Driver for Windows NT 4. ODSC: C. R. Slade, On-Disk Sequence \
             Cache (ODSC): Using Excess Disk Capacity to Increase Performance, 2005. DHIS: C. Yalamanchili, \
             K. Vijayasankar, E. Zadok, G. Sivathanu, DHIS: Discriminating Hierarchical Storage, 2009.</p>\n\
             <p>The traces of <i>snake</i> are not to be had, nor are the programs of the other papers: their loads are \
             made up. Where that is so, the figure says it.</p>\n"
        );
        // Writing to a string does not fail.
        for left_out in &self.left_out {
            let _ = writeln!(page, "<p>Left out: {}.</p>", escaped(left_out));
        }
        page += "<h2>Findings</h2><table>\
                 <tr><th></th><th>paper</th><th>disk</th><th>statement</th><th>here</th></tr>\n";
        for Finding { paper, disk, statement, holds, numbers } in &self.findings {
            let holds = if *holds { "holds" } else { "does not hold" };
            let _ = writeln!(
                page,
                "<tr><td>{holds}</td><td>{paper}</td><td>{disk}</td><td>{statement}</td><td>{numbers}</td></tr>"
            );
        }
        page += "</table><h2>Numbers</h2><table><tr><th>paper</th><th></th><th>disk</th><th></th><th>printed</th>\
                 <th>ours</th><th></th><th colspan=2>% of writes: printed, ours</th></tr>\n";
        for row in &self.compared {
            let cells = cells(row);
            let texts = cells[..4].iter().map(|cell| format!("<td>{cell}</td>"));
            let numbers = cells[4..].iter().map(|cell| format!("<td class=n>{cell}</td>"));
            let _ = writeln!(page, "<tr>{}</tr>", texts.chain(numbers).collect::<String>());
        }
        page + "</table><h2>Figures</h2>\n"
    }

    fn show(&self, out: &Path) -> Result<(), CommandError> {
        let paint = Paint::for_stdout();
        let mut table = Table::new(&[
            ("paper", Align::Left),
            ("", Align::Left),
            ("disk", Align::Left),
            ("", Align::Left),
            ("printed", Align::Right),
            ("ours", Align::Right),
            ("", Align::Left),
            ("% of writes", Align::Right),
            ("ours", Align::Right),
        ]);
        for row in &self.compared {
            table.row(cells(row).into());
        }
        let mut text = format!("{}\n", table.render(paint));
        for Finding { paper, disk, statement, holds, numbers } in &self.findings {
            let (word, colour) =
                if *holds { ("holds", Colour::Good) } else { ("does not hold", Colour::Warning) };
            let word = paint.paint(colour, word);
            let _ = writeln!(text, "{word}: {paper}, {disk}: {statement}\n    {numbers}");
        }
        for left_out in &self.left_out {
            let _ = writeln!(text, "left out: {left_out}");
        }
        let count = self.figures.len();
        let _ = writeln!(text, "\n{count} figures in {}", out.join("index.html").display());
        print(&text)
    }
}

fn cells(row: &Compared) -> [String; 9] {
    let Compared { paper, place, disk, what, printed, ours, unit, percent_of_writes } = row;
    let [printed_percent, ours_percent] = match percent_of_writes {
        Some(shares) => shares.map(|share| format!("{share:.1}")),
        None => Default::default(),
    };
    [
        (*paper).into(),
        (*place).into(),
        disk.clone(),
        what.clone(),
        printed.to_string(),
        shown(*ours),
        (*unit).into(),
        printed_percent,
        ours_percent,
    ]
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    std::fs::write(path, text).map_err(CommandError::file("write", path))
}

const STYLE: &str = "body{font:15px system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #8884;text-align:left}\
td.n{text-align:right}svg{display:block;margin:1.5em 0;max-width:100%;height:auto}\
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}}";
