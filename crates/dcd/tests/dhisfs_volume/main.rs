//! dhisfs on a real volume, served by the real daemon, with unmodified programs on it: fsx,
//! PostMark, a build, fio that verifies, many small files; and crashes of the mount, of the daemon,
//! of both, and of the disks' power, after each of which fsck finds nothing and every file that was
//! fsynced is there, byte for byte.

#[path = "../harness/mod.rs"]
mod harness;

#[path = "../file_systems/files.rs"]
mod files;
mod volume;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use files::Files;
use harness::machine::random_instant;
use harness::random::Random;
use harness::{cycles, seed, skipped, until};
use volume::{Crash, Volume};

/// Made by `make tools`; or anywhere on the path.
fn fsx() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/fsx");
    let set = std::env::var_os("DCD_FSX").map(PathBuf::from);
    [set, Some(target)].into_iter().flatten().find(|path| path.exists())
}

/// How much more is done in a long run.
fn times() -> u64 {
    std::env::var("DCD_DHISFS_TIMES").map_or(1, |text| text.parse().expect("a number"))
}

#[test]
fn fsx_on_dhisfs() {
    const NAME: &str = "fsx_on_dhisfs";
    skip_without!(NAME, "root", "fuse");
    let Some(fsx) = fsx() else {
        skipped(NAME, "fsx is not there; `make tools` installs it with cargo");
        return;
    };
    let mut volume = Volume::new("32M", 64 << 20, false);
    // Past the direct blocks of an inode. Pages are thrown away, so that dhisfs and not the page
    // cache answers.
    let config = "flen = 4000000\n\n[opsize]\nmax = 131072\n\n\
                  [weights]\nclose_open = 1\nread = 3\nwrite = 3\nmapread = 1\nmapwrite = 1\ntruncate = 1\n\
                  fsync = 0.3\nfdatasync = 0.3\ninvalidate = 0.5\nposix_fadvise = 1\n";
    fs::write(volume.site.path("fsx.toml"), config).unwrap();
    for (cache, ops) in [("64M", 6000), ("1M", 2000)] {
        volume.mount(&format!("--cache {cache}"));
        let seed = (seed() % 1_000_000).to_string();
        let ops = (ops * times()).to_string();
        let arguments = ["-f", "fsx.toml", "-N", &ops, "-S", &seed, "-P", ".", "mnt/fsx"];
        volume.site.tool(fsx.to_str().unwrap(), &arguments);
        volume.sh("rm fsx");
        volume.unmount();
        volume.fsck();
    }
    volume.finish();
}

#[test]
fn postmark_on_dhisfs() {
    skip_without!("postmark_on_dhisfs", "root", "fuse", "postmark");
    let mut volume = Volume::new("32M", 64 << 20, false);
    volume.mount("");
    let lines = format!(
        "set location mnt\nset size 500 10000\nset number 300\nset transactions {}\n\
         set subdirectories 10\nset seed {}\nrun\nquit\n",
        1000 * times(),
        seed()
    );
    fs::write(volume.site.path("postmark"), lines).unwrap();
    let said = volume.site.run("postmark postmark");
    assert!(said.contains("created") && !said.contains("Error"), "{said}");
    assert_eq!(volume.sh("ls | wc -l").trim(), "0", "it removes what it made");
    volume.finish();
}

#[test]
fn a_build_on_dhisfs() {
    skip_without!("a_build_on_dhisfs", "root", "fuse", "cc", "make", "ar");
    let mut volume = Volume::new("32M", 64 << 20, false);
    volume.mount("");
    let modules = 40 * times();
    let (mut header, mut sum, mut objects) = (String::new(), String::new(), String::new());
    for i in 0..modules {
        let text = format!("#include \"all.h\"\nint f{i}(int x) {{ return x + {i}; }}\n");
        fs::write(volume.mnt().join(format!("f{i}.c")), text).unwrap();
        header += &format!("int f{i}(int x);\n");
        sum += &format!("    sum += f{i}(0);\n");
        objects += &format!(" f{i}.o");
    }
    let main = format!(
        "#include <stdio.h>\n#include \"all.h\"\nint main(void) {{\n    int sum = 0;\n{sum}    \
         printf(\"%d\\n\", sum);\n    return 0;\n}}\n"
    );
    let rules = format!(
        "main: main.o lib.a\n\tcc -o $@ $^\nlib.a:{objects}\n\tar rcs $@ $^\n\
         %.o: %.c all.h\n\tcc -O1 -g -c -o $@ $<\n"
    );
    for (name, text) in [("all.h", header), ("main.c", main), ("Makefile", rules)] {
        fs::write(volume.mnt().join(name), text).unwrap();
    }
    let built = volume.sh("make -s -j 4 main\n./main\ntouch all.h\nmake -s -j 2 main\n./main");
    let sum = modules * (modules - 1) / 2;
    assert_eq!(built, format!("{sum}\n{sum}\n"));
    volume.unmount();
    volume.fsck();
    volume.mount("");
    assert_eq!(volume.sh("./main; make -s -q main && echo is made"), format!("{sum}\nis made\n"));
    volume.finish();
}

#[test]
fn fio_verifies_on_dhisfs() {
    skip_without!("fio_verifies_on_dhisfs", "root", "fuse", "fio");
    let mut volume = Volume::new("32M", 64 << 20, false);
    volume.mount("--cache 8M");
    // Where blocks have several sizes and meet, fio itself fails, on any file system.
    let size = 8 * times();
    for (rw, more) in [
        ("randwrite", "--bs=4k --fsync=64"),
        ("randrw", "--bsrange=512-64k --direct=1"),
        ("write", "--bs=1m --end_fsync=1"),
    ] {
        volume.site.run(&format!(
            "fio --name={rw} --directory=mnt --rw={rw} --numjobs=3 --size={size}m --ioengine=psync \
             --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed={} --group_reporting {more}",
            seed()
        ));
    }
    volume.unmount();
    volume.fsck();
    volume.mount("--cache 8M");
    // What the last one wrote, read by another mount.
    volume.site.run(&format!(
        "fio --name=write --directory=mnt --rw=read --bs=1m --numjobs=3 --size={size}m --ioengine=psync \
         --verify=crc32c --verify_fatal=1"
    ));
    volume.finish();
}

#[test]
fn many_small_files_on_dhisfs() {
    skip_without!("many_small_files_on_dhisfs", "root", "fuse");
    let mut volume = Volume::new("32M", 64 << 20, false);
    // Less memory than they need.
    volume.mount("--cache 1M");
    let (folders, files) = (20, 150 * times());
    let make = |folder: u64| {
        let folder = volume.mnt().join(format!("d{folder}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..files {
            let text = format!("{}-{file}\n", folder.display());
            fs::write(folder.join(file.to_string()), text.repeat(file as usize % 40)).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || (0..folders).filter(|i| i % 4 == part).for_each(make));
        }
    });
    volume.unmount();
    volume.fsck();
    volume.mount("");
    for folder in 0..folders {
        let folder = volume.mnt().join(format!("d{folder}"));
        assert_eq!(fs::read_dir(&folder).unwrap().count() as u64, files);
        for file in 0..files {
            let text = format!("{}-{file}\n", folder.display()).repeat(file as usize % 40);
            assert_eq!(fs::read_to_string(folder.join(file.to_string())).unwrap(), text);
        }
    }
    volume.sh("rm -r d*");
    volume.unmount();
    assert!(volume.fsck().contains("0 files, 2 directories"));
    volume.finish();
}

/// Load until a seeded number of fsyncs, and a bit more; a crash; and what was fsynced is there.
fn crash_cycles(what: &str, cycles: u64, is_volatile: bool, choose: fn(&mut Random) -> Crash) {
    let mut random = Random::new(seed() ^ harness::random::sum(what.as_bytes()));
    let mut volume = Volume::new("32M", 32 << 20, is_volatile);
    files::make_tree(&volume.site, &mut random);
    let files = Files::default();
    let (mut under_load, mut in_recovery, mut compared) = (0, 0, 0);
    for cycle in 0..cycles {
        let context = format!("{what}, DCD_SEED={}, cycle {cycle}", seed());
        // A mount, or fsck, is the first to see what the crash has left.
        if random.once_in(2) {
            volume.mount("");
            files.verify(&volume.mnt().join("work"), true, &context);
            volume.unmount();
        }
        volume.fsck();
        let sync = if random.once_in(6) { "--sync" } else { "" };
        volume.mount(&format!(
            "--commit-interval 50ms --cache {} {sync}",
            ["1M", "64M"][random.below(2) as usize]
        ));
        let work = volume.mnt().join("work");
        fs::create_dir_all(&work).unwrap();
        compared += files.verify(&work, true, &context);
        let tree = work.join(format!("tree{cycle}"));
        fs::create_dir_all(&tree).unwrap();
        let mut tar = files::unpack_tree(&volume.site, &tree);
        let fsyncs = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (files, fsyncs, work) = (files.clone(), fsyncs.clone(), work.clone());
                let random = Random::new(random.next());
                // The trees are removed by the first one.
                let tree = tree.clone();
                let home = if writer == 0 { work } else { work.join("second") };
                let files = if writer == 0 { files } else { files.below("second/") };
                std::thread::spawn(move || {
                    fs::create_dir_all(&home)?;
                    files.write(&home, &tree, random, &fsyncs)
                })
            })
            .collect();
        let enough = 1 + random.below(40);
        until("enough files are fsynced", || {
            let has_ended = writers.iter().any(|writer| writer.is_finished());
            (fsyncs.load(Ordering::SeqCst) >= enough || has_ended).then_some(())
        });
        assert!(
            writers.iter().all(|writer| !writer.is_finished()),
            "{context}: the load has ended"
        );
        random_instant(&mut random, Duration::from_millis(20));
        let crash = choose(&mut random);
        volume.kill(crash, &mut random);
        for writer in writers {
            assert!(writer.join().unwrap().is_err(), "{context}: what is gone gives errors");
        }
        let _ = tar.wait();
        volume.clear_away(crash);
        under_load += 1;
        while crash.daemon && random.once_in(4) {
            in_recovery += 1;
            volume.crash_in_recovery(&mut random, |random| {
                random_instant(random, Duration::from_millis(30));
            });
        }
        volume.serve();
        // A mount that is killed while it replays.
        while random.once_in(5) {
            in_recovery += 1;
            volume.crash_in_mount(&mut random, |random| {
                random_instant(random, Duration::from_millis(30));
            });
        }
    }
    volume.mount("");
    compared += files.verify(&volume.mnt().join("work"), true, what);
    volume.unmount();
    volume.fsck();
    volume.end();
    assert!(under_load == 0 || compared > 0);
    eprintln!(
        "\ncrashes: {} ({what}, dhisfs, DCD_SEED={}): {under_load} under load, {in_recovery} in recovery; \
         {compared} times a file that was fsynced was compared",
        under_load + in_recovery,
        seed()
    );
}

#[test]
fn kill_of_the_mount() {
    skip_without!("kill_of_the_mount", "root", "fuse");
    let crash = |_: &mut Random| Crash { mount: true, daemon: false, power: false };
    crash_cycles("kill -9 of the mount", cycles(4, 40), false, crash);
}

#[test]
fn kill_of_the_daemon() {
    skip_without!("kill_of_the_daemon", "root", "fuse");
    let crash = |_: &mut Random| Crash { mount: false, daemon: true, power: false };
    crash_cycles("kill -9 of the daemon", cycles(4, 40), false, crash);
}

#[test]
fn kill_of_mount_and_daemon() {
    skip_without!("kill_of_mount_and_daemon", "root", "fuse");
    let crash = |_: &mut Random| Crash { mount: true, daemon: true, power: false };
    crash_cycles("kill -9 of mount and daemon", cycles(4, 40), false, crash);
}

#[test]
fn power_cuts_of_all_disks() {
    skip_without!("power_cuts_of_all_disks", "root", "fuse", "loop", "nbdfuse");
    let crash = |random: &mut Random| Crash { mount: random.once_in(2), daemon: true, power: true };
    crash_cycles("power cut", cycles(4, 100), true, crash);
}
