//! What is told of a volume on standard error, once, when it begins.

use dcd_engine::Engine;
use dcd_engine::units::LINE_SIZE;
use dcd_engine::volume::status::VolumeNews;

use crate::report::volumes::members_in_words;
use crate::units_text::format_size;

/// What was told.
#[derive(Default)]
pub(crate) struct VolumeTeller {
    told: VolumeNews,
    scrubs_ended: u64,
}

impl VolumeTeller {
    /// Lines for standard error; none if there is nothing new.
    pub(crate) fn news(&mut self, engine: Option<&Engine>) -> Vec<String> {
        let Some(volume) = engine.and_then(Engine::volume).filter(|volume| volume.is_open()) else {
            return Vec::new();
        };
        let mut lines = self.lines(volume.news());
        let counters = volume.counters();
        if counters.scrubs_ended > std::mem::replace(&mut self.scrubs_ended, counters.scrubs_ended)
        {
            lines.push(scrub_words(volume.lines_of_last_scrub()));
        }
        lines
    }

    fn lines(&mut self, news: VolumeNews) -> Vec<String> {
        let before = std::mem::replace(&mut self.told, news);
        let mut lines = Vec::new();
        let suspect = news.suspect & !before.suspect;
        if suspect != 0 {
            let who = members_in_words(suspect);
            lines.push(format!(
                "{who}: suspect, with many errors or lines that were not what was written there; \
                 `dcd volume status` counts them. Replace the disk while the others are well"
            ));
        }
        // Many are found one after the other: told when it begins, and then the number is in the
        // status.
        if before.lines_lost == 0 && news.lines_lost > 0 {
            lines.push(format!(
                "{} or more of the volume are lost: reads of them fail until they are written; \
                 `dcd volume status` says how much",
                format_size(news.lines_lost * LINE_SIZE)
            ));
        }
        if news.lines_lost == 0 && before.lines_lost > 0 {
            lines.push("nothing of the volume is lost any more: all of it was written".into());
        }
        if news.refuses_changes && !before.refuses_changes {
            let who = if news.away == 0 { "members".into() } else { members_in_words(news.away) };
            lines.push(format!(
                "the log holds as much as it may of what belongs on {who}: writes to more of that fail, all else \
                 goes on; bring the disk back, or replace it (--replace-member)"
            ));
        }
        lines
    }
}

fn scrub_words(found: u64) -> String {
    match found {
        0 => "the volume was scrubbed: all is as it should be".into(),
        found => format!(
            "the volume was scrubbed: {found} lines of 4 KiB were not what was written there; \
             `dcd volume status` says what of it is lost, and which disk is suspect"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_when_it_begins() {
        let mut teller = VolumeTeller::default();
        let told = |teller: &mut VolumeTeller, news| teller.lines(news).join("\n");
        let mut news = VolumeNews::default();
        assert_eq!(told(&mut teller, news), "");
        news.suspect = 0b101;
        assert!(told(&mut teller, news).contains("members 0, 2: suspect"));
        news.suspect = 0b111;
        assert!(told(&mut teller, news).contains("member 1: suspect"));
        news.lines_lost = 3;
        assert!(told(&mut teller, news).contains("12 KiB"));
        news.lines_lost = 5;
        assert_eq!(told(&mut teller, news), "");
        news.away = 2;
        news.refuses_changes = true;
        assert!(told(&mut teller, news).contains("belongs on member 1"));
        assert_eq!(told(&mut teller, news), "");
        news.lines_lost = 0;
        assert!(told(&mut teller, news).contains("nothing of the volume is lost"));
    }
}
