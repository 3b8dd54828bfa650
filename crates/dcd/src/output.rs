//! How text looks that people read: colours where a person looks on, tables, numbers with their
//! words. `stdout.rs` prints it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use dcd_client::plain::COLOURS;

/// Whether `--json` stands on the command line: known before that is read, because what is wrong
/// with it is told as JSON, too.
static WANTS_JSON: AtomicBool = AtomicBool::new(false);

/// Looks for `--json` among the words of the command line, up to where those of another command
/// begin.
pub fn want_json(words: impl Iterator<Item = OsString>) {
    let found = words.take_while(|word| word != "--").any(|word| word == "--json");
    WANTS_JSON.store(found, Ordering::Relaxed);
}

/// Whether results and errors are to be JSON.
pub fn wants_json() -> bool {
    WANTS_JSON.load(Ordering::Relaxed)
}

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
    columns: Columns<'a>,
    rows: Vec<Vec<String>>,
}

impl<'a> Table<'a> {
    /// An empty table.
    pub fn new(columns: &[(&'a str, Align)]) -> Table<'a> {
        Table { columns: Columns::new(columns), rows: Vec::new() }
    }

    /// Adds a row; it has as many cells as the table has columns.
    pub fn row(&mut self, cells: Vec<String>) {
        self.columns.widen(&cells);
        self.rows.push(cells);
    }

    /// The text of the table.
    pub fn render(&self, paint: Paint) -> String {
        let mut text = self.columns.title(paint) + "\n";
        for row in &self.rows {
            text += &self.columns.line(row);
            text.push('\n');
        }
        text
    }
}

/// The lines of a table whose cells are made from `rows` as they are needed, twice: of a large
/// cache they take far more memory than what they are made from.
pub fn table_lines<'r, R>(
    columns: &[(&'r str, Align)],
    rows: &'r [R],
    cells: impl Fn(&R) -> Vec<String> + 'r,
    paint: Paint,
) -> impl Iterator<Item = String> {
    let mut columns = Columns::new(columns);
    rows.iter().for_each(|row| columns.widen(&cells(row)));
    let title = columns.title(paint);
    std::iter::once(title).chain(rows.iter().map(move |row| columns.line(&cells(row))))
}

/// Columns of a table, and how wide they must be.
struct Columns<'a> {
    columns: Vec<(&'a str, Align)>,
    widths: Vec<usize>,
}

impl<'a> Columns<'a> {
    fn new(columns: &[(&'a str, Align)]) -> Columns<'a> {
        let widths = columns.iter().map(|(title, _)| title.len()).collect();
        Columns { columns: columns.to_vec(), widths }
    }

    fn widen(&mut self, cells: &[String]) {
        assert_eq!(cells.len(), self.columns.len(), "cells of a row");
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }

    fn title(&self, paint: Paint) -> String {
        paint.paint(Colour::Title, &self.text(self.columns.iter().map(|(title, _)| *title)))
    }

    fn line(&self, cells: &[String]) -> String {
        self.text(cells.iter().map(String::as_str))
    }

    fn text<'c>(&self, cells: impl Iterator<Item = &'c str>) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.zip(&self.widths).zip(&self.columns) {
            // A row is one line, whatever names are in it.
            let cell = cell.replace(['\n', '\t'], "\u{fffd}");
            // Writing to a string cannot fail.
            let _ = match align {
                Align::Left => write!(line, "{cell:<width$}  "),
                Align::Right => write!(line, "{cell:>width$}  "),
            };
        }
        line.truncate(line.trim_end().len());
        line
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
