//! Objects that are files of somebody, such as traces, and no part of a store.

use std::fs::File;
use std::future::Future;
use std::io::Write;
use std::path::Path as FilePath;

use dcd_protocol::store::{StoreFailure, StoreName};
use futures::StreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::objects::{Bucket, failure};
use crate::offline::runtime;

fn run<T>(what: impl Future<Output = Result<T, StoreFailure>>) -> Result<T, StoreFailure> {
    let boxed: Box<dyn Future<Output = Result<T, StoreFailure>>> = Box::new(what);
    runtime()?.block_on(Box::into_pin(boxed))
}

/// The names of all objects below this one, whole ones, sorted.
///
/// # Errors
/// If the name is none, or nobody answers.
pub fn list(name: &str) -> Result<Vec<String>, StoreFailure> {
    let name: StoreName = name.parse().map_err(|error: dcd_protocol::store::StoreNameError| {
        failure(format!("{name}: {error}"), &error.hint())
    })?;
    run(async {
        let bucket = Bucket::open(&name)?;
        let (root, below) = match &name {
            StoreName::Directory(path) => (format!("s3+file://{}", path.display()), None),
            StoreName::Bucket { bucket, prefix } => {
                (format!("s3://{bucket}"), Some(Path::from(prefix.as_str())))
            }
        };
        let mut listed = bucket.store.list(below.as_ref());
        let mut found = Vec::new();
        while let Some(meta) = listed.next().await {
            let meta = meta.map_err(|error| bucket.trouble("list", "", &error))?;
            found.push(format!("{root}/{}", meta.location));
        }
        found.sort();
        Ok(found)
    })
}

/// Brings an object that was listed into a new file.
///
/// # Errors
/// If it is not there any more, nobody answers, or the file cannot be written.
pub fn fetch(object: &str, to: &FilePath) -> Result<(), StoreFailure> {
    let unknown = || failure(format!("{object} is no object"), "");
    let (scheme, rest) = object.split_once("://").ok_or_else(unknown)?;
    let (name, key) = match scheme {
        "s3" => {
            let (bucket, key) = rest.split_once('/').ok_or_else(unknown)?;
            (StoreName::Bucket { bucket: bucket.to_owned(), prefix: String::new() }, key)
        }
        _ => {
            let (folder, key) = rest.rsplit_once('/').ok_or_else(unknown)?;
            (StoreName::Directory(folder.into()), key)
        }
    };
    let written = |error: std::io::Error| {
        failure(format!("cannot write {}: {error}", to.display()), "TMPDIR names another folder")
    };
    run(async {
        let bucket = Bucket::open(&name)?;
        let path = Path::parse(key).map_err(|_| unknown())?;
        let trouble = |error| bucket.trouble("read", key, &error);
        let mut pieces = bucket.store.get(&path).await.map_err(trouble)?.into_stream();
        let mut file = File::create_new(to).map_err(written)?;
        while let Some(piece) = pieces.next().await {
            file.write_all(&piece.map_err(trouble)?).map_err(written)?;
        }
        Ok(())
    })
}
