//! An engine, its cache-disk, and the process that has the store open for it.
//!
//! That process dies at any request. Then the store is opened again, as the daemon does it: what was
//! under way is asked for once more, and if anything was answered that no flush has covered, the
//! flushes that wait fail, or else the next one (decision 45).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
use dcd_engine::{
    Device, Engine, Input, Io, IoError, IoOperation, Operation, Phase, Reply, RequestId,
    Superblock, Time,
};
use dcd_protocol::store::{Claim, StoreFailure};
use dcd_store::StoreDisk;
use dcd_store::model::{Connection, Host};
use dcd_testkit::{bytes_of, ended};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use crate::disk::{FaultyDisk, Pages};
use crate::memory::PooledMemory;
use crate::options::Options;
use crate::random::Random;
use crate::running::{Flight, Running};

/// A process that has the store open.
#[derive(Clone)]
pub struct Worker {
    /// What it has of the server.
    pub connection: Connection,
    /// The store.
    pub disk: Arc<StoreDisk>,
}

impl Worker {
    /// What is asked of it, unless it dies. One that is of no more use ends itself.
    async fn asked<T>(&self, what: impl Future<Output = Result<T, StoreFailure>>) -> Asked<T> {
        let done = tokio::select! {
            biased;
            done = what => done,
            () = self.connection.ended() => return Asked::Lost,
        };
        if self.disk.broken().is_some() {
            self.connection.end();
            return Asked::Lost;
        }
        done.map_or(Asked::Failed, Asked::Done)
    }
}

enum Asked<T> {
    Done(T),
    Failed,
    Lost,
}

/// What has ended.
enum Ended {
    /// With what it has read.
    Io(Io, Asked<Option<Bytes>>, u64),
    Window(u64, Asked<()>),
}

/// What the user of a machine hears.
pub enum News {
    /// An answer.
    Reply(Reply),
    /// A window is to be ended: the data-disk shows this.
    Window(u64, Pages),
    /// It was ended, or not, as far as the engine knows.
    Kept(u64, bool),
    /// The process has died, and the store is open again.
    Reopened,
    /// It is another's.
    Lost,
}

/// See the module.
pub struct Machine {
    /// The engine, and what it waits for.
    pub running: Running,
    /// The log.
    pub cache_disk: FaultyDisk,
    /// What the store was opened with.
    pub claim: Claim,
    /// Who has it open.
    pub worker: Worker,
    /// By how much the clock is wrong.
    pub ahead_millis: i64,
    host: Host,
    under_way: FuturesUnordered<Pin<Box<dyn Future<Output = Ended>>>>,
    /// To be asked for once more.
    again: Vec<Io>,
    /// Windows that are to be ended when the store is open again.
    waiting_window: Option<u64>,
    /// What the data-disk shows, as the engine has written it.
    shown: Pages,
    /// Changes that were answered, and those of them that a flush has covered.
    answered: u64,
    covered: u64,
    flush_fails: bool,
    /// It has lost the store.
    pub is_lost: bool,
    news: VecDeque<News>,
    since: Instant,
}

/// The superblock of a cache-disk.
pub fn superblock_of(cache_disk: &FaultyDisk) -> Superblock {
    let [first, second] = SUPERBLOCK_OFFSETS.map(|offset| {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        cache_disk.peek(offset as usize, &mut bytes);
        bytes
    });
    Superblock::newest(&first, &second).expect("a cache-disk that nobody damages")
}

impl Machine {
    /// Before the start of the engine.
    pub fn new(host: &Host, cache_disk: FaultyDisk, claim: Claim, worker: Worker) -> Machine {
        let size = worker.disk.size_bytes() as usize;
        Machine {
            running: Running::new(Time::ZERO, false),
            cache_disk,
            claim,
            worker,
            ahead_millis: 0,
            host: host.clone(),
            under_way: FuturesUnordered::new(),
            again: Vec::new(),
            waiting_window: None,
            shown: Pages::new(size),
            answered: 0,
            covered: 0,
            flush_fails: false,
            is_lost: false,
            news: VecDeque::new(),
            since: Instant::now(),
        }
    }

    /// Starts the engine. `false`: the store was lost meanwhile.
    pub async fn start(&mut self, options: &Options, random: &mut Random) -> bool {
        self.look_at_store().await;
        let superblock = superblock_of(&self.cache_disk);
        let config = options.engine();
        let size = Engine::segment_memory_size(&superblock.geometry, &config);
        let memory = Box::new(PooledMemory::new(size, None));
        let bytes = self.cache_disk.len() as u64;
        let now = self.now();
        let opened = Engine::open(now, superblock, bytes, options.data_disk(), config, memory);
        let engine = opened.unwrap_or_else(|error| panic!("a start is refused: {error}"));
        self.running.engine = Some(engine);
        self.poll();
        loop {
            match self.running.engine().phase() {
                Phase::Running => return true,
                Phase::Opening if self.is_lost => return false,
                Phase::Opening => self.turn(None, random).await,
                phase => panic!("a start ends as {phase:?}"),
            }
        }
    }

    /// What the store shows is what the engine finds there.
    async fn look_at_store(&mut self) {
        let trouble = self.host.server.quiet();
        let bytes = self.worker.disk.read_bytes(0, self.shown.len()).await;
        let bytes = bytes.unwrap_or_else(|why| panic!("what was just opened: {why}"));
        self.host.server.trouble_again(trouble);
        self.shown.write(0, &bytes);
    }

    fn now(&mut self) -> Time {
        let elapsed = self.since.elapsed().as_nanos() as u64;
        self.running.now = self.running.now.max(Time(elapsed));
        self.running.now
    }

    /// Something new, if there is.
    pub fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Asks the engine for something.
    pub fn ask(&mut self, operation: Operation, fua: bool) -> RequestId {
        let request = self.running.request(operation, fua);
        let id = RequestId(self.running.next_request - 1);
        self.give(request);
        id
    }

    fn give(&mut self, input: Input) {
        self.now();
        self.running.give(input);
        self.poll();
    }

    /// Takes all that the engine wants.
    fn poll(&mut self) {
        while let Some(io) = self.running.next_io() {
            match io.device {
                Device::DataDisk => self.begin(io),
                _ => {
                    let flush_mark = self.cache_disk.flush_mark();
                    let not_before = Time::ZERO;
                    self.running.ios.push(Flight { io, flush_mark, not_before, early: None });
                }
            }
        }
        let replies = std::mem::take(&mut self.running.replies);
        self.news.extend(replies.into_iter().map(News::Reply));
        if let Some(window) = self.running.asked_window.take() {
            self.news.push_back(News::Window(window, self.shown.clone()));
            self.end_window(window);
        }
    }

    // ---- the store -----------------------------------------------------------------------------

    fn begin(&mut self, io: Io) {
        if self.worker.connection.is_gone() {
            self.again.push(io);
            return;
        }
        if matches!(io.operation, IoOperation::Flush) && std::mem::take(&mut self.flush_fails) {
            let answered = self.answered;
            let failed = async move { Ended::Io(io, Asked::Failed, answered) };
            self.under_way.push(Box::pin(failed));
            return;
        }
        let (worker, answered) = (self.worker.clone(), self.answered);
        let memory = self.running.engine().segment_memory();
        let written = match &io.operation {
            IoOperation::Write { data, .. } => Bytes::copy_from_slice(bytes_of(data, memory)),
            _ => Bytes::new(),
        };
        self.under_way.push(Box::pin(async move {
            let disk = &worker.disk;
            let done = match &io.operation {
                IoOperation::Read { offset, buffer } => {
                    let read = disk.read_bytes(*offset, buffer.len());
                    worker.asked(async { read.await.map(Some) }).await
                }
                IoOperation::Write { offset, fua, .. } => {
                    let (offset, fua) = (*offset, *fua);
                    let write = async {
                        disk.write_bytes(offset, written).await?;
                        if fua {
                            disk.flush().await?;
                        }
                        Ok(None)
                    };
                    worker.asked(write).await
                }
                IoOperation::WriteZeroes { offset, length, .. } => {
                    let zero = disk.zero_bytes(*offset, *length);
                    worker.asked(async { zero.await.map(|()| None) }).await
                }
                IoOperation::Flush => {
                    worker.asked(async { disk.flush().await.map(|()| None) }).await
                }
            };
            Ended::Io(io, done, answered)
        }));
    }

    fn end_window(&mut self, window: u64) {
        if self.worker.connection.is_gone() {
            self.waiting_window = Some(window);
            return;
        }
        let worker = self.worker.clone();
        self.under_way.push(Box::pin(async move {
            let done = worker.asked(worker.disk.commit(window)).await;
            Ended::Window(window, done)
        }));
    }

    fn has_ended(&mut self, ended_now: Ended) {
        match ended_now {
            Ended::Io(io, Asked::Lost, _) => self.again.push(io),
            Ended::Io(io, Asked::Failed, _) => {
                self.give(Input::IoDone(ended(io, Err(IoError::Failed))));
            }
            Ended::Io(mut io, Asked::Done(read), answered) => {
                match &mut io.operation {
                    IoOperation::Read { buffer, .. } => {
                        let read = read.expect("what was read");
                        buffer.bytes_mut().copy_from_slice(&read);
                    }
                    IoOperation::Write { offset, data, .. } => {
                        let bytes = bytes_of(data, self.running.engine().segment_memory());
                        self.shown.write(*offset as usize, bytes);
                        self.answered += 1;
                    }
                    IoOperation::WriteZeroes { offset, length, .. } => {
                        self.shown.write(*offset as usize, &vec![0; *length as usize]);
                        self.answered += 1;
                    }
                    IoOperation::Flush => self.covered = self.covered.max(answered),
                }
                self.give(Input::IoDone(ended(io, Ok(()))));
            }
            Ended::Window(window, done) => {
                // The answer may be lost, and the window ended all the same.
                let is_kept = matches!(done, Asked::Done(()));
                self.news.push_back(News::Kept(window, is_kept));
                self.give(Input::WindowKept { window, is_kept });
            }
        }
    }

    /// The process has died: it is opened again, and what was under way is asked for once more.
    async fn reopen(&mut self, random: &mut Random) {
        // All that was under way is lost with it.
        while let Some(ended) = self.under_way.next().await {
            self.has_ended(ended);
        }
        if self.answered > self.covered {
            self.covered = self.answered;
            let is_flush = |io: &Io| matches!(io.operation, IoOperation::Flush);
            let (flushes, others): (Vec<Io>, Vec<Io>) =
                std::mem::take(&mut self.again).into_iter().partition(is_flush);
            self.again = others;
            self.flush_fails = flushes.is_empty();
            for io in flushes {
                self.give(Input::IoDone(ended(io, Err(IoError::Failed))));
            }
        }
        let next = random.bits().to_string();
        let had = Some(self.claim.next.clone());
        self.claim = Claim { had, next, ..self.claim.clone() };
        let opened = open(&self.host, &self.claim, self.ahead_millis, random).await;
        match opened {
            Ok(worker) => self.worker = worker,
            Err(why) => {
                assert!(why.is_lost, "what has died is not opened again: {why}");
                self.is_lost = true;
                self.news.push_back(News::Lost);
                return;
            }
        }
        self.look_at_store().await;
        self.news.push_back(News::Reopened);
        for io in std::mem::take(&mut self.again) {
            self.begin(io);
        }
        if let Some(window) = self.waiting_window.take() {
            self.end_window(window);
        }
    }

    // ---- time ----------------------------------------------------------------------------------

    /// One thing happens, or `until` has come.
    pub async fn turn(&mut self, until: Option<Instant>, random: &mut Random) {
        if self.worker.connection.is_gone() && !self.is_lost {
            return self.reopen(random).await;
        }
        self.now();
        if !self.running.ios.is_empty() && !random.one_in(4) {
            return self.end_cache_io(random);
        }
        let wake_up = self.running.wake_up.map(|at| self.since + Duration::from_nanos(at.0));
        let mut next = wake_up.into_iter().chain(until).min();
        if !self.running.ios.is_empty() {
            let soon = Instant::now() + Duration::from_millis(1);
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        let far = Instant::now() + Duration::from_secs(60);
        let sleep = tokio::time::sleep_until(next.unwrap_or(far).min(far));
        let ended = tokio::select! {
            biased;
            Some(ended) = self.under_way.next() => Some(ended),
            () = self.worker.connection.ended(), if !self.is_lost => None,
            () = sleep => None,
        };
        match ended {
            Some(ended) => self.has_ended(ended),
            None if self.worker.connection.is_gone() => {}
            None => self.give(Input::Timeout),
        }
    }

    fn end_cache_io(&mut self, random: &mut Random) {
        let Some(mut flight) = self.running.take_ready(random) else { return };
        let memory = self.running.engine.as_ref().expect("it runs").segment_memory();
        let disk = &mut self.cache_disk;
        let result = match &mut flight.io.operation {
            IoOperation::Read { offset, buffer } => disk.read(*offset, buffer.bytes_mut()),
            IoOperation::Write { offset, data, fua } => {
                disk.write(*offset, bytes_of(data, memory), *fua)
            }
            IoOperation::WriteZeroes { offset, length, .. } => {
                disk.write(*offset, &vec![0; *length as usize], false)
            }
            IoOperation::Flush => disk.flush(flight.flush_mark),
        };
        self.give(Input::IoDone(ended(flight.io, result)));
    }
}

/// Opens the store as this claim says, whatever dies and is not answered.
///
/// # Errors
/// If it is for somebody else.
pub async fn open(
    host: &Host,
    claim: &Claim,
    ahead_millis: i64,
    random: &mut Random,
) -> Result<Worker, StoreFailure> {
    for attempt in 0.. {
        let is_last = attempt > 6;
        let ends_at = (!is_last && random.one_in(4)).then(|| 1 + random.below(60));
        let trouble = is_last.then(|| host.server.quiet());
        let connection = host.server.connect(ends_at);
        let opened = tokio::select! {
            biased;
            opened = host.open(&connection, ahead_millis, claim) => Some(opened),
            () = connection.ended() => None,
        };
        if let Some(trouble) = trouble {
            host.server.trouble_again(trouble);
        }
        match opened {
            Some(Ok(disk)) => {
                connection.ends_in(u64::MAX);
                return Ok(Worker { connection, disk });
            }
            Some(Err(why)) if is_last || why.is_lost => return Err(why),
            _ => {}
        }
    }
    unreachable!("the last attempt ends it")
}
