//! A cache used by the program that opens it, without a frontend: for measurements.

use std::sync::mpsc;

use dcd_engine::{Operation, RequestError, TieredEngine};

use crate::event_loop::EventLoop;
use crate::event_loop::submitter::Completion;
use crate::pair::PairOptions;
use crate::serve::error::ServeError;
use crate::serve::open_pair::{Pair, open_pair, wait_until_running};
use crate::serve::opening::OpeningTeller;

/// An open cache. Dropped without [`InProcess::shut_down`] it is left as by a crash.
pub struct InProcess {
    event_loop: EventLoop<TieredEngine>,
}

impl InProcess {
    /// Opens a pair, as `dcd serve` does, on this thread.
    pub fn open(options: &PairOptions) -> Result<InProcess, ServeError> {
        let Pair { mut event_loop, away, given_for_members, .. } = open_pair(options, None)?;
        // Nobody else can stop it: there are no signals to listen to.
        let teller = OpeningTeller::new(None, None, options.quiet);
        wait_until_running(&mut event_loop, &away, &given_for_members, teller)?;
        Ok(InProcess { event_loop })
    }

    /// Turns the event loop until one request is answered.
    ///
    /// # Errors
    /// The ring fails, or the engine answers with an error.
    pub fn ask(&mut self, operation: Operation) -> Result<(), ServeError> {
        let (sender, answer) = mpsc::channel::<Result<(), RequestError>>();
        let completion = Completion::new(move |reply| {
            let _ = sender.send(reply.result);
        });
        self.event_loop.request(operation, completion);
        loop {
            if let Ok(result) = answer.try_recv() {
                let operation = "answer a request";
                let past_the_log = false;
                return result.map_err(|source| ServeError::Stop {
                    operation,
                    source,
                    past_the_log,
                });
            }
            self.event_loop.turn(None).map_err(ServeError::system("wait for the disks"))?;
        }
    }

    /// Closes the cache in order.
    pub fn shut_down(mut self) -> Result<(), ServeError> {
        self.ask(Operation::Shutdown)?;
        self.event_loop.close();
        Ok(())
    }
}
