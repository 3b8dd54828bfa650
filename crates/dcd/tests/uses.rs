//! The commands of the pages of use (`docs/uses`) run as they stand: what is in a block `sh` below
//! "Try it" is given to a shell, in a folder of its own.

mod harness;

use std::path::Path;

use harness::Site;
use harness::pages::try_commands;

/// Runs what is below "Try it", and gives what it prints.
fn try_page(page: &str) -> String {
    try_commands(&Site::empty(), page, "Try it")
}

/// Each page of use is one of those that are tried here.
#[test]
fn every_page_is_tried() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/uses");
    let mut pages: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let tried = [
        "ci-builds.md",
        "cloud-volume.md",
        "database.md",
        "nas.md",
        "network-disk.md",
        "vm-images.md",
    ];
    assert_eq!(pages, tried);
}

#[test]
fn a_database() {
    skip_without!("docs/uses/database.md", "root", "fuse", "loop", "kernel-ext4", "mkfs.ext4");
    skip_without!("docs/uses/database.md", "sqlite3", "bash");
    let said = try_page("database.md");
    assert!(said.contains("\n300\nok\n"), "{said}");
}

#[test]
fn images_of_virtual_machines() {
    skip_without!("docs/uses/vm-images.md", "qemu-img", "nbdcopy", "mkfs.ext4", "bash");
    let said = try_page("vm-images.md");
    assert!(said.contains("Images are identical."), "{said}");
}

#[test]
fn a_file_server() {
    skip_without!("docs/uses/nas.md", "root", "fuse", "loop", "kernel-ext4", "mkfs.ext4", "bash");
    let said = try_page("nas.md");
    assert!(said.contains("sdb.img, part 2"), "{said}");
}

#[test]
fn a_cloud_volume() {
    skip_without!("docs/uses/cloud-volume.md", "fio", "bash");
    let said = try_page("cloud-volume.md");
    assert!(said.contains("mode = write-around"), "{said}");
}

#[test]
fn a_disk_of_another_machine() {
    skip_without!("docs/uses/network-disk.md", "nbdkit", "fio", "bash");
    let said = try_page("network-disk.md");
    assert!(said.contains("connected for"), "{said}");
}

#[test]
fn builds() {
    skip_without!("docs/uses/ci-builds.md", "root", "fuse", "loop", "kernel-ext4", "mkfs.ext4");
    skip_without!("docs/uses/ci-builds.md", "bash");
    let said = try_page("ci-builds.md");
    let row = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or("");
    assert!(row("mnt/build/f1.o ").contains("RAID 0, temporary"), "{said}");
    assert!(row("mnt/src/f1.c ").contains("RAID 5"), "{said}");
}
