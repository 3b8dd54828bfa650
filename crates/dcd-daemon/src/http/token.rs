//! What those know who may change something: the content of a file (`--http-token FILE`).

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dcd_files::small_file;

/// Shorter ones could be guessed.
const BYTES_MIN: usize = 16;
/// Longer ones are something else.
const BYTES_MAX: usize = 1024;

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A file that holds none.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token for --http in {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Others can read it.
    #[error(
        "the token for --http in {path} can be read by others: expected mode 0600, found {mode:04o}"
    )]
    Mode {
        /// Which file.
        path: String,
        /// Its mode.
        mode: u32,
    },
    /// It is too short or too long, or nothing that can be sent.
    #[error(
        "the token for --http in {path}: expected {BYTES_MIN} to {BYTES_MAX} visible characters of ASCII, found {found} bytes"
    )]
    Form {
        /// Which file.
        path: String,
        /// How many bytes there are.
        found: usize,
    },
}

impl TokenError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            TokenError::Mode { path, .. } => format!("chmod 600 {path}"),
            TokenError::Read { path, .. } | TokenError::Form { path, .. } => {
                format!("make one: (umask 077; openssl rand -hex 24 > {path})")
            }
        }
    }
}

impl Token {
    /// The token in a file; blanks around it do not count.
    ///
    /// # Errors
    /// If there is none that is safe.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let shown = || path.display().to_string();
        let read = |source| TokenError::Read { path: shown(), source };
        let mode = std::fs::metadata(path).map_err(read)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Mode { path: shown(), mode });
        }
        let text = small_file::read_text(path).map_err(read)?;
        Token::of(text.trim()).ok_or(TokenError::Form { path: shown(), found: text.trim().len() })
    }

    fn of(text: &str) -> Option<Token> {
        let is_right = (BYTES_MIN..=BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_right.then(|| Token(text.as_bytes().to_vec()))
    }

    /// Whether somebody knows it. Takes the same time wherever the first wrong byte is.
    pub fn is(&self, said: &str) -> bool {
        let said = said.as_bytes();
        let of_said = |index: usize| said.get(index).copied().unwrap_or_default();
        let all = self.0.iter().enumerate();
        let different = all.fold(0u8, |so_far, (index, byte)| {
            std::hint::black_box(so_far | (byte ^ of_said(index)))
        });
        let is_as_long = said.len() == self.0.len();
        std::hint::black_box(different == 0) & is_as_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let token = Token::of("0123456789abcdef").unwrap();
        assert!(token.is("0123456789abcdef"));
        for said in
            ["", "0123456789abcde", "0123456789abcdef0", "x123456789abcdef", "0123456789abcdeF"]
        {
            assert!(!token.is(said), "{said}");
        }
        for text in ["", "short", "0123456789 abcdef", "0123456789abcde\u{e4}"] {
            assert_eq!(Token::of(text), None, "{text}");
        }
        assert!(!format!("{token:?}").contains("0123"));
    }
}
