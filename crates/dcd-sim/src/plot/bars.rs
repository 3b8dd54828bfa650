//! Stacked bars in groups, drawn as an SVG file in the manner of [`super::svg`]. A bar has its total above it.
//!
//! Tests: parts lie on each other, and their heights are in the proportion of the numbers.

use std::fmt::Write as _;

use super::PlotError;
use super::svg::{
    Axis, COLOURS, LEFT, LEGEND_LINE, PLOT_HEIGHT, RIGHT, TOP, WIDTH, escaped, write_document,
};

/// Groups of bars over one axis that begins at 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// Above it.
    pub title: String,
    /// What the height is, with its unit.
    pub y_axis: String,
    /// Names of the parts of each bar, the lowest first.
    pub parts: Vec<String>,
    /// From left to right.
    pub groups: Vec<BarGroup>,
}

/// Bars side by side.
#[derive(Clone, PartialEq, Debug)]
pub struct BarGroup {
    /// Below it.
    pub name: String,
    /// Name of each, and its parts.
    pub bars: Vec<(String, Vec<f64>)>,
}

/// Room below: names of bars, of groups.
const BELOW: f64 = 56.0;
const LARGEST: f64 = 1e300;

impl Bars {
    fn check(&self) -> Result<(), PlotError> {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
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
}

/// The bars as a whole SVG document, with sentences below.
pub fn render(bars: &Bars, notes: &[String]) -> Result<String, PlotError> {
    bars.check()?;
    let totals = bars.groups.iter().flat_map(|group| &group.bars);
    let totals = totals.map(|(_, parts)| parts.iter().sum::<f64>());
    let axis = Axis::around(totals.chain([0.0]), false);
    let notes_top = TOP + PLOT_HEIGHT + BELOW + LEGEND_LINE;
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write_document(&mut svg, &bars.title, notes_top, notes, |svg| {
        write_axis(svg, &axis, &bars.y_axis)?;
        let group_width = (WIDTH - LEFT - RIGHT) / bars.groups.len() as f64;
        for (index, group) in bars.groups.iter().enumerate() {
            write_group(svg, &axis, group, LEFT + index as f64 * group_width, group_width)?;
        }
        write_legend(svg, &bars.parts)
    });
    Ok(svg)
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
    group: &BarGroup,
    left: f64,
    width: f64,
) -> std::fmt::Result {
    let bottom = TOP + PLOT_HEIGHT;
    // Half a bar of room on each side.
    let step = width / (group.bars.len() + 1) as f64;
    for (index, (name, parts)) in group.bars.iter().enumerate() {
        let middle = left + (index + 1) as f64 * step;
        let (x, bar_width) = (middle - step * 0.35, step * 0.7);
        let mut total = 0.0;
        for (part, colour) in parts.iter().zip(COLOURS.iter().cycle()) {
            let (y, below) = (y_at(axis, total + part), y_at(axis, total));
            total += part;
            writeln!(
                svg,
                r#"<rect x="{x:.2}" y="{y:.2}" width="{bar_width:.2}" height="{:.2}" fill="{colour}"/>"#,
                below - y
            )?;
        }
        let y = y_at(axis, total) - 5.0;
        let shown = shown(total);
        writeln!(svg, r#"<text x="{middle:.2}" y="{y:.2}" text-anchor="middle">{shown}</text>"#)?;
        let (y, name) = (bottom + 18.0, escaped(name));
        writeln!(svg, r#"<text x="{middle:.2}" y="{y}" text-anchor="middle">{name}</text>"#)?;
    }
    let (x, y, name) = (left + width / 2.0, bottom + 38.0, escaped(&group.name));
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

fn write_legend(svg: &mut String, parts: &[String]) -> std::fmt::Result {
    let column_width = (WIDTH - LEFT - RIGHT) / parts.len().max(1) as f64;
    let y = TOP + PLOT_HEIGHT + BELOW;
    for (index, (name, colour)) in parts.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let x = LEFT + index as f64 * column_width;
        let top = y - 6.0;
        writeln!(svg, r#"<rect x="{x}" y="{top}" width="12" height="12" fill="{colour}"/>"#)?;
        let (x, y, name) = (x + 20.0, y + 4.0, escaped(name));
        writeln!(svg, r#"<text x="{x}" y="{y}">{name}</text>"#)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(parts: Vec<f64>) -> Bars {
        Bars {
            title: "a < b".into(),
            y_axis: "s".into(),
            parts: vec!["low".into(), "high & more".into()],
            groups: vec![BarGroup { name: "g".into(), bars: vec![("one".into(), parts)] }],
        }
    }

    #[test]
    fn parts_lie_on_each_other() {
        let drawn = render(&bars(vec![10.0, 30.0]), &["said below".into()]).unwrap();
        let number = |rect: &str, key: &str| -> f64 {
            let (_, rest) = rect.split_once(&format!(" {key}=\"")).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let rects: Vec<&str> = drawn
            .lines()
            .filter(|line| line.starts_with("<rect x") && !line.contains("\"12\""))
            .collect();
        let [low, high] = rects[..] else { panic!("{rects:?}") };
        assert!((number(high, "height") - 3.0 * number(low, "height")).abs() < 0.05);
        assert!((number(high, "y") + number(high, "height") - number(low, "y")).abs() < 0.02);
        assert!((number(low, "y") + number(low, "height") - TOP - PLOT_HEIGHT).abs() < 0.02);
        assert!(drawn.contains("high &amp; more") && drawn.contains(">40.0<"));
        assert!(drawn.contains("said below") && drawn.contains("a &lt; b"));
    }

    #[test]
    fn what_has_no_height_is_refused() {
        assert!(matches!(render(&bars(vec![1.0, f64::NAN]), &[]), Err(PlotError::Point { .. })));
        assert!(matches!(render(&bars(vec![-1.0]), &[]), Err(PlotError::Point { .. })));
        assert_eq!(render(&bars(vec![]), &[]), Err(PlotError::Empty));
        assert!(render(&bars(vec![0.0]), &[]).is_ok());
    }
}
