//! A new pair of disks in a directory, and the options of a daemon that serves it.

use std::path::Path;

use dcd_daemon::device::device_file::DeviceFile;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::TakeOver;
use dcd_daemon::frontend::nbd::listen::NbdOptions;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::ring::busy_poll::BusyPollMax;
use dcd_daemon::serve::ServeOptions;
use dcd_engine::create::{CreateOptions, create};
use dcd_engine::{EngineConfig, Geometry, Uuid};

/// Makes the files `cache` and `data`. The number of this process takes the place of the first
/// bytes of the UUID.
pub fn make_disks(directory: &Path, mut uuid: [u8; 16], cache_bytes: u64, data_bytes: u64) {
    for (file, size) in [("cache", cache_bytes), ("data", data_bytes)] {
        std::fs::File::create(directory.join(file)).unwrap().set_len(size).unwrap();
    }
    let cache = DeviceFile::open(&directory.join("cache")).unwrap();
    let data = DeviceFile::open(&directory.join("data")).unwrap();
    uuid[..4].copy_from_slice(&std::process::id().to_le_bytes());
    let writes = create(CreateOptions {
        uuid: Uuid(uuid),
        geometry: Geometry::fit(cache_bytes, 128 << 10).unwrap(),
        data_disk: data.data_disk_info(),
        data_disk_serial: data.serial.clone(),
        volume: None,
        created_unix_seconds: 0,
        data_offset_bytes: 0,
        has_end_mark: false,
        has_legs: false,
    });
    for (offset, bytes) in writes {
        cache.write_at(offset, &bytes).unwrap();
    }
}

/// Serves these disks, nowhere yet: a test says where.
pub fn options(directory: &Path) -> ServeOptions {
    ServeOptions {
        cache_disks: DeviceSpec::Plain(directory.join("cache")).into(),
        share: None,
        data_disks: DeviceSpec::Plain(directory.join("data")).into(),
        engine: EngineConfig::default(),
        one_disk: None,
        nbd: Vec::new(),
        nbd_options: NbdOptions::default(),
        fuse: None,
        ublk: None,
        vhost_user: None,
        loop_device: false,
        metrics: None,
        http: None,
        http_token: None,
        control: None,
        memory_directory: Some(directory.to_owned()),
        memory_lost: false,
        nvram: None,
        nvram_lost: false,
        processor: None,
        busy_poll: BusyPollMax::Auto,
        memory_max_bytes: None,
        wait: false,
        lock_memory: false,
        stop_timeout: std::time::Duration::ZERO,
        give_up_rights: false,
        caretaker: None,
        window_hook: None,
        remote_ack: false,
        take_over: TakeOver::No,
        pairs: PairBook::default(),
        settings: None,
        settings_file: None,
        quiet: true,
    }
}
