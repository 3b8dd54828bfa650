//! `dcd figures`: the thesis' experiments on this engine, as pictures, tables and statements.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use dcd_sim::analysis::figures::{figure_3_1, figure_3_2, figure_5_5, figure_5_7};
use dcd_sim::figures::{
    Compared, Disk, Experiments, Figure, Finding, figures, findings, hplajw_0, snake_5, tables,
};
use dcd_sim::plot::svg;
use dcd_sim::sweep::{Load, TraceSource};
use serde_json::json;

use super::workload::parse_workload;
use crate::error::CommandError;
use crate::output::{Align, Colour, Paint, Table, print, print_json};
use crate::progress::{Progress, Unit};

/// Do the experiments of Haining's thesis again, with this engine.
///
/// Writes Figures 3.1, 3.2, 4.1, 5.5, 5.7 and 7.1 to 7.13 of "Non-volatile cache management for improving write response
/// time with rotating magnetic media" (2000) as SVG files and one page, Tables 7.2 and 7.3 with our numbers beside the
/// printed ones, and its findings as statements that hold or do not. The traces of its server `snake` are not to be had: a
/// made-up load takes their place (docs/workloads.md).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd figures
  dcd figures --hplajw hplajw_disk0.csv.zst --out thesis --json")]
pub struct FiguresArguments {
    /// A trace of disk 0 of HP's workstation `hplajw`, for the figures of that disk.
    #[arg(long, value_name = "FILE")]
    pub hplajw: Option<PathBuf>,
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

pub fn run(arguments: &FiguresArguments) -> Result<(), CommandError> {
    let snake = parse_workload("snake,disk=5").expect("a workload of ours");
    let mut disks = vec![snake_5(Load::Workload(snake))];
    if let Some(path) = &arguments.hplajw {
        let trace = TraceSource { path: path.clone(), format: None, device: None };
        trace.check()?;
        disks.push(hplajw_0(Load::Trace(trace)));
    }
    let out = &arguments.out;
    std::fs::create_dir_all(out).map_err(CommandError::file("make", out))?;
    let mut all = analysis_figures();
    let (mut compared, mut statements): (Vec<Compared>, Vec<Finding>) = Default::default();
    for disk in &disks {
        let runs = simulate(disk, arguments.jobs)?;
        all.extend(figures(disk, &runs));
        compared.extend(tables(disk, &runs));
        statements.extend(findings(disk, &runs));
    }
    let mut page = page_beginning(arguments.hplajw.is_some(), &compared, &statements);
    for figure in &all {
        let drawn = svg::render(&figure.plot).expect("numbers of simulations can be drawn");
        write(&out.join(format!("{}.svg", figure.name)), &drawn)?;
        page += &drawn;
    }
    page += "</body></html>\n";
    write(&out.join("index.html"), &page)?;
    if arguments.json {
        return print_json(&json!({
            "tables": compared,
            "findings": statements,
            "figures": all.iter().map(|figure| &figure.name).collect::<Vec<_>>(),
        }));
    }
    show(out, all.len(), &compared, &statements)
}

fn simulate(disk: &Disk, jobs: Option<u32>) -> Result<Experiments, CommandError> {
    let jobs = jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, |count| count.get()),
        |jobs| jobs as usize,
    );
    let mut progress = Progress::new("simulating", Unit::Rounds);
    let runs =
        Experiments::run(disk, jobs, |done, total| progress.update(done as u64, total as u64));
    progress.finish();
    Ok(runs?)
}

/// Those that need no simulation.
fn analysis_figures() -> Vec<Figure> {
    [("3.1", figure_3_1()), ("3.2", figure_3_2()), ("5.5", figure_5_5()), ("5.7", figure_5_7())]
        .into_iter()
        .map(|(number, plot)| Figure {
            name: format!("figure-{number}"),
            plot: plot.expect("its parameters are constants"),
        })
        .collect()
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    std::fs::write(path, text).map_err(CommandError::file("write", path))
}

const STYLE: &str = "body{font:15px system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #8884;text-align:left}\
td.n{text-align:right}svg{display:block;margin:1.5em 0;max-width:100%;height:auto}\
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}}";

fn page_beginning(has_hplajw: bool, compared: &[Compared], statements: &[Finding]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Haining's experiments with dcd</title><style>{STYLE}</style></head><body>\n\
         <h1>Haining's experiments with dcd</h1>\n\
         <p>T. R. Haining, Non-volatile cache management for improving write response time with rotating magnetic \
         media, 2000. The traces of <i>snake</i> are not to be had; the load of its disk 5 is made up.{}</p>\n",
        if has_hplajw { "" } else { " Without a trace of <i>hplajw</i> its disk 0 is left out." }
    );
    page +=
        "<h2>Findings</h2><table><tr><th></th><th>disk</th><th>statement</th><th>here</th></tr>\n";
    for Finding { disk, statement, holds, numbers } in statements {
        let holds = if *holds { "holds" } else { "does not hold" };
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "<tr><td>{holds}</td><td>{disk}</td><td>{statement}</td><td>{numbers}</td></tr>"
        );
    }
    page += "</table><h2>Tables 7.2 and 7.3</h2><table>\
             <tr><th>table</th><th>disk</th><th></th><th>printed</th><th>ours</th></tr>\n";
    for Compared { table, disk, what, printed, ours } in compared {
        let _ = writeln!(
            page,
            "<tr><td>{table}</td><td>{disk}</td><td>{what}</td><td class=n>{printed}</td><td class=n>{ours}</td></tr>"
        );
    }
    page + "</table><h2>Figures</h2>\n"
}

fn show(
    out: &Path,
    count: usize,
    compared: &[Compared],
    statements: &[Finding],
) -> Result<(), CommandError> {
    let paint = Paint::for_stdout();
    let mut table = Table::new(&[
        ("table", Align::Left),
        ("disk", Align::Left),
        ("", Align::Left),
        ("printed", Align::Right),
        ("ours", Align::Right),
    ]);
    for Compared { table: number, disk, what, printed, ours } in compared {
        table.row(vec![
            (*number).into(),
            disk.clone(),
            what.clone(),
            printed.to_string(),
            ours.to_string(),
        ]);
    }
    let mut text = format!("{}\n", table.render(paint));
    for Finding { disk, statement, holds, numbers } in statements {
        let (word, colour) =
            if *holds { ("holds", Colour::Good) } else { ("does not hold", Colour::Warning) };
        let _ = writeln!(text, "{}: {disk}: {statement}\n    {numbers}", paint.paint(colour, word));
    }
    let _ = writeln!(text, "\n{count} figures in {}", out.join("index.html").display());
    print(&text)
}
