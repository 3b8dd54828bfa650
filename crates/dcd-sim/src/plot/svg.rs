//! Draws a [`Plot`] as one SVG file that needs nothing else: axes with ticks, legend, light and
//! dark.
//!
//! Colours are those of Okabe and Ito that show on white and on black, which people with any colour
//! vision tell apart; each series has its own dashes too. Tests: the XML is well formed, and points
//! land where they must.

use std::fmt::Write as _;

use super::{Plot, PlotError, View};

pub(super) const WIDTH: f64 = 760.0;
pub(super) const LEFT: f64 = 82.0;
pub(super) const RIGHT: f64 = 20.0;
pub(super) const TOP: f64 = 44.0;
pub(super) const PLOT_HEIGHT: f64 = 340.0;
/// Below the plot: ticks and the name of the axis.
const BELOW: f64 = 56.0;
const LEGEND_LINE: f64 = 19.0;
const LEGEND_COLUMNS: usize = 2;
/// Ticks of an axis of sizes, at most.
const SIZE_TICKS_MAX: f64 = 12.0;
/// Ticks of an axis, about.
const TICKS: f64 = 6.0;
/// So few points are marked.
const MARKED_POINTS_MAX: usize = 40;

/// For white and for black.
pub(super) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"];
const DASHES: [&str; 5] = ["", "7 4", "2 3", "9 3 2 3", "14 5"];

pub(super) const STYLE: &str = "\
.dcd-plot{font:13px system-ui,sans-serif;background:#fff;color:#222}\
.dcd-plot .paper{fill:#fff}.dcd-plot text{fill:#222}\
.dcd-plot .title{font-size:15px;font-weight:600}\
.dcd-plot .grid{stroke:#ddd}.dcd-plot .axis{stroke:#555;fill:none}\
.dcd-plot .mark{stroke:#777;stroke-dasharray:3 3}\
.dcd-plot .pointer{font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:4px}\
.dcd-plot .curve{fill:none;stroke-width:2;stroke-linejoin:round}\
@media(prefers-color-scheme:dark){\
.dcd-plot{background:#16181c;color:#ddd}\
.dcd-plot .paper{fill:#16181c}.dcd-plot .pointer{stroke:#16181c}.dcd-plot text{fill:#ddd}\
.dcd-plot .grid{stroke:#34373d}.dcd-plot .axis{stroke:#999}}";

/// The plot as a whole SVG document.
pub fn render(plot: &Plot) -> Result<String, PlotError> {
    render_view(plot, &View::default())
}

/// The same, looked at in that way. Marks that are not on the axis are left out.
pub fn render_view(plot: &Plot, view: &View) -> Result<String, PlotError> {
    plot.check()?;
    let axes = Axes::around(plot, view);
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write_document(&mut svg, plot, view, &axes, height(plot));
    Ok(svg)
}

/// Height of the document.
pub(super) fn height(plot: &Plot) -> f64 {
    let legend_lines = plot.series.len().div_ceil(LEGEND_COLUMNS) as f64;
    TOP + PLOT_HEIGHT + BELOW + legend_lines * LEGEND_LINE + 8.0
}

fn write_document(
    svg: &mut String,
    plot: &Plot,
    view: &View,
    axes: &Axes,
    height: f64,
) -> std::fmt::Result {
    begin_svg(svg, &plot.title, height)?;
    write_axes(svg, plot, axes)?;
    for (index, series) in plot.series.iter().enumerate() {
        match view.as_points {
            true => write_points(svg, axes, index, &series.points)?,
            false => write_curve(svg, axes, index, &series.points)?,
        }
    }
    // Above the curves: labels keep them off.
    write_marks(svg, view, axes)?;
    write_legend(svg, plot)?;
    writeln!(svg, "</svg>")
}

fn write_axes(svg: &mut String, plot: &Plot, axes: &Axes) -> std::fmt::Result {
    let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
    for tick in axes.x.ticks() {
        let x = axes.x_at(tick.value);
        writeln!(svg, r#"<line class="grid" x1="{x:.2}" y1="{TOP}" x2="{x:.2}" y2="{bottom}"/>"#)?;
        let (y, label) = (bottom + 18.0, tick.label);
        writeln!(svg, r#"<text x="{x:.2}" y="{y}" text-anchor="middle">{label}</text>"#)?;
    }
    for tick in axes.y.ticks() {
        let y = axes.y_at(tick.value);
        writeln!(svg, r#"<line class="grid" x1="{LEFT}" y1="{y:.2}" x2="{right}" y2="{y:.2}"/>"#)?;
        let (x, y, label) = (LEFT - 8.0, y + 4.0, tick.label);
        writeln!(svg, r#"<text x="{x}" y="{y:.2}" text-anchor="end">{label}</text>"#)?;
    }
    writeln!(svg, r#"<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>"#)?;
    let (middle, below) = ((LEFT + right) / 2.0, bottom + 40.0);
    let name = escaped(&plot.x_axis);
    writeln!(svg, r#"<text x="{middle}" y="{below}" text-anchor="middle">{name}</text>"#)?;
    let (middle, name) = (TOP + PLOT_HEIGHT / 2.0, escaped(&plot.y_axis));
    writeln!(
        svg,
        r#"<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{name}</text>"#
    )
}

fn write_marks(svg: &mut String, view: &View, axes: &Axes) -> std::fmt::Result {
    let on_axis = |x: f64| (axes.x.low..=axes.x.high).contains(&x);
    for (line, mark) in view.marks.iter().filter(|mark| on_axis(mark.x)).enumerate() {
        let (x, bottom) = (axes.x_at(mark.x), TOP + PLOT_HEIGHT);
        writeln!(svg, r#"<line class="mark" x1="{x:.2}" y1="{TOP}" x2="{x:.2}" y2="{bottom}"/>"#)?;
        // On the side that has more room, below the label of the mark before.
        let (x, anchor) = match x < (LEFT + WIDTH) / 2.0 {
            true => (x + 6.0, "start"),
            false => (x - 6.0, "end"),
        };
        let (y, label) = (TOP + 14.0 + 16.0 * line as f64, escaped(&mark.label));
        writeln!(
            svg,
            r#"<text class="pointer" x="{x:.2}" y="{y}" text-anchor="{anchor}">{label}</text>"#
        )?;
    }
    Ok(())
}

fn write_curve(
    svg: &mut String,
    axes: &Axes,
    index: usize,
    points: &[(f64, f64)],
) -> std::fmt::Result {
    let at: Vec<String> =
        points.iter().map(|&(x, y)| format!("{:.2},{:.2}", axes.x_at(x), axes.y_at(y))).collect();
    writeln!(svg, r#"<polyline class="curve" {} points="{}"/>"#, stroke(index), at.join(" "))?;
    if points.len() > MARKED_POINTS_MAX {
        return Ok(());
    }
    write_points(svg, axes, index, points)
}

fn write_points(
    svg: &mut String,
    axes: &Axes,
    index: usize,
    points: &[(f64, f64)],
) -> std::fmt::Result {
    let colour = COLOURS[index % COLOURS.len()];
    for &(x, y) in points {
        let (x, y) = (axes.x_at(x), axes.y_at(y));
        writeln!(svg, r#"<circle cx="{x:.2}" cy="{y:.2}" r="2.5" fill="{colour}"/>"#)?;
    }
    Ok(())
}

fn write_legend(svg: &mut String, plot: &Plot) -> std::fmt::Result {
    let column_width = (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS as f64;
    for (index, series) in plot.series.iter().enumerate() {
        let x = LEFT + (index % LEGEND_COLUMNS) as f64 * column_width;
        let line = (index / LEGEND_COLUMNS) as f64;
        let y = TOP + PLOT_HEIGHT + BELOW + line * LEGEND_LINE;
        let end = x + 30.0;
        let stroke = stroke(index);
        writeln!(svg, r#"<line class="curve" {stroke} x1="{x}" y1="{y}" x2="{end}" y2="{y}"/>"#)?;
        let (x, y, name) = (x + 38.0, y + 4.0, escaped(&series.name));
        writeln!(svg, r#"<text x="{x}" y="{y}">{name}</text>"#)?;
    }
    Ok(())
}

/// Colour and dashes of a series: the two together repeat after 35.
fn stroke(index: usize) -> String {
    let colour = COLOURS[index % COLOURS.len()];
    match DASHES[index % DASHES.len()] {
        "" => format!(r#"stroke="{colour}""#),
        dashes => format!(r#"stroke="{colour}" stroke-dasharray="{dashes}""#),
    }
}

/// The beginning of a drawing: style, paper and title.
pub(super) fn begin_svg(svg: &mut String, title: &str, height: f64) -> std::fmt::Result {
    let title = escaped(title);
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" class="dcd-plot" role="img">"#
    )?;
    writeln!(svg, "<title>{title}</title>\n<style>{STYLE}</style>")?;
    writeln!(svg, r#"<rect class="paper" width="{WIDTH}" height="{height}"/>"#)?;
    writeln!(svg, r#"<text class="title" x="{LEFT}" y="26">{title}</text>"#)
}

/// Text that is only text, in SVG and in HTML. XML 1.0 has no place for most control characters,
/// escaped or not.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            c if c.is_control() && !matches!(c, '\t' | '\n' | '\r') => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Where numbers are on the paper.
struct Axes {
    x: Axis,
    y: Axis,
}

/// From which number to which. Of a logarithmic one, these are decimal logarithms.
pub(super) struct Axis {
    low: f64,
    high: f64,
    step: f64,
    log: bool,
    /// Numbers are binary logarithms of bytes.
    sizes: bool,
}

pub(super) struct Tick {
    pub value: f64,
    pub label: String,
}

impl Axes {
    fn around(plot: &Plot, view: &View) -> Axes {
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let (xs, ys) = (points().map(|point| point.0), points().map(|point| point.1));
        let zero = (view.y_from_zero && !plot.log_y).then_some(0.0);
        Axes {
            x: match view.x_is_log_of_bytes {
                true => Axis::of_sizes(xs),
                false => Axis::around(xs, false),
            },
            y: Axis::around(ys.chain(zero), plot.log_y),
        }
    }

    fn x_at(&self, value: f64) -> f64 {
        LEFT + self.x.fraction(value) * (WIDTH - LEFT - RIGHT)
    }

    /// Downwards.
    fn y_at(&self, value: f64) -> f64 {
        TOP + (1.0 - self.y.fraction(value)) * PLOT_HEIGHT
    }
}

impl Axis {
    /// From a tick to a tick, with all of `values` between.
    pub fn around(values: impl Iterator<Item = f64>, log: bool) -> Axis {
        let scale = |value: f64| if log { value.log10() } else { value };
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.map(scale) {
            low = low.min(value);
            high = high.max(value);
        }
        // A single number gets some room; so does what differs in the last digits only, where steps
        // are lost.
        let room = if log { 0.5 } else { low.abs().max(high.abs()).max(1e-300) * 1e-9 };
        if high - low < room {
            let room = if log || low != 0.0 || high != 0.0 { room } else { 0.5 };
            low -= room;
            high += room;
        }
        let step = round_step((high - low) / TICKS, log);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Axis { low, high, step, log, sizes: false }
    }

    /// Powers of two of bytes are equally far apart; a tick at each, or at every second, and so on.
    fn of_sizes(logarithms: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in logarithms {
            // Sizes in 64 bits.
            let value = value.clamp(0.0, 64.0);
            low = low.min(value.floor());
            high = high.max(value.ceil());
        }
        if low == high {
            (low, high) = (low - 1.0, high + 1.0);
        }
        let step = ((high - low) / SIZE_TICKS_MAX).ceil();
        high = low + ((high - low) / step).ceil() * step;
        Axis { low, high, step, log: false, sizes: true }
    }

    /// 0 at the low end, 1 at the high one.
    pub fn fraction(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    pub fn ticks(&self) -> Vec<Tick> {
        let count = ((self.high - self.low) / self.step).round() as u32;
        (0..=count)
            .map(|i| {
                let at = self.low + f64::from(i) * self.step;
                if self.sizes {
                    return Tick { value: at, label: size_label(at) };
                }
                if self.log {
                    return Tick { value: 10f64.powf(at), label: power_label(at) };
                }
                // What should be 0 was rounded.
                let at = if at.abs() < self.step * 1e-6 { 0.0 } else { at };
                Tick { value: at, label: number_label(at, self.step) }
            })
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`; of a logarithmic axis at least 1, a power of
/// ten.
fn round_step(step: f64, log: bool) -> f64 {
    if log && step <= 1.0 {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step);
    factor.unwrap_or(10.0) * power
}

/// 10 to a whole number.
fn power_label(exponent: f64) -> String {
    let exponent = exponent.round() as i32;
    match exponent {
        -3..=4 => format!("{}", 10f64.powi(exponent)),
        _ => format!(r#"10<tspan dy="-5" font-size="10">{exponent}</tspan>"#),
    }
}

/// 2 to that power, as bytes.
fn size_label(exponent: f64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let exponent = exponent.round().clamp(0.0, 66.0) as usize;
    format!("{}{}", 1u64 << (exponent % 10), UNITS[exponent / 10])
}

/// With as many digits as the step has.
fn number_label(value: f64, step: f64) -> String {
    let digits = -step.log10().floor();
    if value != 0.0 && (value.abs() >= 1e7 || digits > 6.0) {
        // Two numbers a step apart differ in this digit.
        let significant = (value.abs().log10() + digits).floor().clamp(0.0, 15.0) as usize;
        return format!("{value:.significant$e}");
    }
    format!("{value:.*}", digits.max(0.0) as usize)
}

#[cfg(test)]
#[path = "svg_tests.rs"]
mod tests;
