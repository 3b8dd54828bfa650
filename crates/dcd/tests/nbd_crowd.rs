//! Proves that an honest client of NBD over TCP gets in at once beside crowds that do not: a
//! thousand bare connects a second, idle connections, clients that negotiate for ever and come
//! again when they are sent away, handshakes of TLS without a certificate; and, from another
//! address over a long line, beside one that keeps all places taken with clients that have spoken
//! and wait. All on loopback, for some seconds.

mod harness;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Site, until};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const HOME: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// An honest client gets in in this time; on a machine that does other things as well, half of them
/// do.
const AT_ONCE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
/// Bare connects in a second, and those of them that are kept.
const CONNECTS_PER_SECOND: u32 = 1000;
const CONNECTS_KEPT: usize = 300;
const TRIES: usize = 15;

/// Places for those who negotiate (docs/nbd.md), connections that fill them, and those that then
/// come in a second.
const PLACES: usize = 512;
const FILLERS: usize = 700;
const FILLERS_PER_SECOND: u32 = 150;
/// A message there and one back take so long on a long line.
const ROUND_TRIP: Duration = Duration::from_millis(50);

const FLAGS: &[u8] = b"\0\0\0\x03";
const LIST: &[u8] = b"IHAVEOPT\0\0\0\x03\0\0\0\0";
const GO: &[u8] = b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
const STARTTLS: &[u8] = b"IHAVEOPT\0\0\0\x05\0\0\0\0";
const ACK: u32 = 1;

/// Connects from an address of this machine.
fn connect_from(from: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &SocketAddrV4::new(HOME, port))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn greeted(stream: &mut TcpStream) -> io::Result<()> {
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(FLAGS)
}

/// Asks, and reads replies to the last.
fn ask(stream: &mut TcpStream, option: &[u8]) -> io::Result<()> {
    stream.write_all(option)?;
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header)?;
        let word = |at| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        stream.read_exact(&mut vec![0; word(16) as usize])?;
        match word(12) {
            ACK => return Ok(()),
            reply if reply & 1 << 31 != 0 => return Err(io::ErrorKind::ConnectionRefused.into()),
            _ => {}
        }
    }
}

/// Negotiates, reads a block, and goes.
fn honest(from: Ipv4Addr, port: u16, round_trip: Duration) -> io::Result<()> {
    let mut stream = connect_from(from, port)?;
    stream.set_nodelay(true)?;
    std::thread::sleep(round_trip);
    greeted(&mut stream)?;
    std::thread::sleep(round_trip);
    ask(&mut stream, GO)?;
    let mut read = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0];
    read.extend([7; 8]);
    read.extend([0; 8]);
    read.extend(4096u32.to_be_bytes());
    stream.write_all(&read)?;
    stream.read_exact(&mut [0; 16 + 4096])
}

/// Bare connects of one address.
fn connects(port: u16, end: &AtomicBool, count: &AtomicUsize) {
    let mut kept = VecDeque::new();
    let began = Instant::now();
    let mut made = 0;
    while !end.load(Ordering::Relaxed) {
        let due = began + Duration::from_secs(1) * made / CONNECTS_PER_SECOND;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        made += 1;
        if let Ok(stream) = connect_from(HOME, port) {
            count.fetch_add(1, Ordering::Relaxed);
            kept.push_back(stream);
        }
        if kept.len() > CONNECTS_KEPT {
            kept.pop_front();
        }
    }
}

/// Clients that negotiate without an end, and come again.
fn negotiators(port: u16, clients: usize, option: &'static [u8], end: &AtomicBool) {
    let mut streams: Vec<Option<TcpStream>> = (0..clients).map(|_| None).collect();
    while !end.load(Ordering::Relaxed) {
        for stream in &mut streams {
            let goes_on = stream.as_mut().is_some_and(|stream| stream.write_all(option).is_ok());
            if !goes_on {
                *stream = connect_from(HOME, port).ok().and_then(|mut stream| {
                    greeted(&mut stream).ok()?;
                    stream.set_nonblocking(true).ok()?;
                    Some(stream)
                });
            }
            if let Some(stream) = stream {
                let _ = stream.read(&mut [0; 4096]);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clients of one address that ask for one thing, at once, and then wait: all places at first, and
/// some more in each second.
fn fillers(from: Ipv4Addr, port: u16, option: &[u8], end: &AtomicBool, count: &AtomicUsize) {
    let ask = [FLAGS, option].concat();
    let mut kept = VecDeque::new();
    let mut next = Instant::now();
    loop {
        if kept.len() > PLACES {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            next = Instant::now() + Duration::from_secs(1) / FILLERS_PER_SECOND;
        }
        if end.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(mut stream) = connect_from(from, port)
            && stream.write_all(&ask).is_ok()
        {
            count.fetch_add(1, Ordering::Relaxed);
            kept.push_back(stream);
        }
        if kept.len() > FILLERS {
            kept.pop_front();
        }
    }
}

/// How long each of some honest clients needs, from the address of the crowd and from another.
fn measure(mut honest: impl FnMut(Ipv4Addr)) {
    for from in [HOME, ELSEWHERE] {
        measure_from(from, || honest(from));
    }
}

/// How long each of some honest clients needs.
fn measure_from(from: Ipv4Addr, mut honest: impl FnMut()) {
    let mut times: Vec<Duration> = (0..TRIES)
        .map(|_| {
            let began = Instant::now();
            honest();
            began.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[TRIES / 2] < AT_ONCE && times[TRIES - 1] < PATIENCE, "{from}: {times:?}");
}

/// This process holds both ends of a crowd's connections: as many descriptors as it may have.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Waits until a crowd has all places.
fn until_full(count: &AtomicUsize) {
    until("a crowd has all places", || (count.load(Ordering::Relaxed) > PLACES).then_some(()));
}

/// A crowd at a port, until it is told to end; it counts those that have connected.
type Crowd<'a> = &'a (dyn Fn(u16, &AtomicBool, &AtomicUsize) + Sync);

/// Serves and measures beside crowds, and tells how many had connected. `measure` gets the port and
/// their count.
fn beside(
    site: &Site,
    line: &str,
    crowds: &[Crowd<'_>],
    measure: impl FnOnce(u16, &AtomicUsize),
) -> usize {
    let daemon = site.start_line(line).ready();
    let port = daemon.told("nbd").and_then(|address| address.rsplit(':').next()).unwrap();
    let port: u16 = port.parse().unwrap();
    let (end, connected) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for crowd in crowds {
            scope.spawn(|| crowd(port, &end, &connected));
        }
        let measure = std::panic::AssertUnwindSafe(|| measure(port, &connected));
        let measured = std::panic::catch_unwind(measure);
        end.store(true, Ordering::Relaxed);
        measured.unwrap();
    });
    daemon.assert_no_panic();
    daemon.stop();
    connected.into_inner()
}

const SERVE: &str = "serve --cache-disk c --data-disk d --control ctl --memory-directory . \
                     --nbd tcp:127.0.0.1:0 --quiet";

#[test]
fn an_honest_client_gets_in_beside_all_crowds_at_once() {
    let site = Site::new("16M", 16 << 20);
    let negotiators = |port, end: &_, _: &_| negotiators(port, 140, LIST, end);
    let connected = beside(&site, SERVE, &[&connects, &negotiators], |port, _| {
        let _idle: Vec<_> = (0..127).map(|_| connect_from(HOME, port).unwrap()).collect();
        std::thread::sleep(Duration::from_secs(1));
        measure(|from| {
            honest(from, port, Duration::ZERO).unwrap_or_else(|error| panic!("{from}: {error}"));
        });
    });
    assert!(connected > 200, "there was a crowd");
}

/// Whoever has few places does not lose them to one who has all others, though that one has spoken
/// and the newcomer is silent for a whole round trip.
#[test]
fn a_client_over_a_long_line_gets_in_beside_an_address_that_has_all_places() {
    allow_descriptors();
    let site = Site::new("16M", 16 << 20);
    let fillers = |port, end: &_, count: &_| fillers(HOME, port, LIST, end, count);
    beside(&site, SERVE, &[&fillers], |port, connected| {
        until_full(connected);
        measure_from(ELSEWHERE, || {
            honest(ELSEWHERE, port, ROUND_TRIP).unwrap_or_else(|error| panic!("{error}"));
        });
    });
}

/// Each connection that transmits has its place, and no more than may.
#[test]
fn who_negotiates_takes_no_place_of_those_who_transmit() {
    let site = Site::new("16M", 16 << 20);
    let line = "serve --cache-disk c --data-disk d --control ctl --memory-directory . --nbd tcp:127.0.0.1:0 --connections-max 2";
    let daemon = site.start_line(line).ready();
    let port = daemon.told("nbd").and_then(|address| address.rsplit(':').next()).unwrap();
    let port: u16 = port.parse().unwrap();
    let begin = || {
        let mut stream = connect_from(HOME, port)?;
        greeted(&mut stream)?;
        ask(&mut stream, GO).map(|()| stream)
    };
    let idle: Vec<_> = (0..20).map(|_| connect_from(HOME, port).unwrap()).collect();
    let (first, second) = (begin().unwrap(), begin().unwrap());
    let is_refused = |third: io::Result<TcpStream>| match third {
        Err(_) => true,
        // The reply was on its way.
        Ok(mut stream) => !matches!(stream.read(&mut [0]), Ok(1..)),
    };
    assert!(is_refused(begin()));
    drop(second);
    let deadline = Instant::now() + PATIENCE;
    while honest(HOME, port, Duration::ZERO).is_err() {
        assert!(Instant::now() < deadline, "a place was given back");
    }
    assert!(daemon.log().contains("turned a client away: 2 are connected"), "{}", daemon.log());
    drop(first);
    // Nor do they use the disk, so nobody waits for them.
    let began = Instant::now();
    until("who stands at the doors holds up no detach", || {
        (site.dcd("detach --control ctl").code == Some(0)).then_some(())
    });
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    drop((idle, daemon));
}

/// Disks, certificates, and how to serve with them.
fn site_of_tls() -> (Site, String) {
    let site = Site::new("16M", 16 << 20);
    site.make_certificates("pki");
    let keys =
        "--tls-cert pki/server-cert.pem --tls-key pki/server-key.pem --tls-ca pki/ca-cert.pem";
    (site, format!("{SERVE} {keys}"))
}

fn enters_with_its_certificate(site: &Site, port: u16) {
    let pki = site.path("pki");
    let uri = format!("nbds://127.0.0.1:{port}/?tls-certificates={}", pki.display());
    let found = site.try_tool("nbdinfo", &[&uri]);
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
}

/// Over TLS, beside handshakes of those who have no certificate.
#[test]
fn an_honest_client_of_tls_gets_in_beside_handshakes_without_end() {
    skip_without!("an_honest_client_of_tls_gets_in", "nbdinfo", "openssl");
    let (site, line) = site_of_tls();
    let negotiators = |port, end: &_, _: &_| negotiators(port, 140, STARTTLS, end);
    beside(&site, &line, &[&connects, &negotiators], |port, _| {
        std::thread::sleep(Duration::from_secs(1));
        measure(|_| enters_with_its_certificate(&site, port));
    });
}

/// Over TLS, beside an address that has all places with handshakes that it does not go on with.
#[test]
fn an_honest_client_of_tls_gets_in_beside_an_address_that_has_all_places() {
    skip_without!("an_honest_client_of_tls_gets_in_beside", "nbdinfo", "openssl");
    allow_descriptors();
    let (site, line) = site_of_tls();
    let fillers = |port, end: &_, count: &_| fillers(ELSEWHERE, port, STARTTLS, end, count);
    beside(&site, &line, &[&fillers], |port, connected| {
        until_full(connected);
        measure_from(HOME, || enters_with_its_certificate(&site, port));
    });
}
