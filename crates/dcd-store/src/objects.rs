//! The bucket: opening it, whether it keeps its word, and its errors in words.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dcd_protocol::store::{StoreFailure, StoreName, StoreTroubleKind};
use futures::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
};

use crate::contradiction::{self, Compared};
use crate::format::{FORMAT, FormatError, LINE_BYTES, LINES_MAX, ObjectId, Volume, decode_object};
use crate::patience::{BySize, LastTrouble};
use crate::standing::{Seen, Standing};

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// A prefix of a bucket. No object that is in it by another name than ours is ever touched.
#[derive(Clone)]
pub struct Bucket {
    /// For people.
    name: String,
    /// On a server: what is in one of this name is copied there.
    pub(crate) on_server: Option<String>,
    /// Where it is, in the place of a prefix.
    directory: Option<PathBuf>,
    prefix: Path,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) last_trouble: LastTrouble,
    /// Whether the server says that it is full, or refuses.
    pub(crate) standing: Standing,
    /// Time and random numbers, in the place of those of the machine.
    #[cfg(any(test, feature = "model"))]
    pub(crate) simulated: Option<crate::simulated::Simulated>,
}

pub(crate) fn failure(problem: impl Into<String>, hint: &str) -> StoreFailure {
    let hint = (!hint.is_empty()).then(|| hint.to_owned());
    StoreFailure { problem: problem.into(), hint, is_silence: false, is_lost: false }
}

impl Bucket {
    /// Nothing is asked of it yet.
    ///
    /// # Errors
    /// If settings of the environment make no sense.
    pub fn open(name: &StoreName) -> Result<Bucket, StoreFailure> {
        Bucket::open_seen(name, &Standing::default())
    }

    /// The same, and somebody is told what the server says.
    pub(crate) fn open_seen(name: &StoreName, standing: &Standing) -> Result<Bucket, StoreFailure> {
        let words = name.to_string();
        let open_failed = |error: Error| {
            failure(
                format!("{words}: {error}"),
                "check AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )
        };
        match name {
            StoreName::Directory(path) => {
                let missing = |error: std::io::Error| {
                    let problem = format!("{words}: {}: {error}", path.display());
                    failure(problem, "make the directory")
                };
                std::fs::read_dir(path).map_err(missing)?;
                let store = LocalFileSystem::new_with_prefix(path).map_err(open_failed)?;
                let store = Arc::new(store.with_fsync(true));
                let directory = path.canonicalize().ok();
                Ok(Bucket { directory, ..Bucket::of(words.clone(), Path::default(), store) })
            }
            StoreName::Bucket { bucket, prefix } => {
                let has_plain_endpoint =
                    ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"]
                        .iter()
                        .any(|key| std::env::var(key).is_ok_and(|url| url.starts_with("http://")));
                let store = BySize::new(|once, all| {
                    let retry = RetryConfig {
                        // The time decides.
                        max_retries: 1000,
                        retry_timeout: all,
                        ..RetryConfig::default()
                    };
                    let client = ClientOptions::new()
                        .with_timeout(once)
                        .with_connect_timeout(CONNECT_PATIENCE)
                        .with_allow_http(has_plain_endpoint);
                    let store = AmazonS3Builder::from_env()
                        .with_bucket_name(bucket)
                        .with_client_options(client)
                        .with_http_connector(Seen {
                            standing: standing.clone(),
                            store: words.clone(),
                            prefix: prefix.clone(),
                        })
                        .with_retry(retry)
                        .build()?;
                    Ok(Arc::new(store))
                });
                let store = store.map_err(open_failed)?;
                let on_server = Some(bucket.clone());
                let last_trouble = store.last_trouble();
                let bucket =
                    Bucket::of(words.clone(), Path::from(prefix.as_str()), Arc::new(store));
                Ok(Bucket { last_trouble, on_server, standing: standing.clone(), ..bucket })
            }
        }
    }

    /// One that is open already.
    pub fn of(name: String, prefix: Path, store: Arc<dyn ObjectStore>) -> Bucket {
        Bucket {
            name,
            on_server: None,
            directory: None,
            prefix,
            store: Arc::new(Compared(store)),
            last_trouble: LastTrouble::default(),
            standing: Standing::default(),
            #[cfg(any(test, feature = "model"))]
            simulated: None,
        }
    }

    /// Told to people, and compared with those of other machines, which may differ.
    pub(crate) fn unix_seconds(&self) -> u64 {
        #[cfg(any(test, feature = "model"))]
        if let Some(simulated) = &self.simulated {
            return simulated.clock.now().timestamp().cast_unsigned();
        }
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// How the user names it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self, name: &str) -> Path {
        let whole = match self.prefix.as_ref() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        };
        Path::from(whole)
    }

    /// What the object store says, in words.
    pub(crate) fn trouble(&self, action: &str, name: &str, error: &Error) -> StoreFailure {
        let words = error_words(error);
        let problem = format!("{}: cannot {action} the object {name}: {words}", self.name);
        // Whose answer that was is not known, but it was said just now.
        let is_full = self.standing.trouble().filter(|it| it.kind == StoreTroubleKind::Full);
        let (hint, is_silence) = match error {
            Error::NotFound { .. } if name == "volume" => (
                "check bucket, prefix and AWS_ENDPOINT_URL; `dcd create --data-disk s3://... --size SIZE` makes a new store",
                false,
            ),
            Error::NotFound { .. } if name.starts_with("data/") => (
                "restore the object from a version of the bucket; or, if another dcd serves the store, it was given up by a \
                 later window: copy or clone a snapshot (dcd store snapshot add)",
                false,
            ),
            Error::NotFound { .. } => ("check that bucket and object are there", false),
            _ if contradiction::is_told_in(&problem) => (contradiction::HINT, false),
            _ if is_full.is_some() => (StoreTroubleKind::Full.hint(), true),
            Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => (
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, what they may do in this bucket, \
                 and the clock of this machine",
                false,
            ),
            _ => ("check AWS_ENDPOINT_URL, AWS_REGION and that the server answers", true),
        };
        StoreFailure { problem, hint: Some(hint.into()), is_silence, is_lost: false }
    }

    pub(crate) fn nonsense(&self, name: &str, error: &FormatError) -> StoreFailure {
        failure(
            format!("{}: {name} is damaged, or not of dcd: {error}", self.name),
            "restore the object from a version of the bucket, if it keeps versions; nothing was changed",
        )
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Bytes, StoreFailure> {
        let failed = |error| self.trouble("read", name, &error);
        let found = self.store.get(&self.path(name)).await.map_err(failed)?;
        found.bytes().await.map_err(failed)
    }

    /// Some lines of a data object.
    pub(crate) async fn get_lines(
        &self,
        object: ObjectId,
        index: u32,
        count: usize,
    ) -> Result<Bytes, StoreFailure> {
        let name = object.name();
        let start = u64::from(index) * LINE_BYTES as u64;
        let range = start..start + (count * LINE_BYTES) as u64;
        let wanted = range.clone();
        let found = self.store.get_range(&self.path(&name), range).await;
        let bytes = found.map_err(|error| self.trouble("read", &name, &error))?;
        if bytes.len() as u64 != wanted.end - wanted.start {
            let (expected, found) = (wanted.end - wanted.start, bytes.len());
            return Err(failure(
                format!("{}: {name} has {found} bytes at {start}, expected {expected}", self.name),
                "restore the object from a version of the bucket, if it keeps versions",
            ));
        }
        Ok(bytes)
    }

    /// Data objects have their names once: written again, they are the same.
    pub(crate) async fn put_data(
        &self,
        object: ObjectId,
        bytes: Bytes,
    ) -> Result<(), StoreFailure> {
        let name = object.name();
        let put = self.store.put(&self.path(&name), PutPayload::from_bytes(bytes)).await;
        put.map(|_| ()).map_err(|error| self.trouble("write", &name, &error))
    }

    pub(crate) async fn delete(&self, object: ObjectId) -> Result<(), StoreFailure> {
        let name = object.name();
        match self.store.delete(&self.path(&name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.trouble("delete", &name, &error)),
        }
    }

    /// Data objects that are there.
    pub(crate) async fn data_objects(&self) -> Result<Vec<ObjectId>, StoreFailure> {
        let directory = self.path("data");
        let mut listed = self.store.list(Some(&directory));
        let mut found = Vec::new();
        while let Some(meta) = listed.next().await {
            let meta = meta.map_err(|error| self.trouble("list", "data/", &error))?;
            found.extend(meta.location.filename().and_then(ObjectId::of_name));
        }
        Ok(found)
    }

    async fn put_if_absent(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = PutPayload::from_bytes(bytes);
        self.store.put_opts(&self.path(name), payload, options).await.map(|_| ())
    }

    /// Whether the server refuses to write over an object when it is asked to: without that two
    /// writers would not find out about each other.
    pub(crate) async fn probe(&self, nonce: &str) -> Result<(), StoreFailure> {
        let name = format!("probe-{nonce}");
        let trouble = |error| self.trouble("write", &name, &error);
        // An answer that is lost is asked for again, and then it is there already.
        match self.put_if_absent(&name, Bytes::from_static(b"first")).await {
            Ok(()) | Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(trouble(error)),
        }
        let second = self.put_if_absent(&name, Bytes::from_static(b"second")).await;
        let kept = self.get(&name).await;
        let _ = self.store.delete(&self.path(&name)).await;
        let refuses =
            matches!(&second, Err(Error::AlreadyExists { .. } | Error::Precondition { .. }));
        if refuses && kept? == b"first"[..] {
            return Ok(());
        }
        let how = match second {
            Ok(()) => "it writes over an object although If-None-Match says not to".to_owned(),
            Err(error) => format!("it answers {}", error_words(&error)),
        };
        Err(failure(
            format!("{}: the server has no conditional writes: {how}", self.name),
            "take a server that has them (AWS S3, MinIO, Ceph, versitygw and others do): without them two writers destroy a store",
        ))
    }

    /// What it is.
    pub(crate) async fn volume(&self) -> Result<Volume, StoreFailure> {
        let volume = self.volume_as_it_is().await?;
        match &volume.unfinished_clone_of {
            None => Ok(volume),
            Some(of) => Err(failure(
                format!("{}: it is a clone of {of} that was not finished", self.name),
                "that of a snapshot goes on if it is asked for again; to begin anew, delete all below the prefix",
            )),
        }
    }

    async fn volume_as_it_is(&self) -> Result<Volume, StoreFailure> {
        let bytes = self.get("volume").await?;
        Volume::decode(&bytes).map_err(|error| self.nonsense("volume", &error))
    }

    /// Makes a new one where nothing is. One of this size that is there already is taken as it is.
    /// Tells whether it is new.
    pub(crate) async fn create(&self, size_bytes: u64, nonce: &str) -> Result<bool, StoreFailure> {
        self.create_as(size_bytes, None, nonce).await
    }

    /// The same of a clone, which only the same clone goes on with.
    pub(crate) async fn begin_clone(
        &self,
        size_bytes: u64,
        of: &str,
        nonce: &str,
    ) -> Result<(), StoreFailure> {
        if !self.create_as(size_bytes, Some(of), nonce).await? {
            // It goes on under our name: whoever began it, and is not gone, finds that.
            self.put_volume(size_bytes, Some(of), nonce).await?;
        }
        Ok(())
    }

    /// Whether it is the clone that `nonce` makes, and not finished.
    pub(crate) async fn is_clone_of_ours(&self, nonce: &str) -> Result<(), StoreFailure> {
        let volume = self.volume_as_it_is().await?;
        match volume.unfinished_clone_of.is_some() && volume.store == nonce {
            true => Ok(()),
            false => Err(failure(
                format!("{}: somebody else makes the same clone, or has made it", self.name),
                "see with `dcd store info` whether it is there; nothing of it was changed by this command",
            )),
        }
    }

    /// It is a store like any other from now on.
    pub(crate) async fn end_clone(&self, size_bytes: u64, nonce: &str) -> Result<(), StoreFailure> {
        self.put_volume(size_bytes, None, nonce).await
    }

    async fn put_volume(
        &self,
        size_bytes: u64,
        clone_of: Option<&str>,
        nonce: &str,
    ) -> Result<(), StoreFailure> {
        let unfinished_clone_of = clone_of.map(str::to_owned);
        let store = nonce.to_owned();
        let volume = Volume { format: FORMAT, size_bytes, store, unfinished_clone_of };
        let bytes = serde_json::to_vec(&volume).expect("text and numbers");
        let put = self.store.put(&self.path("volume"), bytes.into()).await;
        put.map(|_| ()).map_err(|error| self.trouble("write", "volume", &error))
    }

    /// Takes a data object from another store, by the server itself where both are in one bucket.
    pub(crate) async fn copy_of(
        &self,
        from: &Bucket,
        object: ObjectId,
    ) -> Result<(), StoreFailure> {
        let name = object.name();
        if self.on_server.is_some() && self.on_server == from.on_server {
            let copied = self.store.copy(&from.path(&name), &self.path(&name)).await;
            return copied.map_err(|error| from.trouble("copy", &name, &error));
        }
        let bytes = from.get(&name).await?;
        // What is not this object must not become one of another store.
        decode_object(object, &bytes).map_err(|error| from.nonsense(&name, &error))?;
        self.put_data(object, bytes).await
    }

    /// Whether a store begins with this object, of whichever format it is. What a key for one
    /// prefix may not look at is not known.
    async fn is_store(&self, volume: &Path) -> Result<bool, StoreFailure> {
        let found = match self.store.get(volume).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        match found {
            Ok(bytes) => Ok(serde_json::from_slice::<Volume>(&bytes).is_ok()),
            Err(
                Error::NotFound { .. }
                | Error::PermissionDenied { .. }
                | Error::Unauthenticated { .. },
            ) => Ok(false),
            Err(error) => Err(self.trouble("read", volume.as_ref(), &error)),
        }
    }

    /// The store within whose prefix it would be.
    async fn store_around(&self) -> Result<Option<String>, StoreFailure> {
        for above in self.directory.iter().flat_map(|directory| directory.ancestors().skip(1)) {
            let volume = above.join("volume");
            // No pipe of that name is waited for.
            let bytes = volume.is_file().then(|| std::fs::read(volume).ok()).flatten();
            if bytes.is_some_and(|bytes| serde_json::from_slice::<Volume>(&bytes).is_ok()) {
                return Ok(Some(format!("s3+file://{}", above.display())));
            }
        }
        // Nobody's prefix is empty.
        let prefix = self.prefix.as_ref();
        for (end, _) in prefix.match_indices('/') {
            let above = &prefix[..end];
            if self.is_store(&Path::from(format!("{above}/volume"))).await? {
                let bucket = self.on_server.as_ref().map(|bucket| format!("s3://{bucket}/"));
                return Ok(Some(format!("{}{above}", bucket.unwrap_or_default())));
            }
        }
        Ok(None)
    }

    /// That no new store is made within another. One that is there is taken as it is.
    async fn is_in_no_other(&self) -> Result<(), StoreFailure> {
        match self.store_around().await? {
            Some(around) if !self.is_store(&self.path("volume")).await? => Err(failure(
                format!("{}: it would be within the store {around}", self.name),
                OWN_PREFIX_HINT,
            )),
            _ => Ok(()),
        }
    }

    async fn create_as(
        &self,
        size_bytes: u64,
        clone_of: Option<&str>,
        nonce: &str,
    ) -> Result<bool, StoreFailure> {
        let lines = size_bytes / LINE_BYTES as u64;
        if !size_bytes.is_multiple_of(LINE_BYTES as u64) || !(1..=LINES_MAX).contains(&lines) {
            return Err(failure(
                format!("expected a multiple of 4 KiB of at most 4 PiB, found {size_bytes} bytes"),
                "give such a --size",
            ));
        }
        self.is_in_no_other().await?;
        self.probe(nonce).await?;
        let list_failed = |error| self.trouble("list", "", &error);
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        let mut there = self.store.list(prefix);
        let (mut strange, mut inner) = (None, None);
        let mut is_store = false;
        while let Some(meta) = there.next().await {
            let meta = meta.map_err(list_failed)?;
            is_store |= meta.location == self.path("volume");
            if is_store {
                break;
            }
            // Of somebody who tries the server at this moment, or has died doing so.
            let is_probe = meta.location.filename().is_some_and(|name| name.starts_with("probe-"));
            if meta.location.filename() == Some("volume") && self.is_store(&meta.location).await? {
                inner.get_or_insert(meta.location);
            } else if !is_probe {
                strange.get_or_insert(meta.location);
            }
        }
        if let (Some(inner), false) = (&inner, is_store) {
            return Err(failure(
                format!("{}: another store is below it: {inner} is its beginning", self.name),
                OWN_PREFIX_HINT,
            ));
        }
        if let (Some(strange), false) = (&strange, is_store) {
            return Err(failure(
                format!("{}: something is there that is no store of dcd: {strange}", self.name),
                "choose another prefix; nothing was changed",
            ));
        }
        let unfinished_clone_of = clone_of.map(str::to_owned);
        let store = nonce.to_owned();
        let volume = Volume { format: FORMAT, size_bytes, store, unfinished_clone_of };
        let bytes = serde_json::to_vec(&volume).expect("text and numbers");
        match self.put_if_absent("volume", bytes.into()).await {
            Ok(()) => Ok(true),
            // Perhaps our own write, of which the answer was lost.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                let found = match clone_of {
                    None => self.volume().await?,
                    Some(_) => self.volume_as_it_is().await?,
                };
                let is_same_clone = found.unfinished_clone_of.as_deref() == clone_of;
                if clone_of.is_some() && !is_same_clone {
                    let what = match found.unfinished_clone_of {
                        Some(of) => format!("a clone of {of} was begun there"),
                        None => "a store is there".to_owned(),
                    };
                    return Err(failure(
                        format!("{}: {what}", self.name),
                        "choose another prefix; nothing was changed",
                    ));
                }
                match found.size_bytes == size_bytes {
                    true => Ok(found.store == nonce),
                    false => Err(failure(
                        format!(
                            "{}: a store of {} bytes is there, expected {size_bytes}",
                            self.name, found.size_bytes
                        ),
                        "leave out --size to take it as it is, or choose another prefix",
                    )),
                }
            }
            Err(error) => Err(self.trouble("write", "volume", &error)),
        }
    }
}

/// What is below the prefix of a store belongs to that: who deletes it, or gives a key for it alone,
/// means all of it.
const OWN_PREFIX_HINT: &str =
    "choose a prefix that is not within that of another store, nor around it; nothing was changed";

/// All that an error knows, on one line and not too long.
pub(crate) fn error_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let text = inner.to_string();
        if !words.contains(&text) {
            words += ": ";
            words += &text;
        }
        source = inner.source();
    }
    let clean: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let clean = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    match clean.char_indices().nth(400) {
        Some((at, _)) => format!("{}...", &clean[..at]),
        None => clean,
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn no_store_is_made_within_another_nor_around_it() {
        let server: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let bucket = |prefix: &str| {
            Bucket::of(format!("s3://b/{prefix}"), Path::from(prefix), Arc::clone(&server))
        };
        let objects = async || server.list(None).count().await;
        assert!(bucket("a/vol").create(8192, "one").await.unwrap());
        let before = objects().await;
        for (prefix, wanted) in [
            ("a/vol/sub", "s3://b/a/vol/sub: it would be within the store a/vol"),
            ("a/vol/sub/deep", "s3://b/a/vol/sub/deep: it would be within the store a/vol"),
            ("a", "s3://b/a: another store is below it: a/vol/volume is its beginning"),
        ] {
            let refused = bucket(prefix).create(8192, "two").await.unwrap_err();
            assert_eq!(refused.problem, wanted);
            assert_eq!(objects().await, before, "{prefix} was written");
        }
        // Beside it there is room, and what was made within one is there.
        assert!(bucket("a/vol2").create(8192, "two").await.unwrap());
        let volume = server.get(&Path::from("a/vol/volume")).await.unwrap().bytes().await.unwrap();
        server.put(&Path::from("a/vol2/sub/volume"), volume.into()).await.unwrap();
        assert!(!bucket("a/vol2/sub").create(8192, "three").await.unwrap());
    }
}
