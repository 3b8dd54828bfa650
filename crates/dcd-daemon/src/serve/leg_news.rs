//! Says aloud how the legs of the cache-disk change: failed, being filled, in sync again.
//!
//! To be looked at in each turn of the loop, so that it is said when it happens. At the first look
//! it says what a start has found.

use dcd_engine::legs::LegStanding;
use dcd_engine::legs::status::LegStatus;

/// What has been said.
pub(crate) struct LegNews {
    names: Vec<String>,
    told: Vec<Option<LegStanding>>,
}

impl LegNews {
    /// Nothing has been said. `names`: of the disks of the legs.
    pub(crate) fn new(names: Vec<String>) -> LegNews {
        LegNews { names, told: Vec::new() }
    }

    /// What is new. Cheap where there are no legs.
    pub(crate) fn look(&mut self, legs: impl IntoIterator<Item = LegStatus>) -> Vec<String> {
        let is_first = self.told.is_empty();
        let mut news = Vec::new();
        for (place, leg) in legs.into_iter().enumerate() {
            // That a leg joins is no news before the labels say so.
            let is = match leg.standing {
                Some(LegStanding::Joining) => Some(LegStanding::Filling),
                other => other,
            };
            if is_first {
                self.told.push(Some(LegStanding::InSync));
            }
            let told = std::mem::replace(&mut self.told[place], is);
            if told != is {
                news.extend(self.line(place, &leg, is));
            }
        }
        news
    }

    fn line(&self, place: usize, leg: &LegStatus, is: Option<LegStanding>) -> Option<String> {
        let name = match self.names.get(place) {
            Some(disk) => format!("leg {} ({disk})", leg.uuid),
            None => format!("leg {}", leg.uuid),
        };
        Some(match is {
            None => format!("{name} of the cache-disk is not there: on without it, as was said"),
            Some(LegStanding::InSync) => format!("{name} is in sync"),
            Some(LegStanding::Filling) => format!("{name} is being filled"),
            Some(LegStanding::Stale | LegStanding::Joining) => return None,
            Some(LegStanding::Removed) => format!("{name} is taken out"),
            Some(LegStanding::Failed(error)) => format!(
                "{name} has failed: {error}. On with the others; when it answers again: dcd cache-disk fill {}",
                leg.uuid
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::IoError;
    use dcd_engine::legs::status::LegCounters;
    use dcd_engine::units::Uuid;

    fn legs(second: LegStanding) -> Vec<LegStatus> {
        let leg = |number, standing| LegStatus {
            uuid: Uuid([number; 16]),
            standing: Some(standing),
            filled_bytes: 0,
            total_bytes: 0,
            counters: LegCounters::default(),
        };
        vec![leg(1, LegStanding::InSync), leg(2, second)]
    }

    #[test]
    fn what_happens_is_said_once() {
        let mut news = LegNews::new(vec!["a".into(), "b".into()]);
        let mut said = |standing| news.look(legs(standing)).join("; ");
        assert_eq!(said(LegStanding::InSync), "");
        let failed = said(LegStanding::Failed(IoError::Gone));
        assert!(failed.contains("(b) has failed: the device is gone"), "{failed}");
        assert_eq!(said(LegStanding::Failed(IoError::Gone)), "");
        assert_eq!(said(LegStanding::Stale), "");
        assert!(said(LegStanding::Filling).contains("is being filled"));
        assert_eq!(said(LegStanding::Joining), "");
        assert!(said(LegStanding::InSync).ends_with("is in sync"));
        assert_eq!(news.look([]), Vec::<String>::new());
    }
}
