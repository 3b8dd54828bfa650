//! The terminal while `dcd top` has it: another screen without a cursor, keys one by one. All is
//! given back at the end.

use std::io::{self, Write};

use dcd_client::plain::plain_lines;
use dcd_daemon::process::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::frame::Size;

/// Size where nobody tells.
pub const SIZE_DEFAULT: Size = Size { width: 80, height: 24, cut: 80 };

const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// What somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// The end: `q`, Ctrl-C, or a signal.
    Quit,
    /// The next daemon.
    Next,
    /// The one before.
    Previous,
}

/// The key that these bytes are.
fn key_of(bytes: &[u8]) -> Option<Key> {
    match bytes {
        [b'q' | b'Q' | 3 | 4, ..] => Some(Key::Quit),
        [b'j' | b'\t', ..] | [27, b'[' | b'O', b'B' | b'C', ..] => Some(Key::Next),
        [b'k', ..] | [27, b'[' | b'O', b'A' | b'D', ..] | [27, b'[', b'Z', ..] => {
            Some(Key::Previous)
        }
        _ => None,
    }
}

/// Of the terminal that stdout is, if it is one.
pub fn size() -> Size {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            let width = size.ws_col.into();
            Size { width, height: size.ws_row.into(), cut: width }
        }
        _ => SIZE_DEFAULT,
    }
}

/// A terminal that we have.
pub struct Terminal {
    before: Termios,
    signals: Signals,
}

impl Terminal {
    /// Takes it. Signals are received, so that the terminal is given back whatever ends the
    /// command.
    pub fn take() -> io::Result<Terminal> {
        let signals = Signals::install()?;
        let before = tcgetattr(stdin())?;
        let mut ours = before.clone();
        ours.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        ours.special_codes[SpecialCodeIndex::VMIN] = 0;
        ours.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Flush, &ours)?;
        let terminal = Terminal { before, signals };
        io::stdout().write_all(ENTER)?;
        Ok(terminal)
    }

    /// How large it is now.
    pub fn size(&self) -> Size {
        size()
    }

    /// Shows a picture in place of the last one.
    pub fn show(&self, frame: &str) -> io::Result<()> {
        // Each line clears what was behind it, so nothing flickers.
        let frame = plain_lines(frame, true);
        let mut text = String::from("\x1b[H");
        for (index, line) in frame.trim_end_matches('\n').split('\n').enumerate() {
            if index > 0 {
                text += "\r\n";
            }
            text += line;
            text += "\x1b[K";
        }
        text += "\x1b[J";
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// Waits for a key; `None` when the time is over.
    pub fn wait(&self, most: std::time::Duration) -> Option<Key> {
        let most = Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        let mut events = [
            PollFd::from_borrowed_fd(stdin(), PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        let _ = poll(&mut events, Some(&most));
        if self.signals.take().is_some() {
            return Some(Key::Quit);
        }
        if events[0].revents().is_empty() {
            return None;
        }
        let mut bytes = [0; 16];
        match rustix::io::read(stdin(), &mut bytes) {
            // The terminal is gone.
            Ok(0) | Err(_) => Some(Key::Quit),
            Ok(read) => key_of(bytes.get(..read).unwrap_or_default()),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(LEAVE).and_then(|()| stdout.flush());
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read() {
        for (bytes, key) in [
            (&b"q"[..], Some(Key::Quit)),
            (b"\x03", Some(Key::Quit)),
            (b"\x1b[B", Some(Key::Next)),
            (b"\x1bOA", Some(Key::Previous)),
            (b"\t", Some(Key::Next)),
            (b"x", None),
            (b"\x1b", None),
            (b"", None),
        ] {
            assert_eq!(key_of(bytes), key, "{bytes:?}");
        }
    }
}
