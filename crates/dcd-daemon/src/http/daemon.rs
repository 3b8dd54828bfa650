//! What is answered of one daemon.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dcd_engine::engine::DirtyMap;
use dcd_engine::units::{LINE_SIZE, Line};
use dcd_protocol::{Code, Failure, WantedSettings};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::control::settings::{self, SharedSettings};
use crate::control::{answers, sequences};
use crate::event_loop::submitter::{DrainTicket, Submitter};
use crate::http::answer::{Answer, event};
use crate::http::history::{History, Moment, Sample};
use crate::http::news::{self, NewsLog, Told, Weight};
use crate::http::page;
use crate::http::request::{HttpRequest, HttpStatus, Method};
use crate::http::server::{Job, Reply, Site};
use crate::http::token::Token;
use crate::metrics::export;
use crate::metrics::open_metrics::CONTENT_TYPE;
use crate::report::status_report::{DaemonFacts, StatusReport};

/// A report is shown so long: however many ask, the event loop is asked five times a second.
const REPORT_AGE_MAX: Duration = Duration::from_millis(200);
/// Sequences may be thousands.
const SEQUENCES_AGE_MAX: Duration = Duration::from_secs(5);
/// Cells of a map, if nobody says how many.
const CELLS_DEFAULT: usize = 2048;

/// What can be asked: method and path, as `openapi.json` describes them.
pub const ROUTES: [(&str, &str); 13] = [
    ("get", "/"),
    ("get", "/metrics"),
    ("get", "/api/v1/openapi.json"),
    ("get", "/api/v1/status"),
    ("get", "/api/v1/events"),
    ("get", "/api/v1/news"),
    ("get", "/api/v1/history"),
    ("get", "/api/v1/map"),
    ("get", "/api/v1/sequences"),
    ("get", "/api/v1/settings"),
    ("put", "/api/v1/settings/{key}"),
    ("post", "/api/v1/drain"),
    ("delete", "/api/v1/drain"),
];

const OPEN_API: &str = include_str!("openapi.json");

/// What came of a drain that was begun here: words of an error, or nothing.
type Drained = Arc<Mutex<Option<Result<(), String>>>>;

/// See the module.
pub struct DaemonSite {
    submitter: Submitter,
    facts: Arc<DaemonFacts>,
    settings: Option<SharedSettings>,
    token: Option<Token>,
    history: History,
    news: NewsLog,
    /// The number of the last news that those who watch have.
    shown: u64,
    last_look: Option<(Instant, Box<StatusReport>)>,
    report: Option<(Instant, Arc<StatusReport>)>,
    sequences: Option<(Instant, Arc<Value>)>,
    drain: Option<(DrainTicket, Drained)>,
}

impl DaemonSite {
    /// The site of the daemon behind `submitter`; without a token nobody may change anything.
    pub fn new(
        submitter: Submitter,
        facts: Arc<DaemonFacts>,
        settings: Option<SharedSettings>,
        token: Option<Token>,
    ) -> DaemonSite {
        DaemonSite {
            submitter,
            facts,
            settings,
            token,
            history: History::default(),
            news: NewsLog::default(),
            shown: 0,
            last_look: None,
            report: None,
            sequences: None,
            drain: None,
        }
    }

    /// The report, a moment old at most.
    fn report(&mut self) -> Option<Arc<StatusReport>> {
        if let Some((made, report)) = &self.report
            && made.elapsed() < REPORT_AGE_MAX
        {
            return Some(report.clone());
        }
        let facts = self.facts.clone();
        let report = self.submitter.ask(move |snapshot| StatusReport::of(&facts, snapshot));
        let report = Arc::new(report.flatten()?);
        self.report = Some((Instant::now(), report.clone()));
        Some(report)
    }

    fn of_report(&mut self, make: impl FnOnce(&StatusReport) -> Answer) -> Answer {
        match self.report() {
            Some(report) => make(&report),
            None => not_now(),
        }
    }

    /// Who watches gets all that is known first, and then what is new.
    fn greeting(&mut self) -> Arc<[u8]> {
        let report = self.report();
        let hello = json!({
            "status": report.as_deref(),
            "news": self.news.since(0),
            "may_change": self.token.is_some(),
        });
        let mut bytes = b"retry: 1000\n".to_vec();
        bytes.extend_from_slice(&event("hello", &hello));
        bytes.into()
    }

    /// Looks at the cache once more: what has happened, and what was counted.
    fn look(&mut self, is_watched: bool) -> Option<(Arc<StatusReport>, Option<Sample>)> {
        let facts = self.facts.clone();
        let looked = self.submitter.ask(move |snapshot| {
            let report = match is_watched {
                true => StatusReport::of(&facts, snapshot),
                false => StatusReport::brief(&facts, snapshot),
            };
            report.map(|report| (report, snapshot.response_times.classes()))
        });
        let (report, classes) = looked.flatten()?;
        let (now, at) = (Instant::now(), unix_seconds());
        let told: Vec<Told> = match &self.last_look {
            None => vec![news::opened(&report)],
            Some((_, before)) => news::changes(before, &report),
        };
        told.into_iter().for_each(|told| self.news.add(told, at));
        let span = self.last_look.as_ref().map_or(Duration::ZERO, |(then, _)| now - *then);
        let sample = self.history.add(Moment::of(&report, classes), at, span);
        let report = Arc::new(report);
        if is_watched {
            self.report = Some((now, report.clone()));
        }
        self.last_look = Some((now, Box::new((*report).clone())));
        Some((report, sample))
    }

    /// Whether somebody may change something.
    fn may_change(&self, request: &HttpRequest) -> Result<(), Answer> {
        let Some(token) = &self.token else {
            return Err(refusal(
                HttpStatus::Forbidden,
                Code::NotAllowed,
                "nothing can be changed here",
                "start dcd with --http-token FILE; or use `dcd set` and `dcd drain`",
            ));
        };
        if request.token.as_deref().is_some_and(|said| token.is(said)) {
            return Ok(());
        }
        Err(refusal(
            HttpStatus::Unauthorized,
            Code::NotAllowed,
            "the token is another one",
            "send Authorization: Bearer TOKEN, with what is in the file of --http-token",
        ))
    }

    fn set(&mut self, key: &str, body: &[u8]) -> Answer {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Body {
            value: String,
        }
        let Ok(Body { value }) = serde_json::from_slice(body) else {
            return refusal(
                HttpStatus::BadRequest,
                Code::BadRequest,
                "expected {\"value\":\"...\"}",
                "an empty value is what the flag, the file or the default says",
            );
        };
        let why = format!("somebody with the token has set it to {value:?}, on the page");
        let wanted = WantedSettings::from([(key.to_owned(), value)]);
        let answer = settings::run(self.settings.as_ref(), &self.submitter, &wanted);
        if answer["changed"].as_array().is_some_and(|changed| !changed.is_empty()) {
            self.news.add((Weight::Note, format!("{key} was changed"), why), unix_seconds());
        }
        Answer::json(&answer, HttpStatus::BadRequest)
    }

    fn begin_drain(&mut self) -> Answer {
        if self.drain.is_none() {
            let (ticket, drained) = (self.submitter.new_ticket(), Drained::default());
            let done = drained.clone();
            self.submitter.drain(ticket, move |reply| {
                let result = reply.result.map_err(|error| error.to_string());
                *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            });
            self.drain = Some((ticket, drained));
        }
        let status = json!({ "ok": true, "hint": "the status says how far it is" });
        Answer::json(&status, HttpStatus::BadRequest).with_status(HttpStatus::Accepted)
    }

    fn cancel_drain(&mut self) -> Answer {
        match &self.drain {
            Some((ticket, _)) => {
                self.submitter.cancel_drain(*ticket);
                Answer::json(&answers::success(), HttpStatus::BadRequest)
            }
            None => refusal(
                HttpStatus::Conflict,
                Code::NotUnderWay,
                "no drain that was begun here is under way",
                "`dcd drain --cancel` ends those of others",
            ),
        }
    }

    /// A drain that has ended.
    fn note_drain(&mut self) {
        let Some((_, drained)) = &self.drain else { return };
        let ended = drained.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ended) = ended else { return };
        self.drain = None;
        if let Err(error) = ended {
            let what = "a drain has not come to its end".to_owned();
            self.news.add((Weight::Warning, what, error), unix_seconds());
        }
    }

    /// A map of where the disk is dirty: of a whole disk at once, of a part of it in steps.
    fn map(&self, request: &HttpRequest) -> Result<Job, Answer> {
        let number = |key: &str| {
            request.number(key).map_err(|word| {
                let error = format!("{key} is a whole number from 0 on, and {word:?} is none");
                bad_request(&error, "for example /api/v1/map?start=0&bytes=1048576&cells=256")
            })
        };
        let start = number("start")?.unwrap_or(0) / LINE_SIZE;
        let lines = number("bytes")?.unwrap_or(u64::MAX).div_ceil(LINE_SIZE).max(1);
        let cells_max = number("cells")?.map_or(CELLS_DEFAULT, |cells| cells.min(1 << 20) as usize);
        let submitter = self.submitter.clone();
        let mut so_far: Option<DirtyMap> = None;
        Ok(Box::new(move || {
            let map = so_far.take();
            let asked = submitter.ask(move |snapshot| {
                let engine = snapshot.core.engine()?;
                let lines = Line(start)..Line(start.saturating_add(lines));
                let mut map = map.unwrap_or_else(|| engine.begin_dirty_map(lines, cells_max));
                let has_more = engine.continue_dirty_map(&mut map);
                Some((map, has_more))
            });
            let Some((map, has_more)) = asked.flatten() else { return Some(not_now()) };
            if has_more {
                so_far = Some(map);
                return None;
            }
            let value = json!({
                "ok": true,
                "start": map.start().0 * LINE_SIZE,
                "cell_bytes": map.cell_lines() * LINE_SIZE,
                "dirty_lines": map.cells(),
            });
            Some(Answer::json(&value, HttpStatus::Unavailable))
        }))
    }

    fn sequences(&mut self) -> Answer {
        let known = self.sequences.take().filter(|(made, _)| made.elapsed() < SEQUENCES_AGE_MAX);
        let (made, list) =
            known.unwrap_or_else(|| (Instant::now(), Arc::new(sequences::list(&self.submitter))));
        let answer = Answer::json(&list, HttpStatus::NotFound);
        self.sequences = Some((made, list));
        answer
    }
}

impl Site for DaemonSite {
    fn answer(&mut self, request: &HttpRequest) -> Reply {
        let path = request.path.as_str();
        let key = path.strip_prefix("/api/v1/settings/").filter(|key| !key.is_empty());
        let json = |value: &Value| Answer::json(value, HttpStatus::NotFound);
        if request.method.changes() {
            let is_known = path == "/api/v1/drain" || key.is_some();
            let answer = match (request.method, path, key) {
                (Method::Put, _, Some(_)) | (Method::Post | Method::Delete, "/api/v1/drain", _) => {
                    match (self.may_change(request), request.method, key) {
                        (Err(refusal), ..) => refusal,
                        (Ok(()), Method::Put, Some(key)) => self.set(key, &request.body),
                        (Ok(()), Method::Post, _) => self.begin_drain(),
                        (Ok(()), ..) => self.cancel_drain(),
                    }
                }
                _ if is_known || ROUTES.iter().any(|(_, known)| *known == path) => {
                    not_allowed(path, WHAT_THERE_IS)
                }
                _ => not_found(path),
            };
            return Reply::Whole(answer);
        }
        Reply::Whole(match path {
            "/" => page::page().unwrap_or_else(|_| not_now()),
            "/metrics" => {
                self.of_report(|report| Answer::of(CONTENT_TYPE, export(report).into_bytes()))
            }
            "/api/v1/openapi.json" => Answer::of("application/json", OPEN_API.as_bytes()),
            "/api/v1/status" => self.of_report(|report| json(&json!(report))),
            "/api/v1/events" if request.method == Method::Head => {
                Answer::of("text/event-stream", [])
            }
            "/api/v1/events" => return Reply::Stream(self.greeting()),
            "/api/v1/news" => json(&json!({ "ok": true, "news": self.news.since(0) })),
            "/api/v1/history" => match request.word("step") {
                None | Some("second") => json(&self.history.json(false)),
                Some("minute") => json(&self.history.json(true)),
                Some(step) => {
                    bad_request(&format!("there is no step {step:?}"), "step is second or minute")
                }
            },
            "/api/v1/map" => match self.map(request) {
                Ok(job) => return Reply::Later(job),
                Err(answer) => answer,
            },
            "/api/v1/sequences" => self.sequences(),
            "/api/v1/settings" => {
                let nothing = WantedSettings::new();
                json(&settings::run(self.settings.as_ref(), &self.submitter, &nothing))
            }
            "/api/v1/drain" => not_allowed(path, "POST begins one, DELETE ends it"),
            _ if key.is_some() => not_allowed(path, "PUT sets it; /api/v1/settings lists all"),
            _ => not_found(path),
        })
    }

    fn second(&mut self, is_watched: bool) -> Option<Arc<[u8]>> {
        self.note_drain();
        let looked = self.look(is_watched);
        let news = self.news.since(self.shown);
        let frame = is_watched.then(|| {
            let (report, sample) = match &looked {
                Some((report, sample)) => (Some(&**report), sample.as_ref().map(Sample::json)),
                None => (None, None),
            };
            event("second", &json!({ "status": report, "sample": sample, "news": news }))
        });
        self.shown = self.news.last();
        frame
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn not_now() -> Answer {
    Answer::refused(HttpStatus::Unavailable, "the cache is being opened or closed: ask again")
}

const WHAT_THERE_IS: &str = "/api/v1/openapi.json says what there is";

fn not_found(path: &str) -> Answer {
    Answer::refused_at(path, HttpStatus::NotFound, "there is no such thing", WHAT_THERE_IS)
}

fn not_allowed(path: &str, hint: &str) -> Answer {
    Answer::refused_at(path, HttpStatus::MethodNotAllowed, "that method is not for it", hint)
}

fn bad_request(error: &str, hint: &str) -> Answer {
    refusal(HttpStatus::BadRequest, Code::BadRequest, error, hint)
}

fn refusal(status: HttpStatus, code: Code, error: &str, hint: &str) -> Answer {
    Answer::json(&Failure::new(code, error, hint).to_value(), status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is described is what there is, and each path is told of in words.
    #[test]
    fn the_description_has_all_routes() {
        let described: Value = serde_json::from_str(OPEN_API).unwrap();
        assert_eq!(described["openapi"], "3.1.0");
        let mut found = Vec::new();
        for (path, methods) in described["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                assert!(operation["summary"].is_string(), "{method} {path}");
                assert!(operation["responses"].is_object(), "{method} {path}");
                found.push((method.as_str(), path.as_str()));
            }
        }
        let mut routes = ROUTES.to_vec();
        routes.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, routes);
    }
}
