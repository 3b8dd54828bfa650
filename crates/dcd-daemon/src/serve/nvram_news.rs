//! Says aloud how the memory in front of the log changes: it comes, goes, or has failed.
//!
//! To be looked at in each turn of the loop.

use dcd_engine::nvram::durable::NvramPresence;

/// What has been said of it.
#[derive(Default)]
pub(crate) struct NvramNews {
    told: Option<Told>,
    /// Its file or device.
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Told {
    presence: NvramPresence,
    has_failed: bool,
}

impl NvramNews {
    /// What is new. `name`: of its file or device. Cheap where nothing is.
    pub(crate) fn look(
        &mut self,
        standing: Option<(NvramPresence, bool)>,
        name: impl Fn() -> Option<String>,
    ) -> Option<String> {
        let now = standing.map(|(presence, has_failed)| Told { presence, has_failed });
        // One that goes is told of when it has gone.
        let is_going = |it: &Told| it.presence == NvramPresence::Out && !it.has_failed;
        if now == self.told || now.as_ref().is_some_and(is_going) {
            return None;
        }
        let before = std::mem::replace(&mut self.told, now);
        if let Some(name) = now.and_then(|_| name()) {
            self.name = name;
        }
        let name = &self.name;
        let has_failed = |it: Option<Told>| it.is_some_and(|it| it.has_failed);
        Some(match now {
            None if has_failed(before) => format!(
                "the memory {name} is not in front of the log any more: what it held is in the log. Changes go to the \
                 log; the next start has to do without it (--nvram)"
            ),
            None => format!("the memory {name} is not in front of the log any more"),
            Some(it) if it.has_failed && !has_failed(before) => format!(
                "the memory {name} has failed: what it holds goes to the log, and changes wait until then"
            ),
            Some(it) if it.has_failed && it.presence == NvramPresence::InUse => format!(
                "the memory {name} has failed, and holds what is damaged, or what the log does not take: changes fail until \
                 a restart with it"
            ),
            Some(it) if it.presence == NvramPresence::InUse && before.is_some() => {
                format!("the memory {name} is in front of the log: changes go into it")
            }
            Some(_) => return None,
        })
    }
}
