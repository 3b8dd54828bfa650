//! Curves, bars and heat maps as SVG, and pages of them.
//!
//! A [`Plot`] is curves: named series of points, and what the axes mean; `svg` draws them. `page`
//! puts drawings together.

pub mod bars;
pub mod heat_map;
pub mod notes;
pub mod page;
pub mod stacked_bars;
pub mod svg;
#[cfg(test)]
mod xml;

/// One curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// (x, y), joined by lines in this order.
    pub points: Vec<(f64, f64)>,
}

/// Curves over the same axes.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// What x is, with its unit.
    pub x_axis: String,
    /// What y is, with its unit.
    pub y_axis: String,
    /// Powers of ten of y are equally far apart; then all y are above 0.
    pub log_y: bool,
    /// The curves.
    pub series: Vec<Series>,
}

/// How a plot is looked at, beside what is in it.
#[derive(Clone, Default, Debug)]
pub struct View {
    /// x is the binary logarithm of a number of bytes: the axis has a tick at each power of two,
    /// with the size.
    pub x_is_log_of_bytes: bool,
    /// The y axis begins at 0, or below.
    pub y_from_zero: bool,
    /// Points are drawn each for itself, and not joined by lines.
    pub as_points: bool,
    /// Places on the x axis that are pointed at.
    pub marks: Vec<Mark>,
}

/// A place on the x axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// Where; on the axis.
    pub x: f64,
    /// What is there.
    pub label: String,
}

/// A drawing: an `<svg>` element that needs nothing else.
#[derive(Clone, PartialEq, Debug)]
pub struct Drawing {
    /// What it shows.
    pub title: String,
    /// The element.
    pub svg: String,
    /// Of the element.
    pub height: f64,
}

/// Why curves cannot be drawn.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PlotError {
    /// There is nothing to draw.
    #[error("the plot has no points")]
    Empty,
    /// A point that is at no place.
    #[error("series {series:?}, point {index}: expected {expected}, found ({x}, {y})")]
    Point {
        /// Its name.
        series: String,
        /// From 0.
        index: usize,
        /// What may be drawn.
        expected: &'static str,
        /// As found.
        x: f64,
        /// As found.
        y: f64,
    },
}

/// Largest number that is drawn: axes are twice as long, and still finite.
const NUMBER_MAX: f64 = 1e300;

impl Plot {
    /// The curves, drawn.
    ///
    /// # Errors
    /// When they cannot be.
    pub fn draw(&self) -> Result<Drawing, PlotError> {
        let (svg, height) = (svg::render(self)?, svg::height(self));
        Ok(Drawing { title: self.title.clone(), svg, height })
    }

    /// Height of its drawing.
    pub fn height(&self) -> f64 {
        svg::height(self)
    }

    /// Whether all of it can be drawn.
    fn check(&self) -> Result<(), PlotError> {
        if self.series.iter().all(|series| series.points.is_empty()) {
            return Err(PlotError::Empty);
        }
        for series in &self.series {
            for (index, &(x, y)) in series.points.iter().enumerate() {
                // What is no number is not below either.
                let finite = x.abs() <= NUMBER_MAX && y.abs() <= NUMBER_MAX;
                let expected = match self.log_y {
                    _ if !finite => "numbers up to 1e300",
                    true if y < f64::MIN_POSITIVE => "y above 0 on a logarithmic axis",
                    _ => continue,
                };
                return Err(PlotError::Point {
                    series: series.name.clone(),
                    index,
                    expected,
                    x,
                    y,
                });
            }
        }
        Ok(())
    }
}
