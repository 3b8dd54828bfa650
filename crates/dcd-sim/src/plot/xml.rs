//! For tests: whether what is drawn is well formed.

/// Checks tags, attributes and escapes of what this file writes: elements with quoted attributes
/// and text. Returns the elements with their attributes.
pub(super) fn parsed(svg: &str) -> Vec<(String, Vec<(String, String)>)> {
    let (mut open, mut elements, mut rest) = (Vec::new(), Vec::new(), svg.trim_end());
    while !rest.is_empty() {
        let (text, tag) = rest.split_once('<').unwrap_or((rest, ""));
        assert!(!text.contains('>'), "{text:?}");
        for (at, _) in text.match_indices('&') {
            let entity = text[at..].split_inclusive(';').next().unwrap();
            assert!(["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"].contains(&entity), "{entity:?}");
        }
        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
        let (tag, after) = tag.split_once('>').expect("the tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            assert!(!open.is_empty() || rest.is_empty(), "one root");
            continue;
        }
        let (tag, alone) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut left) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = Vec::<(String, String)>::new();
        while !left.trim().is_empty() {
            let (key, value) = left.trim_start().split_once("=\"").expect("quoted");
            let (value, after) = value.split_once('"').expect("the quote ends");
            assert!(!value.contains('<') && !attributes.iter().any(|(known, _)| known == key));
            attributes.push((key.into(), value.into()));
            left = after;
        }
        if !alone {
            open.push(name.to_string());
        }
        elements.push((name.to_string(), attributes));
    }
    assert!(open.is_empty(), "{open:?}");
    elements
}
