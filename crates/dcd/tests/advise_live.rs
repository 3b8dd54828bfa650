//! Proves on a real device: `dcd advise --live` records what a block device is asked for, then
//! advises on it.

mod harness;

use std::fs;

use harness::Site;

#[test]
fn a_device_is_recorded_and_advised_on() {
    const TEST: &str = "a_device_is_recorded_and_advised_on";
    skip_without!(TEST, "root", "loop", "tracefs", "losetup", "dd");
    let site = Site::empty();
    site.folder.disk("l.img", 4 << 20);
    let device = site.run("losetup --show -f l.img").trim().to_owned();
    let line =
        format!("advise --live {device} --for 60s --keep t.csv --disk hp-97560 --cache-disk 8M");
    let advising = site.start_line(&line);
    let write = |place: u64| {
        site.run(&format!("dd if=/dev/zero of={device} bs=4k seek={place} count=1 oflag=direct"))
    };
    // It records from some moment on: writes until one is seen.
    let mut place = 0;
    harness::until("the kernel records", || {
        place = (place + 397) % 1000;
        write(place);
        let instance =
            format!("/sys/kernel/tracing/instances/dcd-{}", advising.pid().as_raw_nonzero());
        let enable = format!("{instance}/events/block/block_bio_queue/enable");
        fs::read_to_string(enable).is_ok_and(|text| text.trim() == "1").then_some(())
    });
    for number in 0..20 {
        write(number * 397 % 1000);
    }
    // Ends the recording, not the advice.
    advising.stop();
    site.run(&format!("losetup -d {device}"));
    let trace = fs::read_to_string(site.path("t.csv")).unwrap();
    assert!(trace.lines().count() > 20, "{trace}");
    let page = fs::read_to_string(site.path("advice.html")).unwrap();
    assert!(page.contains(&format!("What dcd would do for {device}, live")), "{page}");
    assert!(page.contains("a short look"), "{page}");
}

#[test]
fn a_device_that_nobody_uses_gives_no_advice() {
    const TEST: &str = "a_device_that_nobody_uses_gives_no_advice";
    skip_without!(TEST, "root", "loop", "tracefs", "losetup");
    let site = Site::empty();
    site.folder.disk("l.img", 4 << 20);
    let device = site.run("losetup --show -f l.img").trim().to_owned();
    let line = format!("advise --live {device} --for 300ms --disk hp-97560");
    // Whoever looks at new devices may still be looking at this one.
    let outcome = harness::until("nobody uses the device", || {
        let outcome = site.dcd(&line);
        (outcome.code != Some(0)).then_some(outcome)
    });
    outcome.fails(1, "nobody asked it for anything", "while it is used");
    site.run(&format!("losetup -d {device}"));
}
