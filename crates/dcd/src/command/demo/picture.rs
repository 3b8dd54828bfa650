//! The picture: grouped bars as in the paper's Figures 7 to 9, a figure for each number of users
//! and each mount.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::phases::Phase;
use super::report::{Report, Row};
use super::stand::MountKind;
use crate::error::demo::DemoError;

const FIGURE_SIZE: (u32, u32) = (400, 330);
const TITLE_HEIGHT: u32 = 70;
const RAW_COLOUR: RGBColor = RGBColor(178, 84, 71);
const DCD_COLOUR: RGBColor = RGBColor(62, 118, 160);
const GREY: RGBColor = RGBColor(90, 90, 90);
const FONT: &str = "sans-serif";
/// Half the width of a bar, where a group is 1 wide.
const HALF_BAR: f64 = 0.17;

/// Draws it.
pub fn draw(report: &Report, path: &Path) -> Result<(), DemoError> {
    try_draw(report, path)
        .map_err(|error| DemoError::Picture { path: path.to_owned(), reason: error.to_string() })
}

fn try_draw(report: &Report, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut users: Vec<u32> = report.rows.iter().map(|row| row.users).collect();
    users.sort_unstable();
    users.dedup();
    let mounts = [MountKind::Sync, MountKind::Default];
    let width = (FIGURE_SIZE.0 * users.len() as u32).max(720);
    let size = (width, TITLE_HEIGHT + FIGURE_SIZE.1 * mounts.len() as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, figures) = root.split_vertically(TITLE_HEIGHT);
    draw_title(report, &title)?;
    let figures = figures.split_evenly((mounts.len(), users.len()));
    let places = mounts.iter().flat_map(|mount| users.iter().map(move |users| (*mount, *users)));
    for (area, (mount, users)) in figures.iter().zip(places) {
        let rows: Vec<&Row> =
            report.rows.iter().filter(|row| (row.mount, row.users) == (mount, users)).collect();
        draw_figure(area, mount, users, &rows)?;
    }
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_title(report: &Report, area: &Area) -> Result<(), Box<dyn Error>> {
    let text = format!(
        "Untar, copy and remove a source tree: slow disk ({} ms a read, {} ms a write)",
        report.slow_read_milliseconds, report.slow_write_milliseconds
    );
    area.draw(&Text::new(text, (16, 14), (FONT, 19).into_font()))?;
    for (left, colour, text) in
        [(16, RAW_COLOUR, "without dcd"), (140, DCD_COLOUR, "with dcd (times faster)")]
    {
        area.draw(&Rectangle::new([(left, 45), (left + 14, 59)], colour.filled()))?;
        area.draw(&Text::new(text, (left + 20, 46), (FONT, 14).into_font()))?;
    }
    Ok(())
}

fn draw_figure(
    area: &Area,
    mount: MountKind,
    users: u32,
    rows: &[&Row],
) -> Result<(), Box<dyn Error>> {
    let longest = rows.iter().map(|row| row.raw_seconds.max(row.dcd_seconds)).fold(0.1, f64::max);
    let caption = format!("{users}-user, mount -o {}", mount.options());
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 15))
        .margin(12)
        .x_label_area_size(26)
        .y_label_area_size(52)
        .build_cartesian_2d(-0.5..Phase::ALL.len() as f64 - 0.5, 0.0..longest * 1.12)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .y_desc("seconds")
        .y_labels(6)
        .y_label_formatter(&|seconds| format!("{seconds:.*}", if longest < 5.0 { 1 } else { 0 }))
        .label_style((FONT, 12).into_font().color(&GREY))
        .draw()?;
    let below = TextStyle::from((FONT, 14).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
    let bar = |left: f64, seconds: f64, colour: RGBColor| {
        Rectangle::new([(left - HALF_BAR, 0.0), (left + HALF_BAR, seconds)], colour.filled())
    };
    for (group, phase) in Phase::ALL.iter().enumerate() {
        let Some(row) = rows.iter().find(|row| row.phase == *phase) else { continue };
        let centre = group as f64;
        let (raw, dcd) = (centre - HALF_BAR - 0.02, centre + HALF_BAR + 0.02);
        chart.draw_series([
            bar(raw, row.raw_seconds, RAW_COLOUR),
            bar(dcd, row.dcd_seconds, DCD_COLOUR),
        ])?;
        let above = |text: String, x: f64, horizontal, seconds: f64| {
            let style = TextStyle::from((FONT, 12).into_font());
            let style = style.pos(Pos::new(horizontal, VPos::Bottom));
            Text::new(text, (x, seconds + longest * 0.015), style)
        };
        // The longer words begin at the edge of their bar, clear of the higher bar beside it.
        let faster = format!("{} ({:.1}x)", seconds(row.dcd_seconds), row.ratio);
        chart.draw_series([
            above(seconds(row.raw_seconds), raw, HPos::Center, row.raw_seconds),
            above(faster, dcd - HALF_BAR, HPos::Left, row.dcd_seconds),
        ])?;
        let (x, y) = chart.backend_coord(&(centre, 0.0));
        let (left, top) = area.get_base_pixel();
        area.draw(&Text::new(phase.name(), (x - left, y - top + 8), below.clone()))?;
    }
    Ok(())
}

fn seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.2}") } else { format!("{seconds:.0}") }
}
