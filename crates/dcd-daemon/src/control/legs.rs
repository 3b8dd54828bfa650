//! Runs the requests of [`dcd_protocol::legs`].

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use dcd_engine::Operation;
use dcd_engine::units::Uuid;
use dcd_protocol::failure::leg_hint;
use dcd_protocol::{Failure, LegCommand};
use serde_json::{Value, json};

use crate::control::answers::{answer, run_with_signs_of_life};
use crate::event_loop::submitter::Submitter;
use crate::report::legs::reports;
use crate::report::status_report::DaemonFacts;

/// Runs a request of the client of this connection.
pub(crate) fn run(
    stream: &UnixStream,
    submitter: &Submitter,
    facts: &Arc<DaemonFacts>,
    command: LegCommand,
) -> io::Result<Value> {
    use dcd_engine::io::LegError;
    let refusal = |error: LegError| Failure::of(error.into(), leg_hint(error)).to_value();
    let name = |text: &str| text.parse::<Uuid>().map_err(|_| refusal(LegError::NoSuchLeg));
    let operation = match command {
        LegCommand::Status => {
            let facts = Arc::clone(facts);
            let legs = submitter.ask(move |snapshot| {
                snapshot.core.engine().map(|engine| reports(engine.legs(), &facts.legs))
            });
            let legs = legs.flatten().unwrap_or_default();
            if legs.is_empty() {
                return Ok(refusal(LegError::NoLegs));
            }
            return Ok(json!({ "ok": true, "legs": legs }));
        }
        LegCommand::Fill { leg } => name(&leg).map(|leg| Operation::FillLeg { leg }),
        LegCommand::TakeOut { leg } => name(&leg).map(|leg| Operation::TakeOutLeg { leg }),
    };
    match operation {
        Ok(operation) => Ok(answer(run_with_signs_of_life(stream, submitter, operation)?.result)),
        Err(refusal) => Ok(refusal),
    }
}
