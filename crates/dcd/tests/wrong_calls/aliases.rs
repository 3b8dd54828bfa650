//! One disk under two names.

use crate::world::{Call, World, detach, serve};

const SAME: &str = "the same disk";
const SAME_HINT: &str = "two disks";

/// Ways to another name `{A}` for the data-disk `d`.
type Alias = (&'static str, fn(&World));

const LINKS: &[Alias] = &[
    ("the same name", |world| world.name("A", "d")),
    ("another spelling", |world| world.name("A", "./d")),
    ("a hard link", |world| {
        world.tool("ln d hard", "");
        world.name("A", "hard");
    }),
    ("a symbolic link", |world| {
        world.tool("ln -s d soft", "");
        world.name("A", "soft");
    }),
    ("a link to a link", |world| {
        world.tool("ln -s d soft", "");
        world.tool("ln -s soft softer", "");
        world.name("A", "softer");
    }),
];

const DEVICES: &[Alias] = &[
    ("a loop device", |world| world.loop_device("A", "d")),
    ("a read-only loop device's disk", |world| world.loop_device("A", "-r d")),
    ("a loop device over a part", |world| {
        world.loop_device("A", "--offset 1048576 --sizelimit 4194304 d");
    }),
    ("a loop device over a loop device", |world| {
        world.loop_device("L", "d");
        world.loop_device("A", "{L}");
    }),
    ("a loop device over a link", |world| {
        world.tool("ln d hard", "");
        world.loop_device("A", "hard");
    }),
    ("a bind mount", |world| {
        world.tool("touch other", "");
        world.tool("mount --bind d other", "umount other");
        world.name("A", "other");
    }),
    ("a loop device over a bind mount", |world| {
        world.tool("touch other", "");
        world.tool("mount --bind d other", "umount other");
        world.loop_device("A", "other");
    }),
    ("another node of a device", |world| {
        world.loop_device("L", "d");
        let number = world.tool("stat -c %t:%T {L}", "");
        let (major, minor) = number.split_once(':').unwrap();
        let number = |text| u32::from_str_radix(text, 16).unwrap();
        world.tool(&format!("mknod node b {} {}", number(major), number(minor)), "");
        world.name("A", "node");
    }),
    ("a partition", |world| {
        partitioned(world, "d");
        world.loop_device("L", "--partscan d");
        // Of a kernel that does not read such tables itself.
        world.site.try_tool("partx", &["--add", &world.named("L")]);
        world.name("A", &format!("{}p1", world.named("L")));
    }),
];

/// One partition from 1 MiB on, of 4 MiB.
fn partitioned(world: &World, file: &str) {
    let mut entry = [0; 16];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&2048u32.to_le_bytes());
    entry[12..16].copy_from_slice(&8192u32.to_le_bytes());
    world.write(file, 446, &entry);
    world.write(file, 510, &[0x55, 0xaa]);
}

const VOLUME: &str = "[[set]]\nlevel = 1\nmembers = [0, 1]\n";

fn pairs(aliases: &'static [Alias]) -> Vec<Call> {
    let calls = [
        ("the cache-disk of a new cache", "create --cache-disk {A} --data-disk d --force"),
        ("the data-disk of a new cache", "create --cache-disk d --data-disk {A} --force"),
        (
            "a member twice",
            "create --cache-disk n --cache-size 8M --data-disk d --data-disk {A} --volume v.toml --force",
        ),
        ("the cache-disk", &serve("{A}", "d")),
        ("the data-disk", &serve("d", "{A}")),
        ("the cache-disk of a detach", &detach("{A}", "d")),
        ("the disk to grow", "grow --cache-disk {A} --data-disk d --memory-directory ."),
    ]
    .map(|(role, line)| (role.to_owned(), line.to_owned()));
    let call = |(name, make): &'static Alias, (role, line): &(String, String)| Call {
        name: format!("{name}: {role}"),
        given: Box::new(move |world| {
            make(world);
            is_known_to_probe(world);
            world.write("v.toml", 0, VOLUME.as_bytes());
        }),
        line: line.clone(),
        code: 1,
        error: SAME.into(),
        hint: SAME_HINT.into(),
        then: String::new(),
    };
    aliases.iter().flat_map(|alias| calls.iter().map(move |one| call(alias, one))).collect()
}

/// What udev is told of the other name, and of what has nothing to do with it.
fn is_known_to_probe(world: &World) {
    let here = world.site.path("").display().to_string();
    let settings = format!("cache-disk = \"{here}c\"\ndata-disk = \"{here}d\"\n");
    world.tool("mkdir etc", "");
    world.write("etc/a.toml", 0, settings.as_bytes());
    let probe = |name: &str| world.site.dcd(&format!("probe --configurations etc {name}")).ok();
    let told = probe(&world.named("A"));
    assert!(told.contains(": data-disk of service a"), "{told}");
    world.write("stranger", 8 << 20, b"x");
    assert!(probe("stranger").contains("no disk of a cache"));
}

pub fn links() -> Vec<Call> {
    pairs(LINKS)
}

/// Loop devices, partitions, bind mounts, and an overlay.
pub fn devices() -> Vec<Call> {
    let mut calls = pairs(DEVICES);
    calls.push(Call {
        name: "the upper layer of an overlay".into(),
        given: Box::new(|world| {
            world.tool("mkdir lower merged base", "");
            world.tool("mount -t tmpfs tmpfs base", "umount base");
            world.tool("mkdir base/upper base/work", "");
            let here = world.site.path("").display().to_string();
            let here = here.trim_end_matches('/');
            let options = format!(
                "lowerdir={here}/lower,upperdir={here}/base/upper,workdir={here}/base/work"
            );
            world.tool(&format!("mount -t overlay overlay -o {options} merged"), "umount merged");
            world.tool("truncate -s 8M merged/d", "");
        }),
        line: "create --cache-disk base/upper/d --data-disk merged/d --force".into(),
        code: 1,
        error: SAME.into(),
        hint: SAME_HINT.into(),
        then: String::new(),
    });
    calls
}

/// The data-disk is a file, and its file system is mounted through a loop device that nobody was
/// told of.
pub fn mounted() -> Vec<Call> {
    let lines = [
        ("a new cache", "create --cache-disk n --cache-size 3M --data-disk d".to_owned()),
        ("overwritten", "create --cache-disk d --data-disk e --force".to_owned()),
        ("served", serve("c", "d")),
        ("detached", detach("c", "d")),
        ("grown", "grow --cache-disk c --data-disk d --memory-directory .".to_owned()),
        ("served as another device", serve("c", "{L}")),
    ];
    let calls = lines.into_iter().map(|(role, line)| Call {
        name: format!("mounted elsewhere: {role}"),
        given: Box::new(|world| {
            world.site.folder.disk("e", 8 << 20);
            world.tool("mkfs.ext4 -q -F -O ^has_journal d", "");
            world.tool("mkdir place", "");
            world.tool("mount -o loop,ro d place", "umount place");
            world.loop_device("L", "d");
        }),
        line,
        code: 1,
        error: "mounted at".into(),
        hint: "umount".into(),
        then: detach("c", "d"),
    });
    calls.collect()
}

/// A daemon serves `d`, and somebody comes by another name.
pub fn served() -> Vec<Call> {
    let all = LINKS.iter().chain(DEVICES);
    // A loop device over a part, or a partition, is another disk in size.
    let aliases = all.filter(|(name, _)| !name.contains("part") && !name.contains("read-only"));
    let calls = aliases.map(|(name, make)| Call {
        name: format!("{name}: served already"),
        given: Box::new(move |world| {
            world.site.dcd("create --cache-disk c2 --cache-size 3M --data-disk d").ok();
            world.daemon(&serve("c", "d"));
            make(world);
        }),
        line: serve("c2", "{A}"),
        code: 1,
        error: "d".into(),
        // What takes no writes is refused for that, whoever uses it.
        hint: if name.contains("read-only") { "make it writable" } else { "stop it first" }.into(),
        then: detach("c2", "d"),
    });
    let mut calls: Vec<Call> = calls.collect();
    calls.extend(DEVICES.iter().filter(|(name, _)| name.contains("loop device over")).map(
        |(name, make)| Call {
            name: format!("{name}: the file of a device that is served"),
            given: Box::new(move |world| {
                make(world);
                world.dcd("create --cache-disk c3 --cache-size 3M --data-disk {A}");
                world.daemon(&serve("c3", "{A}"));
            }),
            line: serve("c", "d"),
            code: 1,
            error: "d is locked by another program".into(),
            hint: "stop it first".into(),
            then: detach("c", "d"),
        },
    ));
    calls
}
