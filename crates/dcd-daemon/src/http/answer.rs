//! What is sent back. Each answer keeps a browser from doing more with it than the page needs: it is
//! not stored, framed, guessed at, or read by pages of other sites (there is no CORS).

use std::sync::Arc;

use dcd_protocol::{Code, Failure};
use serde_json::Value;

use crate::http::request::HttpStatus;

/// What a browser may load for an answer that is no page.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// An answer that is whole.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) status: HttpStatus,
    content_type: &'static str,
    policy: Option<String>,
    body: Arc<[u8]>,
}

impl Answer {
    /// A body of this type.
    pub fn of(content_type: &'static str, body: impl Into<Arc<[u8]>>) -> Answer {
        Answer { status: HttpStatus::Ok, content_type, policy: None, body: body.into() }
    }

    /// A page whose one script and one style have this nonce.
    pub fn page(html: String, nonce: &str) -> Answer {
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let content_type = "text/html; charset=utf-8";
        Answer { policy: Some(policy), ..Answer::of(content_type, html.into_bytes()) }
    }

    /// JSON. What is a refusal ("ok":false) has this status.
    pub fn json(value: &Value, refused: HttpStatus) -> Answer {
        let is_refused = value.get("ok").and_then(Value::as_bool) == Some(false);
        let answer = Answer::of("application/json", value.to_string().into_bytes());
        Answer { status: if is_refused { refused } else { HttpStatus::Ok }, ..answer }
    }

    /// A refusal in words.
    pub fn refused(status: HttpStatus, words: &str) -> Answer {
        let body = format!("{words}\n").into_bytes();
        Answer { status, ..Answer::of("text/plain; charset=utf-8", body) }
    }

    /// What cannot be asked of this path: below `/api/` an object as all that is refused there, for
    /// people the hint alone.
    pub fn refused_at(path: &str, status: HttpStatus, error: &str, hint: &str) -> Answer {
        if !path.starts_with("/api/") {
            return Answer::refused(status, hint);
        }
        let failure = Failure::new(Code::BadRequest, format!("{path}: {error}"), hint);
        Answer::json(&failure.to_value(), status)
    }

    /// The same with another status.
    pub fn with_status(self, status: HttpStatus) -> Answer {
        Answer { status, ..self }
    }

    /// What is sent: the head, and the body unless only the head is wanted.
    pub(super) fn bytes(self, head_only: bool) -> Vec<Arc<[u8]>> {
        let length = format!("Content-Length: {}\r\n", self.body.len());
        let policy = self.policy.as_deref().unwrap_or(POLICY);
        let mut bytes = vec![head(self.status, self.content_type, policy, &length)];
        if !head_only && !self.body.is_empty() {
            bytes.push(self.body);
        }
        bytes
    }
}

/// The head of a stream of events.
pub(super) fn stream_head() -> Arc<[u8]> {
    head(HttpStatus::Ok, "text/event-stream", POLICY, "")
}

fn head(status: HttpStatus, content_type: &str, policy: &str, more: &str) -> Arc<[u8]> {
    let status = status.words();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{more}Connection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
         Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n"
    )
    .into_bytes()
    .into()
}

/// An event of a stream.
pub fn event(name: &str, value: &Value) -> Arc<[u8]> {
    // JSON has no line ends of its own.
    format!("event: {name}\ndata: {value}\n\n").into_bytes().into()
}
