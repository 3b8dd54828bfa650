//! A server that says of the same object that it is there (412, to `If-None-Match`) and that it is
//! not (404).
//!
//! versitygw with `--sidecar` does, once it was killed in the middle of a PUT: attributes are files
//! beside the object, written before it, and what it looks for when it is to write an object that
//! must not be there. SlateDB believes such a 412: somebody else has written that object of the
//! map's log, so it goes on with the next one. Then the log has a gap for ever, and nobody opens
//! the map any more ("wal truncated"), though all that was acknowledged is there.
//!
//! So whoever is told that an object is there looks for it, and where it is not ends with an error
//! that names it. Nothing is written behind the gap: the server is mended, and the store goes on.
//! What is looked for may also have been deleted in between; whoever is refused for that opens the
//! map anew, as with any error. A 412 is rare, so the request costs nothing that counts.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use slatedb_common::retry::NonRetryable;

/// How it is told.
const WORDS: &str = "the server says both that it is there and that it is not";
/// What is to be done.
pub(crate) const HINT: &str = "nothing was written behind it. versitygw with --sidecar is left like that when it is killed: \
                               remove what its sidecar directory has of this object, and run it without --sidecar";

/// Whether these words are of such an error.
pub(crate) fn is_told_in(words: &str) -> bool {
    words.contains(WORDS)
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Compared(pub(crate) Arc<dyn ObjectStore>);

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Compared {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let is_new = options.mode == PutMode::Create;
        let put = self.0.put_opts(location, payload, options).await;
        if !is_new || !matches!(put, Err(Error::AlreadyExists { .. } | Error::Precondition { .. }))
        {
            return put;
        }
        match self.0.head(location).await {
            Ok(_) => put,
            // Asked again, it would say the same again.
            Err(Error::NotFound { .. }) => Err(Error::Generic {
                store: "S3",
                source: Box::new(NonRetryable(format!("{location}: {WORDS}").into())),
            }),
            // Not known: whoever wants to write it asks again.
            Err(error) => Err(error),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}
