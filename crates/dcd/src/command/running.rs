//! What a command about a running cache is told of it.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub struct Of {
    /// The running cache: the name of its service, its UUID, the device that it serves, or its
    /// control socket.
    #[arg(long, value_name = "CACHE")]
    pub control: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
