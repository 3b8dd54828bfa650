//! The record of pairs is believed, so it must be right: whatever dcd itself, or the documented way
//! to grow a disk, does to a data-disk is nobody's write behind the back of its cache.

mod harness;

use std::fs::File;

use harness::Site;
use harness::nbd::Client;

const LAZY: &str = "--idle-min 100s --idle-max 100s";
const LINE: usize = 4096;

/// A pair that was closed in order, with a dirty line.
fn dirty() -> Site {
    let site = Site::empty();
    // So that a record is kept.
    std::fs::create_dir(site.path("state")).unwrap();
    site.folder.disk("d", 64 << 20);
    site.dcd("create --cache-disk c --cache-size 64M --data-disk d").ok();
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    client.write(8 * LINE as u64, &[7; LINE]).unwrap();
    client.flush().unwrap();
    drop(client);
    daemon.stop();
    let checked = site.dcd("inspect dirty --cache-disk c --json").ok();
    assert!(checked.contains("\"closed_in_order\": true"), "{checked}");
    assert!(checked.contains("\"dirty_bytes\": 4096"), "{checked}");
    site
}

fn is_served_whole(site: &Site) {
    let daemon = site.serve(LAZY);
    let mut client = Client::connect(&site.socket());
    assert_eq!(client.read(8 * LINE as u64, LINE).unwrap(), [7; LINE]);
    daemon.stop();
}

#[test]
fn a_start_that_failed_locks_nobody_out() {
    let site = dirty();
    let serve = "serve --cache-disk c --data-disk d --memory-directory .";
    for flags in ["--fuse nodir", "--nbd unix:nodir/s", "--nbd unix:s --control nodir/ctl"] {
        let outcome = site.dcd(&format!("{serve} {flags}"));
        assert_eq!(outcome.code, Some(1), "{flags}: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("was written to"), "{flags}: {}", outcome.stderr);
    }
    let grown = site.dcd("grow --cache-disk c --data-disk d --memory-directory .").ok();
    assert!(grown.contains("recorded size"), "{grown}");
    is_served_whole(&site);
}

#[test]
fn a_dirty_pair_grows() {
    let site = dirty();
    File::options().write(true).open(site.path("d")).unwrap().set_len(80 << 20).unwrap();
    site.dcd("grow --cache-disk c --data-disk d --memory-directory .").ok();
    is_served_whole(&site);
}
