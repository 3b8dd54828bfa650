//! What no guest and no front-end should say. A wrong chain stops its queue, a wrong message is
//! refused or ends the connection; the other queue, and the next front-end, are served as if
//! nothing had been.

use std::os::fd::{AsFd, OwnedFd};

use dcd_daemon::frontend::vhost_user::block::kind;
use dcd_daemon::frontend::vhost_user::memory::SharedMemory;
use dcd_daemon::frontend::vhost_user::message::request;
use rustix::fs::MemfdFlags;

use crate::client::{
    FrontEnd, GUEST_START, Guest, MEMORY_BYTES, QUEUE_SIZE, USER_START, pair, ring_addresses, table,
};
use crate::disk::Running;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A descriptor to be: address, length, flags, next.
type Descriptor = (u64, u32, u16, u16);

/// Has queue 1 take a chain that begins at descriptor 0; then queue 0 has to be served, and queue 1
/// not any more.
fn stops_the_queue(what: &str, chain: &[Descriptor], table: &[Descriptor]) {
    let server = Running::new();
    let mut guest = Guest::new(2);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    for (index, (address, len, flags, next)) in chain.iter().enumerate() {
        guest.descriptor(1, index as u16, *address, *len, *flags, *next);
    }
    for (index, (address, len, flags, next)) in table.iter().enumerate() {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        guest.write((TABLE - GUEST_START) as usize + 16 * index, &bytes);
    }
    guest.make_available(1, 0);
    // A message is dealt with in the turn of the kick, or later.
    front_end.config();
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0, "{what}");
    guest.make_available(1, 0);
    front_end.config();
    assert!(guest.poll(1).is_none(), "{what}: something is done");
    // It can be stopped, and the connection goes on.
    front_end.stop_queue(1);
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0, "{what}");
    assert!(server.disk.asked().len() == 2, "{what}: the engine was asked");
}

const DATA: u64 = GUEST_START + (8 << 20);
const TABLE: u64 = GUEST_START + (9 << 20);
const END: u64 = GUEST_START + MEMORY_BYTES;

#[test]
fn chains_that_cannot_be() {
    let head = (DATA, 16, NEXT, 1);
    let status = (DATA + 4096, 1, WRITE, 0);
    stops_the_queue("a loop", &[(DATA, 16, NEXT, 0)], &[]);
    stops_the_queue("a longer loop", &[head, (DATA, 16, NEXT, 2), (DATA, 16, NEXT, 1)], &[]);
    stops_the_queue("behind the table", &[(DATA, 16, NEXT, QUEUE_SIZE)], &[]);
    stops_the_queue("far behind the table", &[(DATA, 16, NEXT, u16::MAX)], &[]);
    stops_the_queue("below memory", &[(GUEST_START - 1, 16, NEXT, 1), status], &[]);
    stops_the_queue("behind memory", &[(END - 15, 16, NEXT, 1), status], &[]);
    stops_the_queue("over the end of addresses", &[(u64::MAX - 3, 16, NEXT, 1), status], &[]);
    stops_the_queue("4 GiB", &[(DATA, u32::MAX, NEXT, 1), status], &[]);
    stops_the_queue("nothing", &[(DATA, 0, NEXT, 1), status], &[]);
    stops_the_queue("no status", &[(DATA, 16, 0, 0)], &[]);
    stops_the_queue("a short head", &[(DATA, 15, NEXT, 1), status], &[]);
    stops_the_queue("no head", &[status], &[]);
    stops_the_queue("the wrong way round", &[(DATA, 16, WRITE | NEXT, 1), (DATA, 16, 0, 0)], &[]);
}

#[test]
fn indirect_tables_that_cannot_be() {
    let good = [(DATA, 16, NEXT, 1), (DATA + 4096, 1, WRITE, 0)];
    let table = |len, flags| [(TABLE, len, flags, 1)];
    stops_the_queue("with a next", &table(32, INDIRECT | NEXT), &good);
    stops_the_queue("of no descriptors", &table(0, INDIRECT), &good);
    stops_the_queue("of one and a half", &table(24, INDIRECT), &good);
    stops_the_queue("huge", &table(16 * 1025, INDIRECT), &good);
    stops_the_queue("of 4 GiB", &table(u32::MAX - 15, INDIRECT), &good);
    stops_the_queue("behind memory", &[(END - 16, 32, INDIRECT, 0)], &good);
    stops_the_queue("behind itself", &table(32, INDIRECT), &[(DATA, 16, NEXT, 2), good[1]]);
    stops_the_queue("into itself", &table(32, INDIRECT), &[(DATA, 16, NEXT, 0), good[1]]);
    stops_the_queue("within another", &table(32, INDIRECT), &[(TABLE, 32, INDIRECT, 0), good[1]]);
}

#[test]
fn a_good_indirect_table_is_served() {
    let server = Running::new();
    let mut guest = Guest::new(1);
    let _front_end = FrontEnd::set_up(server.path(), &guest);
    guest.write((DATA - GUEST_START) as usize, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut table = Vec::new();
    for (address, len, flags, next) in [(DATA, 16u32, NEXT, 1u16), (DATA + 4096, 1, WRITE, 0)] {
        table.extend(address.to_le_bytes());
        table.extend(len.to_le_bytes());
        table.extend(flags.to_le_bytes());
        table.extend(next.to_le_bytes());
    }
    guest.write((TABLE - GUEST_START) as usize, &table);
    guest.write((DATA - GUEST_START) as usize + 4096, &[0xff]);
    // The slot knows of it, so that it may be done.
    let slot = guest.ask(0, kind::FLUSH, 0, &[], 0);
    assert_eq!(guest.next(0).slot, slot);
    guest.expect(0, slot);
    guest.descriptor(0, 3 * slot as u16, TABLE, 32, INDIRECT, 0);
    guest.make_available(0, 3 * slot as u16);
    guest.next(0);
    assert_eq!(guest.read((DATA - GUEST_START) as usize + 4096), [0]);
}

#[test]
fn rings_that_cannot_be() {
    // More is available than there can be; a head that no descriptor has; a head whose request is
    // under way.
    for wrong in ["index", "head", "twice"] {
        let server = Running::new();
        let mut guest = Guest::new(2);
        let mut front_end = FrontEnd::set_up(server.path(), &guest);
        match wrong {
            "index" => guest.pretend_available(1, QUEUE_SIZE + 1),
            "head" => guest.make_available(1, QUEUE_SIZE),
            _ => {
                server.disk.hold(true);
                guest.ask(1, kind::FLUSH, 0, &[], 0);
                server.disk.wait_until_held(1);
                guest.make_available(1, 0);
            }
        }
        front_end.config();
        server.disk.hold(false);
        server.disk.release();
        assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0, "{wrong}");
        front_end.stop_queue(1);
        assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0, "{wrong}");
    }
}

#[test]
fn messages_that_are_refused_change_nothing() {
    let server = Running::new();
    let mut guest = Guest::new(2);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    let mut refused = |what: &str, number: u32, payload: &[u8], files: &[&OwnedFd]| {
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        assert!(!front_end.set(number, payload, &files), "{what}");
        assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0, "{what}");
    };
    let other = SharedMemory::new("other", 1 << 20).unwrap().1;
    let open = rustix::fs::memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let open = open.unwrap();
    rustix::fs::ftruncate(&open, 1 << 20).unwrap();
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let region = |guest: u64, size: u64, user: u64, offset: u64| {
        let mut payload = vec![0; 8];
        payload.extend([guest, size, user, offset].iter().flat_map(|number| number.to_ne_bytes()));
        payload
    };
    let mib = 1 << 20;
    use request::*;
    refused("a size while it runs", SET_VRING_NUM, &pair(0, 32), &[]);
    refused("a base while it runs", SET_VRING_BASE, &pair(0, 32), &[]);
    let moved = ring_addresses(0, USER_START, USER_START, USER_START);
    refused("addresses while it runs", SET_VRING_ADDR, &moved, &[]);
    for size in [0, 3, 2048, u32::MAX] {
        refused("no size of a ring", SET_VRING_NUM, &pair(5, size), &[]);
    }
    refused("no index", SET_VRING_BASE, &pair(5, 1 << 16), &[]);
    for queue in [128, u32::MAX] {
        refused("no queue", SET_VRING_NUM, &pair(queue, 64), &[]);
        refused("no queue", SET_VRING_ENABLE, &pair(queue, 1), &[]);
    }
    refused("no eventfd", SET_VRING_KICK, &0u64.to_ne_bytes(), &[&null]);
    refused("no eventfd", SET_VRING_CALL, &0u64.to_ne_bytes(), &[&other]);
    refused("polling", SET_VRING_KICK, &(1u64 << 8).to_ne_bytes(), &[]);
    refused("features", SET_FEATURES, &u64::MAX.to_ne_bytes(), &[]);
    refused("features of the protocol", SET_PROTOCOL_FEATURES, &u64::MAX.to_ne_bytes(), &[]);
    refused("memory that can shrink", ADD_MEM_REG, &region(1 << 40, mib, 1 << 40, 0), &[&open]);
    refused("memory that is none", ADD_MEM_REG, &region(1 << 40, mib, 1 << 40, 0), &[&null]);
    refused("a short file", ADD_MEM_REG, &region(1 << 40, mib + 1, 1 << 40, 0), &[&other]);
    refused("an offset behind it", ADD_MEM_REG, &region(1 << 40, mib, 1 << 40, mib), &[&other]);
    refused("no bytes", ADD_MEM_REG, &region(1 << 40, 0, 1 << 40, 0), &[&other]);
    refused("overflow", ADD_MEM_REG, &region(u64::MAX - 9, mib, 1 << 40, 0), &[&other]);
    refused("overlap", ADD_MEM_REG, &region(GUEST_START, mib, 1 << 40, 0), &[&other]);
    refused("overlap of ours", ADD_MEM_REG, &region(1 << 40, mib, USER_START, 0), &[&other]);
    refused("no region", REM_MEM_REG, &region(1 << 40, mib, 1 << 40, 0), &[]);
    let twice = table(&[[0, mib, 0, 0], [mib - 1, mib, mib, 0]]);
    refused("an overlapping table", SET_MEM_TABLE, &twice, &[&other, &other]);
    let record = [mib.to_ne_bytes(), [0; 8]].concat();
    for (queues, size) in [(0u16, 64u16), (1, 0), (129, 64), (1, 1025), (2, 64)] {
        let payload = [&record[..], &queues.to_ne_bytes(), &size.to_ne_bytes(), &[0; 4]].concat();
        refused("a record", SET_INFLIGHT_FD, &payload, &[&other]);
    }
}

#[test]
fn messages_that_are_none_end_the_connection_and_the_next_one_is_served() {
    let server = Running::new();
    let file = SharedMemory::new("file", 4096).unwrap().1;
    let header =
        |number: u32, flags: u32, size: u32| [number, flags, size].map(u32::to_ne_bytes).concat();
    let one = header(request::GET_FEATURES, 1, 0);
    let cases: [(&str, Vec<u8>, usize); 14] = [
        ("another version", header(1, 2, 0), 0),
        ("a reply", header(1, 5, 0), 0),
        ("too long", header(1, 1, 1 << 20), 0),
        ("4 GiB", header(request::SET_CONFIG, 1, u32::MAX), 0),
        ("unknown", header(99, 1, 0), 0),
        ("the number zero", header(0, 1, 0), 0),
        ("postcopy", header(28, 1, 0), 0),
        ("a payload where there is none", [header(1, 1, 8), vec![0; 8]].concat(), 0),
        ("no payload where there is one", header(request::SET_FEATURES, 1, 0), 0),
        ("a descriptor where there is none", one.clone(), 1),
        ("nine descriptors", one, 9),
        ("thirty-two descriptors", header(request::SET_OWNER, 1, 0), 32),
        ("no descriptor", [header(request::SET_VRING_CALL, 1, 8), vec![0; 8]].concat(), 0),
        (
            "nine regions",
            [header(request::SET_MEM_TABLE, 1, 264), pair(9, 0), vec![0; 256]].concat(),
            8,
        ),
    ];
    for (what, bytes, files) in cases {
        let mut front_end = FrontEnd::connect(server.path());
        let files = vec![file.as_fd(); files];
        front_end.send_raw(&bytes, &files);
        assert_eq!(front_end.reply(request::GET_FEATURES), None, "{what}");
    }
    // Cut within a message.
    let front_end = FrontEnd::connect(server.path());
    front_end.send_raw(&header(request::SET_FEATURES, 1, 8)[..7], &[file.as_fd()]);
    drop(front_end);
    // Byte by byte is slow, and right.
    let mut guest = Guest::new(1);
    let mut front_end = loop {
        let mut front_end = FrontEnd::connect(server.path());
        for byte in header(request::GET_QUEUE_NUM, 1, 0) {
            front_end.send_raw(&[byte], &[]);
        }
        if let Some(count) = front_end.reply(request::GET_QUEUE_NUM) {
            assert_eq!(count, 128u64.to_ne_bytes());
            break front_end;
        }
    };
    // Rings before memory, and memory before anything: it runs when all is there.
    front_end.negotiate();
    front_end.config();
    assert!(front_end.share_memory(&guest));
    front_end.start(&guest);
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
}

#[test]
fn descriptors_do_not_pile_up() {
    let server = Running::new();
    let guest = Guest::new(1);
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let number = 0u64.to_ne_bytes();
    let mut counts = Vec::new();
    for _ in 0..3 {
        for _ in 0..100 {
            let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
            assert!(front_end.set(request::SET_VRING_ERR, &number, &[event.as_fd()]));
            assert!(front_end.share_memory(&guest));
            let null = std::fs::File::open("/dev/null").unwrap();
            assert!(!front_end.set(request::SET_VRING_CALL, &number, &[null.as_fd()]));
        }
        counts.push(count());
    }
    // Other tests of this process open and close some.
    assert!(counts.iter().all(|later| *later < counts[0] + 90), "{counts:?}");
}

/// A virtual machine whose memory nobody shares: QEMU with a plain `-m` sends no part of it, and
/// with `share=off` one that is not what the guest sees. Neither can be served, and both are told
/// why.
#[test]
fn a_guest_that_shares_no_memory_is_told_so() {
    let server = Running::new();
    let guest = Guest::new(1);
    for answers in [false, true] {
        let mut front_end = FrontEnd::connect(server.path());
        front_end.negotiate();
        front_end.config();
        let queue = &guest.queues[0];
        assert!(front_end.set_ring(request::SET_VRING_NUM, 0, QUEUE_SIZE.into()));
        assert!(front_end.set_ring(request::SET_VRING_BASE, 0, 0));
        let rings = ring_addresses(0, USER_START, USER_START + 8192, USER_START + 16384);
        assert!(front_end.set(request::SET_VRING_ADDR, &rings, &[]));
        let kick = [queue.kick()];
        assert!(front_end.set(request::SET_VRING_KICK, &0u64.to_ne_bytes(), &kick));
        // Asked for an answer or not: the connection is ended.
        match answers {
            true => assert!(!front_end.set_ring(request::SET_VRING_ENABLE, 0, 1)),
            false => front_end.send(request::SET_VRING_ENABLE, 0, &pair(0, 1), &[]),
        }
        front_end.hang_up_by_server();
        until("it is told", || server.trouble.words().filter(|it| it.contains("shares no memory")));
    }

    // Rings that stay empty here while the guest rings.
    let (_seen, file) = SharedMemory::new("private", MEMORY_BYTES).unwrap();
    let mut guest = Guest::new(1);
    guest.file = file;
    let mut front_end = FrontEnd::set_up(server.path(), &guest);
    guest.ask(0, kind::FLUSH, 0, &[], 0);
    until("it is told", || server.trouble.words().filter(|it| it.contains("share=off")));
    assert!(front_end.config().len() == 60, "who waits for nothing may go on");
    front_end.hang_up();

    // One that shares it is served, and nothing is wrong any more.
    let mut guest = Guest::new(1);
    let _front_end = FrontEnd::set_up(server.path(), &guest);
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
    until("all is well", || server.trouble.words().is_none().then_some(()));
}

/// A guest that has not asked for anything yet is none of these.
#[test]
fn a_guest_that_waits_is_left_alone() {
    let server = Running::new();
    let mut guest = Guest::new(2);
    let _front_end = FrontEnd::set_up(server.path(), &guest);
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(server.trouble.words(), None);
    assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages for a test, which go back at its end.
struct HugePages(u64);

impl HugePages {
    fn take(count: u64) -> Option<HugePages> {
        let read = || std::fs::read_to_string(HUGE_PAGES).ok()?.trim().parse::<u64>().ok();
        let before = read()?;
        std::fs::write(HUGE_PAGES, (before + count).to_string()).ok()?;
        let pages = HugePages(before);
        (before == 0 && read()? == count).then_some(pages)
    }

    /// Nobody has any more of them than are mapped.
    fn take_away(&self) {
        std::fs::write(HUGE_PAGES, "0").unwrap();
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(HUGE_PAGES, self.0.to_string());
    }
}

/// The file cannot shrink, and yet its pages can go: what is left has no page, and nobody has one
/// for it.
#[test]
fn memory_whose_pages_are_taken_away_ends_one_connection() {
    use rustix::fs::{FallocateFlags, SealFlags};
    const HUGE: u64 = 2 << 20;
    let Some(pages) = HugePages::take(MEMORY_BYTES / HUGE) else {
        return println!("skipped: no huge pages can be had, or others have some");
    };
    let server = Running::new();
    // The rings, or only the bytes of a write.
    for first in [0, 1 << 20] {
        std::fs::write(HUGE_PAGES, (MEMORY_BYTES / HUGE).to_string()).unwrap();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let huge = rustix::fs::memfd_create("huge", flags).unwrap();
        rustix::fs::ftruncate(&huge, MEMORY_BYTES - first / HUGE * HUGE).unwrap();
        rustix::fs::fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
        let mut guest = Guest::new(1);
        let mut front_end = FrontEnd::connect(server.path());
        front_end.negotiate();
        front_end.config();
        assert!(front_end.share_record(1));
        let mut regions = vec![[GUEST_START, first, USER_START, 0]];
        let mut files = vec![guest.file.as_fd()];
        if first == 0 {
            regions.clear();
            files.clear();
        }
        let size = (MEMORY_BYTES - first) / HUGE * HUGE;
        regions.push([GUEST_START + first, size, USER_START + first, 0]);
        files.push(huge.as_fd());
        assert!(front_end.set(request::SET_MEM_TABLE, &table(&regions), &files));
        front_end.start(&guest);
        // A page that was never there is kept for who has mapped it; one that was is anybody's.
        let ours = SharedMemory::map(&huge, 0, size).unwrap();
        for page in 0..size / HUGE {
            assert!(ours.write((page * HUGE) as usize, &[0]));
        }
        rustix::fs::fallocate(
            &huge,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            0,
            size,
        )
        .unwrap();
        pages.take_away();
        // What it sees of the request is in the other file, or nothing.
        guest.ask(0, kind::OUT, 5, &[7; 4096], 0);
        until("it is told", || server.trouble.words().filter(|it| it.contains("is gone")));
        front_end.hang_up_by_server();
        assert!(server.disk.asked().is_empty(), "zeroes that nobody wrote");
        // Whoever comes next is served.
        let mut guest = Guest::new(1);
        let front_end = FrontEnd::set_up(server.path(), &guest);
        assert_eq!(guest.run(kind::FLUSH, 0, &[], 0).status, 0);
        server.disk.asked();
        front_end.hang_up();
    }
}
