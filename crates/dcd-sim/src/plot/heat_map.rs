//! A heat map: cells over x and y, the fuller the darker (on black: the brighter), by the logarithm
//! of the number.
//!
//! Cells of one shade are one path, so that a full map is some hundred kilobytes.

use std::fmt::Write as _;

use super::Drawing;
use super::svg::{Axis, COLOURS, LEFT, PLOT_HEIGHT, RIGHT, TOP, WIDTH, begin_svg, escaped};

const BELOW: f64 = 56.0;
const LEGEND: f64 = 28.0;
/// Shades that are told apart.
const SHADES: usize = 8;

/// Whose colour it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shade {
    /// The first colour of curves.
    Reads,
    /// The second one.
    Writes,
}

/// Numbers in cells.
#[derive(Clone, PartialEq, Debug)]
pub struct HeatMapPlot {
    /// Above it.
    pub title: String,
    /// What x is, with its unit.
    pub x_axis: String,
    /// What y is, with its unit.
    pub y_axis: String,
    /// What is counted.
    pub what: String,
    /// Where the last column ends; the first begins at 0.
    pub x_end: f64,
    /// Where the first row begins and the last one ends.
    pub y: (f64, f64),
    /// Numbers by column, from the first row on; all columns of the same length.
    pub columns: Vec<Vec<u32>>,
    /// Its colour.
    pub shade: Shade,
}

impl HeatMapPlot {
    /// Draws it; none if all cells are empty.
    pub fn draw(&self) -> Option<Drawing> {
        let most = self.columns.iter().flatten().copied().max().filter(|most| *most > 0)?;
        let height = TOP + PLOT_HEIGHT + BELOW + LEGEND;
        let mut svg = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut svg, most, height);
        Some(Drawing { title: self.title.clone(), svg, height })
    }

    fn write(&self, svg: &mut String, most: u32, height: f64) -> std::fmt::Result {
        begin_svg(svg, &self.title, height)?;
        self.write_axes(svg)?;
        let rows = self.columns.first().map_or(1, Vec::len).max(1);
        let cell_width = (WIDTH - LEFT - RIGHT) / self.columns.len().max(1) as f64;
        let cell_height = PLOT_HEIGHT / rows as f64;
        let bottom = TOP + PLOT_HEIGHT;
        let colour = self.colour();
        // Crisp edges: no thin lines of paper between cells.
        writeln!(
            svg,
            r#"<g fill="{colour}" shape-rendering="crispEdges" transform="translate({LEFT} {bottom}) scale({cell_width:.5} -{cell_height:.5})">"#
        )?;
        for shade in 0..SHADES {
            let path = self.path_of(shade, most);
            if !path.is_empty() {
                let opacity = opacity(shade);
                writeln!(svg, r#"<path fill-opacity="{opacity:.2}" d="{path}"/>"#)?;
            }
        }
        writeln!(svg, "</g>")?;
        self.write_legend(svg, most)?;
        writeln!(svg, "</svg>")
    }

    fn colour(&self) -> &'static str {
        match self.shade {
            Shade::Reads => COLOURS[0],
            Shade::Writes => COLOURS[1],
        }
    }

    /// Runs of cells of a shade in a column, as one path each.
    fn path_of(&self, shade: usize, most: u32) -> String {
        let mut path = String::new();
        for (x, column) in self.columns.iter().enumerate() {
            let mut y = 0;
            while y < column.len() {
                let run =
                    column[y..].iter().take_while(|count| shade_of(**count, most) == Some(shade));
                let run = run.count();
                if run > 0 {
                    let _ = write!(path, "M{x} {y}h1v{run}h-1z");
                }
                y += run.max(1);
            }
        }
        path
    }

    fn write_axes(&self, svg: &mut String) -> std::fmt::Result {
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
        let (low, high) = self.y;
        for tick in Axis::around([0.0, self.x_end].into_iter(), false).ticks() {
            if tick.value <= self.x_end {
                let x = LEFT + tick.value / self.x_end * (right - LEFT);
                let (y, label) = (bottom + 18.0, tick.label);
                writeln!(
                    svg,
                    r#"<line class="axis" x1="{x:.2}" y1="{bottom}" x2="{x:.2}" y2="{}"/>"#,
                    bottom + 4.0
                )?;
                writeln!(svg, r#"<text x="{x:.2}" y="{y}" text-anchor="middle">{label}</text>"#)?;
            }
        }
        for tick in Axis::around([low, high].into_iter(), false).ticks() {
            if (low..=high).contains(&tick.value) {
                let y = bottom - (tick.value - low) / (high - low) * PLOT_HEIGHT;
                let (x, label) = (LEFT - 8.0, tick.label);
                writeln!(
                    svg,
                    r#"<line class="axis" x1="{}" y1="{y:.2}" x2="{LEFT}" y2="{y:.2}"/>"#,
                    LEFT - 4.0
                )?;
                let y = y + 4.0;
                writeln!(svg, r#"<text x="{x}" y="{y:.2}" text-anchor="end">{label}</text>"#)?;
            }
        }
        writeln!(svg, r#"<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}V{TOP}z"/>"#)?;
        let (middle, below) = ((LEFT + right) / 2.0, bottom + 40.0);
        let name = escaped(&self.x_axis);
        writeln!(svg, r#"<text x="{middle}" y="{below}" text-anchor="middle">{name}</text>"#)?;
        let (middle, name) = (TOP + PLOT_HEIGHT / 2.0, escaped(&self.y_axis));
        writeln!(
            svg,
            r#"<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{name}</text>"#
        )
    }

    /// The shades, with the smallest number of each.
    fn write_legend(&self, svg: &mut String, most: u32) -> std::fmt::Result {
        let (y, width) = (TOP + PLOT_HEIGHT + BELOW, 60.0);
        let colour = self.colour();
        let what = escaped(&self.what);
        let mut x = LEFT;
        for shade in 0..SHADES {
            // Small numbers have fewer shades.
            let Some(least) = least_of(shade, most) else { continue };
            let opacity = opacity(shade);
            writeln!(
                svg,
                r#"<rect x="{x}" y="{y}" width="16" height="12" fill="{colour}" fill-opacity="{opacity:.2}"/>"#
            )?;
            let (text_x, text_y) = (x + 20.0, y + 11.0);
            writeln!(svg, r#"<text x="{text_x}" y="{text_y}" font-size="11">{least}</text>"#)?;
            x += width;
        }
        let (x, y) = (x + 4.0, y + 11.0);
        writeln!(svg, r#"<text x="{x}" y="{y}" font-size="11">{what}, at least</text>"#)
    }
}

/// Equal steps of the logarithm, from 1 to `most`; none for none.
fn shade_of(count: u32, most: u32) -> Option<usize> {
    if count == 0 {
        return None;
    }
    if most == 1 {
        return Some(SHADES - 1);
    }
    let share = f64::from(count).ln() / f64::from(most).ln();
    Some(((share * SHADES as f64) as usize).min(SHADES - 1))
}

/// The smallest number of a shade; small numbers leave some out.
fn least_of(shade: usize, most: u32) -> Option<u32> {
    // Shades grow with numbers: halving finds the first that is dark enough.
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if shade_of(middle, most) < Some(shade) { low = middle + 1 } else { high = middle }
    }
    (shade_of(low, most) == Some(shade)).then_some(low)
}

fn opacity(shade: usize) -> f64 {
    0.28 + 0.72 * shade as f64 / (SHADES - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::xml::parsed;

    fn map(columns: &[&[u32]]) -> HeatMapPlot {
        HeatMapPlot {
            title: "<t>".into(),
            x_axis: "x & y".into(),
            y_axis: "y \"z\"".into(),
            what: "<w>".into(),
            x_end: 3.0,
            y: (10.0, 30.0),
            columns: columns.iter().map(|column| column.to_vec()).collect(),
            shade: Shade::Reads,
        }
    }

    /// ```text
    /// row 1   100    .     1
    /// row 0   100    1     .
    /// ```
    #[test]
    fn cells_of_a_shade_are_one_path() {
        let drawing = map(&[&[100, 100], &[1, 0], &[0, 1]]).draw().unwrap();
        let paths: Vec<_> = parsed(&drawing.svg)
            .into_iter()
            .filter_map(|(name, attributes)| {
                let has_shade = attributes.iter().any(|(key, _)| key == "fill-opacity");
                (name == "path" && has_shade).then_some(attributes)
            })
            .collect();
        let part = |index: usize, wanted: &str| {
            let (_, value) = paths[index].iter().find(|(key, _)| key == wanted).unwrap();
            value.as_str()
        };
        assert_eq!(paths.len(), 2);
        assert_eq!((part(0, "fill-opacity"), part(0, "d")), ("0.28", "M1 0h1v1h-1zM2 1h1v1h-1z"));
        assert_eq!((part(1, "fill-opacity"), part(1, "d")), ("1.00", "M0 0h1v2h-1z"));
    }

    #[test]
    fn shades_begin_at_their_smallest_number() {
        for most in [1, 2, 3, 7, 100, 65_537, u32::MAX] {
            for least in (0..SHADES).filter_map(|shade| least_of(shade, most).map(|n| (shade, n))) {
                let (shade, number) = least;
                assert_eq!(shade_of(number, most), Some(shade), "{most}");
                assert!(shade_of(number - 1, most) < Some(shade), "{most}");
            }
            assert!(least_of(SHADES - 1, most).is_some());
        }
        assert_eq!(map(&[&[0, 0], &[0, 0]]).draw(), None);
        assert_eq!(map(&[]).draw(), None);
    }
}
