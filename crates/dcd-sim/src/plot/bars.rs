//! Bars over named classes, side by side for several series.

use std::fmt::Write as _;

use super::Drawing;
use super::svg::{Axis, COLOURS, LEFT, RIGHT, TOP, WIDTH, begin_svg, escaped};

const PLOT_HEIGHT: f64 = 220.0;
/// Slanted names of the classes, and the name of the axis.
const BELOW: f64 = 84.0;
const LEGEND: f64 = 19.0;
/// Of a class, what its bars take.
const FILLED: f64 = 0.8;

/// A series: its name, and a number for each class.
pub type BarSeries = (String, Vec<f64>);

/// Numbers by class.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// Above it.
    pub title: String,
    /// What the classes are.
    pub x_axis: String,
    /// What the height is.
    pub y_axis: String,
    /// Names of the classes; one more number than names: what lies above all.
    pub classes: Vec<String>,
    /// The numbers.
    pub series: Vec<BarSeries>,
    /// What is 100 %.
    pub whole: f64,
}

impl Bars {
    /// Bars that are shares of all numbers together.
    pub fn shares(
        title: &str,
        x_axis: &str,
        y_axis: &str,
        classes: Vec<String>,
        series: Vec<BarSeries>,
    ) -> Bars {
        let whole = series.iter().flat_map(|(_, numbers)| numbers).sum();
        let (title, x_axis, y_axis) = (title.to_owned(), x_axis.to_owned(), y_axis.to_owned());
        Bars { title, x_axis, y_axis, classes, series, whole }
    }

    /// Draws them, without the empty classes at both ends; none if all are empty.
    pub fn draw(&self) -> Option<Drawing> {
        let is_used = |class: &usize| {
            let number = |(_, numbers): &BarSeries| numbers.get(*class).copied().unwrap_or(0.0);
            self.series.iter().map(number).any(|number| number > 0.0)
        };
        let first = (0..=self.classes.len()).find(is_used)?;
        let last = (0..=self.classes.len()).rfind(is_used)?;
        let height = TOP + PLOT_HEIGHT + BELOW + LEGEND + 8.0;
        let mut svg = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut svg, first, last, height);
        Some(Drawing { title: self.title.clone(), svg, height })
    }

    fn write(&self, svg: &mut String, first: usize, last: usize, height: f64) -> std::fmt::Result {
        begin_svg(svg, &self.title, height)?;
        let percent = |number: f64| 100.0 * number / self.whole.max(f64::MIN_POSITIVE);
        let shown = |numbers: &[f64], class: usize| {
            percent(numbers.get(class).copied().unwrap_or(0.0)).clamp(0.0, 100.0)
        };
        let all = self.series.iter().flat_map(|(_, numbers)| numbers);
        let axis = Axis::around(all.map(|number| percent(*number).min(100.0)).chain([0.0]), false);
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
        let y_at = |value: f64| TOP + (1.0 - axis.fraction(value)) * PLOT_HEIGHT;
        for tick in axis.ticks() {
            let (y, x, label) = (y_at(tick.value), LEFT - 8.0, tick.label);
            writeln!(
                svg,
                r#"<line class="grid" x1="{LEFT}" y1="{y:.2}" x2="{right}" y2="{y:.2}"/>"#
            )?;
            let y = y + 4.0;
            writeln!(svg, r#"<text x="{x}" y="{y:.2}" text-anchor="end">{label}</text>"#)?;
        }
        let class_width = (right - LEFT) / (last - first + 1) as f64;
        let bar_width = (class_width * FILLED / self.series.len() as f64).min(40.0);
        for class in first..=last {
            let middle = LEFT + (class - first) as f64 * class_width + class_width / 2.0;
            let begin = middle - bar_width * self.series.len() as f64 / 2.0;
            for (index, (name, numbers)) in self.series.iter().enumerate() {
                let value = shown(numbers, class);
                if value <= 0.0 {
                    continue;
                }
                let x = begin + index as f64 * bar_width;
                let (y, colour) = (y_at(value), COLOURS[index % COLOURS.len()]);
                let (height, name) = (bottom - y, escaped(name));
                writeln!(
                    svg,
                    r#"<rect x="{x:.2}" y="{y:.2}" width="{bar_width:.2}" height="{height:.2}" fill="{colour}"><title>{name}: {value:.2} %</title></rect>"#
                )?;
            }
            let label = self.classes.get(class).map_or("more", String::as_str);
            let (y, label) = (bottom + 14.0, escaped(label));
            writeln!(
                svg,
                r#"<text transform="translate({middle:.2} {y}) rotate(-40)" text-anchor="end" font-size="11">{label}</text>"#
            )?;
        }
        writeln!(svg, r#"<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>"#)?;
        let (middle, below) = ((LEFT + right) / 2.0, bottom + 70.0);
        let name = escaped(&self.x_axis);
        writeln!(svg, r#"<text x="{middle}" y="{below}" text-anchor="middle">{name}</text>"#)?;
        let (middle, name) = (TOP + PLOT_HEIGHT / 2.0, escaped(&self.y_axis));
        writeln!(
            svg,
            r#"<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{name}</text>"#
        )?;
        for (index, (name, _)) in self.series.iter().enumerate() {
            let (x, y) = (LEFT + index as f64 * 160.0, bottom + BELOW);
            let (colour, name) = (COLOURS[index % COLOURS.len()], escaped(name));
            writeln!(svg, r#"<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>"#)?;
            let (x, y) = (x + 18.0, y + 11.0);
            writeln!(svg, r#"<text x="{x}" y="{y}">{name}</text>"#)?;
        }
        writeln!(svg, "</svg>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::xml::parsed;

    fn bars(series: Vec<BarSeries>) -> Bars {
        let classes = ["<1>", "\"2\"", "3"].map(str::to_owned).to_vec();
        Bars::shares("a & b", "c < d", "e > f", classes, series)
    }

    #[test]
    fn bars_are_as_high_as_their_share() {
        let series = vec![
            ("<r>".to_owned(), vec![0.0, 1.0, 0.0, 2.0]),
            ("&w".to_owned(), vec![0.0, 0.0, 0.0, 1.0]),
        ];
        let drawing = bars(series).draw().unwrap();
        let elements = parsed(&drawing.svg);
        let height = |attributes: &[(String, String)]| {
            let (_, height) = attributes.iter().find(|(key, _)| key == "height").unwrap();
            height.parse::<f64>().unwrap()
        };
        let rects = elements.iter().filter(|(name, _)| name == "rect");
        let heights: Vec<f64> = rects.map(|(_, attributes)| height(attributes)).collect();
        // The paper, three bars (25 %, 50 %, 25 % of an axis up to 50 %), two of the legend.
        let wanted =
            [drawing.height, PLOT_HEIGHT / 2.0, PLOT_HEIGHT, PLOT_HEIGHT / 2.0, 12.0, 12.0];
        assert_eq!(heights, wanted);
        // Of the classes only those from the first to the last that is used.
        assert!(!drawing.svg.contains("&lt;1&gt;") && drawing.svg.contains(">more<"));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(bars(vec![("r".to_owned(), vec![0.0; 4])]).draw(), None);
        assert_eq!(bars(vec![]).draw(), None);
    }
}
