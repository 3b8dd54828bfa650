//! The client against a device in memory behind sockets.

mod server;

use std::path::Path;

use dcd_block::units::Lba;
use dcd_client::{
    Allocation, AttributeChange, Attributes, BlockDevice, Device, DeviceError, Geometry,
    PointerChange, Read, Usage, VolumeError, Write,
};
use server::Server;

fn connect(server: &Server) -> Device {
    Device::connect(&server.control(), &server.nbd()).unwrap()
}

#[test]
fn blocks_are_written_and_read() {
    let server = Server::start("blocks", 1000);
    let mut device = connect(&server);
    assert_eq!(device.geometry(), Geometry { block_bytes: 4096, blocks: 1000 });
    // More requests than are on the way at once, some of them cut in two.
    let data: Vec<Vec<u8>> = (0..200).map(|i| vec![i as u8 + 1; 4096]).collect();
    let writes: Vec<_> =
        data.iter().zip(0..).map(|(data, i)| Write { block: 3 * i, data }).collect();
    device.write(&writes).unwrap();
    let large = vec![7; 300 * 4096];
    device.write_durably(&[Write { block: 700, data: &large }]).unwrap();
    device.flush().unwrap();
    let mut found = vec![vec![0; 4096]; 200];
    let mut reads: Vec<_> =
        found.iter_mut().zip(0..).map(|(data, i)| Read { block: 3 * i, data }).collect();
    device.read(&mut reads).unwrap();
    assert_eq!(found, data);
    let mut again = vec![0; 300 * 4096];
    device.read(&mut [Read { block: 700, data: &mut again }]).unwrap();
    assert_eq!(again, large);
    device.trim(700..701).unwrap();
    device.write_zeroes(702..704).unwrap();
    device.read(&mut [Read { block: 700, data: &mut again }]).unwrap();
    let zeroes: Vec<usize> = (0..300).filter(|i| again[i * 4096] == 0).collect();
    assert_eq!(zeroes, [0, 2, 3]);
    let outside = device.write(&[Write { block: 999, data: &large[..8192] }]).unwrap_err();
    assert!(matches!(outside, DeviceError::Range { first: 999, end: 1001, blocks: 1000 }));
}

#[test]
fn free_blocks_pointers_and_attributes() {
    let server = Server::start("pointers", 600);
    let mut device = connect(&server);
    let root = Allocation { near: Some(0), attributes: Attributes::ROOT };
    let hot = Allocation { near: Some(100), attributes: Attributes::HOT };
    let mut wanted = vec![hot; 500];
    wanted[0] = root;
    let blocks: Vec<u64> = device.allocate(&wanted).into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!((blocks[0], blocks[1], blocks[2]), (0, 100, 101));
    // 100 are left.
    let answers = device.allocate(&[hot; 130]);
    assert!(answers[..100].iter().all(Result::is_ok));
    assert!(answers[100..].iter().all(|answer| answer.as_ref().unwrap_err().is_no_room()));

    let changes = [
        PointerChange::create(0, 100),
        PointerChange::create(100, 101),
        PointerChange::create(0, 100),
        PointerChange::delete(5, 6),
    ];
    let answers = device.change_pointers(&changes);
    assert!(answers[0].is_ok() && answers[1].is_ok());
    let volume = |answer: &Result<(), DeviceError>| match answer {
        Err(DeviceError::Volume(error)) => *error,
        other => panic!("{other:?}"),
    };
    let (from, to) = (Lba(0), Lba(800));
    assert_eq!(volume(&answers[2]), VolumeError::PointerExists { from, to });
    let (from, to) = (Lba(40), Lba(48));
    assert_eq!(volume(&answers[3]), VolumeError::NoPointer { from, to });

    let cold = AttributeChange { set: Attributes::COLD, clear: Attributes::NONE };
    device.set_attributes(&[100], cold).unwrap();
    let found = device.attributes(&[100, 101, 102]).unwrap();
    let metadata = Attributes::COLD.or(Attributes::METADATA);
    assert_eq!(found, [metadata, Attributes::COLD, Attributes::HOT]);

    assert_eq!(device.collect().unwrap(), 597);
    device.settle().unwrap();
    assert_eq!(
        device.usage().unwrap(),
        Usage { mapped: 3, pointers: 2, pointers_max: u64::from(u32::MAX) }
    );
    assert_eq!(device.mapped(0..600).unwrap(), [0..1, 100..102]);
    assert_eq!(device.mapped(101..600).unwrap(), vec![101..102; 1]);
}

#[test]
fn what_is_not_there_is_told_with_a_hint() {
    let server = Server::start("missing", 600);
    let missing = Path::new("/nowhere/ctl");
    let error = Device::connect(missing, &server.nbd()).err().unwrap();
    assert!(matches!(&error, DeviceError::Connect { path, .. } if path == missing), "{error}");
    assert!(error.hint().unwrap().contains("dcd serve"));
    let mut device = connect(&server);
    drop(server);
    // It answers still: only its folder is gone.
    assert_eq!(device.collect().unwrap(), 0);
}
