//! How the server takes what is asked of it: whether it says that it is full, or refuses. Seen at
//! each answer, before anybody makes the request again, so that people are told of the first one.
//!
//! ```text
//! a request -> its answer --- 507, or a quota -------> full      not made again by the client
//!                         \-- 401, 403 --------------> refused
//!                          \- well, see `is_over` ---> well
//! ```
//! A server without room may take small objects, and one that refuses some may take others. So
//! trouble is over when it takes the same object again, another one of its folder (of data, one as
//! large), or has said no such thing for a while.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dcd_protocol::store::{StoreNews, StoreTrouble, StoreTroubleKind};
use futures::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use tokio::sync::watch;

/// Longer than anybody waits between two attempts: then it is over though nothing as large was
/// written.
const QUIET: Duration = Duration::from_secs(60);
/// Most of what an answer says that is read.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Most of that that is told.
const WORDS_MAX: usize = 200;

/// What was asked for, as far as it counts here.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Asked {
    is_write: bool,
    object: String,
    bytes: usize,
}

impl Asked {
    /// What may be refused together: `data`, `map`.
    fn folder(&self) -> (bool, &str) {
        (self.is_write, self.object.split_once('/').map_or("", |(folder, _)| folder))
    }

    /// Whether there is nothing against `other` any more, when this went well.
    fn proves(&self, other: &Asked) -> bool {
        let is_data = self.folder() == (true, "data");
        self.object == other.object || !is_data || self.bytes >= other.bytes
    }
}

struct Noted {
    asked: Asked,
    last: Instant,
}

struct State {
    /// By folders, and whether it was to be written there.
    noted: BTreeMap<(bool, String), Noted>,
    began: Instant,
}

/// See the module. All clones are the same.
#[derive(Clone)]
pub(crate) struct Standing {
    state: Arc<Mutex<State>>,
    news: watch::Sender<StoreNews>,
}

impl Default for Standing {
    fn default() -> Standing {
        let state = State { noted: BTreeMap::new(), began: Instant::now() };
        Standing { state: Arc::new(Mutex::new(state)), news: watch::Sender::default() }
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.news.borrow().fmt(f)
    }
}

impl Standing {
    /// Now, and each change.
    pub(crate) fn watch(&self) -> watch::Receiver<StoreNews> {
        self.news.subscribe()
    }

    /// What it says at this time.
    pub(crate) fn trouble(&self) -> Option<StoreTrouble> {
        match &*self.news.borrow() {
            StoreNews::Trouble(trouble) => Some(trouble.clone()),
            StoreNews::Well | StoreNews::Unknown => None,
        }
    }

    fn refused(&self, asked: Asked, trouble: StoreTrouble) {
        // Held until it is told: what others are told is what is noted, in that order.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_write, folder) = asked.folder();
        let folder = (is_write, folder.to_owned());
        // The largest counts: if that is taken, all are.
        let asked = match state.noted.remove(&folder) {
            Some(before) if before.asked.bytes > asked.bytes => before.asked,
            _ => asked,
        };
        state.noted.insert(folder, Noted { asked, last: Instant::now() });
        self.news.send_if_modified(|news| match news {
            // Of which object is no news.
            StoreNews::Trouble(before) if before.kind == trouble.kind => false,
            _ => {
                *news = StoreNews::Trouble(trouble);
                true
            }
        });
    }

    fn taken(&self, asked: &Asked, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_long_ago = |then: Instant| now.saturating_duration_since(then) >= QUIET;
        state.noted.retain(|(is_write, folder), noted| {
            let is_of_it = (*is_write, folder.as_str()) == asked.folder();
            let is_over = is_long_ago(noted.last) && *is_write == asked.is_write;
            !(is_over || is_of_it && asked.proves(&noted.asked))
        });
        // A process that has begun has seen nothing that counts yet.
        let is_known = *self.news.borrow() != StoreNews::Unknown
            || asked.folder() == (true, "data")
            || is_long_ago(state.began);
        let is_well = is_known && state.noted.is_empty();
        if is_well && *self.news.borrow() != StoreNews::Well {
            self.news.send_replace(StoreNews::Well);
        }
    }
}

/// Makes clients whose answers are seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) standing: Standing,
    /// How people name the store.
    pub(crate) store: String,
    /// What the names of its objects begin with.
    pub(crate) prefix: String,
}

impl HttpConnector for Seen {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(SeenClient {
            client: ReqwestConnector::default().connect(options)?,
            standing: self.standing.clone(),
            store: self.store.clone(),
            prefix: format!("/{}/", self.prefix),
        }))
    }
}

#[derive(Debug)]
struct SeenClient {
    client: HttpClient,
    standing: Standing,
    store: String,
    prefix: String,
}

/// There is no room: nobody makes the request again for that.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Full(String);

impl SeenClient {
    /// `None`: a request that says nothing of the store's own objects.
    fn asked(&self, request: &HttpRequest) -> Option<(Asked, &'static str)> {
        let (method, path) = (request.method().as_str(), request.uri().path());
        let object = path.split_once(&self.prefix).map_or("", |(_, object)| object);
        let (action, is_write) = match method {
            "PUT" | "POST" => ("write", true),
            "GET" | "HEAD" if object.is_empty() => ("list", false),
            "GET" | "HEAD" => ("read", false),
            // Deleting frees room, and tells nothing of writing.
            _ => return None,
        };
        let (object, bytes) = (object.to_owned(), request.body().content_length());
        Some((Asked { is_write, object, bytes }, action))
    }
}

#[async_trait]
impl HttpService for SeenClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asked = self.asked(&request);
        let response = self.client.execute(request).await?;
        let Some((asked, action)) = asked else { return Ok(response) };
        let status = response.status();
        if status.is_success() || status.as_u16() == 304 {
            self.standing.taken(&asked, Instant::now());
            return Ok(response);
        }
        if !matches!(status.as_u16(), 400 | 401 | 403 | 409 | 429 | 500..=599) {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = beginning_of(body).await?;
        if let Some(kind) = kind_of(status.as_u16(), &String::from_utf8_lossy(&body)) {
            let said = words_of(status.as_u16(), &String::from_utf8_lossy(&body));
            let what = match kind {
                StoreTroubleKind::Full => "is full",
                StoreTroubleKind::Refused => "refuses",
            };
            let object = match asked.object.as_str() {
                "" => "objects".to_owned(),
                object => format!("the object {object}"),
            };
            let problem = format!("{} {what}: cannot {action} {object}: {said}", self.store);
            self.standing.refused(asked, StoreTrouble { kind, problem });
            if kind == StoreTroubleKind::Full {
                let full = Full(format!("the server has no room: {said}"));
                return Err(HttpError::new(HttpErrorKind::Unknown, full));
            }
        }
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(body)))
    }
}

async fn beginning_of(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut parts = body.bytes_stream();
    let mut bytes = BytesMut::new();
    while let Some(part) = parts.next().await.transpose()? {
        let room = BODY_BYTES_MAX.saturating_sub(bytes.len());
        if room == 0 {
            break;
        }
        bytes.extend_from_slice(&part[..part.len().min(room)]);
    }
    Ok(bytes.freeze())
}

/// Which kind of no an answer is, if it is one. Servers have their own words for being full, with
/// different numbers: XMinioStorageFull, QuotaExceeded, InsufficientStorage.
fn kind_of(status: u16, body: &str) -> Option<StoreTroubleKind> {
    let code = element(body, "Code").unwrap_or_default().to_ascii_lowercase();
    let is_full = ["quota", "storagefull", "insufficientstorage", "nospace", "diskfull"];
    match status {
        507 => Some(StoreTroubleKind::Full),
        _ if is_full.iter().any(|word| code.contains(word)) => Some(StoreTroubleKind::Full),
        401 | 403 => Some(StoreTroubleKind::Refused),
        _ => None,
    }
}

/// `507 XMinioStorageFull: no room`.
fn words_of(status: u16, body: &str) -> String {
    let code = element(body, "Code").unwrap_or_default();
    let message = element(body, "Message").unwrap_or_default();
    let mut words = format!("{status} {code}");
    if !message.is_empty() {
        words += ": ";
        words += message;
    }
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(WORDS_MAX).collect()
}

/// What is in the first element of this name.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once("</")?.0.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_say_in_many_words_that_they_are_full() {
        let body = |code: &str| format!("<Error><Code>{code}</Code><Message>so\n it is</Message>");
        for (status, code, kind) in [
            (507, "", Some(StoreTroubleKind::Full)),
            (507, "XMinioStorageFull", Some(StoreTroubleKind::Full)),
            (403, "QuotaExceeded", Some(StoreTroubleKind::Full)),
            (400, "XMinioAdminBucketQuotaExceeded", Some(StoreTroubleKind::Full)),
            (503, "InsufficientStorage", Some(StoreTroubleKind::Full)),
            (403, "AccessDenied", Some(StoreTroubleKind::Refused)),
            (401, "", Some(StoreTroubleKind::Refused)),
            (503, "SlowDown", None),
            (500, "InternalError", None),
            (400, "EntityTooLarge", None),
        ] {
            assert_eq!(kind_of(status, &body(code)), kind, "{status} {code}");
        }
        assert_eq!(words_of(403, &body("QuotaExceeded")), "403 QuotaExceeded: so it is");
        assert_eq!(kind_of(507, "<Code>"), Some(StoreTroubleKind::Full));
        assert_eq!(words_of(507, "<Code>"), "507");
        assert_eq!(words_of(403, &body(&"x".repeat(1000))).len(), WORDS_MAX);
    }

    #[test]
    fn trouble_is_over_when_as_much_is_taken() {
        let standing = Standing::default();
        let asked = |object: &str, bytes| Asked { is_write: true, object: object.into(), bytes };
        let trouble = |kind| StoreTrouble { kind, problem: "no".into() };
        let now = Instant::now();
        let news = || standing.watch().borrow().clone();
        // What was known before lasts until something counts.
        standing.taken(&asked("map/wal/1", 100), now);
        assert_eq!(news(), StoreNews::Unknown);
        standing.taken(&asked("data/1-1", 100), now);
        assert_eq!(news(), StoreNews::Well);
        standing.refused(asked("data/1-2", 8000), trouble(StoreTroubleKind::Full));
        standing.refused(asked("map/wal/2", 90), trouble(StoreTroubleKind::Full));
        let kind = || standing.trouble().map(|trouble| trouble.kind);
        assert_eq!(kind(), Some(StoreTroubleKind::Full));
        // Small ones may have room, and reads say nothing of that.
        standing.taken(&asked("map/wal/2", 100), now);
        standing.taken(&asked("data/1-4", 100), now);
        standing.taken(&Asked { is_write: false, ..asked("data/1-2", 0) }, now);
        assert_eq!(kind(), Some(StoreTroubleKind::Full));
        standing.taken(&asked("data/1-2", 8000), now);
        assert_eq!(news(), StoreNews::Well);
        // What is taken elsewhere says nothing of what is refused here.
        standing.refused(asked("map/wal/3", 100), trouble(StoreTroubleKind::Refused));
        standing.taken(&asked("data/1-5", 8000), now);
        assert_eq!(kind(), Some(StoreTroubleKind::Refused));
        standing.taken(&asked("map/wal/4", 90), now);
        assert_eq!(news(), StoreNews::Well);
        standing.refused(asked("data/1-3", 8000), trouble(StoreTroubleKind::Refused));
        standing.taken(&asked("map/wal/3", 100), Instant::now() + QUIET);
        assert_eq!(news(), StoreNews::Well);
    }
}
