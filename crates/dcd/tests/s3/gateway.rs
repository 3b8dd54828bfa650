//! What stands between dcd and a server of S3, and says no in its place.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What is answered to each PUT whose path has this in it, in the place of the server.
#[derive(Clone, Copy)]
pub struct Refusal {
    pub path: &'static str,
    pub status: &'static str,
    pub code: &'static str,
    pub message: &'static str,
}

/// One request on each connection: nothing has to be told apart.
pub struct Gateway {
    pub port: u16,
    refusal: Arc<Mutex<Option<Refusal>>>,
}

impl Gateway {
    pub fn start(server_port: u16) -> Gateway {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let refusal: Arc<Mutex<Option<Refusal>>> = Arc::default();
        let now = refusal.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, now) = (client.unwrap(), now.clone());
                // Who has gone needs no answer.
                std::thread::spawn(move || pass_on(client, server_port, &now));
            }
        });
        Gateway { port, refusal }
    }

    pub fn says(&self, refusal: Option<Refusal>) {
        *self.refusal.lock().unwrap() = refusal;
    }
}

fn pass_on(
    mut client: TcpStream,
    server_port: u16,
    refusal: &Mutex<Option<Refusal>>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 64 << 10];
    let end = loop {
        if let Some(at) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        match client.read(&mut part)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&part[..count]),
        }
    };
    let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    while request.len() < end + length {
        match client.read(&mut part)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let now = *refusal.lock().unwrap();
    let is_for = |it: &Refusal| {
        head.starts_with("put ") && head.lines().next().is_some_and(|line| line.contains(it.path))
    };
    if let Some(Refusal { status, code, message, .. }) = now.filter(is_for) {
        let body = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        return client.write_all(answer.as_bytes());
    }
    let mut server = TcpStream::connect(("127.0.0.1", server_port))?;
    server.write_all(&request[..end - 2])?;
    server.write_all(b"Connection: close\r\n\r\n")?;
    server.write_all(&request[end..])?;
    std::io::copy(&mut server, &mut client).map(|_| ())
}
