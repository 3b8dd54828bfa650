//! A Ceph of one node in a site's folder, its images, and qemu-nbd in front of one.

use std::fs;

use rustix::process::{Pid, Signal};

use super::Site;
use super::server::Real;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/ceph-cluster");

/// Why there is none here.
pub fn missing() -> Option<String> {
    let programs = ["ceph-mon", "ceph-osd", "ceph", "rbd", "qemu-nbd", "qemu-img", "python3"];
    if let Some(reason) = programs.into_iter().find_map(super::missing_rights) {
        return Some(reason);
    }
    // It lists what its modules can open.
    let site = Site::empty();
    let help = site.try_tool("qemu-img", &["--help"]).stdout;
    let has_rbd = String::from_utf8_lossy(&help).split_whitespace().any(|word| word == "rbd");
    (!has_rbd).then(|| "QEMU cannot open RBD (Debian: qemu-block-extra)".into())
}

/// Starts one. Its processes end with the site; `ceph` and `rbd` run in it find it by themselves.
pub fn start(site: &mut Site) {
    let conf = site.path("ceph/ceph.conf").display().to_string();
    site.variables.push(("CEPH_CONF".into(), conf));
    site.tool(SCRIPT, &["ceph", "start"]);
}

/// kill -9 of the storage daemon.
pub fn kill_osd(site: &Site) {
    let text = fs::read_to_string(site.path("ceph/osd.pid")).unwrap();
    let pid = text.split_whitespace().next().unwrap().parse().unwrap();
    let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

pub fn start_osd(site: &Site) {
    site.tool(SCRIPT, &["ceph", "osd"]);
}

/// What the storage daemon says of an object that it has damaged itself, if there is one: behind
/// `kill -9` the BlueStore of Ceph 16 now and then finds bytes that are not those of its checksum,
/// also without dcd (docs/uses/network-disk.md). No other daemon has a copy here, so whoever reads
/// the object waits for ever.
pub fn damage(site: &Site) -> Option<String> {
    let log = fs::read(site.path("ceph/osd.log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    log.lines().find(|line| line.contains("_verify_csum bad")).map(str::to_owned)
}

/// An image of several objects.
pub fn create(site: &Site, image: &str, bytes: u64, features: &str) {
    site.run(&format!(
        "rbd create {image} --size {bytes}B --object-size 1M --image-feature {features}"
    ));
}

/// qemu-nbd at `v.sock` of a site, with the cluster of another or the same.
pub fn serve(site: &Site, cluster: &Site, image: &str) -> Real {
    let conf = cluster.path("ceph/ceph.conf");
    let disk = format!("rbd:rbd/{image}:conf={}", conf.display());
    Real::start(site, &format!("qemu-nbd -t -f raw -k DIR/v.sock {disk}"))
}

/// Who has it open.
pub fn watchers(site: &Site, image: &str) -> Vec<String> {
    let text = site.run(&format!("rbd status {image} --format json"));
    let status: super::Value = serde_json::from_str(&text).unwrap();
    let watchers = status["watchers"].as_array().unwrap().iter();
    watchers.map(|watcher| watcher["address"].as_str().unwrap().to_owned()).collect()
}

/// Shuts out whoever has it open. Who that was.
pub fn fence(site: &Site, image: &str) -> Vec<String> {
    let addresses = watchers(site, image);
    for address in &addresses {
        site.run(&format!("ceph osd blocklist add {address}"));
    }
    addresses
}

/// As it is when the time of a fence is over: an hour if nothing else was said.
pub fn end_fence(site: &Site, address: &str) {
    site.run(&format!("ceph osd blocklist rm {address}"));
}

/// All of an image, or of a snapshot, `image@snapshot`.
pub fn export(site: &Site, image: &str) -> Vec<u8> {
    try_export(site, image).unwrap()
}

/// The same where an object may be damaged.
pub fn try_export(site: &Site, image: &str) -> Result<Vec<u8>, String> {
    let output = site.try_tool("rbd", &["export", "--no-progress", image, "-"]);
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("rbd export: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Names of snapshots, the oldest first.
pub fn snapshots(site: &Site, image: &str) -> Vec<String> {
    let text = site.run(&format!("rbd snap ls {image} --format json"));
    let list: super::Value = serde_json::from_str(&text).unwrap();
    let names = list.as_array().unwrap().iter();
    names.map(|snapshot| snapshot["name"].as_str().unwrap().to_owned()).collect()
}
