//! Runs the dcd engine on virtual time.
