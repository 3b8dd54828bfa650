//! Runs the unmodified `fsx` (the crate, version 0.3.2) in block mode on the loop device: random
//! reads, writes, discards and flushes, each read compared with its own model.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};

use harness::{Site, seed, skipped};

/// Made by `make tools`; or anywhere on the path.
fn fsx() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/fsx");
    let set = std::env::var_os("DCD_FSX").map(PathBuf::from);
    [set, Some(target)].into_iter().flatten().find(|path| path.exists())
}

#[test]
fn fsx_in_block_mode_on_the_loop_device() {
    const NAME: &str = "fsx_in_block_mode_on_the_loop_device";
    skip_without!(NAME, "root", "fuse", "loop");
    let Some(fsx) = fsx() else {
        skipped(NAME, "fsx is not there; `make tools` installs it with cargo");
        return;
    };
    // Small segments and little idle time: destage and checkpoints go on beneath it. With a read
    // area, hot blocks and a sequence of a part of the disk are copied beneath it as well, and
    // served.
    for (ack, policy, cache, read_area) in [
        ("memory", "first-write-first", "3M", ""),
        ("log", "least-valid-first", "3M", ""),
        ("durable", "last-write-first", "3M", ""),
        ("memory", "first-write-first", "7M", "--read-area 4M"),
    ] {
        let site = Site::with(cache, 16 << 20, &format!("--segment-size 64k {read_area}"));
        fs::create_dir(site.path("fuse")).unwrap();
        let flags = format!(
            "--quiet --fuse fuse --loop --ack {ack} --destage-policy {policy} --idle-max 5ms \
             --bypass-threshold 64k --one-disk no"
        );
        let daemon = site.serve(&flags);
        if !read_area.is_empty() {
            let rows = (0..400).map(|i| format!("0,R,0,{},4096,0\n", i * 577 % 4096 * 4096));
            let rows = rows.collect::<String>();
            fs::write(site.path("trace.csv"), format!("t_us,op,dev,off,len,fl\n{rows}")).unwrap();
            site.dcd("sequence add --control ctl --name scattered trace.csv").ok();
        }
        let device = daemon.told("loop").unwrap();
        // What is cached in front of the loop device is thrown away again and again, so that dcd
        // and not the page cache answers.
        let config = "flen = 16777216\nblockmode = true\n\n[opsize]\nmax = 131072\nalign = 512\n\n\
                      [weights]\ntruncate = 0\nread = 3\nwrite = 3\nmapread = 1\nmapwrite = 1\n\
                      fsync = 0.5\nfdatasync = 0.5\npunch_hole = 1\ninvalidate = 0.5\n\
                      posix_fadvise = 1\n";
        fs::write(site.path("fsx.toml"), config).unwrap();
        let seed = (seed() % 1_000_000).to_string();
        let ops = std::env::var("DCD_FSX_OPS").unwrap_or("10000".into());
        let arguments = ["-f", "fsx.toml", "-N", &ops, "-S", &seed, "-P", ".", device];
        site.tool(fsx.to_str().unwrap(), &arguments);
        let counters = site.status()["counters"].clone();
        assert!(counters["destaged_lines"].as_u64().unwrap() > 0, "{ack}");
        let copied = counters["read_copy_lines"].as_u64().unwrap();
        assert_eq!(copied > 0, !read_area.is_empty(), "{copied} lines of copies");
        daemon.assert_no_panic();
        daemon.stop();
    }
}
