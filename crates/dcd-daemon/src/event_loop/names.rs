//! Whether the names of files that are served still lead to them, looked at now and then. One that
//! is deleted for good is gone (`DeviceFile::is_cut_off`); one that has another name, a hard link,
//! or that was moved with its directory, is whole, and so it is served on. But the next start finds
//! nothing by the old name, or another file: that is said, once, and in the status. A thread looks,
//! because a file system that hangs does not say where a name leads.
//! `tests/serve.rs` takes names away.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use dcd_engine::{Duration, Time};

use crate::device::device_file::{DeviceFile, NamedFile};

/// How often they are looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// What was found last.
#[derive(Default)]
pub(crate) struct NameWatch {
    next: Time,
    looker: Option<Looker>,
    lost: Vec<String>,
}

/// The thread. It ends with its sender, or when what it is asked about answers again.
struct Looker {
    asked: Sender<Vec<NamedFile>>,
    found: Receiver<Vec<PathBuf>>,
    is_busy: bool,
}

impl Looker {
    fn start() -> Option<Looker> {
        let (asked, questions) = channel::<Vec<NamedFile>>();
        let (answers, found) = channel();
        let looks = move || {
            for files in questions {
                let lost = files.into_iter().filter(NamedFile::is_lost);
                if answers.send(lost.map(|file| file.path).collect()).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("dcd-names".into()).spawn(looks);
        // Without one nobody is told.
        thread.ok().map(|_| Looker { asked, found, is_busy: false })
    }
}

impl NameWatch {
    /// Has them looked at, if it is time to. What is new of the last look, in words.
    pub(crate) fn look<'d>(
        &mut self,
        now: Time,
        disks: impl Iterator<Item = &'d DeviceFile>,
    ) -> Vec<String> {
        if now < self.next {
            return Vec::new();
        }
        self.next = now.after(INTERVAL);
        let disks: Vec<&DeviceFile> = disks.collect();
        let found = self.looker.as_mut().and_then(|looker| {
            let found = looker.found.try_recv().ok()?;
            looker.is_busy = false;
            Some(found)
        });
        let news = found.map_or_else(Vec::new, |lost| self.compare(&disks, &lost));
        let files: Vec<NamedFile> = disks.iter().filter_map(|disk| disk.named()).collect();
        if files.is_empty() {
            return news;
        }
        if self.looker.is_none() {
            self.looker = Looker::start();
        }
        if let Some(looker) = self.looker.as_mut().filter(|looker| !looker.is_busy) {
            looker.is_busy = looker.asked.send(files).is_ok();
        }
        news
    }

    fn compare(&mut self, disks: &[&DeviceFile], lost: &[PathBuf]) -> Vec<String> {
        let (lost, there): (Vec<&DeviceFile>, Vec<&DeviceFile>) = disks
            .iter()
            .partition(|disk| lost.iter().any(|it| it == disk.path()) && disk.has_any_name());
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
