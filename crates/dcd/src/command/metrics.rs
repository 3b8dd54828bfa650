//! `dcd metrics`: the export of a running dcd.

use dcd_daemon::control::client::ControlClient;

use crate::cli::MetricsArguments;
use crate::daemons::find;
use crate::error::CommandError;
use crate::output::print;

pub fn run(arguments: &MetricsArguments) -> Result<(), CommandError> {
    let socket = find(&arguments.daemon, &arguments.sockets)?;
    print(&ControlClient::connect(&socket)?.metrics()?)
}
