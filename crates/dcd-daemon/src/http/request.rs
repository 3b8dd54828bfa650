//! What a client's bytes ask for: HTTP/1.x as far as the page and Prometheus need it.
//!
//! One request for each connection. Bytes are judged as they come: what is decided once is decided,
//! however much more comes. Of headers only four are looked at; a request that says twice or
//! unclearly where it ends is refused, so that nobody in between can see another request than we do.

/// Longest head of a request.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// Longest body.
pub const BODY_BYTES_MAX: usize = 4 << 10;

/// What somebody wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// To read.
    Get,
    /// To read the head of the answer alone.
    Head,
    /// To change something.
    Put,
    /// To begin something.
    Post,
    /// To end it.
    Delete,
}

impl Method {
    /// Whether it may change something.
    pub fn changes(self) -> bool {
        !matches!(self, Method::Get | Method::Head)
    }
}

/// A whole request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRequest {
    /// What is wanted.
    pub method: Method,
    /// Of what; begins with `/`, and is as it was sent: nothing is decoded.
    pub path: String,
    /// What stands behind `?`.
    pub query: String,
    /// The name that the client knows us by.
    pub host: Option<String>,
    /// What it knows.
    pub token: Option<String>,
    /// What was sent with it.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// A number in the query: `key=123`.
    ///
    /// # Errors
    ///
    /// The word that is none.
    pub fn number(&self, key: &str) -> Result<Option<u64>, &str> {
        let Some(word) = self.word(key) else { return Ok(None) };
        word.parse().map(Some).map_err(|_| word)
    }

    /// A word in the query.
    pub fn word(&self, key: &str) -> Option<&str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

/// How far a request has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// It is not whole yet.
    Unfinished,
    /// It is.
    Request(HttpRequest),
    /// It cannot be answered; nothing behind it is looked at.
    Refused(HttpStatus),
}

/// Status of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpStatus {
    /// It is answered.
    Ok,
    /// It is begun.
    Accepted,
    /// Not a request, or one that cannot be.
    BadRequest,
    /// A token is needed, and is another one.
    Unauthorized,
    /// Nobody may: there is no token.
    Forbidden,
    /// There is nothing of that name.
    NotFound,
    /// Not with this method.
    MethodNotAllowed,
    /// It is so already, or cannot be now.
    Conflict,
    /// The body is too long.
    BodyTooLarge,
    /// Somebody else is meant.
    Misdirected,
    /// The head is too long.
    HeadTooLarge,
    /// Too many clients, or the cache is being opened or closed.
    Unavailable,
}

impl HttpStatus {
    /// The number, and the words behind it.
    pub fn words(self) -> &'static str {
        match self {
            HttpStatus::Ok => "200 OK",
            HttpStatus::Accepted => "202 Accepted",
            HttpStatus::BadRequest => "400 Bad Request",
            HttpStatus::Unauthorized => "401 Unauthorized",
            HttpStatus::Forbidden => "403 Forbidden",
            HttpStatus::NotFound => "404 Not Found",
            HttpStatus::MethodNotAllowed => "405 Method Not Allowed",
            HttpStatus::Conflict => "409 Conflict",
            HttpStatus::BodyTooLarge => "413 Content Too Large",
            HttpStatus::Misdirected => "421 Misdirected Request",
            HttpStatus::HeadTooLarge => "431 Request Header Fields Too Large",
            HttpStatus::Unavailable => "503 Service Unavailable",
        }
    }
}

/// What the bytes received so far ask for.
pub fn parse_request(bytes: &[u8]) -> Parsed {
    let Some((head, behind)) = split_head(bytes) else {
        return match bytes.len() < HEAD_BYTES_MAX {
            true => Parsed::Unfinished,
            false => Parsed::Refused(HttpStatus::HeadTooLarge),
        };
    };
    let (mut request, body_bytes) = match parse_head(head) {
        Ok(parsed) => parsed,
        Err(status) => return Parsed::Refused(status),
    };
    match behind.get(..body_bytes) {
        Some(body) => {
            request.body = body.to_vec();
            Parsed::Request(request)
        }
        None => Parsed::Unfinished,
    }
}

/// The head without the blank line behind it, and what comes then.
fn split_head(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let within = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let mut ends = within.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.find_map(|(end, _)| {
        let rest = &within[end + 1..];
        let blank = match rest {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return None,
        };
        Some((&bytes[..end], &bytes[end + 1 + blank..]))
    })
}

/// A request without its body, and how long that is.
fn parse_head(head: &[u8]) -> Result<(HttpRequest, usize), HttpStatus> {
    let head = std::str::from_utf8(head).map_err(|_| HttpStatus::BadRequest)?;
    let mut lines = head.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let mut request = parse_line(lines.next().unwrap_or_default())?;
    let mut body_bytes: Option<&str> = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(HttpStatus::BadRequest)?;
        // A line that goes on the one before, and names that somebody else reads otherwise.
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return Err(HttpStatus::BadRequest);
        }
        let value = value.trim_matches([' ', '\t']);
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(HttpStatus::BadRequest);
        }
        let is = |header: &str| name.eq_ignore_ascii_case(header);
        if is("host") {
            said_once(&mut request.host, value.to_owned())?;
        } else if is("authorization") {
            // Another scheme is no token.
            if let Some(token) = value.strip_prefix("Bearer ") {
                said_once(&mut request.token, token.trim().to_owned())?;
            }
        } else if is("content-length") {
            said_once(&mut body_bytes, value)?;
        } else if is("transfer-encoding") {
            return Err(HttpStatus::BadRequest);
        }
    }
    let Some(length) = body_bytes else { return Ok((request, 0)) };
    if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HttpStatus::BadRequest);
    }
    match length.parse::<usize>() {
        Ok(length) if length <= BODY_BYTES_MAX => Ok((request, length)),
        _ => Err(HttpStatus::BodyTooLarge),
    }
}

fn parse_line(line: &str) -> Result<HttpRequest, HttpStatus> {
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else { return Err(HttpStatus::BadRequest) };
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return Err(HttpStatus::BadRequest);
    }
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "PUT" => Method::Put,
        "POST" => Method::Post,
        "DELETE" => Method::Delete,
        _ => return Err(HttpStatus::MethodNotAllowed),
    };
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(HttpStatus::BadRequest);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(HttpRequest {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        host: None,
        token: None,
        body: Vec::new(),
    })
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn said_once<T>(place: &mut Option<T>, value: T) -> Result<(), HttpStatus> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(HttpStatus::BadRequest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parsed {
        parse_request(text.as_bytes())
    }

    fn whole(text: &str) -> HttpRequest {
        match parsed(text) {
            Parsed::Request(request) => request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn requests_are_told_apart() {
        let get = whole("GET /metrics?x=1&cells=12 HTTP/1.0\nhOST: a:1\n\nmore");
        assert_eq!(
            (get.method, get.path.as_str(), get.number("cells")),
            (Method::Get, "/metrics", Ok(Some(12)))
        );
        assert_eq!((get.host.as_deref(), get.token, get.body), (Some("a:1"), None, vec![]));
        assert_eq!(whole("HEAD / HTTP/1.1\r\n\r\n").method, Method::Head);
        let put =
            whole("PUT /a HTTP/1.1\r\nAuthorization: Bearer  t \r\nContent-Length: 3\r\n\r\nabcd");
        assert_eq!((put.token.as_deref(), put.body.as_slice()), (Some("t"), &b"abc"[..]));
        assert_eq!(whole("GET / HTTP/1.1\nAuthorization: Basic x\n\n").token, None);
        for text in ["", "GET / HTTP/1.1\r\nHost", "PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\nx"] {
            assert_eq!(parsed(text), Parsed::Unfinished, "{text:?}");
        }
    }

    #[test]
    fn what_is_unclear_is_refused() {
        for (text, status) in [
            ("PATCH / HTTP/1.1\n\n", HttpStatus::MethodNotAllowed),
            ("OPTIONS / HTTP/1.1\n\n", HttpStatus::MethodNotAllowed),
            ("GET /metrics\n\n", HttpStatus::BadRequest),
            ("GET / HTTP/2\n\n", HttpStatus::BadRequest),
            ("GET  / HTTP/1.1\n\n", HttpStatus::BadRequest),
            ("GET http://x/ HTTP/1.1\n\n", HttpStatus::BadRequest),
            ("GET /\u{e4} HTTP/1.1\n\n", HttpStatus::BadRequest),
            ("\r\n\r\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\nHost: a\nHost: a\n\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\n Host: a\n\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\nHost : a\n\n", HttpStatus::BadRequest),
            ("GET / HTTP/1.1\nhello\n\n", HttpStatus::BadRequest),
            ("PUT / HTTP/1.1\nTransfer-Encoding: chunked\n\n", HttpStatus::BadRequest),
            ("PUT / HTTP/1.1\nContent-Length: 1\nContent-Length: 1\n\n", HttpStatus::BadRequest),
            ("PUT / HTTP/1.1\nContent-Length: +1\n\n", HttpStatus::BadRequest),
            ("PUT / HTTP/1.1\nContent-Length: 4097\n\n", HttpStatus::BodyTooLarge),
            ("PUT / HTTP/1.1\nContent-Length: 99999999999999999999\n\n", HttpStatus::BodyTooLarge),
        ] {
            assert_eq!(parsed(text), Parsed::Refused(status), "{text:?}");
        }
        let long = vec![b'x'; HEAD_BYTES_MAX];
        assert_eq!(parse_request(&long), Parsed::Refused(HttpStatus::HeadTooLarge));
        assert_eq!(parse_request(&long[1..]), Parsed::Unfinished);
    }
}
