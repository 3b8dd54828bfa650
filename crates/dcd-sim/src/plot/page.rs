//! Several drawings together: as an HTML page with facts above them, or one below the other as one
//! SVG. Neither needs anything else.

use std::fmt::Write as _;

use super::Drawing;
use super::svg::{WIDTH, escaped};

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1560px;padding:0 16px;background:#fff;color:#222}\
h1{font-size:20px;overflow-wrap:anywhere}\
table{border-collapse:collapse;margin:12px 0 20px}\
th{font-weight:400;color:#666;text-align:left;padding:2px 24px 2px 0;vertical-align:top;white-space:nowrap}\
td{padding:2px 0;font-variant-numeric:tabular-nums}\
.plots{display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start}.plots svg{max-width:100%;height:auto}\
@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}th{color:#999}}";

/// A page: title, facts by name, drawings.
pub fn html(title: &str, facts: &[(&str, String)], drawings: &[Drawing]) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_html(&mut page, title, facts, drawings);
    page
}

fn write_html(
    page: &mut String,
    title: &str,
    facts: &[(&str, String)],
    drawings: &[Drawing],
) -> std::fmt::Result {
    let title = escaped(title);
    writeln!(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")?;
    writeln!(page, "<meta name=\"viewport\" content=\"width=device-width\">")?;
    writeln!(page, "<title>{title}</title><style>{STYLE}</style></head>")?;
    writeln!(page, "<body><h1>{title}</h1>\n<table>")?;
    for (name, value) in facts {
        writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(value))?;
    }
    writeln!(page, "</table>\n<div class=\"plots\">")?;
    for drawing in drawings {
        page.push_str(&drawing.svg);
    }
    writeln!(page, "</div></body></html>")
}

/// One SVG.
pub fn svg(title: &str, drawings: &[Drawing]) -> String {
    let height: f64 = drawings.iter().map(|drawing| drawing.height).sum();
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">"#
    );
    let _ = writeln!(svg, "<title>{}</title>", escaped(title));
    let mut y = 0.0;
    for drawing in drawings {
        let _ = write!(svg, r#"<g transform="translate(0 {y})">{}</g>"#, drawing.svg);
        y += drawing.height;
    }
    svg.push_str("\n</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::bars::Bars;
    use crate::plot::xml::parsed;

    #[test]
    fn names_from_outside_are_only_text() {
        let name = "<script>alert(1)</script>&\"'\u{1b}";
        let series = vec![(name.to_owned(), vec![1.0, 2.0])];
        let drawing = Bars::shares(name, name, name, vec![name.to_owned()], series).draw().unwrap();
        let drawings = [drawing.clone(), drawing];
        let page = html(name, &[("name", name.to_owned())], &drawings);
        assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
        let together = svg(name, &drawings);
        let elements = parsed(&together);
        assert_eq!(elements.iter().filter(|(name, _)| name == "svg").count(), 3);
        assert!(!together.contains("<script"));
    }
}
