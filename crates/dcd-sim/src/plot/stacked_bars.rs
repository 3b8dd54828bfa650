//! Stacked bars in groups, drawn as an SVG file in the manner of [`super::svg`]. A bar has its
//! total above it.
//!
//! Tests: parts lie on each other, and their heights are in the proportion of the numbers.

use std::fmt::Write as _;

use super::PlotError;
use super::svg::{Axis, COLOURS, LEFT, PLOT_HEIGHT, RIGHT, TOP, WIDTH, begin_svg, escaped};

/// Groups of bars over one axis that begins at 0.
#[derive(Clone, PartialEq, Debug)]
pub struct StackedBars {
    /// Above it.
    pub title: String,
    /// What the height is, with its unit.
    pub y_axis: String,
    /// Names of the bars of each group.
    pub bars: Vec<String>,
    /// Names of the parts of each bar, the lowest first. With one part, colours tell the bars
    /// apart.
    pub parts: Vec<String>,
    /// Name of each group, and the parts of its bars.
    pub groups: Vec<(String, Vec<Vec<f64>>)>,
}

/// Room below: names of bars, of groups.
const BELOW: f64 = 56.0;
const LEGEND_LINE: f64 = 19.0;
const LARGEST: f64 = 1e300;
/// Narrower bars have no room for their names, and for small numbers only.
const NAMED_WIDTH_MIN: f64 = 40.0;

impl StackedBars {
    fn check(&self) -> Result<(), PlotError> {
        let bars =
            || self.groups.iter().flat_map(|(name, bars)| bars.iter().map(move |bar| (name, bar)));
        if bars().all(|(_, parts)| parts.is_empty()) {
            return Err(PlotError::Empty);
        }
        for (name, parts) in bars() {
            for (index, &part) in parts.iter().enumerate() {
                if !(0.0..=LARGEST).contains(&part) {
                    let (series, x, y) = (name.clone(), index as f64, part);
                    let expected = "numbers from 0 up to 1e300";
                    return Err(PlotError::Point { series, index, expected, x, y });
                }
            }
        }
        Ok(())
    }

    fn colours_tell_bars(&self) -> bool {
        self.parts.len() < 2
    }
}

/// The bars as a whole SVG document.
///
/// # Errors
/// If there are none, or one cannot be drawn.
pub fn render(bars: &StackedBars) -> Result<String, PlotError> {
    bars.check()?;
    let totals = bars.groups.iter().flat_map(|(_, bars)| bars);
    let totals = totals.map(|parts| parts.iter().sum::<f64>());
    let axis = Axis::around(totals.chain([0.0]), false);
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write_document(&mut svg, bars, &axis);
    Ok(svg)
}

fn write_document(svg: &mut String, bars: &StackedBars, axis: &Axis) -> std::fmt::Result {
    let height = TOP + PLOT_HEIGHT + BELOW + LEGEND_LINE + 8.0;
    begin_svg(svg, &bars.title, height)?;
    write_axis(svg, axis, &bars.y_axis)?;
    let group_width = (WIDTH - LEFT - RIGHT) / bars.groups.len() as f64;
    for index in 0..bars.groups.len() {
        write_group(svg, axis, bars, index, group_width)?;
    }
    write_legend(svg, if bars.colours_tell_bars() { &bars.bars } else { &bars.parts })?;
    writeln!(svg, "</svg>")
}

fn y_at(axis: &Axis, value: f64) -> f64 {
    TOP + (1.0 - axis.fraction(value)) * PLOT_HEIGHT
}

fn write_axis(svg: &mut String, axis: &Axis, name: &str) -> std::fmt::Result {
    let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
    for tick in axis.ticks() {
        let y = y_at(axis, tick.value);
        writeln!(svg, r#"<line class="grid" x1="{LEFT}" y1="{y:.2}" x2="{right}" y2="{y:.2}"/>"#)?;
        let (x, y, label) = (LEFT - 8.0, y + 4.0, tick.label);
        writeln!(svg, r#"<text x="{x}" y="{y:.2}" text-anchor="end">{label}</text>"#)?;
    }
    writeln!(svg, r#"<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>"#)?;
    let (middle, name) = (TOP + PLOT_HEIGHT / 2.0, escaped(name));
    writeln!(
        svg,
        r#"<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{name}</text>"#
    )
}

fn write_group(
    svg: &mut String,
    axis: &Axis,
    all: &StackedBars,
    index: usize,
    width: f64,
) -> std::fmt::Result {
    let (name, bars) = &all.groups[index];
    let (left, bottom) = (LEFT + index as f64 * width, TOP + PLOT_HEIGHT);
    // Half a bar of room on each side.
    let step = width / (bars.len() + 1) as f64;
    for (index, parts) in bars.iter().enumerate() {
        let middle = left + (index + 1) as f64 * step;
        let (x, bar_width) = (middle - step * 0.4, step * 0.8);
        let mut total = 0.0;
        for (part_index, part) in parts.iter().enumerate() {
            let colour = if all.colours_tell_bars() { index } else { part_index };
            let colour = COLOURS[colour % COLOURS.len()];
            let (y, below) = (y_at(axis, total + part), y_at(axis, total));
            total += part;
            writeln!(
                svg,
                r#"<rect x="{x:.2}" y="{y:.2}" width="{bar_width:.2}" height="{:.2}" fill="{colour}"/>"#,
                below - y
            )?;
        }
        let size = if step < NAMED_WIDTH_MIN { 10 } else { 13 };
        let (y, shown) = (y_at(axis, total) - 5.0, shown(total));
        writeln!(
            svg,
            r#"<text font-size="{size}" x="{middle:.2}" y="{y:.2}" text-anchor="middle">{shown}</text>"#
        )?;
        if let Some(name) = all.bars.get(index).filter(|_| !all.colours_tell_bars()) {
            let (y, name) = (bottom + 18.0, escaped(name));
            writeln!(svg, r#"<text x="{middle:.2}" y="{y}" text-anchor="middle">{name}</text>"#)?;
        }
    }
    let y = bottom + if all.colours_tell_bars() { 20.0 } else { 38.0 };
    let (x, name) = (left + width / 2.0, escaped(name));
    writeln!(
        svg,
        r#"<text x="{x:.2}" y="{y}" text-anchor="middle" font-weight="600">{name}</text>"#
    )
}

/// Three digits.
fn shown(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn write_legend(svg: &mut String, names: &[String]) -> std::fmt::Result {
    let column_width = (WIDTH - LEFT - RIGHT) / names.len().max(1) as f64;
    let y = TOP + PLOT_HEIGHT + BELOW;
    for (index, (name, colour)) in names.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let (x, top) = (LEFT + index as f64 * column_width, y - 6.0);
        writeln!(svg, r#"<rect x="{x}" y="{top}" width="12" height="12" fill="{colour}"/>"#)?;
        let (x, y, name) = (x + 20.0, y + 4.0, escaped(name));
        writeln!(svg, r#"<text x="{x}" y="{y}">{name}</text>"#)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(parts: &[&str], heights: Vec<f64>) -> StackedBars {
        StackedBars {
            title: "a < b".into(),
            y_axis: "s".into(),
            bars: vec!["one".into(), "other".into()],
            parts: parts.iter().map(|name| (*name).to_owned()).collect(),
            groups: vec![("g".into(), vec![heights.clone(), heights])],
        }
    }

    /// Of bars, without the paper and the legend.
    fn rects(drawn: &str) -> Vec<&str> {
        let is_bar = |line: &&str| line.starts_with("<rect x") && !line.contains("\"12\"");
        drawn.lines().filter(is_bar).collect()
    }

    #[test]
    fn parts_lie_on_each_other() {
        let drawn = render(&bars(&["low", "high & more"], vec![10.0, 30.0])).unwrap();
        let number = |rect: &str, key: &str| -> f64 {
            let (_, rest) = rect.split_once(&format!(" {key}=\"")).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let [low, high, ..] = rects(&drawn)[..] else { panic!("{drawn}") };
        assert!((number(high, "height") - 3.0 * number(low, "height")).abs() < 0.05);
        assert!((number(high, "y") + number(high, "height") - number(low, "y")).abs() < 0.02);
        assert!((number(low, "y") + number(low, "height") - TOP - PLOT_HEIGHT).abs() < 0.02);
        assert!(drawn.contains("high &amp; more") && drawn.contains(">40.0<"));
        assert!(drawn.contains(">one<") && drawn.contains("a &lt; b"));
    }

    #[test]
    fn bars_of_one_part_have_colours_of_their_own() {
        let drawn = render(&bars(&["all"], vec![10.0])).unwrap();
        let [one, other] = rects(&drawn)[..] else { panic!("{drawn}") };
        assert!(one.contains(COLOURS[0]) && other.contains(COLOURS[1]), "{one} {other}");
        assert_eq!(drawn.matches(">other<").count(), 1);
        assert!(!drawn.contains(">all<"));
    }

    #[test]
    fn what_has_no_height_is_refused() {
        let drawn = |heights| render(&bars(&["all"], heights));
        assert!(matches!(drawn(vec![f64::NAN]), Err(PlotError::Point { .. })));
        assert!(matches!(drawn(vec![-1.0]), Err(PlotError::Point { .. })));
        assert_eq!(drawn(vec![]), Err(PlotError::Empty));
        assert!(drawn(vec![0.0]).is_ok());
    }
}
