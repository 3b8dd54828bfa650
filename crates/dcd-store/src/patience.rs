//! How long a request may take: a large one longer, so that a slow line gets it to its end.
//!
//! SlateDB makes a request again for as long as it fails, so who asks it for something waits no
//! longer than that, and is told what failed last.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

use crate::objects::error_words;

/// Until a request of no size is answered.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// The slowest line on which a request comes to its end.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;
/// Longest request of a client: what is small, a data object, and a table of the map.
const SIZES_MAX: [u64; 3] = [256 << 10, 9 << 20, 128 << 20];
/// Of these, a data object, and a part of something that is put in parts.
const OBJECT: usize = 1;

/// How long one request of so many bytes may take. It is made again for twice as long.
fn patience(bytes: u64) -> Duration {
    REQUEST_PATIENCE + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// How long the map may take for something of so many bytes: until a request has failed, and was
/// made once more.
pub(crate) fn map_patience(bytes: u64) -> Duration {
    3 * patience(bytes)
}

/// Which request has failed, if none has gone well since; and how much was answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastTrouble {
    failed: Arc<Mutex<Option<String>>>,
    answers: Arc<AtomicU64>,
}

impl LastTrouble {
    pub(crate) fn words(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another number as soon as the server has answered anything, or a part of something large.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    fn note<T>(&self, location: &Path, result: Result<T>) -> Result<T> {
        let is_answer = |error: &Error| {
            matches!(
                error,
                Error::NotFound { .. }
                    | Error::AlreadyExists { .. }
                    | Error::Precondition { .. }
                    | Error::NotModified { .. }
            )
        };
        let words = match &result {
            Err(error) if !is_answer(error) => {
                Some(format!("the object {location}: {}", error_words(error)))
            }
            _ => None,
        };
        if words.is_none() {
            self.answered();
        }
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = words;
        result
    }
}

/// The client of a request follows from its size.
#[derive(Debug)]
pub(crate) struct BySize {
    clients: [Arc<dyn ObjectStore>; SIZES_MAX.len()],
    last_trouble: LastTrouble,
}

impl BySize {
    /// `client` makes one by its time-outs: of one request, and of all attempts.
    pub(crate) fn new(
        mut client: impl FnMut(Duration, Duration) -> Result<Arc<dyn ObjectStore>>,
    ) -> Result<BySize> {
        let mut of = |bytes| client(patience(bytes), 2 * patience(bytes));
        let [small, object, table] = SIZES_MAX;
        let clients = [of(small)?, of(object)?, of(table)?];
        Ok(BySize { clients, last_trouble: LastTrouble::default() })
    }

    /// Of all of them.
    pub(crate) fn last_trouble(&self) -> LastTrouble {
        self.last_trouble.clone()
    }

    fn of(&self, bytes: u64) -> &Arc<dyn ObjectStore> {
        let found = SIZES_MAX.iter().position(|most| bytes <= *most);
        &self.clients[found.unwrap_or(SIZES_MAX.len() - 1)]
    }

    fn small(&self) -> &Arc<dyn ObjectStore> {
        &self.clients[0]
    }

    fn reader(&self, location: &Path, options: &GetOptions) -> &Arc<dyn ObjectStore> {
        match &options.range {
            _ if options.head => self.small(),
            Some(GetRange::Bounded(range)) => self.of(range.end.saturating_sub(range.start)),
            Some(GetRange::Suffix(bytes)) => self.of(*bytes),
            // Manifests and the like; the whole of a data object is one of data/.
            _ if location.parts().rev().nth(1).is_none_or(|it| it.as_ref() != "data") => {
                self.small()
            }
            _ => &self.clients[OBJECT],
        }
    }
}

impl fmt::Display for BySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.small().fmt(f)
    }
}

#[async_trait]
impl ObjectStore for BySize {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let client = self.of(payload.content_length() as u64);
        let put = client.put_opts(location, payload, options).await;
        self.last_trouble.note(location, put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.clients[OBJECT].put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let got = self.reader(location, &options).get_opts(location, options).await;
        let mut got = self.last_trouble.note(location, got)?;
        if let GetResultPayload::Stream(parts) = got.payload {
            let trouble = self.last_trouble.clone();
            let parts = parts.inspect(move |part| {
                if part.is_ok() {
                    trouble.answered();
                }
            });
            got.payload = GetResultPayload::Stream(parts.boxed());
        }
        Ok(got)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.small().delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.small().list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.small().list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.small().list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.small().copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn a_large_request_has_more_time() {
        assert_eq!(patience(0), Duration::from_secs(10));
        assert_eq!(patience(8 << 20), Duration::from_secs(42));
        let mut seconds = Vec::new();
        let stores = [InMemory::new(), InMemory::new(), InMemory::new()].map(Arc::new);
        let mut unused = stores.clone().into_iter();
        let by_size = BySize::new(|once, all| {
            seconds.push((once.as_secs(), all.as_secs()));
            Ok(unused.next().expect("one for each size"))
        });
        let by_size = by_size.unwrap();
        assert_eq!(seconds, [(11, 22), (46, 92), (522, 1044)]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for (name, bytes, client) in [
                ("p/volume", 100, 0),
                ("p/data/1-1", 8 << 20, 1),
                ("p/map/compacted/1", 10 << 20, 2),
            ] {
                let path = Path::from(name);
                let put = by_size.put(&path, PutPayload::from(vec![7; bytes])).await;
                put.unwrap_or_else(|error| panic!("{name}: {error}"));
                for (number, store) in stores.iter().enumerate() {
                    assert_eq!(store.head(&path).await.is_ok(), number == client, "{name}");
                }
            }
            // What is read whole is as large as its name tells.
            assert!(by_size.get(&Path::from("p/volume")).await.is_ok());
            assert!(by_size.get(&Path::from("p/data/1-1")).await.is_ok());
            assert!(by_size.get_range(&Path::from("p/data/1-1"), 0..1 << 20).await.is_ok());
            assert!(by_size.get_range(&Path::from("p/volume"), 0..10).await.is_ok());
            // What is not there is an answer.
            assert!(by_size.get(&Path::from("p/nothing")).await.is_err());
            assert_eq!(by_size.last_trouble().words(), None);
            let source = "no answer".into();
            let failed: Result<()> = Err(Error::Generic { store: "S3", source });
            let _ = by_size.last_trouble.note(&Path::from("p/map/wal/1"), failed);
            let words = by_size.last_trouble().words().unwrap();
            assert!(words.contains("p/map/wal/1") && words.contains("no answer"), "{words}");
            assert!(by_size.get(&Path::from("p/volume")).await.is_ok());
            assert_eq!(by_size.last_trouble().words(), None);
        });
    }
}
