//! A guest that changes descriptors and heads of requests while the server reads them: what is
//! judged must be what is used. The disk is asked for nothing outside of it (it panics at that),
//! the other queue is served as if nothing were, and the queue itself is stopped at most.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use dcd_daemon::frontend::vhost_user::block::kind;
use dcd_daemon::frontend::vhost_user::memory::SharedMemory;

use crate::client::{CONTROL, FrontEnd, Guest, MEMORY_BYTES, RING_BYTES};
use crate::disk::{DISK_BLOCKS, Running};

/// Requests that are changed, of queue 1.
const SLOTS: usize = 4;
const ROUNDS: usize = 40_000;
/// Of queue 0, where no good request of queue 1 goes.
const OWN_SECTOR: u64 = 3000;

/// What is written over what: a place, and what may be right there, or wrong.
struct Field {
    offset: usize,
    right: Vec<Vec<u8>>,
    wrong: Vec<Vec<u8>>,
}

fn fields(slot: usize) -> Vec<Field> {
    let first = 3 * slot as u16;
    let descriptor = |index: u16| RING_BYTES + 16 * usize::from(first + index);
    let control = RING_BYTES + CONTROL + 32 * slot;
    let at = Guest::guest_address;
    let end = at(MEMORY_BYTES as usize);
    let numbers = |numbers: &[u64], len: usize| {
        numbers.iter().map(|number| number.to_le_bytes()[..len].to_vec()).collect()
    };
    let field = |offset, len, right: &[u64], wrong: &[u64]| Field {
        offset,
        right: numbers(right, len),
        wrong: numbers(wrong, len),
    };
    let kinds = [kind::IN, kind::OUT, kind::FLUSH, kind::GET_ID].map(u64::from);
    let wrong_kinds = [kind::DISCARD, kind::WRITE_ZEROES, u32::MAX].map(u64::from);
    let (data, status) = (at(Guest::data_at(1, slot)), at(control + 16));
    vec![
        field(control, 4, &kinds, &wrong_kinds),
        field(control + 8, 8, &[0, 8, 1000], &[DISK_BLOCKS - 1, DISK_BLOCKS, u64::MAX]),
        field(descriptor(0) + 8, 4, &[16], &[15, 0, 17]),
        field(descriptor(1), 8, &[data], &[end - 256, 0, u64::MAX - 100]),
        field(descriptor(1) + 8, 4, &[512, 4096, 65536], &[0, 513, u32::MAX.into()]),
        field(descriptor(1) + 12, 2, &[1, 3], &[0, 2, 5]),
        field(descriptor(1) + 14, 2, &[u64::from(first) + 2], &[first.into(), 63, 64]),
        field(descriptor(2), 8, &[status], &[end, end - 1]),
    ]
}

/// Changes the requests until it is told to stop, mostly to what is right.
fn change(file: &OwnedFd, is_over: &AtomicBool) {
    let memory = SharedMemory::map(file, 0, MEMORY_BYTES).unwrap();
    let fields: Vec<Field> = (0..SLOTS).flat_map(fields).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    while !is_over.load(Ordering::Relaxed) {
        let field = &fields[draw(fields.len())];
        let values = if draw(16) == 0 { &field.wrong } else { &field.right };
        assert!(memory.write(field.offset, &values[draw(values.len())]));
    }
}

/// Ends the changes, also when the test fails.
struct UntilDropped<'a>(&'a AtomicBool);

impl Drop for UntilDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn requests_that_change_while_they_are_read() {
    let server = Running::new();
    let mut guest = Guest::new(2);
    // Without a record of requests, which would begin each wrong one again.
    let mut front_end = FrontEnd::connect(server.path());
    front_end.negotiate();
    front_end.config();
    assert!(front_end.share_memory(&guest));
    front_end.start(&guest);
    for slot in 0..SLOTS {
        assert_eq!(guest.ask(1, kind::IN, 0, &[], 4096), slot);
        guest.next(1);
        guest.expect(1, slot);
    }
    let file = guest.file.try_clone().unwrap();
    let is_over = AtomicBool::new(false);
    let (mut done, mut stopped) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| change(&file, &is_over));
        let _changing = UntilDropped(&is_over);
        let mut used = guest.used(1);
        for round in 0..ROUNDS {
            guest.make_available(1, 3 * (round % SLOTS) as u16);
            if round % 16 > 0 {
                continue;
            }
            // A message is dealt with in the turn of the kick, or later.
            front_end.config();
            let bytes = [round as u8; 512];
            assert_eq!(guest.run(kind::OUT, OWN_SECTOR, &bytes, 0).status, 0);
            assert_eq!(guest.run(kind::IN, OWN_SECTOR, &[], 512).data, bytes);
            let now = guest.used(1);
            done += usize::from(now.wrapping_sub(used));
            if now == used {
                stopped += 1;
                front_end.stop_queue(1);
                guest.begin_at(1, 0);
                front_end.start_queue(&guest, 1);
            }
            used = guest.used(1);
        }
    });
    assert!(done > 0 && stopped > 0, "{done} done, stopped {stopped} times");
    server.stop();
}
