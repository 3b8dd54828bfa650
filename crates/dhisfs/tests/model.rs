//! Random operations, compared with a model; across mounts; with little memory; until the device is
//! full.

mod common;

use common::*;
use dcd_client::{AttributeChange, Attributes, BlockDevice};
use dhisfs::{
    AttributesChange, FileSystem, HINT_NAME, MakeOptions, MountOptions, NewFile, RenameMode, Rules,
    make,
};

fn file(mode: u32) -> NewFile {
    NewFile { mode, ..NewFile::default() }
}

fn run_random(seed: u64, ops: usize, cache_bytes: usize) {
    let options = MountOptions { cache_bytes, ..MountOptions::default() };
    let mut fs = FileSystem::mount(mounted(20_000).unmount().unwrap(), options.clone()).unwrap();
    let mut random = Random::new(seed);
    let mut model = Model::default();
    for i in 0..ops {
        let op = model.random_op(&mut random);
        let worked = run(&mut fs, &op);
        assert_eq!(worked, model.apply(&op), "seed {seed}, op {i}: {op:?}");
        if random.below(150) == 0 {
            compare(&mut fs, &model);
            check(&mut fs);
        }
        if random.below(200) == 0 {
            fs = FileSystem::mount(fs.unmount().unwrap(), options.clone()).unwrap();
        }
    }
    compare(&mut fs, &model);
    check(&mut fs);
}

#[test]
fn random_operations() {
    for seed in 0..12 {
        run_random(seed, 600, 8 << 20);
    }
}

#[test]
fn random_operations_with_little_memory() {
    for seed in 100..106 {
        run_random(seed, 600, 300 << 10);
    }
}

#[test]
fn everything_is_freed() {
    let mut fs = mounted(4000);
    let empty = fs.check().unwrap();
    let root = fs.root();
    let big = vec![5; 3 << 20];
    for round in 0..6 {
        for i in 0..3 {
            let name = format!("f{i}");
            let file = fs.create(root, name.as_bytes(), &file(FILE)).unwrap();
            assert_eq!(fs.write(file, 0, &big).unwrap(), big.len());
            if round % 2 == 0 {
                fs.sync().unwrap();
            }
            fs.unlink(root, name.as_bytes()).unwrap();
        }
    }
    fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
    let report = fs.check().unwrap();
    // The first block of a directory stays.
    assert_eq!((report.blocks, report.problems), (empty.blocks + 1, vec![]));
}

#[test]
fn a_full_device_says_so_and_works_on() {
    let mut fs = mounted(600);
    let root = fs.root();
    let a = fs.create(root, b"a", &file(FILE)).unwrap();
    let data = vec![1; 1 << 20];
    let mut written = 0;
    loop {
        match fs.write(a, written as u64, &data) {
            Ok(count) => written += count,
            Err(error) => {
                assert_eq!(error.errno(), libc::ENOSPC, "{error}");
                break;
            }
        }
    }
    // All but what metadata takes.
    assert!(written > 380 * 4096, "{written}");
    let full = errno(fs.create(root, b"directory", &file(DIRECTORY)));
    assert_eq!(full, libc::ENOSPC);
    check(&mut fs);
    // Overwriting needs no room.
    assert_eq!(fs.write(a, 0, &data).unwrap(), data.len());
    fs.unlink(root, b"a").unwrap();
    let b = fs.create(root, b"b", &file(FILE)).unwrap();
    assert_eq!(fs.write(b, 0, &data).unwrap(), data.len());
    check(&mut fs);
    assert_eq!(fs.read(b, 0, 2 << 20).unwrap(), data);
}

#[test]
fn a_file_that_is_open_stays_until_it_is_closed() {
    let mut fs = mounted(2000);
    let root = fs.root();
    let a = fs.create(root, b"a", &file(FILE)).unwrap();
    fs.opened(a);
    fs.write(a, 0, b"still here").unwrap();
    fs.unlink(root, b"a").unwrap();
    assert_eq!(errno(fs.lookup(root, b"a")), libc::ENOENT);
    check(&mut fs);
    fs.write(a, 10, b" and longer").unwrap();
    assert_eq!(fs.read(a, 0, 100).unwrap(), b"still here and longer");
    let b = fs.create(root, b"b", &file(FILE)).unwrap();
    fs.opened(b);
    let c = fs.create(root, b"c", &file(FILE)).unwrap();
    fs.rename((root, b"c"), (root, b"b"), RenameMode::Replace).unwrap();
    assert_eq!(fs.lookup(root, b"b").unwrap(), c);
    fs.closed(a).unwrap();
    assert_eq!(errno(fs.read(a, 0, 100)), libc::ESTALE);
    check(&mut fs);
    // The other one is open when the program ends: the next mount removes it.
    fs.sync().unwrap();
    let before = fs.check().unwrap();
    let mut fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
    let after = fs.check().unwrap();
    assert_eq!((after.problems, after.files), (vec![], before.files - 1));
}

#[test]
fn the_end_of_a_file_that_was_cut_off_does_not_come_back() {
    let mut fs = mounted(2000);
    let root = fs.root();
    let a = fs.create(root, b"a", &file(FILE)).unwrap();
    for way in 0..3 {
        fs.write(a, 0, &[9; 5000]).unwrap();
        let size = |size| AttributesChange { size: Some(size), ..AttributesChange::default() };
        fs.set_attributes(a, &size(4500)).unwrap();
        fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
        match way {
            0 => fs.set_attributes(a, &size(6000)).unwrap(),
            1 => assert_eq!(fs.write(a, 5999, b"\0").unwrap(), 1),
            _ => assert_eq!(fs.write(a, 8999, b"\0").unwrap(), 1),
        }
        let mut expected = vec![9; 4500];
        expected.resize(if way < 2 { 6000 } else { 9000 }, 0);
        assert_eq!(fs.read(a, 0, 10_000).unwrap(), expected);
    }
    check(&mut fs);
}

#[test]
fn hints_reach_the_device() {
    let text = "[[rule]]\nmatch = [\"*.c\"]\nset = \"important\"\n\
                [[rule]]\nmatch = [\"*.o\"]\nset = \"temporary\"\n";
    let rules = Rules::parse(text, "rules".as_ref()).unwrap();
    let device = mounted(4000).unmount().unwrap();
    let options = MountOptions { rules, ..MountOptions::default() };
    let mut fs = FileSystem::mount(device, options).unwrap();
    let root = fs.root();
    let words = |text: &str| text.parse::<Attributes>().unwrap();
    let source = fs.create(root, b"a.c", &file(FILE)).unwrap();
    let object = fs.create(root, b"a.o", &file(FILE)).unwrap();
    let directory = fs.create(root, b"d", &file(DIRECTORY)).unwrap();
    fs.set_extended(directory, HINT_NAME, b"hot,random", 0).unwrap();
    let inside = fs.create(directory, b"plain", &file(FILE)).unwrap();
    let below = fs.create(directory, b"below", &file(DIRECTORY)).unwrap();
    let deep = fs.create(below, b"x.c", &file(FILE)).unwrap();
    // Large enough for lists.
    for file in [source, object, inside, deep] {
        fs.write(file, 0, &vec![1; 2 << 20]).unwrap();
    }
    let hint = |fs: &mut FileSystem<_>, file| {
        let hint = fs.extended(file, HINT_NAME).unwrap();
        words(std::str::from_utf8(&hint).unwrap())
    };
    assert_eq!(hint(&mut fs, source), words("important"));
    assert_eq!(hint(&mut fs, inside), words("hot,random"));
    assert_eq!(hint(&mut fs, below), words("hot,random"));
    assert_eq!(hint(&mut fs, deep), words("important,hot,random"));

    // What the device has for the blocks of a file.
    fn seen(
        mut fs: FileSystem<dcd_client::MemoryDevice>,
        file: u64,
    ) -> (FileSystem<dcd_client::MemoryDevice>, Vec<Attributes>) {
        let rules = MountOptions::default();
        let mut device = {
            fs.sync().unwrap();
            fs.unmount().unwrap()
        };
        let pointers: Vec<_> = device.all_pointers().collect();
        let mut blocks = vec![file];
        let mut at = 0;
        while at < blocks.len() {
            let own = blocks[at];
            blocks.extend(pointers.iter().filter(|(from, _)| *from == own).map(|(_, to)| *to));
            at += 1;
        }
        let attributes = device.attributes(&blocks).unwrap();
        (FileSystem::mount(device, rules).unwrap(), attributes)
    }
    let all = |attributes: Vec<Attributes>, expected: Attributes| {
        assert!(attributes.len() > 512, "{}", attributes.len());
        let inherited = attributes.iter().map(|own| own.and(Attributes::INHERITED));
        assert!(inherited.into_iter().all(|own| own == expected), "{expected}");
        assert!(attributes[0].contains(Attributes::METADATA));
    };
    for (file, expected) in
        [(source, "important"), (object, "temporary"), (deep, "important,hot,random")]
    {
        let attributes;
        (fs, attributes) = seen(fs, file);
        all(attributes, words(expected));
    }
    // A new hint goes to all blocks of the file.
    fs.set_extended(source, HINT_NAME, b"cold", 0).unwrap();
    let attributes;
    (fs, attributes) = seen(fs, source);
    all(attributes, words("cold"));
    let change = AttributeChange { set: words("cold"), clear: words("important") };
    assert_eq!(words("important").changed(change), words("cold"));

    for bad in ["warm", "hot,cold", "root", "metadata", "\u{e9}"] {
        assert_eq!(errno(fs.set_extended(source, HINT_NAME, bad.as_bytes(), 0)), libc::EINVAL);
    }
    fs.remove_extended(source, HINT_NAME).unwrap();
    assert_eq!(errno(fs.extended(source, HINT_NAME)), libc::ENODATA);
    check(&mut fs);
}

#[test]
fn extended_attributes() {
    let mut fs = mounted(2000);
    let root = fs.root();
    let a = fs.create(root, b"a", &file(FILE)).unwrap();
    fs.set_extended(a, b"user.x", b"1", libc::XATTR_CREATE).unwrap();
    assert_eq!(errno(fs.set_extended(a, b"user.x", b"2", libc::XATTR_CREATE)), libc::EEXIST);
    assert_eq!(errno(fs.set_extended(a, b"user.y", b"2", libc::XATTR_REPLACE)), libc::ENODATA);
    assert_eq!(errno(fs.set_extended(a, b"security.x", b"2", 0)), libc::EOPNOTSUPP);
    assert_eq!(errno(fs.set_extended(a, b"user.y", &[0; 1020], 0)), libc::ENOSPC);
    assert_eq!(errno(fs.set_extended(a, b"user.y", &[0; 5000], 0)), libc::E2BIG);
    fs.set_extended(a, b"user.y", &[3; 900], 0).unwrap();
    fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
    assert_eq!(fs.extended(a, b"user.x").unwrap(), b"1");
    assert_eq!(fs.extended(a, b"user.y").unwrap(), [3; 900]);
    assert_eq!(fs.extended_names(a).unwrap(), b"user.x\0user.y\0");
    fs.remove_extended(a, b"user.y").unwrap();
    assert_eq!(errno(fs.extended(a, b"user.y")), libc::ENODATA);
    check(&mut fs);
}

#[test]
fn a_device_in_use_is_refused_unless_forced() {
    let mut device = mounted(2000).unmount().unwrap();
    assert!(matches!(make(&mut device, &make_options()), Err(dhisfs::FsError::InUse)));
    make(&mut device, &MakeOptions { force: true, ..make_options() }).unwrap();
    check(&mut FileSystem::mount(device, MountOptions::default()).unwrap());
    let mut small = common::device(150);
    assert!(matches!(make(&mut small, &make_options()), Err(dhisfs::FsError::TooSmall { .. })));
    let empty = common::device(2000);
    let refused = FileSystem::mount(empty, MountOptions::default()).err().unwrap();
    assert!(matches!(refused, dhisfs::FsError::NotThere { .. }), "{refused}");
}

#[test]
fn a_disk_that_fails_stops_everything_and_loses_nothing_durable() {
    let mut fs = mounted(3000);
    let root = fs.root();
    fs.create(root, b"kept", &file(FILE)).unwrap();
    let mut device = fs.unmount().unwrap();
    device.record();
    for fails_after in 0..12 {
        let mut device = device.after_power_cut(0, &mut |_| 0);
        device.fail_after(fails_after);
        let Ok(mut fs) = FileSystem::mount(device, MountOptions::default()) else { continue };
        let _ = fs.create(root, b"new", &file(FILE)).map(|new| fs.write(new, 0, &[1; 9000]));
        let synced = fs.sync();
        if synced.is_err() {
            assert!(fs.is_stopped());
            assert_eq!(errno(fs.create(root, b"other", &file(FILE))), libc::EROFS);
            assert_eq!(errno(fs.sync()), libc::EROFS);
        }
        assert!(fs.lookup(root, b"kept").is_ok());
    }
}

/// A mount that may change nothing shows what another would, without it: the journal stays as it
/// is.
#[test]
fn a_read_only_mount_shows_what_a_crash_has_left() {
    let mut device = mounted(20_000).unmount().unwrap();
    device.record();
    let mut fs = FileSystem::mount(device, MountOptions::default()).unwrap();
    let mut random = Random::new(77);
    let mut model = Model::default();
    for i in 0..400 {
        let op = model.random_op(&mut random);
        assert_eq!(run(&mut fs, &op), model.apply(&op), "{op:?}");
        if i % 40 == 39 {
            fs.sync().unwrap();
            let at = fs.device().recorded();
            for keep in [0, usize::MAX] {
                let mut device = fs.device().after_power_cut(at, &mut |end| keep.min(end - 1));
                device.set_read_only(true);
                let refused = FileSystem::mount(device, MountOptions::default()).err().unwrap();
                assert!(matches!(refused, dhisfs::FsError::ReadOnlyDevice));
                let mut device = fs.device().after_power_cut(at, &mut |end| keep.min(end - 1));
                device.set_read_only(true);
                let options = MountOptions { read_only: true, ..MountOptions::default() };
                let mut seen = FileSystem::mount(device, options).unwrap();
                compare(&mut seen, &model);
                let root = seen.root();
                assert_eq!(errno(seen.create(root, b"new-one", &file(FILE))), libc::EROFS);
                seen.sync().unwrap();
                let mut device = seen.unmount().unwrap();
                device.set_read_only(false);
                let mut fs = FileSystem::mount(device, MountOptions::default()).unwrap();
                compare(&mut fs, &model);
                check(&mut fs);
            }
        }
    }
}

#[test]
fn a_name_of_256_bytes_is_too_long_for_everything() {
    let mut fs = mounted(2000);
    let root = fs.root();
    let long = [b'x'; 256];
    let a = fs.create(root, &long[..255], &file(FILE)).unwrap();
    let too_long = libc::ENAMETOOLONG;
    assert_eq!(errno(fs.lookup(root, &long)), too_long);
    assert_eq!(errno(fs.create(root, &long, &file(FILE))), too_long);
    assert_eq!(errno(fs.link(a, root, &long)), too_long);
    assert_eq!(errno(fs.unlink(root, &long)), too_long);
    assert_eq!(errno(fs.remove_directory(root, &long)), too_long);
    for (from, to) in [(&long[..], &b"b"[..]), (&long[..255], &long)] {
        assert_eq!(errno(fs.rename((root, from), (root, to), RenameMode::Replace)), too_long);
    }
    check(&mut fs);
}

#[test]
fn what_is_known_lives_until_it_is_forgotten() {
    let mut fs = mounted(2000);
    let root = fs.root();
    let a = fs.create(root, b"a", &file(FILE)).unwrap();
    let d = fs.create(root, b"d", &file(DIRECTORY)).unwrap();
    let e = fs.create(root, b"e", &file(DIRECTORY)).unwrap();
    for inode in [a, d, e] {
        fs.looked_up(inode);
        fs.looked_up(inode);
    }
    fs.unlink(root, b"a").unwrap();
    fs.remove_directory(root, b"d").unwrap();
    fs.create(root, b"f", &file(DIRECTORY)).unwrap();
    fs.rename((root, b"f"), (root, b"e"), RenameMode::Replace).unwrap();
    for inode in [a, d, e] {
        assert_eq!(fs.inode(inode).unwrap().links, 0);
    }
    assert_eq!(errno(fs.create(d, b"x", &file(FILE))), libc::ENOENT);
    assert_eq!(errno(fs.lookup(d, b"..")), libc::ENOENT);
    check(&mut fs);
    for inode in [a, d] {
        fs.forgotten(inode, 1).unwrap();
        assert_eq!(fs.inode(inode).unwrap().links, 0);
        fs.forgotten(inode, 1).unwrap();
        assert_eq!(errno(fs.inode(inode)), libc::ESTALE);
    }
    check(&mut fs);
    // The third is known when it is unmounted.
    let mut fs = FileSystem::mount(fs.unmount().unwrap(), MountOptions::default()).unwrap();
    assert_eq!(fs.check().unwrap().directories, 3);
}

#[test]
fn a_file_tells_which_blocks_it_has() {
    let mut fs = mounted(6000);
    let root = fs.root();
    let (a, b) =
        (fs.create(root, b"a", &file(FILE)).unwrap(), fs.create(root, b"b", &file(FILE)).unwrap());
    // Pieces that lie apart, with a hole, in the inode and in lists.
    for i in 0..500 {
        fs.write(a, i * 2 * 4096, &[1; 4096]).unwrap();
        fs.write(b, i * 4096, &[2; 4096]).unwrap();
    }
    fs.write(a, 3000 * 4096, &[3; 40_960]).unwrap();
    fs.sync().unwrap();
    let told = |fs: &mut FileSystem<_>, from: u64| {
        let name = format!("user.dcd.blocks.{from}");
        let text = String::from_utf8(fs.extended(a, name.as_bytes()).unwrap()).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, "dhisfs 4096 6000");
        let runs = rest.lines().map(|line| {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            (numbers[0], numbers[1], numbers[2])
        });
        runs.collect::<Vec<(u64, u64, u64)>>()
    };
    let runs = told(&mut fs, 0);
    assert_eq!(runs.iter().map(|run| run.2).sum::<u64>(), 510);
    assert_eq!(told(&mut fs, 2990).iter().map(|run| run.2).sum::<u64>(), 10);
    assert_eq!(told(&mut fs, 3010), []);
    let without = fs.extended(a, b"user.dcd.blocks").unwrap();
    assert_eq!(without, fs.extended(a, b"user.dcd.blocks.0").unwrap());
    // They hold what the file does.
    let mut device = fs.unmount().unwrap();
    for (index, block, count) in runs {
        let mut data = vec![0; count as usize * 4096];
        device.read(&mut [dcd_client::Read { block, data: &mut data }]).unwrap();
        let expected = if index < 3000 { 1 } else { 3 };
        assert!(data.iter().all(|byte| *byte == expected), "{index}");
    }
    let mut fs = FileSystem::mount(device, MountOptions::default()).unwrap();
    assert_eq!(errno(fs.extended(a, b"user.dcd.blocks.x")), libc::ENODATA);
    assert_eq!(errno(fs.set_extended(a, b"user.dcd.blocks", b"1", 0)), libc::EPERM);
    assert_eq!(fs.extended_names(a).unwrap(), b"");
    // A directory has some, too.
    assert!(fs.extended(root, b"user.dcd.blocks").unwrap().len() > 20);
}
