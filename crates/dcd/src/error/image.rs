//! Why a structure of a cache-disk cannot be had.

use dcd_engine::FormatError;

/// Why a structure cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Its bytes are wrong.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The disk does not give its bytes.
    #[error("cannot read {length} bytes at {offset}: {source}")]
    Read {
        /// Byte address.
        offset: u64,
        /// How many bytes.
        length: usize,
        /// Why.
        source: std::io::Error,
    },
}
