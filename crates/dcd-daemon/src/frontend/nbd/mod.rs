//! The NBD server, without I/O: bytes in, requests out; replies in, bytes out.
