//! `dcd trace replay`: the requests of a trace, sent to a real disk, in real time.
//!
//! One thread sends each request when it is due, the other receives. Times are from sending to
//! receiving.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use dcd_client::nbd::{NbdClient, NbdReceiver, NbdRequest};
use dcd_sim::distribution::{Distribution, Percentiles};
use dcd_sim::pace::{Pace, Pacer};
use dcd_sim::trace::{Flags, Operation, Request, TraceError};
use dcd_study::StudyError;
use dcd_study::load::TraceInputArguments;
use serde_json::json;

use super::{for_each_request, percentile_cells, percentile_table};
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::Paint;
use crate::stdout::{print, print_json};

/// Below this a sleep is less exact than looking at the clock.
const SPIN: Duration = Duration::from_micros(200);
/// Longest request: what NBD servers take at least.
const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// How it is replayed.
pub struct ReplayOptions {
    pub pace: Pace,
    pub requests_max: u64,
    pub as_json: bool,
}

/// A request that was sent, as the receiver is told of it.
struct Sent {
    cookie: u64,
    operation: Operation,
    length: u32,
    at: Instant,
}

/// Response times in nanoseconds: of reads, writes, flushes.
#[derive(Default)]
struct Measured {
    reads: Distribution,
    writes: Distribution,
    flushes: Distribution,
}

pub fn run(
    path: &Path,
    input: &TraceInputArguments,
    socket: &Path,
    options: &ReplayOptions,
) -> Result<(), CommandError> {
    let failed =
        |source| CommandError::Lab(LabError::NbdServer { socket: socket.to_owned(), source });
    let mut client = NbdClient::connect(socket).map_err(failed)?;
    let receiver = client.receiver().map_err(failed)?;
    let (tell_sent, sent) = channel();
    let (tell_done, done) = channel();
    let receiving = std::thread::spawn(move || receive(receiver, &sent, &tell_done));
    let sending = send(path, input, &mut client, options, &tell_sent, &done);
    // The receiver ends when all that was sent is answered.
    drop(tell_sent);
    let measured = receiving.join().expect("it does not panic");
    let (skipped, started) = sending?;
    let measured = measured.map_err(failed)?;
    let seconds = started.elapsed().as_secs_f64();
    client.disconnect();
    show(&measured, skipped, seconds, options.as_json)
}

/// Sends all requests; returns how many were left out, and when it began.
fn send(
    path: &Path,
    input: &TraceInputArguments,
    client: &mut NbdClient,
    options: &ReplayOptions,
    sent: &Sender<Sent>,
    done: &Receiver<Instant>,
) -> Result<(u64, Instant), CommandError> {
    let mut pacer = Pacer::new(options.pace);
    let zeroes = vec![0; REQUEST_BYTES_MAX as usize];
    let (mut count, mut skipped, mut under_way) = (0, 0, 0u64);
    let started = Instant::now();
    let mut end = started;
    let mut is_gone = false;
    for_each_request(path, input, "replaying", |reader, request| {
        count += 1;
        if count > options.requests_max || is_gone {
            return Ok(());
        }
        let refuse = |field, why: &str| {
            CommandError::from(StudyError::Replay {
                place: reader.refused(request, field, why.to_owned()),
                hint: "use a smaller --stretch, or `dcd trace convert` a part of the trace",
            })
        };
        for at in done.try_iter() {
            (end, under_way) = (end.max(at), under_way - 1);
        }
        while pacer.is_closed() && under_way > 0 {
            // Nobody tells any more: the receiver has an error, which is told below.
            let Ok(at) = done.recv() else { return Ok(()) };
            (end, under_way) = (end.max(at), under_way - 1);
        }
        let end_ns = end.duration_since(started).as_nanos() as u64;
        let due_ns = pacer.submission_ns(request, end_ns);
        let due_ns = due_ns.ok_or_else(|| refuse("time", "stretched to more than a century"))?;
        if request.operation == Operation::Discard {
            skipped += 1;
            return Ok(());
        }
        if request.size_bytes > REQUEST_BYTES_MAX {
            return Err(refuse("length", "more than 32 MiB in one request"));
        }
        wait_until(started + Duration::from_nanos(due_ns));
        match send_one(client, request, &zeroes, sent) {
            Ok(count) => under_way += count,
            // The server went away; the receiver knows why.
            Err(_) => is_gone = true,
        }
        Ok(())
    })?;
    if count == 0 {
        return Err(TraceError::Empty { path: path.to_owned() }.into());
    }
    Ok((skipped, started))
}

/// Sends a request, and a flush before it if it has PREFLUSH. How many were sent.
fn send_one(
    client: &mut NbdClient,
    request: &Request,
    zeroes: &[u8],
    sent: &Sender<Sent>,
) -> io::Result<u64> {
    let length = request.size_bytes as u32;
    let offset = request.offset_bytes;
    let is_write = request.operation == Operation::Write;
    let has_flush = is_write && request.flags.contains(Flags::PREFLUSH);
    let fua = request.flags.contains(Flags::FUA);
    let own = match request.operation {
        Operation::Read => NbdRequest::Read { offset, length },
        Operation::Write => NbdRequest::Write { offset, data: &zeroes[..length as usize], fua },
        Operation::Flush | Operation::Discard => NbdRequest::Flush,
    };
    let flush = has_flush.then_some((NbdRequest::Flush, Operation::Flush));
    let all = [flush, Some((own, request.operation))];
    let mut count = 0;
    for (request, operation) in all.into_iter().flatten() {
        let at = Instant::now();
        let cookie = client.send(request)?;
        let length = if operation == Operation::Read { length } else { 0 };
        let told = sent.send(Sent { cookie, operation, length, at });
        // Nobody receives any more: to go on would fill the connection, and wait for ever.
        told.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        count += 1;
    }
    Ok(count)
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > SPIN {
        std::thread::sleep(left - SPIN);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

fn receive(
    mut receiver: NbdReceiver,
    sent: &Receiver<Sent>,
    done: &Sender<Instant>,
) -> io::Result<Measured> {
    let mut measured = Measured::default();
    let mut waiting: HashMap<u64, Sent> = HashMap::new();
    loop {
        if waiting.is_empty() {
            let Ok(first) = sent.recv() else { return Ok(measured) };
            waiting.insert(first.cookie, first);
        }
        let cookie = receiver.receive(|cookie| {
            // What is answered has been sent, and is told of at once.
            while !waiting.contains_key(&cookie) {
                let Ok(next) = sent.recv() else { break };
                waiting.insert(next.cookie, next);
            }
            waiting.get(&cookie).map_or(0, |sent| sent.length)
        })?;
        let now = Instant::now();
        let Some(Sent { operation, at, .. }) = waiting.remove(&cookie) else { continue };
        let times = match operation {
            Operation::Read => &mut measured.reads,
            Operation::Write => &mut measured.writes,
            Operation::Flush | Operation::Discard => &mut measured.flushes,
        };
        times.add((now - at).as_nanos() as u64);
        // The sender listens only when it waits for each.
        let _ = done.send(now);
    }
}

fn show(
    measured: &Measured,
    skipped: u64,
    seconds: f64,
    as_json: bool,
) -> Result<(), CommandError> {
    let Measured { reads, writes, flushes } = measured;
    let ms = |times: &Distribution| times.percentiles(1e6);
    if as_json {
        let facts = |times| json!({ "response_ms": ms(times) });
        return print_json(&json!({
            "requests": reads.count() + writes.count() + flushes.count() + skipped,
            "reads": reads.count(),
            "writes": writes.count(),
            "flushes": flushes.count(),
            "discards": skipped,
            "duration_s": seconds,
            "read": facts(reads),
            "write": facts(writes),
            "flush": facts(flushes),
        }));
    }
    let mut table = percentile_table("response, ms");
    for (name, times) in [("reads", reads), ("writes", writes), ("flushes", flushes)] {
        let percentiles: Option<Percentiles> = ms(times);
        if let Some(percentiles) = percentiles {
            let name = format!("{} {name}", times.count());
            table.row(percentile_cells(&name, &percentiles));
        }
    }
    let left_out =
        if skipped > 0 { format!(", {skipped} discards left out") } else { String::new() };
    print(&format!("{seconds:.1} s{left_out}\n\n{}", table.render(Paint::for_stdout())))
}
