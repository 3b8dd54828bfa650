//! `dcd metrics`: the export of a running dcd.

use std::path::PathBuf;

use clap::Args;
use dcd_daemon::control::client::ControlClient;

use crate::daemons::find;
use crate::error::CommandError;
use crate::stdout::print;

/// Print the metrics of a running dcd, in the form of OpenMetrics.
///
/// What Prometheus reads from `dcd serve --metrics`, once. docs/metrics.md says what each of them
/// means.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd metrics sdb
  dcd metrics /dev/ublkb0
  dcd metrics /run/sdb.ctl | grep dirty")]
pub struct MetricsArguments {
    /// The control socket of a running dcd. Of a service: its name, or the device that it serves.
    #[arg(value_name = "SOCKET|DEVICE|NAME")]
    pub daemon: PathBuf,
    /// Where services have their control sockets.
    #[arg(long, value_name = "DIRECTORY", default_value = crate::daemons::DIRECTORY)]
    pub sockets: PathBuf,
}

pub fn run(arguments: &MetricsArguments) -> Result<(), CommandError> {
    let socket = find(&arguments.daemon, &arguments.sockets)?;
    print(&ControlClient::connect(&socket)?.metrics()?)
}
