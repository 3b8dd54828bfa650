//! Proves what can be proved of the pages without a browser: that they are small and need nobody
//! else, that the script finds what it asks for, that all has a name for those who hear it, and that
//! all can be read in light and dark.

use std::collections::BTreeSet;

use super::*;

/// More is not small.
const BYTES_MAX: usize = 60 << 10;

fn pages() -> [(&'static str, String); 2] {
    [("page", document(HTML, SCRIPT, "n0nce")), ("fleet", document(FLEET, FLEET_SCRIPT, "n0nce"))]
}

/// What stands between `before` and the next of `ends`, wherever `before` does.
fn all_between<'a>(text: &'a str, before: &str, ends: char) -> std::vec::IntoIter<&'a str> {
    let behind = text.split(before).skip(1);
    let all = behind.map(|rest| rest.split(ends).next().unwrap_or_default());
    all.collect::<Vec<_>>().into_iter()
}

#[test]
fn a_page_is_small_and_needs_nobody_else() {
    for (name, page) in pages() {
        assert!(page.len() <= BYTES_MAX, "{name} has {} bytes", page.len());
        for foreign in [
            "http://",
            "https://",
            "//cdn",
            "@import",
            "src=",
            "eval(",
            "innerHTML",
            "document.write",
        ] {
            assert!(!page.contains(foreign), "{name} has {foreign}");
        }
        // Only what has the nonce runs: no handlers and styles in the document.
        for inline in [" style=\"", " onclick=\"", " onload=\"", "javascript:"] {
            assert!(!page.contains(inline), "{name} has {inline}");
        }
        assert_eq!(page.matches("<script").count(), 1, "{name}");
        assert_eq!(page.matches("nonce=\"n0nce\"").count(), 2, "{name}");
    }
}

#[test]
fn the_script_finds_what_it_asks_for() {
    for (name, html, scripts) in
        [("page", HTML, [COMMON, SCRIPT]), ("fleet", FLEET, ["", FLEET_SCRIPT])]
    {
        let ids: Vec<&str> = all_between(html, " id=\"", '"').collect();
        let known: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), known.len(), "{name}: an id is there twice");
        for script in scripts {
            for call in ["$(\"", "set(\"", "canvas(\"", "heat(\"", "line(\""] {
                for id in all_between(script, call, '"') {
                    assert!(known.contains(id), "{name}: there is no #{id}");
                }
            }
        }
        // What is described or named by another element is by one that there is.
        for attribute in ["aria-labelledby=\"", "aria-describedby=\"", "for=\"", "href=\"#"] {
            for id in all_between(html, attribute, '"') {
                assert!(known.contains(id), "{name}: {attribute}{id}");
            }
        }
    }
}

#[test]
fn all_has_a_name_for_those_who_hear_it() {
    for (name, html) in [("page", HTML), ("fleet", FLEET)] {
        for needed in [
            "<html lang=\"en\">",
            "<title>",
            "name=\"viewport\"",
            "<main",
            "<h1>",
            "role=\"status\"",
        ] {
            assert!(html.contains(needed), "{name} has no {needed}");
        }
        for tag in ["canvas", "input", "section", "button"] {
            for element in all_between(html, &format!("<{tag} "), '\n') {
                let (attributes, content) = element.split_once('>').unwrap();
                let id = all_between(attributes, "id=\"", '"').next().unwrap_or_default();
                let is_named = attributes.contains("aria-label")
                    || html.contains(&format!("<label for=\"{id}\">"))
                    || tag == "button" && !content.starts_with('<');
                assert!(is_named, "{name}: <{tag} {attributes}> has no name");
            }
        }
        // Headings go down by one.
        assert_eq!(html.matches("<h1").count(), 1);
        assert!(!html.contains("<h3"));
        assert!(!html.contains("tabindex=\"1\""));
    }
    assert!(STYLE.contains(":focus-visible") && STYLE.contains("prefers-reduced-motion"));
}

/// Relative luminance of `#rrggbb`, as WCAG 2.2 has it.
fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn words_can_be_read_in_light_and_dark() {
    assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
    let schemes: Vec<&str> = all_between(STYLE, ":root{", '}').collect();
    assert_eq!(schemes.len(), 2, "light and dark");
    for scheme in schemes {
        let colour = |name: &str| {
            all_between(scheme, &format!("--{name}:"), ';').next().unwrap().trim_end_matches('}')
        };
        for back in ["back", "card"] {
            for ink in ["ink", "quiet", "accent", "good", "warn", "bad"] {
                let ratio = contrast(colour(ink), colour(back));
                assert!(ratio >= 4.5, "{ink} on {back}: {ratio:.2}");
            }
        }
        // States of segments are told apart from the card, and what matters from what does not.
        for (one, other) in [("dirty", "card"), ("buffered", "card"), ("dirty", "free")] {
            let ratio = contrast(colour(one), colour(other));
            assert!(ratio >= 2.0, "{one} and {other}: {ratio:.2}");
        }
    }
}
