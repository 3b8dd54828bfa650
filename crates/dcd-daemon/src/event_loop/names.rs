//! Whether the names of files that are served still lead to them, looked at now and then. One that
//! is deleted for good is gone (`DeviceFile::is_cut_off`); one that has another name, a hard link,
//! or that was moved with its directory, is whole, and so it is served on. But the next start finds
//! nothing by the old name, or another file: that is said, once, and in the status.
//! `tests/serve.rs` takes names away.

use dcd_engine::{Duration, Time};

use crate::device::device_file::DeviceFile;

/// How often they are looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// What was found last.
#[derive(Default)]
pub(crate) struct NameWatch {
    next: Time,
    lost: Vec<String>,
}

impl NameWatch {
    /// Looks, if it is time to. What is new, in words.
    pub(crate) fn look<'d>(
        &mut self,
        now: Time,
        disks: impl Iterator<Item = &'d DeviceFile>,
    ) -> Vec<String> {
        if now < self.next {
            return Vec::new();
        }
        self.next = now.after(INTERVAL);
        let (lost, there): (Vec<&DeviceFile>, Vec<&DeviceFile>) =
            disks.partition(|disk| disk.has_lost_its_name());
        let name = |disk: &DeviceFile| disk.path().display().to_string();
        let lost: Vec<String> = lost.into_iter().map(name).collect();
        let gone = lost.iter().filter(|name| !self.lost.contains(name)).map(|name| {
            format!(
                "{name} does not lead to what is served any more: it was renamed, moved or deleted while there is \
                 another name, or another file has taken its name. It is served on; give it this name again, or \
                 the next start finds nothing, or something else"
            )
        });
        let there = there.into_iter().map(name).filter(|name| self.lost.contains(name));
        let back = there.map(|name| format!("{name} leads to what is served again"));
        let news = gone.chain(back).collect();
        self.lost = lost;
        news
    }

    /// Names that lead elsewhere, or nowhere.
    pub(crate) fn lost(&self) -> &[String] {
        &self.lost
    }
}
