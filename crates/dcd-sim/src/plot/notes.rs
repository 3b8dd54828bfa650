//! Sentences below a drawing: what must be known to read it.

use std::fmt::Write as _;

use super::svg::{LEFT, WIDTH, escaped};

const LINE: f64 = 16.0;
/// In a line.
const CHARACTERS: usize = 100;

/// The document, which [`super::svg`] or [`super::stacked_bars`] drew, with these sentences at its
/// end.
///
/// # Panics
/// If it is none of theirs.
pub fn with_notes(svg: &str, notes: &[String]) -> String {
    let lines: Vec<String> = notes.iter().flat_map(|note| wrapped(note)).collect();
    if lines.is_empty() {
        return svg.to_owned();
    }
    let height = height(svg).expect("drawings tell their height");
    let taller = height + lines.len() as f64 * LINE;
    let mut svg = svg.trim_end().trim_end_matches("</svg>").to_owned();
    // In the root, and of the paper behind it all.
    for (before, after) in [
        (format!(r#" {WIDTH} {height}""#), format!(r#" {WIDTH} {taller}""#)),
        (format!(r#" height="{height}""#), format!(r#" height="{taller}""#)),
    ] {
        svg = svg.replace(&before, &after);
    }
    for (number, line) in (0..).zip(&lines) {
        let (y, line) = (height + 4.0 + f64::from(number) * LINE, escaped(line));
        // Writing to a string does not fail.
        let _ = writeln!(svg, r#"<text font-size="12" x="{LEFT}" y="{y}">{line}</text>"#);
    }
    svg + "</svg>\n"
}

fn height(svg: &str) -> Option<f64> {
    let root = svg.split('>').next()?;
    root.split_once(r#" height=""#)?.1.split('"').next()?.parse().ok()
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > CHARACTERS {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Plot, Series, svg};
    use super::*;

    #[test]
    fn notes_are_wrapped_below_the_plot() {
        let plot = Plot {
            title: "t".into(),
            x_axis: "x".into(),
            y_axis: "y".into(),
            log_y: false,
            series: vec![Series { name: "s".into(), points: vec![(0.0, 1.0), (2.0, 3.0)] }],
        };
        let plain = svg::render(&plot).unwrap();
        let note = format!("{} <end> of it", "word ".repeat(60));
        let drawn = with_notes(&plain, &[note, "short".into()]);
        let lines: Vec<&str> =
            drawn.lines().filter(|line| line.contains("font-size=\"12\"")).collect();
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(
            lines[3].contains("&lt;end&gt; of it") && lines[4].contains(">short<"),
            "{lines:?}"
        );
        let taller = height(&plain).unwrap() + 5.0 * LINE;
        assert_eq!(height(&drawn), Some(taller));
        assert_eq!(drawn.matches(&format!("{taller}\"")).count(), 3, "{drawn}");
        assert_eq!((drawn.matches("<svg").count(), drawn.matches("</svg>").count()), (1, 1));
        assert!(drawn.ends_with("</svg>\n"));
        assert_eq!(with_notes(&plain, &[]), plain);
    }
}
