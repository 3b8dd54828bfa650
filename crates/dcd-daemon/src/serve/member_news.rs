//! Says aloud how the members of a volume change: late, answering again, done without, rebuilt; and
//! when a spare takes the place of one.
//!
//! To be looked at in each turn of the loop, so that it is said when it happens. At the first look
//! it says what a start has found.

use dcd_engine::units::MemberIndex;
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::spares::{SpareState, SpareUse};
use dcd_engine::volume::status::MemberStatus;
use dcd_engine::volume::{CutShort, Volume};
use dcd_engine::{Duration, Time};

use crate::pair::new_member::MemberNames;
use crate::report::volumes::cut_short_words;
use crate::units_text::format_duration;

/// What has been said.
pub(crate) struct MemberNews {
    names: MemberNames,
    told: Vec<Told>,
    /// The last use of a spare that was told.
    spare: u64,
    /// It has not come to its end.
    spare_used: Option<SpareUse>,
    /// Spares that were told to have failed.
    spares_failed: Vec<MemberIndex>,
}

/// How a member was when something was said of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    UpToDate,
    Late { since: Time },
    Stale,
    Rebuilding,
    Missing,
}

impl MemberNews {
    /// Nothing has been said. `names`: of the disks of the members.
    pub(crate) fn new(names: MemberNames) -> MemberNews {
        let (told, spares_failed) = (Vec::new(), Vec::new());
        MemberNews { names, told, spare: 0, spare_used: None, spares_failed }
    }

    /// Says what is new.
    pub(crate) fn look(&mut self, now: Time, volume: Option<&Volume>) {
        let Some(volume) = volume.filter(|volume| volume.is_open()) else { return };
        if self.told.is_empty() {
            self.left_out(volume).iter().for_each(|line| eprintln!("dcd: {line}"));
        }
        self.spare_news(volume).iter().for_each(|line| eprintln!("dcd: {line}"));
        for (index, member) in volume.member_statuses() {
            let place = usize::from(index.0);
            if self.told.len() == place {
                self.told.push(Told::UpToDate);
            }
            let told = self.told[place];
            let is = how(now, told, &member);
            if is != told {
                self.told[place] = is;
                if let Some(line) =
                    self.line(now, (index, member.disk), told, is, volume.member_timeout())
                {
                    eprintln!("dcd: {line}");
                }
            }
        }
    }

    /// Disks that a start was given and that are nothing to the volume.
    fn left_out(&self, volume: &Volume) -> Vec<String> {
        let others = self.names.all().into_iter().filter(|(disk, _)| !volume.uses_disk(*disk));
        let line = |(_, name)| {
            format!(
                "{name} is no member any more, and no spare: another disk has taken its place, or it is too small. It is \
                 left out; take it out of the data-disks"
            )
        };
        others.map(line).collect()
    }

    fn spare_news(&mut self, volume: &Volume) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(of) = self.spare_used {
            let state = volume.spare_statuses().find(|spare| spare.disk == of.disk);
            let is_in_use = state.is_some_and(|spare| spare.state == SpareState::InUse(of.member));
            if !is_in_use {
                self.spare_used = None;
                let why = volume.last_cut_short();
                lines.push(self.spare_ended(of, state.is_none(), why));
            }
        }
        if let Some(of) = volume.last_spare_use().filter(|of| of.number > self.spare) {
            (self.spare, self.spare_used) = (of.number, Some(of));
            let mut members = volume.member_statuses();
            let disk = members.find(|(index, _)| *index == of.member).map(|(_, it)| it.disk);
            lines.push(self.spare_begins(of, disk.unwrap_or(of.member)));
        }
        let failed = volume.spare_statuses().filter(|spare| spare.state == SpareState::Failed);
        for spare in failed {
            if !self.spares_failed.contains(&spare.disk) {
                self.spares_failed.push(spare.disk);
                lines.push(self.spare_failed(spare.disk));
            }
        }
        lines
    }

    fn disk(&self, disk: MemberIndex) -> String {
        self.names.get(disk).unwrap_or_else(|| "a spare".into())
    }

    fn spare_begins(&self, of: SpareUse, before: MemberIndex) -> String {
        let failed_for = std::time::Duration::from_nanos(of.failed_for.0);
        format!(
            "{} has failed for {}: the spare {} takes its place (--spare-after)",
            self.name((of.member, before)),
            format_duration(failed_for),
            self.disk(of.disk)
        )
    }

    fn spare_failed(&self, disk: MemberIndex) -> String {
        format!(
            "the spare {} has FAILED: its label cannot be read, or is another's, or it does not take what is written. It is not \
             used before the next start. Another one: dcd volume spare add DISK",
            self.disk(disk)
        )
    }

    fn spare_ended(&self, of: SpareUse, is_member: bool, why: Option<CutShort>) -> String {
        let (disk, member) = (self.disk(of.disk), of.member.0);
        match (is_member, why) {
            (true, _) => format!("{disk} is member {member} now, and no spare any more"),
            (false, why) => format!(
                "the spare {disk} has not taken the place of member {member}: {}",
                why.map_or("it was given up", cut_short_words)
            ),
        }
    }

    fn name(&self, member: (MemberIndex, MemberIndex)) -> String {
        name_in(&self.names, member)
    }

    fn line(
        &self,
        now: Time,
        index: (MemberIndex, MemberIndex),
        told: Told,
        is: Told,
        timeout: Duration,
    ) -> Option<String> {
        let name = self.name(index);
        let timeout = format_duration(std::time::Duration::from_nanos(timeout.0));
        Some(match (told, is) {
            (_, Told::Late { .. }) => format!(
                "{name} is late: it does not answer. Reads go to the others where they hold the same; if it has not answered \
                 in {timeout} (--member-timeout) it is done without"
            ),
            (Told::Late { since }, Told::UpToDate) => {
                let took = std::time::Duration::from_nanos(now.since(since).0);
                format!("{name} answers again, {} later. It is up to date", format_duration(took))
            }
            (_, Told::UpToDate) => format!("{name} is up to date again"),
            (_, Told::Stale) => format!(
                "{name} is STALE: it has failed or did not answer, and is done without. The volume is degraded. When the \
                 disk is right again: dcd volume rebuild {}",
                index.0.0
            ),
            (_, Told::Missing) => format!(
                "{name} is MISSING. The volume is degraded. A new disk takes its place with --replace-member {}=DISK",
                index.0.0
            ),
            (_, Told::Rebuilding) => return None,
        })
    }
}

fn name_in(names: &MemberNames, (member, disk): (MemberIndex, MemberIndex)) -> String {
    match names.get(disk) {
        Some(disk) => format!("member {} ({disk})", member.0),
        None => format!("member {}", member.0),
    }
}

fn how(now: Time, told: Told, member: &MemberStatus) -> Told {
    match member.state {
        _ if !member.is_present => Told::Missing,
        MemberState::Stale => Told::Stale,
        MemberState::Rebuilding { .. } => Told::Rebuilding,
        MemberState::UpToDate if member.is_late => match told {
            Told::Late { since } => Told::Late { since },
            _ => Told::Late { since: now },
        },
        MemberState::UpToDate => Told::UpToDate,
    }
}

/// The members that are not as they should be, for people: `member 1 (/dev/sdb) is stale`.
pub(crate) fn members_not_whole(volume: &Volume, names: &MemberNames) -> Vec<String> {
    let others = volume.member_statuses().filter(|(_, member)| !member.is_whole());
    let word = |member: &MemberStatus| crate::report::volumes::member_word(member);
    let is = |(index, member): (MemberIndex, MemberStatus)| {
        format!("{} is {}", name_in(names, (index, member.disk)), word(&member))
    };
    others.map(is).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(state: MemberState, is_late: bool) -> MemberStatus {
        MemberStatus {
            disk: MemberIndex(1),
            state,
            is_present: true,
            bytes_to_rebuild: 0,
            is_missed_known: false,
            errors: 0,
            read_errors: 0,
            lines_rotten: 0,
            lines_mended: 0,
            is_suspect: false,
            is_late,
            times_late: 0,
        }
    }

    #[test]
    fn a_spare_says_why_it_is_used_and_what_became_of_it() {
        let news = MemberNews::new(MemberNames::new(vec![
            None,
            Some("/dev/m".into()),
            Some("/dev/s".into()),
        ]));
        let of = SpareUse {
            number: 1,
            disk: MemberIndex(2),
            member: MemberIndex(1),
            failed_for: Duration::from_secs(300),
        };
        assert!(
            news.spare_begins(of, of.member)
                .starts_with("member 1 (/dev/m) has failed for 300s: the spare /dev/s")
        );
        assert_eq!(
            news.spare_ended(of, true, None),
            "/dev/s is member 1 now, and no spare any more"
        );
        let in_vain = news.spare_ended(of, false, Some(CutShort::NewDisk));
        assert!(in_vain.ends_with("the place of member 1: the new disk failed"), "{in_vain}");
        assert!(news.spare_failed(MemberIndex(2)).starts_with("the spare /dev/s has FAILED"));
    }

    #[test]
    fn a_late_member_is_told_of_once_and_what_becomes_of_it() {
        let news = MemberNews::new(MemberNames::new(vec![None, Some("m1".into())]));
        let timeout = Duration::from_secs(30);
        let second = |second| Time::ZERO.after(Duration::from_secs(second));
        let late = how(second(10), Told::UpToDate, &member(MemberState::UpToDate, true));
        assert_eq!(how(second(15), late, &member(MemberState::UpToDate, true)), late);
        let line = |told, is| {
            news.line(second(17), (MemberIndex(1), MemberIndex(1)), told, is, timeout).unwrap()
        };
        assert!(line(Told::UpToDate, late).starts_with("member 1 (m1) is late"));
        assert!(line(Told::UpToDate, late).contains("in 30s (--member-timeout)"));
        assert_eq!(
            line(late, how(second(17), late, &member(MemberState::UpToDate, false))),
            "member 1 (m1) answers again, 7s later. It is up to date"
        );
        let stale = how(second(17), late, &member(MemberState::Stale, true));
        assert!(line(late, stale).contains("STALE") && line(late, stale).contains("rebuild 1"));
    }
}
