//! The disk in a store: reads, writes, flushes, and commits of windows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use dcd_block::checksum::crc32c;
use dcd_protocol::store::{StoreFacts, StoreFailure};
use futures::{StreamExt, TryStreamExt, stream};
use slatedb::WriteBatch;
use tokio::sync::Notify;

use crate::format::{
    Counts, Gone, LINE_BYTES, OBJECT_LINES, OWNER_KEY, ObjectId, Owner, Place, STAGED_FROM,
    STAGED_TO, Snapshot, Staged, encode_object, line_key, line_of_key, number_of_snapshot_key,
    number_of_staged_key, staged_key,
};
use crate::layers::{Layer, Layers, Source, Upload};
use crate::map::{Access, Map};
use crate::objects::{Bucket, failure};
use crate::snapshots::{Snapshots, facts_of};

/// Objects in memory that are not uploaded yet; more writes wait.
const UPLOADS_MAX: usize = 8;
/// Requests of one read, or lookups of one commit, that are under way at once.
const AT_ONCE: usize = 16;
/// Lines between two that are looked up in one scan.
const SCAN_GAP: u64 = 256;
/// Lines of one scan at most, beside gaps.
const SCAN_LINES: usize = 4096;

/// A row of a line in a batch, with what it takes to note it.
pub(crate) const ROW_BYTES: usize = 64;

/// See the module.
pub struct StoreDisk {
    pub(crate) bucket: Bucket,
    pub(crate) map: Map,
    pub(crate) lines: u64,
    layers: Arc<Mutex<Layers>>,
    uploaded: Arc<Notify>,
    /// One flush, commit or collection at a time.
    pub(crate) order: tokio::sync::Mutex<Committed>,
    /// Parts of lines are written by one at a time.
    parts: tokio::sync::RwLock<()>,
    next_object: Mutex<u64>,
    /// As [`Access::Maintain`]: no object is made here.
    is_maintained: bool,
    broken: Mutex<Option<StoreFailure>>,
}

/// What only whoever has the order knows.
#[derive(Default)]
pub(crate) struct Committed {
    pub(crate) next_row: u64,
    pub(crate) counts: BTreeMap<ObjectId, Counts>,
    /// Without a line in use.
    pub(crate) gone: BTreeMap<ObjectId, Gone>,
    pub(crate) snapshots: Snapshots,
    /// When the last one was, in seconds since 1970.
    pub(crate) snapshot_removed: u64,
    pub(crate) owner: Owner,
}

/// What the map has at the end of a window.
#[derive(Default)]
pub(crate) struct Window {
    pub(crate) places: Vec<(u64, Place)>,
    pub(crate) counts: BTreeMap<ObjectId, Counts>,
}

/// What the map has when it is opened.
struct Found {
    layers: Layers,
    counts: BTreeMap<ObjectId, Counts>,
    gone: BTreeMap<ObjectId, Gone>,
    snapshots: Snapshots,
}

impl Found {
    async fn look(bucket: &Bucket, map: &Map, lines: u64) -> Result<Found, StoreFailure> {
        let mut layers = Layers::default();
        for (key, value) in map.scan(&STAGED_FROM, &STAGED_TO).await? {
            let nonsense = |error| bucket.nonsense("map/ (s)", &error);
            let number = number_of_staged_key(&key).map_err(nonsense)?;
            let row = Staged::decode(&value, lines).map_err(nonsense)?;
            for (_, place) in &row.lines {
                // What it held beside these is not in use.
                let count = layers.new_objects.entry(place.object).or_default();
                *count = (*count).max(place.index + 1);
            }
            layers.staged.overlay(&Layer::of_row(&row));
            layers.rows.insert(number);
        }
        let counts = map.rows(b'o', ObjectId::of_key, Counts::decode).await?;
        let gone = map.rows(b'g', ObjectId::of_key, Gone::decode).await?;
        let snapshots = map.rows(b'n', number_of_snapshot_key, Snapshot::decode).await?;
        Ok(Found { layers, counts, gone, snapshots })
    }
}

impl StoreDisk {
    /// # Errors
    /// If the store is not there, or belongs to somebody else.
    pub async fn open(bucket: Bucket, access: &Access) -> Result<Arc<StoreDisk>, StoreFailure> {
        let volume = bucket.volume().await?;
        let lines = volume.size_bytes / LINE_BYTES as u64;
        let map = Map::open(&bucket, access).await?;
        match Found::look(&bucket, &map, lines).await {
            Ok(found) => {
                let is_maintained = *access == Access::Maintain;
                Ok(StoreDisk::of(bucket, map, lines, found, is_maintained))
            }
            Err(why) => {
                map.close().await;
                Err(why)
            }
        }
    }

    fn of(
        bucket: Bucket,
        map: Map,
        lines: u64,
        found: Found,
        is_maintained: bool,
    ) -> Arc<StoreDisk> {
        let Found { layers, counts, gone, snapshots } = found;
        let next_row = layers.rows.last().map_or(0, |last| last + 1);
        let owner = map.owner.clone();
        // Who reads a removed one may do so yet, wherever it was removed.
        let snapshot_removed = bucket.unix_seconds();
        let committed = Committed { next_row, counts, gone, snapshots, snapshot_removed, owner };
        Arc::new(StoreDisk {
            bucket,
            map,
            lines,
            layers: Arc::new(Mutex::new(layers)),
            uploaded: Arc::new(Notify::new()),
            order: tokio::sync::Mutex::new(committed),
            parts: tokio::sync::RwLock::default(),
            next_object: Mutex::new(0),
            is_maintained,
            broken: Mutex::new(None),
        })
    }

    pub(crate) fn layers(&self) -> MutexGuard<'_, Layers> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it is of no more use, if it is: what it holds in memory may not be what the store has.
    pub fn broken(&self) -> Option<StoreFailure> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn break_down(&self, why: StoreFailure) -> StoreFailure {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.get_or_insert(why).clone()
    }

    pub(crate) fn check_writable(&self) -> Result<(), StoreFailure> {
        match self.broken() {
            Some(why) => Err(why),
            None if self.map.is_writer() => Ok(()),
            None => Err(failure(format!("{}: opened to be read", self.bucket.name()), "")),
        }
    }

    /// Bytes of the disk.
    pub fn size_bytes(&self) -> u64 {
        self.lines * LINE_BYTES as u64
    }

    /// How it stands.
    pub async fn facts(&self) -> StoreFacts {
        let committed = self.order.lock().await;
        let owner = &committed.owner;
        let sum = |of: fn(&Counts) -> u32| committed.counts.values().map(of).map(u64::from).sum();
        StoreFacts {
            cache: owner.cache.clone(),
            epoch: owner.epoch.into(),
            window: owner.window,
            committed_unix_seconds: owner.committed_unix_seconds,
            objects: committed.counts.len() as u64,
            lines: sum(|counts| counts.lines),
            live_lines: sum(|counts| counts.live),
            staged_lines: self.layers().staged.lines.len() as u64,
            snapshots: committed.snapshots.values().map(facts_of).collect(),
            kept_objects: committed
                .gone
                .iter()
                .filter(|(it, gone)| committed.keeps(**it, **gone))
                .count() as u64,
            ..self.lease_facts()
        }
    }

    /// Who has it. Waits for no commit that is under way.
    pub(crate) fn lease_facts(&self) -> StoreFacts {
        StoreFacts {
            size_bytes: self.size_bytes(),
            claim: self.map.claim_name(),
            host: self.map.host(),
            lease_seconds: Some(self.map.owner.lease()),
            lease_left_seconds: self.map.lease_left_seconds(),
            ..StoreFacts::default()
        }
    }

    // ---- reads ---------------------------------------------------------------------------------

    /// Lines as they are.
    pub async fn read(&self, line: u64, count: usize) -> Result<Bytes, StoreFailure> {
        let mut bytes = BytesMut::zeroed(count * LINE_BYTES);
        let at = |wanted: u64| (wanted - line) as usize * LINE_BYTES;
        let mut places: Vec<(u64, Place)> = Vec::new();
        let mut in_map = BTreeSet::new();
        {
            let layers = self.layers();
            for wanted in line..line + count as u64 {
                match layers.find(wanted) {
                    Source::Memory(found) => {
                        bytes[at(wanted)..at(wanted) + LINE_BYTES].copy_from_slice(&found);
                    }
                    Source::At(place) => match layers.uploads.get(&place.object) {
                        Some(upload) => {
                            let from = place.index as usize * LINE_BYTES;
                            let found = &upload.bytes[from..from + LINE_BYTES];
                            bytes[at(wanted)..at(wanted) + LINE_BYTES].copy_from_slice(found);
                        }
                        None => places.push((wanted, place)),
                    },
                    Source::Zero => {}
                    Source::Map => drop(in_map.insert(wanted)),
                }
            }
        }
        let known = self.places_of(&in_map).await?;
        places.extend(known);
        self.fetch(line, places, &mut bytes).await?;
        Ok(bytes.freeze())
    }

    /// Reads lines at these places into `bytes`, which begin with `line`.
    pub(crate) async fn fetch(
        &self,
        line: u64,
        mut places: Vec<(u64, Place)>,
        bytes: &mut [u8],
    ) -> Result<(), StoreFailure> {
        let at = |wanted: u64| (wanted - line) as usize * LINE_BYTES;
        places.sort_unstable_by_key(|(_, place)| (place.object, place.index));
        let neighbours = |(_, one): &(u64, Place), (_, two): &(u64, Place)| {
            one.object == two.object && one.index + 1 == two.index
        };
        let groups: Vec<Vec<(u64, Place)>> =
            places.chunk_by(neighbours).map(<[_]>::to_vec).collect();
        let fetched = stream::iter(groups).map(|group| async move {
            let first = group[0].1;
            let found = self.bucket.get_lines(first.object, first.index, group.len()).await?;
            Ok::<_, StoreFailure>((group, found))
        });
        let mut fetched = fetched.buffer_unordered(AT_ONCE);
        while let Some((group, found)) = fetched.try_next().await? {
            for ((wanted, place), content) in group.into_iter().zip(found.chunks(LINE_BYTES)) {
                if crc32c(content) != place.crc {
                    let (bucket, object) = (self.bucket.name(), place.object.name());
                    return Err(failure(
                        format!(
                            "{bucket}: line {wanted} in {object} (index {}) is damaged: its checksum is another one",
                            place.index
                        ),
                        "restore the object from a version of the bucket, if it keeps versions",
                    ));
                }
                bytes[at(wanted)..at(wanted) + LINE_BYTES].copy_from_slice(content);
            }
        }
        Ok(())
    }

    /// All lines of the map, in order, and the counts, as of one moment: the end of a window.
    pub(crate) async fn window(&self) -> Result<Window, StoreFailure> {
        let mut window = Window::default();
        // One scan sees one state, whatever a writer does meanwhile.
        for (key, value) in self.map.scan(b"l", b"p").await? {
            let decoded = match key.first() {
                Some(b'l') => line_of_key(&key, self.lines).and_then(|line| {
                    window.places.push((line, Place::decode(&value)?));
                    Ok(())
                }),
                Some(b'o') => ObjectId::of_key(&key).and_then(|object| {
                    window.counts.insert(object, Counts::decode(&value)?);
                    Ok(())
                }),
                _ => Ok(()),
            };
            decoded.map_err(|error| self.bucket.nonsense("map/ (l, o)", &error))?;
        }
        Ok(window)
    }

    /// What the map has of these lines.
    pub(crate) async fn places_of(
        &self,
        lines: &BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, Place>, StoreFailure> {
        let mut scans: Vec<(u64, u64, usize)> = Vec::new();
        for line in lines {
            match scans.last_mut() {
                Some((_, last, count)) if line - *last <= SCAN_GAP && *count < SCAN_LINES => {
                    *last = *line;
                    *count += 1;
                }
                _ => scans.push((*line, *line, 1)),
            }
        }
        let nonsense = |error| self.bucket.nonsense("map/ (l)", &error);
        let found = stream::iter(scans).map(|(first, last, count)| async move {
            let mut found = Vec::new();
            if count == 1 {
                let value = self.map.get(&line_key(first)).await?;
                let place = value.map(|value| Place::decode(&value)).transpose();
                found.extend(place.map_err(nonsense)?.map(|place| (first, place)));
            } else {
                for (key, value) in self.map.scan(&line_key(first), &line_key(last + 1)).await? {
                    let line = line_of_key(&key, self.lines).map_err(nonsense)?;
                    found.push((line, Place::decode(&value).map_err(nonsense)?));
                }
            }
            Ok::<_, StoreFailure>(found)
        });
        let found: Vec<_> = found.buffer_unordered(AT_ONCE).try_collect().await?;
        let all = found.into_iter().flatten();
        Ok(all.filter(|(line, _)| lines.contains(line)).collect())
    }

    /// Bytes, whole sectors of 512.
    pub async fn read_bytes(&self, offset: u64, length: usize) -> Result<Bytes, StoreFailure> {
        let (first, end) = lines_around(offset, length as u64);
        let bytes = self.read(first, (end - first) as usize).await?;
        let start = (offset - first * LINE_BYTES as u64) as usize;
        Ok(bytes.slice(start..start + length))
    }

    /// Writes bytes. What else is in their first and last line stays as it is.
    pub async fn write_bytes(&self, offset: u64, bytes: Bytes) -> Result<(), StoreFailure> {
        let (first, end) = lines_around(offset, bytes.len() as u64);
        let start = (offset - first * LINE_BYTES as u64) as usize;
        if start == 0 && bytes.len().is_multiple_of(LINE_BYTES) {
            let _others_may = self.parts.read().await;
            return self.write(first, bytes).await;
        }
        // Nobody else changes what was read, until it is written.
        let _alone = self.parts.write().await;
        let mut whole = BytesMut::from(self.read(first, (end - first) as usize).await?);
        whole[start..start + bytes.len()].copy_from_slice(&bytes);
        self.write(first, whole.freeze()).await
    }

    /// Zeroes bytes.
    pub async fn zero_bytes(&self, offset: u64, length: u64) -> Result<(), StoreFailure> {
        let unit = LINE_BYTES as u64;
        let end = offset + length;
        let (inner, behind) = (offset.next_multiple_of(unit), end / unit * unit);
        if inner >= behind {
            return self.write_bytes(offset, vec![0; length as usize].into()).await;
        }
        if offset < inner {
            self.write_bytes(offset, vec![0; (inner - offset) as usize].into()).await?;
        }
        {
            let _others_may = self.parts.read().await;
            self.zero(inner / unit, (behind - inner) / unit)?;
        }
        match behind < end {
            true => self.write_bytes(behind, vec![0; (end - behind) as usize].into()).await,
            false => Ok(()),
        }
    }

    // ---- changes -------------------------------------------------------------------------------

    /// Takes whole lines. Durable with the next flush.
    pub async fn write(&self, line: u64, bytes: Bytes) -> Result<(), StoreFailure> {
        self.check_writable()?;
        self.wait_for_room().await?;
        let mut layers = self.layers();
        for (at, start) in (0..bytes.len()).step_by(LINE_BYTES).enumerate() {
            layers.open.insert(line + at as u64, bytes.slice(start..start + LINE_BYTES));
            if layers.open.len() >= OBJECT_LINES {
                self.seal(&mut layers);
            }
        }
        Ok(())
    }

    /// Zeroes lines. Durable with the next flush.
    pub fn zero(&self, line: u64, count: u64) -> Result<(), StoreFailure> {
        self.check_writable()?;
        self.layers().zero(line, count);
        Ok(())
    }

    pub(crate) fn new_object(&self) -> ObjectId {
        let mut next = self.next_object.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        ObjectId { epoch: self.map.owner.epoch, number: *next }
    }

    /// Objects that were made are before this one, and those that are made later are not.
    pub(crate) fn objects_end(&self) -> ObjectId {
        let epoch = self.map.owner.epoch;
        if self.is_maintained {
            return ObjectId { epoch: epoch + 1, number: 0 };
        }
        let next = self.next_object.lock().unwrap_or_else(PoisonError::into_inner);
        ObjectId { epoch, number: *next + 1 }
    }

    /// Begins to upload what is open.
    fn seal(&self, layers: &mut Layers) {
        let lines: Vec<(u64, Bytes)> = std::mem::take(&mut layers.open).into_iter().collect();
        if lines.is_empty() {
            return;
        }
        let id = self.new_object();
        let (bytes, places) = encode_object(id, &lines);
        layers.recent.lines.extend(places);
        layers.new_objects.insert(id, lines.len() as u32);
        layers.uploads.insert(id, Upload { bytes: bytes.clone(), problem: None });
        self.upload(id, bytes);
    }

    fn upload(&self, id: ObjectId, bytes: Bytes) {
        let (bucket, layers) = (self.bucket.clone(), self.layers.clone());
        let uploaded = self.uploaded.clone();
        tokio::spawn(async move {
            let put = bucket.put_data(id, bytes).await;
            {
                let mut layers = layers.lock().unwrap_or_else(PoisonError::into_inner);
                match put {
                    Ok(()) => drop(layers.uploads.remove(&id)),
                    Err(problem) => {
                        if let Some(upload) = layers.uploads.get_mut(&id) {
                            upload.problem = Some(problem);
                        }
                    }
                }
            }
            uploaded.notify_waiters();
        });
    }

    /// Uploads once more what has failed.
    fn upload_again(&self) {
        let again: Vec<(ObjectId, Bytes)> = {
            let mut layers = self.layers();
            let failed = layers.uploads.iter_mut().filter(|(_, upload)| upload.problem.is_some());
            failed
                .map(|(id, upload)| {
                    upload.problem = None;
                    (*id, upload.bytes.clone())
                })
                .collect()
        };
        again.into_iter().for_each(|(id, bytes)| self.upload(id, bytes));
    }

    /// Waits until at most so many objects are on their way; fails if one does.
    async fn wait_for_uploads(&self, most: usize) -> Result<(), StoreFailure> {
        self.upload_again();
        loop {
            let mut changed = std::pin::pin!(self.uploaded.notified());
            // From here on no news is missed.
            changed.as_mut().enable();
            {
                let layers = self.layers();
                if layers.uploads.len() <= most {
                    return Ok(());
                }
                if let Some(why) = layers.uploads.values().find_map(|it| it.problem.clone()) {
                    return Err(why);
                }
            }
            changed.await;
        }
    }

    async fn wait_for_room(&self) -> Result<(), StoreFailure> {
        if self.layers().uploads.len() < UPLOADS_MAX {
            return Ok(());
        }
        self.wait_for_uploads(UPLOADS_MAX - 1).await
    }

    /// Makes durable what was written. In vain: it is all there yet, for the next one.
    pub async fn flush(&self) -> Result<(), StoreFailure> {
        self.check_writable()?;
        let mut committed = self.order.lock().await;
        self.flush_in_order(&mut committed).await
    }

    async fn flush_in_order(&self, committed: &mut Committed) -> Result<(), StoreFailure> {
        {
            let mut layers = self.layers();
            self.seal(&mut layers);
            if layers.recent.is_empty() {
                return Ok(());
            }
            layers.flushing = std::mem::take(&mut layers.recent);
        }
        // 1. The objects. Crash here: nobody knows of them, and they are swept one day.
        if let Err(why) = self.wait_for_uploads(0).await {
            self.layers().flush_failed();
            return Err(why);
        }
        // 2. The row. Crash behind it: the same cache finds it.
        let number = committed.next_row;
        committed.next_row += 1;
        let row = self.layers().flushing.row().encode();
        let mut batch = WriteBatch::new();
        let bytes = row.len();
        batch.put_bytes(staged_key(number), row);
        if let Err(why) = self.map.write_large(batch, bytes).await {
            self.layers().flush_failed();
            return Err(self.break_down(why));
        }
        self.layers().flushed(number);
        Ok(())
    }

    /// Makes visible at once what was flushed: the end of a window.
    pub async fn commit(&self, window: u64) -> Result<(), StoreFailure> {
        self.check_writable()?;
        let mut committed = self.order.lock().await;
        let owner = Owner { window: Some(window), ..committed.owner.clone() };
        self.commit_in_order(&mut committed, owner).await
    }

    /// The same, and who the owner is from then on.
    async fn commit_in_order(
        &self,
        committed: &mut Committed,
        mut owner: Owner,
    ) -> Result<(), StoreFailure> {
        self.flush_in_order(committed).await?;
        let (staged, objects, rows) = {
            let layers = self.layers();
            let mut objects = layers.new_objects.clone();
            // What was written meanwhile is for the next window, with objects of its own: a flush
            // closes the one that is filled.
            objects.retain(|id, _| !layers.uploads.contains_key(id));
            for place in layers.recent.lines.values() {
                objects.remove(&place.object);
            }
            (layers.staged.clone(), objects, layers.rows.clone())
        };
        // What the map has of all that changes.
        let changed: BTreeSet<u64> = staged.lines.keys().copied().collect();
        let mut old = self.places_of(&changed).await?;
        let mut batch = WriteBatch::new();
        for (line, count) in staged.zeroes.iter() {
            for (key, value) in self.map.scan(&line_key(line), &line_key(line + count)).await? {
                let nonsense = |error| self.bucket.nonsense("map/ (l)", &error);
                let line = line_of_key(&key, self.lines).map_err(nonsense)?;
                old.insert(line, Place::decode(&value).map_err(nonsense)?);
                if !staged.lines.contains_key(&line) {
                    batch.delete(&key);
                }
            }
        }
        let mut counts: BTreeMap<ObjectId, Counts> = BTreeMap::new();
        for (object, lines) in &objects {
            counts.insert(*object, Counts { lines: *lines, live: 0 });
        }
        for (line, place) in &staged.lines {
            batch.put_bytes(line_key(*line), place.encode());
            // A row that names an object of our own time was not written by dcd.
            counts.get_mut(&place.object).ok_or_else(|| self.of_no_flush(place))?.live += 1;
        }
        for place in old.values() {
            self.give_up(place, &committed.counts, &mut counts)?;
        }
        rows.iter().for_each(|row| batch.delete(staged_key(*row)));
        owner.committed_unix_seconds = Some(self.bucket.unix_seconds());
        batch.put(OWNER_KEY, owner.encode());
        match owner.cache {
            Some(_) => drop(self.map.put_claim(&mut batch)),
            None => self.map.drop_claim(&mut batch),
        }
        let gone = committed.put_counts(&mut batch, &counts, self.bucket.unix_seconds());
        // 3. The switch.
        let bytes = (staged.lines.len() + old.len()) * ROW_BYTES;
        self.map.write_large(batch, bytes).await.map_err(|why| self.break_down(why))?;
        committed.owner = owner;
        committed.apply(counts, gone);
        let mut layers = self.layers();
        layers.staged = Layer::default();
        layers.rows.clear();
        layers.new_objects.retain(|object, _| !objects.contains_key(object));
        Ok(())
    }

    /// A line of the map is no more.
    pub(crate) fn give_up(
        &self,
        place: &Place,
        known: &BTreeMap<ObjectId, Counts>,
        counts: &mut BTreeMap<ObjectId, Counts>,
    ) -> Result<(), StoreFailure> {
        let object = place.object;
        let was = counts.get(&object).or_else(|| known.get(&object)).copied();
        let count = was.filter(|count| count.live > 0).ok_or_else(|| {
            let problem = format!(
                "{}: the map names a line in {}, of which it counts none in use",
                self.bucket.name(),
                object.name()
            );
            failure(problem, "`dcd store check` looks at all of it; nothing was changed")
        })?;
        counts.insert(object, Counts { live: count.live - 1, ..count });
        Ok(())
    }

    fn of_no_flush(&self, place: &Place) -> StoreFailure {
        let problem = format!(
            "{}: what is staged names {}, which no flush has made",
            self.bucket.name(),
            place.object.name()
        );
        failure(problem, "`dcd store check` looks at all of it; nothing was changed")
    }

    /// It belongs to nobody from now on. The cache has written all that it can: what is in no
    /// window yet, as where lines were lost and no window ended any more, is committed with it.
    pub async fn release(&self) -> Result<(), StoreFailure> {
        self.check_writable()?;
        let mut committed = self.order.lock().await;
        let owner = Owner { cache: None, ..committed.owner.clone() };
        self.commit_in_order(&mut committed, owner).await
    }

    /// The lease begins anew. Nobody who writes waits for that.
    pub async fn renew(&self) -> Result<(), StoreFailure> {
        self.check_writable()?;
        let mut batch = WriteBatch::new();
        if !self.map.put_claim(&mut batch) {
            // It was given up meanwhile: there is none to be renewed.
            return Ok(());
        }
        // A large commit goes before it, and may take longer than it waits. It says the same however
        // often it is written: only where it was refused is anything wrong.
        self.map.write(batch).await.map_err(|why| match why.is_silence {
            true => why,
            false => self.break_down(why),
        })
    }

    /// Nobody waits for the lease to end any more.
    pub async fn rest(&self) -> Result<(), StoreFailure> {
        self.map.note_rest();
        self.renew().await
    }

    /// Nothing is asked of it any more.
    pub async fn close(&self) {
        self.map.close().await;
    }
}

/// The lines that bytes are in: the first, and the one behind the last.
fn lines_around(offset: u64, length: u64) -> (u64, u64) {
    let unit = LINE_BYTES as u64;
    (offset / unit, (offset + length).div_ceil(unit))
}

impl Committed {
    /// Counts of objects, and those without a line in use.
    pub(crate) fn put_counts(
        &self,
        batch: &mut WriteBatch,
        counts: &BTreeMap<ObjectId, Counts>,
        since: u64,
    ) -> BTreeMap<ObjectId, Gone> {
        let row = Gone { since, newest_snapshot: self.newest_snapshot() };
        let mut gone = BTreeMap::new();
        for (object, count) in counts {
            if count.live > 0 {
                batch.put_bytes(object.counts_key(), count.encode());
            } else {
                batch.delete(object.counts_key());
                batch.put_bytes(object.gone_key(), row.encode());
                gone.insert(*object, row);
            }
        }
        gone
    }

    /// The batch with them is durable.
    pub(crate) fn apply(
        &mut self,
        counts: BTreeMap<ObjectId, Counts>,
        gone: BTreeMap<ObjectId, Gone>,
    ) {
        for (object, count) in counts {
            match count.live {
                0 => drop(self.counts.remove(&object)),
                _ => drop(self.counts.insert(object, count)),
            }
        }
        self.gone.extend(gone);
    }
}
