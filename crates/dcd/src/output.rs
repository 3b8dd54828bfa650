//! How text looks that people read: colours where a person looks on, tables, numbers with their
//! words. `stdout.rs` prints it.

use std::fmt::Write as _;
use std::io::IsTerminal;

use dcd_client::plain::COLOURS;

/// Colours of text, used only where they mean something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Broken.
    Bad,
    /// A title.
    Title,
}

/// Whether to colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paint {
    colours: bool,
}

impl Paint {
    /// Colours when stdout is a terminal and nobody has asked to do without (`NO_COLOR`).
    pub fn for_stdout() -> Paint {
        Paint::for_stream(std::io::stdout().is_terminal())
    }

    /// Whether it does.
    pub fn has_colours(self) -> bool {
        self.colours
    }

    /// The same for stderr.
    pub fn for_stderr() -> Paint {
        Paint::for_stream(std::io::stderr().is_terminal())
    }

    /// No colours.
    pub fn plain() -> Paint {
        Paint { colours: false }
    }

    /// Colours.
    #[cfg(test)]
    pub fn always() -> Paint {
        Paint { colours: true }
    }

    fn for_stream(is_terminal: bool) -> Paint {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Paint { colours: is_terminal && !unwanted && !dumb }
    }

    /// `text` in `colour`.
    pub fn paint(self, colour: Colour, text: &str) -> String {
        if !self.colours || text.is_empty() {
            return text.to_owned();
        }
        let [good, warning, bad, title, end] = COLOURS;
        let code = match colour {
            Colour::Good => good,
            Colour::Warning => warning,
            Colour::Bad => bad,
            Colour::Title => title,
        };
        format!("{code}{text}{end}")
    }
}

/// Side on which a column of a table is flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a header line, columns as wide as they must be.
pub struct Table<'a> {
    columns: Vec<(&'a str, Align)>,
    rows: Vec<Vec<String>>,
}

impl<'a> Table<'a> {
    /// An empty table.
    pub fn new(columns: &[(&'a str, Align)]) -> Table<'a> {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; it has as many cells as the table has columns.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "cells of a row");
        // A row is one line, whatever names are in it.
        let one_line = |cell: String| cell.replace(['\n', '\t'], "\u{fffd}");
        self.rows.push(cells.into_iter().map(one_line).collect());
    }

    /// The text of the table.
    pub fn render(&self, paint: Paint) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].chars().count());
                cells.max().unwrap_or(0).max(self.columns[column].0.len())
            })
            .collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for ((cell, width), (_, align)) in cells.zip(&widths).zip(&self.columns) {
                // Writing to a string cannot fail.
                let _ = match align {
                    Align::Left => write!(line, "{cell:<width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            line.trim_end().to_owned()
        };
        let title = line(&mut self.columns.iter().map(|(title, _)| *title));
        let mut text = paint.paint(Colour::Title, &title) + "\n";
        for row in &self.rows {
            text += &line(&mut row.iter().map(String::as_str));
            text.push('\n');
        }
        text
    }
}

/// A bar of `width` characters, divided among `parts` by their share of `total`, each drawn with
/// its own character. A part that is not nothing gets at least one character.
pub fn bar(parts: &[(u64, char)], total: u64, width: usize) -> String {
    let mut bar = String::new();
    let mut drawn = 0;
    let mut sum = 0u64;
    for (count, character) in parts {
        sum = sum.saturating_add(*count);
        let end = (sum as u128 * width as u128 / total.max(1) as u128) as usize;
        let end = if *count > 0 { end.max(drawn + 1) } else { end.max(drawn) }.min(width);
        bar.extend(std::iter::repeat_n(*character, end.saturating_sub(drawn)));
        drawn = end;
    }
    bar.extend(std::iter::repeat_n(' ', width - drawn));
    bar
}

/// `count` with the word in the right number: `1 block`, `2 blocks`.
pub fn count(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let mut table = Table::new(&[("state", Align::Left), ("count", Align::Right)]);
        table.row(vec!["free".into(), "12".into()]);
        table.row(vec!["buffered".into(), "3".into()]);
        let text = "state     count\nfree         12\nbuffered      3\n";
        assert_eq!(table.render(Paint::plain()), text);
    }

    #[test]
    fn bars_are_never_too_long_and_show_the_smallest_part() {
        assert_eq!(bar(&[(1, 'a'), (1, 'b')], 4, 8), "aabb    ");
        assert_eq!(bar(&[(1, 'a'), (999, 'b')], 1000, 8), "abbbbbbb");
        assert_eq!(bar(&[(999, 'b'), (1, 'a')], 1000, 4), "bbba");
        assert_eq!(bar(&[], 0, 3), "   ");
        assert_eq!(bar(&[(5, 'x')], 3, 2), "xx");
    }

    #[test]
    fn words_have_the_right_number() {
        assert_eq!((count(1, "block"), count(0, "block")), ("1 block".into(), "0 blocks".into()));
    }
}
