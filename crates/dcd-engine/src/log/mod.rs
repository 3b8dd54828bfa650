//! Nouns of the write cache on the cache-disk.
