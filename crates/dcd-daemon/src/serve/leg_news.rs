//! Says aloud how the legs of the cache-disk change: failed, being filled, in sync again.
//!
//! To be looked at in each turn of the loop, so that it is said when it happens. At the first look
//! it says what a start has found.

use dcd_engine::legs::LegStanding;
use dcd_engine::legs::status::LegStatus;
use dcd_engine::legs::witness::{WitnessStanding, WitnessStatus};
use dcd_engine::units::Uuid;

/// What has been said of each leg, by its name.
#[derive(Default)]
pub(crate) struct LegNews {
    told: Vec<(Uuid, Option<LegStanding>)>,
    /// The same of the witness.
    told_of_witness: Option<(Uuid, Option<WitnessStanding>)>,
}

impl LegNews {
    /// What is new. `disk_of`: the name of the disk in this place. Cheap where nothing is.
    pub(crate) fn look(
        &mut self,
        legs: impl IntoIterator<Item = LegStatus>,
        disk_of: impl Fn(usize) -> Option<String>,
    ) -> Vec<String> {
        let mut news = Vec::new();
        for (place, leg) in legs.into_iter().enumerate() {
            // That a leg joins is no news before the labels say so.
            let is = match leg.standing {
                Some(LegStanding::Joining) => Some(LegStanding::Filling),
                other => other,
            };
            let known = self.told.iter().position(|(known, _)| *known == leg.uuid);
            let known = known.unwrap_or_else(|| {
                self.told.push((leg.uuid, Some(LegStanding::InSync)));
                self.told.len() - 1
            });
            let told = std::mem::replace(&mut self.told[known].1, is);
            if told != is {
                let disk = if is.is_some() { disk_of(place) } else { None };
                news.extend(line(&leg, disk, is));
            }
        }
        news
    }

    /// What is new of the witness; `disk`: its name.
    pub(crate) fn look_at_witness(
        &mut self,
        witness: Option<WitnessStatus>,
        disk: impl Fn() -> Option<String>,
    ) -> Option<String> {
        let now = witness.map(|witness| (witness.uuid, witness.standing));
        // That it joins is no news before it has a say.
        let is_joining = now.is_some_and(|(_, is)| is == Some(WitnessStanding::Joining));
        if now == self.told_of_witness || is_joining {
            return None;
        }
        let before = std::mem::replace(&mut self.told_of_witness, now);
        let (uuid, standing) = now?;
        let name = match disk().filter(|_| standing.is_some()) {
            Some(disk) => format!("the witness {uuid} ({disk})"),
            None => format!("the witness {uuid}"),
        };
        Some(match standing {
            None => {
                format!("{name} is not there: without it all legs in sync are needed by a start")
            }
            // At a start there is nothing to be told of a whole one.
            Some(WitnessStanding::Votes) if before.is_none() => return None,
            Some(WitnessStanding::Votes) => {
                format!("{name} has a say: a start may do with one leg")
            }
            Some(WitnessStanding::Failed(error)) => format!(
                "{name} has failed: {error}. Until it answers again a start needs all legs in sync"
            ),
            Some(WitnessStanding::LeftOut) => format!("{name} is left out, as was said"),
            Some(WitnessStanding::TakenOut) => format!("{name} is taken out"),
            Some(WitnessStanding::Joining) => return None,
        })
    }
}

fn line(leg: &LegStatus, disk: Option<String>, is: Option<LegStanding>) -> Option<String> {
    let name = match disk {
        Some(disk) => format!("leg {} ({disk})", leg.uuid),
        None => format!("leg {}", leg.uuid),
    };
    Some(match is {
        None => format!("{name} of the cache-disk is not there: on without it, as was said"),
        Some(LegStanding::InSync) => format!("{name} is in sync"),
        Some(LegStanding::Filling) => format!("{name} is being filled"),
        Some(LegStanding::Stale | LegStanding::Joining) => return None,
        Some(LegStanding::LeftOut) => format!("{name} is left out, as was said"),
        Some(LegStanding::TakenOut) => format!("{name} is taken out"),
        Some(LegStanding::Failed(error)) => format!(
            "{name} has failed: {error}. On with the others; when it answers again: dcd cache-disk fill {}",
            leg.uuid
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::IoError;
    use dcd_engine::legs::status::LegCounters;

    fn legs(second: LegStanding) -> Vec<LegStatus> {
        let leg = |number, standing| LegStatus {
            uuid: Uuid([number; 16]),
            standing: Some(standing),
            is_free: false,
            filled_bytes: 0,
            total_bytes: 0,
            counters: LegCounters::default(),
        };
        vec![leg(1, LegStanding::InSync), leg(2, second)]
    }

    #[test]
    fn what_happens_is_said_once() {
        let mut news = LegNews::default();
        let disk_of = |place: usize| Some(["a", "b"][place].to_owned());
        let mut said = |standing| news.look(legs(standing), disk_of).join("; ");
        assert_eq!(said(LegStanding::InSync), "");
        let failed = said(LegStanding::Failed(IoError::Gone));
        assert!(failed.contains("(b) has failed: the device is gone"), "{failed}");
        assert_eq!(said(LegStanding::Failed(IoError::Gone)), "");
        assert_eq!(said(LegStanding::Stale), "");
        assert!(said(LegStanding::Filling).contains("is being filled"));
        assert_eq!(said(LegStanding::Joining), "");
        assert!(said(LegStanding::InSync).ends_with("is in sync"));
        assert_eq!(news.look([], disk_of), Vec::<String>::new());
    }
}
