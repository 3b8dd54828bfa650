//! The paths: requests, batches of writes, cleaning, and what is below.

use super::slots::GoodRuns;
use super::{
    Asked, AskedKind, Cleaning, DurableNvram, DurableOutput, OWN_REQUEST_BIT, Overlay, Part,
    Pending, Persisting, RETRY_AFTER, Trouble, Write,
};
use crate::buffer::Buffer;
use crate::io::{Operation, Reply, Request, RequestError, RequestId};
use crate::nvram::groups::LastAddress;
use crate::nvram::{
    BelowId, BelowIo, BelowPurpose, NvramInput, NvramOperation, NvramOutput, NvramRequest,
};
use crate::units::{BLOCK_SIZE, Lba, LbaRange};

const BLOCK: usize = BLOCK_SIZE as usize;
/// So many buffers of cleanings are kept for the next ones.
const SPARE_BUFFERS_MAX: usize = 16;

impl Overlay {
    fn add(&mut self, block: u64, data: Option<&[u8]>) {
        self.blocks.push((block, data.is_some()));
        self.bytes.extend_from_slice(data.unwrap_or_default());
    }

    fn put_over(&self, range: LbaRange, reply: &mut Reply) {
        let (Ok(()), Some(buffer)) = (reply.result, &mut reply.buffer) else { return };
        let mut from = self.bytes.chunks_exact(BLOCK);
        for (block, is_good) in &self.blocks {
            let at = (block - range.start.0) as usize * BLOCK;
            match from.next().filter(|_| *is_good) {
                Some(data) => buffer.bytes_mut()[at..at + BLOCK].copy_from_slice(data),
                None => reply.result = Err(RequestError::Io),
            }
        }
        if reply.result.is_err() {
            buffer.set_len(0);
        }
    }
}

impl Write {
    fn into_request(self) -> Request {
        let operation = Operation::Write { start: self.range.start, data: self.data };
        Request { id: self.id, operation, fua: true }
    }
}

impl Pending {
    /// With its number.
    fn into_request(self, id: RequestId) -> (u64, Request) {
        let (number, operation) = match self {
            Pending::Write { range, data, number } => {
                (number, Operation::Write { start: range.start, data })
            }
            Pending::Past { operation, number, .. } => (number, operation),
            Pending::Read { range, buffer } => (0, Operation::Read { range, buffer }),
        };
        (number, Request { id, operation, fua: true })
    }
}

/// Not what this tier does itself.
fn is_for_what_is_below(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::Shutdown
            | Operation::Detach
            | Operation::DetachAccepting { .. }
            | Operation::CancelDetach
            | Operation::RemoveNvram
            | Operation::CancelNvramChange { .. }
    )
}

impl DurableNvram {
    // ---- requests -----------------------------------------------------------------------------

    pub(super) fn take_request(&mut self, request: Request) {
        if self.passes_all() && self.closing.is_none() && is_for_what_is_below(&request.operation) {
            return self.pass(request);
        }
        let Request { id, operation, fua } = request;
        if let Some(error) = self.refuses(&operation) {
            return self.refuse(id, operation, error);
        }
        match operation {
            Operation::Read { range, buffer } => {
                self.pending.insert(id, Pending::Read { range, buffer });
                self.tell(NvramRequest { id, operation: NvramOperation::Read, range }, false);
            }
            Operation::Write { start, data } => {
                self.take_write(id, start, data, self.is_leaving());
            }
            Operation::WriteZeroes { range, .. } | Operation::Discard { range } => {
                self.arrived += 1;
                self.pending.insert(id, Pending::Past { range, operation, number: self.arrived });
                self.tell(NvramRequest { id, operation: NvramOperation::Write, range }, true);
            }
            Operation::Drain => self.begin_drain(id),
            Operation::CancelDrain { drain } => self.cancel_drain(id, drain),
            Operation::Shutdown | Operation::Detach | Operation::DetachAccepting { .. } => {
                self.begin_close(id, operation);
            }
            Operation::CancelDetach => self.cancel_detach(id),
            Operation::RemoveNvram => self.begin_to_leave(id),
            Operation::CancelNvramChange { change } => {
                self.cancel_change(change);
                self.reply(id, Ok(()), None);
            }
            // What was acknowledged is durable: here, or below since it was asked for with FUA.
            // Changes of other kinds are the engine's own, and their flush is, too.
            operation => self.ask_below(Request { id, operation, fua }),
        }
    }

    pub(super) fn take_write_past(&mut self, request: Request) {
        if self.passes_all() && self.closing.is_none() {
            return self.pass(request);
        }
        let Request { id, operation, .. } = request;
        if let Some(error) = self.refuses(&operation) {
            return self.refuse(id, operation, error);
        }
        let Operation::Write { start, data } = operation else { panic!("{operation:?}: no write") };
        self.take_write(id, start, data, true);
    }

    fn take_write(&mut self, id: RequestId, start: Lba, data: Buffer, is_past: bool) {
        let range = LbaRange { start, blocks: data.len() as u64 / BLOCK_SIZE };
        self.arrived += 1;
        self.pending.insert(id, Pending::Write { range, data, number: self.arrived });
        self.tell(NvramRequest { id, operation: NvramOperation::Write, range }, is_past);
    }

    /// Why a request is not taken, if it is not.
    fn refuses(&self, operation: &Operation) -> Option<RequestError> {
        match operation {
            Operation::CancelDetach => None,
            _ if self.closing.is_some() => Some(RequestError::ShuttingDown),
            _ if self.has_failed && operation.changes_blocks() && !self.is_leaving() => {
                Some(RequestError::Io)
            }
            _ => None,
        }
    }

    pub(super) fn refuse(&mut self, id: RequestId, operation: Operation, error: RequestError) {
        let buffer = match operation {
            Operation::Write { data, .. } => Some(data),
            Operation::Read { mut buffer, .. } => {
                buffer.set_len(0);
                Some(buffer)
            }
            _ => None,
        };
        self.reply(id, Err(error), buffer);
    }

    fn tell(&mut self, request: NvramRequest, is_past: bool) {
        let input = match is_past {
            true => NvramInput::Past(request),
            false => NvramInput::Request(request),
        };
        self.nvram.handle_input(self.now, input, &self.head);
    }

    /// An id of a request of the tier's own.
    pub(super) fn own_id(&mut self) -> RequestId {
        self.own_requests += 1;
        RequestId(self.own_requests | OWN_REQUEST_BIT)
    }

    pub(super) fn ask_below(&mut self, request: Request) {
        self.outputs.push_back(DurableOutput::Below(request));
    }

    /// Carries out what [`Nvram`](crate::nvram::Nvram) wants, and all that can go on.
    pub(super) fn advance(&mut self) {
        if self.opening.is_some() {
            return;
        }
        loop {
            self.start_retries();
            self.help_who_waits_for_all();
            let mut has_moved = false;
            while let Some(output) = self.nvram.poll_output() {
                has_moved = true;
                match output {
                    NvramOutput::Reply(reply) => self.admitted_or_ended(reply.id),
                    NvramOutput::Below(io) => self.wanted_below(io),
                }
            }
            has_moved |= self.start_cleanings();
            has_moved |= self.fail_who_waits_in_vain();
            has_moved |= self.start_pasts();
            has_moved |= self.answer_pasts();
            has_moved |= self.persisting == Persisting::Nothing && self.begin_step();
            has_moved |= self.advance_presence();
            has_moved |= self.advance_end();
            if !has_moved {
                return;
            }
        }
    }

    /// A write has room, a read is answered by the memory, or what was below has ended.
    fn admitted_or_ended(&mut self, id: RequestId) {
        if let Some(reply) = self.replies_held.remove(&id) {
            self.outputs.push_back(DurableOutput::Reply(reply));
            return;
        }
        let Some(pending) = self.pending.remove(&id) else {
            assert!(self.closing.is_some() || self.has_failed, "a request under way");
            return;
        };
        match pending {
            Pending::Write { range, data, number } => {
                self.admitted += 1;
                self.gathering.push_back(Write { id, range, data, number });
            }
            Pending::Read { range, buffer } => self.read_memory(id, range, buffer),
            Pending::Past { .. } => unreachable!("it goes below"),
        }
    }

    fn wanted_below(&mut self, io: BelowIo) {
        match io.purpose {
            BelowPurpose::Cleaning => self.cleanings_waiting.push_back((self.admitted, io)),
            BelowPurpose::Request(id) if io.operation == NvramOperation::Read => {
                let Some(Pending::Read { range, buffer }) = self.pending.remove(&id) else {
                    unreachable!("a read never waits")
                };
                self.read_below(id, range, buffer, Some(io.id));
            }
            // Else it was given up, with the end.
            BelowPurpose::Request(id) if self.pending.contains_key(&id) => {
                self.pasts_waiting.push_back((self.cleaned_so_far, io.id, id));
            }
            BelowPurpose::Request(_) => {
                assert!(self.closing.is_some() || self.has_failed, "a request under way");
            }
        }
    }

    // ---- a read -------------------------------------------------------------------------------

    /// All of it is in memory, or will be with the next commits: those of the writes that were
    /// admitted before.
    fn read_memory(&mut self, id: RequestId, range: LbaRange, buffer: Buffer) {
        self.read_behind(self.admitted, id, range, buffer);
    }

    fn read_behind(&mut self, admitted: u64, id: RequestId, range: LbaRange, mut buffer: Buffer) {
        if !self.slots.has_all(range) {
            // Behind those writes what is not here has been cleaned, or was never committed.
            return match admitted <= self.settled {
                true => self.read_below(id, range, buffer, None),
                false => self.reads_waiting.push((admitted, id, range, buffer)),
            };
        }
        buffer.set_any(range.bytes() as usize);
        let mut is_good = true;
        for (block, to) in (range.start.0..).zip(buffer.bytes_mut().chunks_exact_mut(BLOCK)) {
            match self.slots.read(block) {
                Some(from) => to.copy_from_slice(from),
                None => is_good = false,
            }
        }
        if !is_good {
            buffer.set_len(0);
        }
        let result = if is_good { Ok(()) } else { Err(RequestError::Io) };
        self.reply(id, result, Some(buffer));
    }

    /// What the memory has of it is copied now.
    fn read_below(
        &mut self,
        id: RequestId,
        range: LbaRange,
        buffer: Buffer,
        below: Option<BelowId>,
    ) {
        let over = self.overlay_of(range);
        self.asked.insert(id, Asked { below, range, kind: AskedKind::Read(over) });
        let operation = Operation::Read { range, buffer };
        self.ask_below(Request { id, operation, fua: false });
    }

    fn overlay_of(&mut self, range: LbaRange) -> Overlay {
        let mut over = Overlay::default();
        if self.slots.blocks() > 0 {
            for block in range.start.0..range.end() {
                if self.slots.has(block) {
                    over.add(block, self.slots.read(block));
                }
            }
        }
        over
    }

    // ---- a batch of writes --------------------------------------------------------------------

    /// The next step that ends with a persist; whether there is one.
    fn begin_step(&mut self) -> bool {
        if self.has_failed {
            return self.fail_writes();
        }
        if !self.cleaned.is_empty() {
            // Step 2 of a cleaning: an older version must not outlive the newest.
            let older_may_come_back = self.slots.has_cleared();
            if older_may_come_back {
                self.persist(Persisting::Clears);
            } else {
                self.remove_cleaned();
            }
            return true;
        }
        if self.gathering.front().is_some() {
            if self.fill_batch() {
                self.persist(Persisting::Data);
                return true;
            }
            if self.slots.has_cleared() {
                self.persist(Persisting::Clears);
                return true;
            }
            // Damaged blocks have taken the room.
            return self.fail_first_write();
        }
        let is_waited_for = !self.pasts_waiting.is_empty() || !self.replies_waiting.is_empty();
        if (is_waited_for || self.ends()) && self.slots.has_cleared() {
            self.persist(Persisting::Clears);
            return true;
        }
        false
    }

    /// Step 1: as many writes as there are free slots for.
    fn fill_batch(&mut self) -> bool {
        let mut blocks_left = self.slots.free_slots().min(self.batch_blocks_max);
        self.batch_sequence = self.committed;
        while let Some(write) = self.gathering.front() {
            let Some(left) = blocks_left.checked_sub(write.range.blocks as usize) else { break };
            blocks_left = left;
            let write = self.gathering.pop_front().expect("looked at");
            self.batch_sequence += 1;
            let blocks = (write.range.start.0..).zip(write.data.bytes().chunks_exact(BLOCK));
            for (block, data) in blocks {
                let slot = self.slots.fill(self.batch_sequence, block, data);
                self.batch_slots.push(slot);
            }
            self.batch.push(write);
        }
        !self.batch.is_empty()
    }

    /// What was stored is durable.
    pub(super) fn persisted(&mut self) {
        let what = std::mem::replace(&mut self.persisting, Persisting::Nothing);
        if what != Persisting::Opening && what != Persisting::Wipe {
            self.slots.cleared_is_durable();
            self.removed_durably = self.persisting_removed;
        }
        match what {
            Persisting::Nothing => unreachable!("nothing was to be made durable"),
            Persisting::Opening => {
                self.slots.cleared_is_durable();
                self.go_on_opening();
            }
            Persisting::Clears => {}
            Persisting::Data => {
                self.slots.store_commit_word(self.batch_sequence);
                self.persist(Persisting::Commit);
            }
            Persisting::Commit => self.batch_committed(),
            Persisting::Wipe => self.wiped(),
        }
    }

    /// Steps 3 and 4.
    fn batch_committed(&mut self) {
        self.committed = self.batch_sequence;
        self.commits += 1;
        let mut slots = std::mem::take(&mut self.batch_slots);
        for slot in slots.drain(..) {
            self.slots.commit(slot);
        }
        self.batch_slots = slots;
        let mut batch = std::mem::take(&mut self.batch);
        for write in batch.drain(..) {
            self.settled += 1;
            self.committed_writes += 1;
            self.reply(write.id, Ok(()), Some(write.data));
        }
        self.batch = batch;
        self.read_what_waited();
    }

    fn read_what_waited(&mut self) {
        for (admitted, id, range, buffer) in std::mem::take(&mut self.reads_waiting) {
            self.read_behind(admitted, id, range, buffer);
        }
    }

    fn fail_first_write(&mut self) -> bool {
        let Some(write) = self.gathering.pop_front() else { return false };
        self.settled += 1;
        self.hold(write.number, write.into_request(), RequestError::Io);
        self.read_what_waited();
        true
    }

    /// With a medium that has failed.
    fn fail_writes(&mut self) -> bool {
        let mut has_moved = false;
        while self.fail_first_write() {
            has_moved = true;
        }
        while let Some((_, below, id)) = self.pasts_waiting.pop_front() {
            has_moved = true;
            let pending = self.pending.remove(&id).expect("a request under way");
            let (number, request) = pending.into_request(id);
            self.hold(number, request, RequestError::Io);
            self.nvram.handle_input(self.now, NvramInput::BelowDone(below, false), &self.head);
        }
        for (_, below, reply) in std::mem::take(&mut self.replies_waiting) {
            has_moved = true;
            let reply = Reply { result: Err(RequestError::Io), ..reply };
            self.replies_held.insert(reply.id, reply);
            self.nvram.handle_input(self.now, NvramInput::BelowDone(below, false), &self.head);
        }
        has_moved
    }

    /// The medium takes nothing more. What was under way is not acknowledged; what is committed is
    /// read from it as before.
    pub(super) fn medium_failed(&mut self) {
        self.has_failed = true;
        self.leave_because_it_failed();
        if std::mem::replace(&mut self.persisting, Persisting::Nothing) == Persisting::Wipe {
            self.wiped();
        }
        self.batch_slots.clear();
        for write in std::mem::take(&mut self.batch) {
            self.settled += 1;
            self.hold(write.number, write.into_request(), RequestError::Io);
        }
        self.opening = None;
        self.read_what_waited();
    }

    // ---- cleaning -----------------------------------------------------------------------------

    /// Those behind whose writes all is committed.
    fn start_cleanings(&mut self) -> bool {
        let mut has_moved = false;
        while let Some((admitted, io)) = self.cleanings_waiting.front().copied() {
            if admitted > self.settled {
                break;
            }
            self.cleanings_waiting.pop_front();
            has_moved = true;
            // One more than there are, until all have begun.
            self.cleanings.insert(io.id, Cleaning { io, parts_left: 1 });
            self.start_parts(io.id, io.range, false);
            self.part_ended(io.id);
        }
        has_moved
    }

    /// Step 1 of a cleaning, of what is in memory. What has rotted is never written below.
    fn start_parts(&mut self, below: BelowId, range: LbaRange, has_failed: bool) {
        let mut left = vec![range];
        while let Some(range) = left.pop() {
            let GoodRuns { whole, parts } = self.slots.good_runs(range);
            for run in whole {
                let Some(data) = self.copy_of(run) else {
                    // Some of it has rotted, which is known now.
                    left.push(run);
                    continue;
                };
                self.cleanings.get_mut(&below).expect("under way").parts_left += 1;
                let arrived = self.arrived;
                let part = Part { below, run, is_read: false, has_failed, arrived };
                self.clean_below(part, data);
            }
            for run in parts {
                // What is missing comes from below.
                self.cleanings.get_mut(&below).expect("under way").parts_left += 1;
                let arrived = self.arrived;
                let part = Part { below, run, is_read: true, has_failed, arrived };
                let operation = Operation::Read { range: run, buffer: Buffer::default() };
                self.ask_for_part(part, operation, false);
            }
        }
    }

    fn clean_below(&mut self, part: Part, data: Buffer) {
        let operation = Operation::Write { start: part.run.start, data };
        self.ask_for_part(part, operation, true);
    }

    fn ask_for_part(&mut self, part: Part, operation: Operation, fua: bool) {
        let id = self.own_id();
        self.parts.insert(id, part);
        self.ask_below(Request { id, operation, fua });
    }

    /// The rest of a logical block has come. What the memory has of it is newer, or the same.
    fn part_read(&mut self, part: Part, buffer: Option<Buffer>) {
        let mut reply = Reply { id: RequestId(0), result: Ok(()), buffer, answer: None };
        self.overlay_of(part.run).put_over(part.run, &mut reply);
        match (reply.result, reply.buffer) {
            (Ok(()), Some(data)) => self.clean_below(Part { is_read: false, ..part }, data),
            // It has rotted, and stays.
            _ => self.part_ended(part.below),
        }
    }

    fn copy_of(&mut self, run: LbaRange) -> Option<Buffer> {
        let mut data = self.spare_buffers.pop().unwrap_or_default();
        data.set_any(run.bytes() as usize);
        let mut is_good = true;
        for (block, to) in (run.start.0..run.end()).zip(data.bytes_mut().chunks_exact_mut(BLOCK)) {
            match self.slots.read(block) {
                Some(from) => to.copy_from_slice(from),
                None => is_good = false,
            }
        }
        if is_good {
            return Some(data);
        }
        self.spare_buffer(data);
        None
    }

    fn spare_buffer(&mut self, buffer: Buffer) {
        if self.spare_buffers.len() < SPARE_BUFFERS_MAX {
            self.spare_buffers.push(buffer);
        }
    }

    fn part_ended(&mut self, below: BelowId) {
        let cleaning = self.cleanings.get_mut(&below).expect("under way");
        cleaning.parts_left -= 1;
        if cleaning.parts_left == 0 {
            self.cleaning_ended(below);
        }
    }

    /// All of it is durable below. What was not written anew meanwhile may leave the memory.
    fn cleaning_ended(&mut self, below: BelowId) {
        let Cleaning { io, .. } = self.cleanings.remove(&below).expect("under way");
        self.head = LastAddress(Lba(io.range.end()));
        self.nvram.handle_input(self.now, NvramInput::BelowDone(io.id, true), &self.head);
        for block in io.range.start.0..io.range.end() {
            let is_good = self.slots.has(block) && !self.slots.rotten().contains(&block);
            // What was written anew meanwhile stays, until that is committed.
            if is_good && !self.nvram.is_dirty(Lba(block)) {
                self.cleaned.push(block);
                self.cleaned_so_far += 1;
            }
        }
    }

    /// Step 3 of a cleaning.
    fn remove_cleaned(&mut self) {
        for block in std::mem::take(&mut self.cleaned) {
            self.slots.remove(block);
        }
        self.removed_so_far = self.cleaned_so_far;
    }

    fn start_retries(&mut self) {
        let now = self.now;
        let mut at = 0;
        while at < self.retries.len() {
            if self.retries[at].0 > now {
                at += 1;
                continue;
            }
            let (_, part) = self.retries.remove(at);
            self.start_parts(part.below, part.run, true);
            self.part_ended(part.below);
        }
    }

    // ---- past the memory ----------------------------------------------------------------------

    /// Step 2: those whose way is free, durably.
    fn start_pasts(&mut self) -> bool {
        let mut has_moved = false;
        while let Some((removed, below, id)) = self.pasts_waiting.front().copied() {
            if removed > self.removed_durably || self.has_failed {
                break;
            }
            self.pasts_waiting.pop_front();
            has_moved = true;
            let (range, operation) = match self.pending.remove(&id) {
                Some(Pending::Past { range, operation, .. }) => (range, operation),
                Some(Pending::Write { range, data, .. }) => {
                    (range, Operation::Write { start: range.start, data })
                }
                _ => unreachable!("it changes something"),
            };
            self.asked.insert(id, Asked { below: Some(below), range, kind: AskedKind::Past });
            self.ask_below(Request { id, operation, fua: true });
        }
        has_moved
    }

    /// Those that met damaged blocks, which are gone durably by now.
    fn answer_pasts(&mut self) -> bool {
        let removed = self.removed_durably;
        let is_due = self.replies_waiting.iter().position(|(wanted, _, _)| *wanted <= removed);
        let Some(at) = is_due else { return false };
        let (_, below, reply) = self.replies_waiting.remove(at);
        let is_ok = reply.result.is_ok();
        self.replies_held.insert(reply.id, reply);
        self.nvram.handle_input(self.now, NvramInput::BelowDone(below, is_ok), &self.head);
        true
    }

    // ---- what was below -----------------------------------------------------------------------

    pub(super) fn take_below_done(&mut self, mut reply: Reply) {
        if let Some(part) = self.parts.remove(&reply.id) {
            if part.is_read && reply.result.is_ok() {
                return self.part_read(part, reply.buffer);
            }
            if let Some(buffer) = reply.buffer.take() {
                self.spare_buffer(buffer);
            }
            return match reply.result {
                Ok(()) => {
                    self.trouble = None;
                    self.part_ended(part.below);
                }
                Err(error) => self.part_failed(part, error),
            };
        }
        if reply.id.0 & OWN_REQUEST_BIT != 0 {
            // Or of one that was given up.
            self.flushed_to_join(reply.id, reply.result);
            return;
        }
        let Some(Asked { below, range, kind }) = self.asked.remove(&reply.id) else {
            return self.passed_on(reply);
        };
        match kind {
            AskedKind::Read(over) => over.put_over(range, &mut reply),
            AskedKind::Past if reply.result.is_ok() => {
                let damaged = self.slots.rotten().range(range.start.0..range.end());
                let damaged: Vec<u64> = damaged.copied().collect();
                if let (Some(below), false) = (below, damaged.is_empty()) {
                    self.cleaned_so_far += damaged.len() as u64;
                    self.cleaned.extend(damaged);
                    self.replies_waiting.push((self.cleaned_so_far, below, reply));
                    return;
                }
            }
            AskedKind::Past => {}
        }
        self.head = LastAddress(Lba(range.end()));
        let Some(below) = below else {
            self.outputs.push_back(DurableOutput::Reply(reply));
            return;
        };
        let is_ok = reply.result.is_ok();
        self.replies_held.insert(reply.id, reply);
        self.nvram.handle_input(self.now, NvramInput::BelowDone(below, is_ok), &self.head);
    }

    fn part_failed(&mut self, part: Part, error: RequestError) {
        self.cleaning_failures += 1;
        // What is below has waited for room as long as anybody is to wait, and with it those who
        // had come by then. Any other error is one for those who come later, too.
        let until = match error {
            RequestError::NoSpace => part.arrived,
            _ => u64::MAX,
        };
        self.trouble = Some(Trouble { error, until });
        self.retries.push((self.now.after(RETRY_AFTER), part));
        self.end_who_waits_for_all(error);
    }

    /// What is below does not take what is cleaned, so who waits for room or for a way past would
    /// wait for ever (C22, C25). What needs neither goes on.
    fn fail_who_waits_in_vain(&mut self) -> bool {
        let trouble = match self.has_failed {
            // What leaves a memory that has failed leaves no room in it and no way past.
            true => Some(Trouble { error: RequestError::Io, until: u64::MAX }),
            false => self.trouble,
        };
        let Some(Trouble { error, until }) = trouble else { return false };
        let Some(id) = self.nvram.waits_for_cleaning() else { return false };
        let (number, range) = match self.pending.get(&id) {
            Some(Pending::Write { number, range, .. } | Pending::Past { number, range, .. }) => {
                (*number, *range)
            }
            // It was given up, with the end.
            _ => return false,
        };
        if number > until || !self.has_failed && self.may_be_helped(range) {
            return false;
        }
        let pending = self.pending.remove(&id).expect("looked at");
        self.nvram.handle_input(self.now, NvramInput::GiveUp(id), &self.head);
        let (number, request) = pending.into_request(id);
        self.hold(number, request, error);
        true
    }

    /// Whether what is being cleaned may give room for a range, or a way past: one place that cannot
    /// be written is no reason to fail who does not need it.
    fn may_be_helped(&self, range: LbaRange) -> bool {
        let is_in_the_way = |part: &Part| {
            self.cleanings.get(&part.below).is_some_and(|it| it.io.range.overlaps(range))
        };
        !self.retries.iter().any(|(_, part)| is_in_the_way(part))
            && (!self.cleanings_waiting.is_empty()
                || !self.cleaned.is_empty()
                || self.parts.values().any(|part| !part.has_failed))
    }
}
