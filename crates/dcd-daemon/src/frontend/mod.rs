//! Who asks for blocks: NBD clients, the FUSE file.

pub mod nbd;
