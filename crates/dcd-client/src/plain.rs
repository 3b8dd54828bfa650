//! Text from outside, as it may be shown: a serial number of a disk, a name of a file or a
//! certificate, what a server says.
//!
//! A terminal obeys what it is sent: a text can move the cursor, hide lines, set the title, answer
//! in the user's stead. So whatever comes from outside goes through here on its way to people. In
//! JSON such characters are written as `\u009b`, since a person may look at that, too.

use std::borrow::Cow;

/// In the place of what a terminal would obey; one column, so that tables stay in order.
const REPLACEMENT: char = '\u{fffd}';

/// Whether a terminal may do something else for it than to show it: control characters, C1 among
/// them, and those that turn the direction of text or begin a line.
pub fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// One line: nothing in it is obeyed, not even the end of a line.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return text.into();
    }
    text.replace(is_obeyed, "\u{fffd}").into()
}

/// Text of ours that has texts from outside in it: lines and tabulators stay. With `colours`, those
/// of [`COLOURS`] stay, too.
pub fn plain_lines(text: &str, colours: bool) -> Cow<'_, str> {
    let is_obeyed = |character| is_obeyed(character) && !matches!(character, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let colour = COLOURS.iter().find(|code| colours && rest.starts_with(**code));
        let length = match colour {
            Some(code) => {
                plain.push_str(code);
                code.len()
            }
            None => {
                plain.push(if is_obeyed(character) { REPLACEMENT } else { character });
                character.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    plain.into()
}

/// JSON, which has a way to write every character: those that are obeyed are written so, like the
/// control characters that JSON itself does not allow. `json` is whole; its own line ends stay.
pub fn plain_json(json: &str) -> Cow<'_, str> {
    let is_obeyed = |character| is_obeyed(character) && character != '\n';
    if !json.contains(is_obeyed) {
        return json.into();
    }
    let mut plain = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        // Outside of texts JSON has none of them.
        match is_obeyed(character) {
            true => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    plain += &format!("\\u{unit:04x}");
                }
            }
            false => plain.push(character),
        }
    }
    plain.into()
}

/// All colours that our own output has: nothing but the look of the text behind them.
pub const COLOURS: [&str; 5] = ["\x1b[32m", "\x1b[33m", "\x1b[1;31m", "\x1b[1m", "\x1b[0m"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_obeyed() {
        let evil = "a\x1b[2Jb\x07c\u{9b}31md\x7fe\u{202e}f\rg\nh\u{2028}i\0j";
        let shown = "a�[2Jb�c�31md�e�f�g�h�i�j";
        assert_eq!(plain(evil), shown);
        assert_eq!(plain_lines(evil, true), shown.replace("g�h", "g\nh"));
        assert!(matches!(plain("/dev/sdb: Größe 漢字"), Cow::Borrowed(_)));
        assert!(matches!(plain_lines("a\tb\n", false), Cow::Borrowed(_)));
    }

    #[test]
    fn json_means_the_same() {
        let evil = "{\n  \"a\": \"\u{9b}31m\u{202e}\u{7f}\u{feff}\u{85}\\u001b \u{e4}\"\n}";
        let shown = "{\n  \"a\": \"\\u009b31m\\u202e\\u007f\\ufeff\\u0085\\u001b \u{e4}\"\n}";
        assert_eq!(plain_json(evil), shown);
        assert!(matches!(plain_json("{\"a\": \"\u{6f22}\"}\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn colours_stay_where_there_are_colours() {
        let text = "\x1b[1;31mbad\x1b[0m \x1b[1;35mevil\x1b]0;title\x07\n";
        assert_eq!(plain_lines(text, true), "\x1b[1;31mbad\x1b[0m �[1;35mevil�]0;title�\n");
        assert_eq!(plain_lines(text, false), "�[1;31mbad�[0m �[1;35mevil�]0;title�\n");
    }
}
