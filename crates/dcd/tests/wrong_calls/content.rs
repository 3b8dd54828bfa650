//! What is on a disk already, and room that does not suffice.

use crate::world::{Call, World};

type Content = (&'static str, u64, &'static [u8], &'static str);

/// Name, where, the bytes, what it is called.
const CONTENTS: &[Content] = &[
    ("a database", 0, b"SQLite format 3\0", "looks like a SQLite database"),
    ("an archive", 257, b"ustar\x0000", "looks like a tar archive"),
    ("a compressed file", 0, &[0x1f, 0x8b, 8, 0, 1], "looks like a gzip file"),
    ("a program", 0, b"\x7fELF\x02\x01\x01", "looks like an ELF program"),
    ("a disk image", 0, b"KDMV\x01", "looks like a disk image (VMDK)"),
    ("another disk image", 0, b"QFI\xfb", "looks like a disk image (qcow2)"),
    ("a pool", 128 << 10, &[0x0c, 0xb1, 0xba, 0, 0], "looks like a member of a ZFS pool"),
    ("a volume group", 512, b"LABELONE", "looks like an LVM physical volume"),
    ("an encrypted disk", 0, b"LUKS\xba\xbe\x00\x02", "looks like an encrypted disk (LUKS)"),
    ("swap", 4086, b"SWAPSPACE2", "looks like swap space"),
    ("a file system", 1080, &[0x53, 0xef], "looks like an ext2, ext3 or ext4 file system"),
    ("a partition table", 510, &[0x55, 0xaa], "looks like a partition table"),
    ("a partition table at the end", (8 << 20) - 512, b"EFI PART", "looks like a partition table"),
    ("a letter", 0, b"Dear aunt, thank you for the socks.\n", "looks like text"),
    ("something", 0, &[7; 70_000], "holds 72 KiB that are not zero"),
    ("something in the middle", 5 << 20, &[1], "holds 4 KiB that are not zero"),
    ("something at the end", (8 << 20) - 1, &[1], "holds 4 KiB that are not zero"),
];

fn refused(
    name: String,
    given: fn(&World, &Content),
    content: &'static Content,
    line: &str,
) -> Call {
    Call {
        name,
        given: Box::new(move |world| given(world, content)),
        line: line.to_owned(),
        code: 1,
        error: content.3.to_owned(),
        hint: "--force".into(),
        then: format!("{line} --force"),
    }
}

pub fn files() -> Vec<Call> {
    let given = |world: &World, (_, at, bytes, _): &Content| {
        world.site.folder.disk("mail.db", 8 << 20);
        world.write("mail.db", *at, bytes);
    };
    let line = "create --cache-disk mail.db --data-disk d";
    let call = |content: &'static Content| {
        refused(format!("{} as the cache-disk", content.0), given, content, line)
    };
    let mut calls: Vec<Call> = CONTENTS.iter().map(call).collect();
    calls.push(Call {
        name: "a short file".into(),
        given: Box::new(|world| world.write("notes", 0, b"buy milk, and bread\n")),
        line: "create --cache-disk notes --cache-size 8M --data-disk d".into(),
        code: 1,
        error: "notes looks like text".into(),
        hint: "--force".into(),
        then: "create --cache-disk notes --cache-size 8M --data-disk d --force".into(),
    });
    calls.push(Call {
        name: "what lies behind a smaller cache that is detached".into(),
        given: Box::new(|world| {
            world.site.folder.disk("n", 8 << 20);
            world.dcd("create --cache-disk n --cache-size 3M --data-disk d");
            world.write("n", 6 << 20, &[1; 4096]);
        }),
        line: "create --cache-disk n --data-disk d".into(),
        code: 1,
        error: "n holds 4 KiB that are not zero".into(),
        hint: "--force".into(),
        then: "create --cache-disk n --data-disk d --cache-size 3M --force".into(),
    });
    calls
}

pub fn members() -> Vec<Call> {
    let given = |world: &World, (_, at, bytes, _): &Content| {
        world.write("v.toml", 0, b"[[set]]\nlevel = 1\nmembers = [0, 1]\n");
        world.site.folder.disk("m", 8 << 20);
        world.write("m", *at, bytes);
    };
    let line = "create --cache-disk n --cache-size 8M --data-disk d --data-disk m --volume v.toml";
    let call = |content: &'static Content| {
        refused(format!("{} as a member", content.0), given, content, line)
    };
    CONTENTS.iter().map(call).collect()
}

/// On a file system of 32 MiB.
pub fn room() -> Vec<Call> {
    let on_a_small_disk = |world: &World| {
        world.tool("mkdir small", "");
        world.tool("mount -t tmpfs -o size=32m tmpfs small", "umount small");
        world.tool("truncate -s 4M small/there", "");
        world.write("small/there", 1 << 20, &[0; 4096]);
        world.tool("truncate -s 64M small/sparse", "");
    };
    let call = |name: &str, file: &str| Call {
        name: name.into(),
        given: Box::new(on_a_small_disk),
        line: format!("create --cache-disk small/{file} --cache-size 64M --data-disk d"),
        code: 1,
        error: "there is no room for the cache".into(),
        hint: "--cache-size".into(),
        then: String::new(),
    };
    vec![
        call("no room for a new file", "new"),
        call("no room for a longer file", "there"),
        call("no room for the holes of a file", "sparse"),
    ]
}
