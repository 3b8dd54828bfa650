//! Snapshots: the disk as it was at the end of a window, kept until somebody removes it.
//!
//! A snapshot is a checkpoint of SlateDB, which keeps the rows of that time, and a row that names
//! it, which keeps the objects that those rows name:
//!
//! ```text
//! take    1. the checkpoint.  Crash: nobody knows of it, and it is dropped at the next opening.
//!         2. the row.         The snapshot is there.
//! remove  1. the row.         Crash: as above.
//!         2. the checkpoint.
//! ```
//! An object that is given up notes the newest snapshot of that moment: of those that there are, the
//! ones up to that one and taken after the object was made may need it, and later ones cannot. So
//! nothing has to be listed, and an object is deleted when none of these is left.

use std::collections::BTreeMap;

use dcd_protocol::store::{SNAPSHOTS_MAX, SnapshotFacts, SnapshotName, StoreCommand, StoreFailure};
use slatedb::WriteBatch;

use crate::disk::{Committed, StoreDisk};
use crate::format::{Gone, ObjectId, Snapshot, snapshot_key};
use crate::objects::failure;

/// By their numbers, from 1 on.
pub(crate) type Snapshots = BTreeMap<u64, Snapshot>;

pub(crate) fn facts_of(snapshot: &Snapshot) -> SnapshotFacts {
    SnapshotFacts {
        name: snapshot.name.clone(),
        window: snapshot.window,
        taken_unix_seconds: snapshot.taken_unix_seconds,
    }
}

impl Committed {
    /// What an object that is given up notes. 0: there is no snapshot.
    pub(crate) fn newest_snapshot(&self) -> u64 {
        self.snapshots.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Whether a snapshot may need an object that is not in use any more.
    pub(crate) fn keeps(&self, object: ObjectId, gone: Gone) -> bool {
        let of_that_time = self.snapshots.range(..=gone.newest_snapshot);
        of_that_time.into_iter().any(|(_, snapshot)| object < snapshot.objects_end)
    }

    /// Since when nobody needs it, if no snapshot does: whoever reads one that was removed, or has
    /// just looked up a place in it, has a while yet.
    pub(crate) fn unneeded_since(&self, gone: Gone) -> u64 {
        match gone.newest_snapshot {
            0 => gone.since,
            _ => gone.since.max(self.snapshot_removed),
        }
    }

    fn snapshot(&self, name: &SnapshotName) -> Option<(u64, Snapshot)> {
        let found = self.snapshots.iter().find(|(_, it)| it.name == name.as_str());
        found.map(|(number, snapshot)| (*number, snapshot.clone()))
    }
}

impl StoreDisk {
    /// Takes or removes one.
    ///
    /// # Errors
    /// As these.
    pub async fn snapshots_do(
        &self,
        command: &StoreCommand,
        nonce: &str,
    ) -> Result<(), StoreFailure> {
        match command {
            StoreCommand::Snapshot { name } => self.take_snapshot(name, nonce).await,
            StoreCommand::RemoveSnapshot { name } => self.remove_snapshot(name).await,
        }
    }

    /// Keeps the disk as it was at the end of the last window.
    ///
    /// # Errors
    /// If there is one of this name, or the store does not do what is asked: then there is none.
    pub async fn take_snapshot(
        &self,
        name: &SnapshotName,
        nonce: &str,
    ) -> Result<(), StoreFailure> {
        self.check_writable()?;
        let mut committed = self.order.lock().await;
        let bucket = self.bucket.name();
        if committed.snapshot(name).is_some() {
            return Err(failure(
                format!("{bucket}: there is a snapshot {name} already"),
                "choose another name, or remove that one: dcd store snapshot remove",
            ));
        }
        if committed.snapshots.len() >= SNAPSHOTS_MAX {
            return Err(failure(
                format!("{bucket}: it has {SNAPSHOTS_MAX} snapshots, which is the most"),
                "remove one: dcd store snapshot remove",
            ));
        }
        let used = committed.gone.values().map(|gone| gone.newest_snapshot).max().unwrap_or(0);
        let number = committed.newest_snapshot().max(used) + 1;
        let snapshot = Snapshot {
            name: name.to_string(),
            checkpoint: format!("dcd-{nonce}"),
            window: committed.owner.window,
            taken_unix_seconds: self.bucket.unix_seconds(),
            objects_end: self.objects_end(),
        };
        // 1.
        self.map.keep_rows(&snapshot.checkpoint).await?;
        // 2.
        let mut batch = WriteBatch::new();
        batch.put(snapshot_key(number), snapshot.encode());
        self.map.write(batch).await.map_err(|why| self.break_down(why))?;
        committed.snapshots.insert(number, snapshot);
        Ok(())
    }

    /// Its room is free a while later.
    ///
    /// # Errors
    /// If there is none of this name, or the store does not do what is asked.
    pub async fn remove_snapshot(&self, name: &SnapshotName) -> Result<(), StoreFailure> {
        self.check_writable()?;
        let mut committed = self.order.lock().await;
        let Some((number, snapshot)) = committed.snapshot(name) else {
            let there: Vec<&str> =
                committed.snapshots.values().map(|it| it.name.as_str()).collect();
            return Err(no_such_snapshot(self.bucket.name(), name, &there));
        };
        // 1.
        let mut batch = WriteBatch::new();
        batch.delete(snapshot_key(number));
        self.map.write(batch).await.map_err(|why| self.break_down(why))?;
        committed.snapshots.remove(&number);
        committed.snapshot_removed = self.bucket.unix_seconds();
        // 2. In vain: it is dropped at the next opening.
        let _ = self.map.drop_rows(&snapshot.checkpoint).await;
        Ok(())
    }

    /// Drops checkpoints that crashes have left.
    pub(crate) async fn drop_stray_checkpoints(&self) -> Result<(), StoreFailure> {
        let committed = self.order.lock().await;
        let known = |name: &String| committed.snapshots.values().any(|it| it.checkpoint == *name);
        for name in self.map.kept_rows().await? {
            if name.starts_with("dcd-") && !known(&name) {
                self.map.drop_rows(&name).await?;
            }
        }
        Ok(())
    }
}

pub(crate) fn no_such_snapshot(bucket: &str, name: &SnapshotName, there: &[&str]) -> StoreFailure {
    let hint = match there {
        [] => "it has none: dcd store snapshot add takes one".to_owned(),
        there => format!("there are {}", there.join(", ")),
    };
    failure(format!("{bucket}: there is no snapshot {name}"), &hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_kept_by_snapshots_between_its_making_and_its_end() {
        let object = |number| ObjectId { epoch: 1, number };
        let mut committed = Committed::default();
        assert_eq!(committed.newest_snapshot(), 0);
        for (number, end) in [(1, 10), (2, 20), (4, 40)] {
            let snapshot = Snapshot {
                name: format!("{number}"),
                checkpoint: String::new(),
                window: None,
                taken_unix_seconds: 0,
                objects_end: object(end),
            };
            committed.snapshots.insert(number, snapshot);
        }
        let keeps = |committed: &Committed, number, newest_snapshot| {
            committed.keeps(object(number), Gone { since: 0, newest_snapshot })
        };
        for (number, gone, expected) in [
            (5, 0, false),
            (5, 1, true),
            (15, 1, false),
            (15, 2, true),
            (25, 3, false),
            (25, 4, true),
            (40, 4, false),
        ] {
            assert_eq!(keeps(&committed, number, gone), expected, "{number} {gone}");
        }
        committed.snapshots.remove(&2);
        assert!(!keeps(&committed, 15, 2), "the one that needed it is gone");
        assert!(keeps(&committed, 15, 4));
    }
}
