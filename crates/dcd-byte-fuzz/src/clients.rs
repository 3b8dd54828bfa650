//! The client sides: what a server may say that is not ours, is broken, or has been put in the
//! place of ours. Whatever comes, each question ends with an answer that can be reckoned with or an
//! error that is safe to show, and nobody waits: the server has said everything at once, and then
//! hangs up.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use dcd_client::nbd::{NbdClient, NbdRequest};
use dcd_client::{
    Allocation, AttributeChange, Attributes, BlockDevice, Device, DeviceError, PointerChange, Read,
    Write as BlockWrite,
};
use dcd_daemon::control::client::{ControlClient, ControlError, for_people};
use dcd_protocol::sequences::SequenceCommand;
use dcd_protocol::volumes::VolumeCommand;
use dcd_protocol::{Command, DetachAsked, WantedSettings};

use crate::input::Input;
use crate::text::assert_shown_safely;

/// No question waits for anything.
const SOON: Duration = Duration::from_secs(10);
/// Most that a server says; it fits into the buffer of a socket.
const SAID_BYTES_MAX: usize = 32 << 10;
/// Lines of 4 KiB in as much as can be counted in bytes.
const LINES_MAX: u64 = u64::MAX >> 12;

/// Both ends of a connection whose server has said all that it will say.
fn server(said: &[u8]) -> (UnixStream, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    theirs.write_all(&said[..said.len().min(SAID_BYTES_MAX)]).expect("room in the buffer");
    theirs.shutdown(std::net::Shutdown::Write).expect("an end");
    (ours, theirs)
}

/// The first byte: what is asked. Then what the daemon says.
pub(crate) fn control_client(input: &[u8]) {
    let began = Instant::now();
    let (what, said) = input.split_first().unwrap_or((&0, &[]));
    let (ours, _theirs) = server(said);
    let mut client = ControlClient::on(ours, Path::new("ctl"), SOON);
    let mut progress = |so_far: dcd_protocol::Progress| {
        assert!(so_far.done <= so_far.total && so_far.total <= LINES_MAX, "{so_far:?}");
    };
    // Several questions: an answer to one must not pass for that of the next.
    for question in [*what, what.wrapping_add(1)] {
        let problem = match question % 9 {
            0 => client.status().map(|report| drop(for_people(&report))).err(),
            1 => client.metrics().map(drop).err(),
            2 => client.request(Command::Drain, &mut progress).map(drop).err(),
            3 => client.detach(DetachAsked::default(), &mut progress).map(drop).err(),
            4 => client.sequence(&SequenceCommand::List, &[]).map(drop).err(),
            5 => {
                let store = SequenceCommand::Store { name: "boot".to_owned() };
                client.sequence(&store, &[(0, 8)]).map(drop).err()
            }
            6 => client.volume(&VolumeCommand::Status).map(drop).err(),
            7 => client.set(WantedSettings::new()).map(drop).err(),
            _ => {
                let mut batches = 0;
                let mut take = |_| {
                    batches += 1;
                    batches < 4
                };
                client.record(&mut take).err()
            }
        };
        if let Some(error) = problem {
            assert_shown_safely(&error.to_string());
            let _ = error.hint().map(|hint| assert_shown_safely(&hint));
            let is_silent = matches!(error, ControlError::Silent { .. });
            assert!(!is_silent, "it has said all, and nobody has to wait");
        }
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// The first byte: 1 puts a handshake that is right before the rest. Then what the server says.
pub(crate) fn nbd_client(input: &[u8]) {
    let began = Instant::now();
    let (how, rest) = input.split_first().unwrap_or((&0, &[]));
    let is_right = how & 1 != 0;
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    let rest = &rest[..rest.len().min(SAID_BYTES_MAX)];
    // Behind a right one, what is said before anything was asked would be no answer.
    let (first, later) = if is_right { (&handshake(1 << 20)[..], rest) } else { (rest, &[][..]) };
    theirs.write_all(first).expect("room in the buffer");
    if !is_right {
        theirs.shutdown(std::net::Shutdown::Write).expect("an end");
    }
    let Ok(mut client) = NbdClient::on(ours) else { return };
    if is_right {
        theirs.write_all(later).expect("room in the buffer");
        theirs.shutdown(std::net::Shutdown::Write).expect("an end");
    }
    let _ = (client.size_bytes(), client.is_read_only());
    let Ok(mut receiver) = client.receiver() else { return };
    for n in 0..4 {
        let mut data = [0; 512];
        if client.send(NbdRequest::Read { offset: n * 512, length: 512 }).is_err() {
            return;
        }
        match receiver.receive_reply() {
            Ok(reply) if reply.error == 0 && receiver.receive_data(&mut data).is_ok() => {}
            Ok(reply) if reply.error != 0 => {}
            _ => return,
        }
        if client.flush().is_err() || client.write(n, &[1; 512]).is_err() {
            return;
        }
    }
    client.disconnect();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// What a server of that size says before the first request.
pub(crate) fn handshake(bytes: u64) -> Vec<u8> {
    let reply = |kind: u32, text: &[u8]| {
        let mut reply = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
        reply.extend(7u32.to_be_bytes());
        reply.extend(kind.to_be_bytes());
        reply.extend((text.len() as u32).to_be_bytes());
        reply.extend(text);
        reply
    };
    let export = [&[0, 0][..], &bytes.to_be_bytes(), &[0, 1]].concat();
    [b"NBDMAGICIHAVEOPT".to_vec(), vec![0, 3], reply(3, &export), reply(1, &[])].concat()
}

/// The first two bytes: how much of what follows the control socket says, behind a first answer
/// that is right; the rest is said by the NBD socket, behind a right handshake.
pub(crate) fn device_client(input: &[u8]) {
    let began = Instant::now();
    let mut program = Input(input);
    let length = usize::from(program.u16()).min(program.0.len());
    let (control, nbd) = program.0.split_at(length);
    let status = b"{\"ok\":true,\"volume\":{\"extent_bytes\":65536}}\n";
    let (control, _their_control) = server(&[&status[..], control].concat());
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    theirs.write_all(&handshake(1 << 20)).expect("room in the buffer");
    let device = Device::on(control, ours);
    let _ = theirs.write_all(&nbd[..nbd.len().min(SAID_BYTES_MAX)]);
    let _ = theirs.shutdown(std::net::Shutdown::Write);
    let Ok(mut device) = device else { return };
    let blocks = device.geometry().blocks;
    let shown = |error: &DeviceError| {
        assert_shown_safely(&error.to_string());
        let _ = error.hint().map(|hint| assert_shown_safely(&hint));
    };
    let attributes = Attributes::IMPORTANT;
    for answer in device.allocate(&[Allocation { near: Some(0), attributes }; 2]) {
        match answer {
            // A block that is not there would be written to.
            Ok(block) => assert!(block < blocks, "block {block} of {blocks}"),
            Err(error) => shown(&error),
        }
    }
    let pointers = [PointerChange::create(0, 1), PointerChange::delete(0, 1)];
    device.change_pointers(&pointers).iter().filter_map(|it| it.as_ref().err()).for_each(shown);
    let change = AttributeChange { set: attributes, clear: Attributes::NONE };
    let _ = device.set_attributes(&[0, 1], change).map_err(|error| shown(&error));
    match device.attributes(&[0, 1]) {
        Ok(found) => assert_eq!(found.len(), 2),
        Err(error) => shown(&error),
    }
    match device.mapped(0..blocks) {
        Ok(found) => {
            let is_in_order = found.is_sorted_by(|a, b| a.end < b.start);
            let is_there = |it: &std::ops::Range<u64>| it.start < it.end && it.end <= blocks;
            assert!(is_in_order && found.iter().all(is_there), "{found:?}");
        }
        Err(error) => shown(&error),
    }
    let _ = device.collect().map_err(|error| shown(&error));
    let _ = device.usage().map_err(|error| shown(&error));
    let _ = device.settle().map_err(|error| shown(&error));
    let mut data = vec![0; device.geometry().block_bytes];
    let _ = device.read(&mut [Read { block: 1, data: &mut data }]).map_err(|error| shown(&error));
    let _ =
        device.write(&[BlockWrite { block: 1, data: &data[..] }]).map_err(|error| shown(&error));
    let _ = device.flush().map_err(|error| shown(&error));
    let _ = device.discard(std::slice::from_ref(&(0..1))).map_err(|error| shown(&error));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}
