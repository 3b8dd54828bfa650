//! `dcd web`: all caches of a machine on one page, from their control sockets.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use dcd_daemon::control::client::{ControlClient, for_people};
use dcd_daemon::http::address::{Door, HttpAddress};
use dcd_daemon::http::answer::{Answer, event};
use dcd_daemon::http::page;
use dcd_daemon::http::request::{HttpRequest, HttpStatus};
use dcd_daemon::http::server::{HttpServer, Reply, Site};
use dcd_daemon::serve::ServeError;
use serde_json::{Value, json};

use crate::daemons;
use crate::error::CommandError;
use crate::ready_line::ReadyLine;

/// How often daemons are asked while somebody watches.
const INTERVAL: Duration = Duration::from_secs(1);
/// A daemon that hangs holds up the others for so long, and no page.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many caches are shown.
const CACHES_MAX: usize = 64;

/// Show all caches of this machine on one page.
///
/// It asks the control sockets of services, once a second while somebody watches; so it needs to be
/// root, or the user of the daemons. Nothing can be changed there. It runs until it is ended.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd web
  dcd web --http unix:/run/dcd.http
  dcd web --http 127.0.0.1:0 --sockets /run/dcd")]
pub struct WebArguments {
    /// Where: 127.0.0.1:PORT, `[::1]:PORT` or unix:PATH. Every user of this machine can read it at a
    /// port, only root and your own user at a socket.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9466")]
    pub http: HttpAddress,
    /// Where services have their control sockets, as NAME.ctl; others are not looked at.
    #[arg(long, value_name = "DIRECTORY", default_value = daemons::DIRECTORY)]
    pub sockets: PathBuf,
}

pub fn run(arguments: &WebArguments) -> Result<(), CommandError> {
    let is_there = match std::fs::read_dir(&arguments.sockets) {
        Ok(_) => true,
        // The place of services is made by the first that starts.
        Err(source)
            if source.kind() == ErrorKind::NotFound
                && arguments.sockets == Path::new(daemons::DIRECTORY) =>
        {
            false
        }
        Err(source) => return Err(CommandError::file("list", &arguments.sockets)(source)),
    };
    let door = Door::page(&arguments.http).map_err(ServeError::from)?;
    let shown = Arc::new(Shown::default());
    let site = FleetSite { shown: shown.clone() };
    let server =
        HttpServer::start(vec![door], site).map_err(ServeError::system("serve the page"))?;
    let address = match server.page_address() {
        Some(address) => format!("http://{address}/"),
        None => arguments.http.to_string(),
    };
    if !is_there {
        eprintln!(
            "dcd: note: {} is not there: no service has been started, and there is nothing to show until one is",
            daemons::DIRECTORY
        );
    }
    let mut line = ReadyLine::new();
    line.add("http", address);
    line.print()?;
    loop {
        // The first look is for whoever comes first.
        if shown.take_wanted() {
            shown.set(look(&arguments.sockets));
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Asks all daemons, one after the other.
fn look(directory: &Path) -> Value {
    let sockets = daemons::all(directory);
    let caches = sockets.iter().take(CACHES_MAX).map(|socket| {
        let name = socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let asked =
            ControlClient::connect_within(socket, PATIENCE).and_then(|mut client| client.status());
        match asked {
            Ok(status) => json!({ "name": name, "status": for_people(&status) }),
            Err(error) => json!({ "name": name, "status": null, "error": error.to_string() }),
        }
    });
    let caches: Vec<Value> = caches.collect();
    json!({ "ok": true, "directory": directory.display().to_string(), "caches": caches })
}

/// What was seen last, and whether somebody wants to see it.
struct Shown {
    state: Mutex<(Option<Arc<Value>>, bool)>,
}

impl Default for Shown {
    fn default() -> Shown {
        Shown { state: Mutex::new((None, true)) }
    }
}

impl Shown {
    fn state(&self) -> std::sync::MutexGuard<'_, (Option<Arc<Value>>, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, seen: Value) {
        self.state().0 = Some(Arc::new(seen));
    }

    fn take_wanted(&self) -> bool {
        std::mem::take(&mut self.state().1)
    }

    /// What was seen, and that it is wanted again.
    fn get(&self) -> Option<Arc<Value>> {
        let mut state = self.state();
        state.1 = true;
        state.0.clone()
    }
}

struct FleetSite {
    shown: Arc<Shown>,
}

impl Site for FleetSite {
    fn answer(&mut self, request: &HttpRequest) -> Reply {
        if request.method.changes() {
            return Reply::Whole(Answer::refused_at(
                &request.path,
                HttpStatus::MethodNotAllowed,
                "that method is not for it",
                "there is only GET",
            ));
        }
        Reply::Whole(match (request.path.as_str(), self.shown.get()) {
            ("/", _) => page::fleet()
                .unwrap_or_else(|_| Answer::refused(HttpStatus::Unavailable, "ask again")),
            ("/api/v1/events", seen) => {
                let first = seen.map(|seen| event("fleet", &seen));
                return Reply::Stream(first.unwrap_or_else(|| b"retry: 1000\n\n"[..].into()));
            }
            ("/api/v1/fleet", Some(seen)) => Answer::json(&seen, HttpStatus::Unavailable),
            ("/api/v1/fleet", None) => Answer::refused(HttpStatus::Unavailable, "ask again"),
            (path, _) => Answer::refused_at(
                path,
                HttpStatus::NotFound,
                "there is no such thing",
                "there are /, /api/v1/fleet and /api/v1/events",
            ),
        })
    }

    fn second(&mut self, is_watched: bool) -> Option<Arc<[u8]>> {
        let seen = if is_watched { self.shown.get() } else { None };
        seen.map(|seen| event("fleet", &seen))
    }
}
