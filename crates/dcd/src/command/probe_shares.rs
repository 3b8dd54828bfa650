//! `dcd probe` of a cache-disk that several caches share: what udev needs to know of each. Reads
//! only, as the other probes.

use std::path::{Path, PathBuf};

use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::identity::DiskIdentity;
use dcd_daemon::device::shares::{Place, directory_at};
use dcd_daemon::units_text::format_size;
use dcd_engine::format::share_directory::{Share, ShareDirectory, ShareState};
use serde_json::{Value, json};

use super::probe::{cache_disks_of, read_cache, services};
use crate::output::count;

/// A disk with a directory of shares.
pub struct SharedDisk {
    directory: ShareDirectory,
    services: Vec<Service>,
    /// A cache in one of them may hold what its data-disk does not.
    is_attached: bool,
}

/// A service whose cache has a share.
struct Service {
    name: String,
    share: Option<String>,
    data_disks: Vec<PathBuf>,
    is_attached: bool,
}

impl SharedDisk {
    /// The disk of these names, if it has a directory.
    pub fn of(names: &[PathBuf], configurations: &Path) -> Option<SharedDisk> {
        let first = names.first()?;
        let directory = directory_at(first).ok()?.ok()?;
        let device = DiskIdentity::of(first).ok()?;
        let is_here = |disk: &Path| {
            names.iter().any(|name| name == disk)
                || DiskIdentity::of(disk).is_ok_and(|disk| device.is_of(&disk))
        };
        let mut found = Vec::new();
        for (name, settings) in services(configurations) {
            let cache_disks = cache_disks_of(&settings, Path::to_owned);
            let places: Vec<Place> = cache_disks.iter().map(|disk| Place::of(disk)).collect();
            let Some(place) = places.iter().find(|place| is_here(&place.disk)) else { continue };
            let disks: Vec<&Path> = cache_disks.iter().map(PathBuf::as_path).collect();
            let witness = settings.witness.as_ref();
            found.push(Service {
                name,
                share: place.share.clone(),
                data_disks: settings.data_disk.iter().map(|it| it.path().to_owned()).collect(),
                is_attached: read_cache(&disks, witness.map(DeviceSpec::path)).may_be_newer(),
            });
        }
        let is_attached = directory.shares().iter().any(|share| {
            let path = first.join(&share.name);
            share.state == ShareState::InUse && read_cache(&[path.as_path()], None).may_be_newer()
        });
        Some(SharedDisk { directory, services: found, is_attached })
    }

    /// KEY=value lines for udev.
    pub fn properties(&self) -> String {
        let mut text = format!("DCD_ROLE=cache-disk\nDCD_UUID={}\n", self.directory.uuid);
        let mut line = |key: &str, words: Vec<String>| {
            // Names with spaces are left out: udev would take them for several.
            let words: Vec<String> =
                words.into_iter().filter(|word| !word.contains(char::is_whitespace)).collect();
            if !words.is_empty() {
                text += &format!("{key}={}\n", words.join(" "));
            }
        };
        let services = || self.services.iter();
        line("DCD_NAMES", services().map(|it| it.name.clone()).collect());
        let attached = services().filter(|it| it.is_attached);
        line("DCD_WANTS", attached.map(|it| format!("dcd@{}.service", it.name)).collect());
        let detached = services().filter(|it| !it.is_attached).flat_map(|it| &it.data_disks);
        let detached = detached.filter_map(|disk| disk.to_str().map(str::to_owned));
        line("DCD_DETACHED_DATA_DISKS", detached.collect());
        text + &format!("DCD_ATTACHED={}\n", u8::from(self.is_attached))
    }

    /// For people.
    pub fn words(&self, device: &Path) -> String {
        let shares = self.directory.shares();
        let mut text = format!(
            "{}: cache-disk with {}, {} free\n",
            device.display(),
            count(shares.len() as u64, "share"),
            format_size(self.directory.free_bytes()),
        );
        for share in shares {
            let path = device.join(&share.name);
            let of = match self.service_of(share) {
                Some(service) => format!("of service {}", service.name),
                None => "of no service".into(),
            };
            let is_attached = read_cache(&[path.as_path()], None).may_be_newer();
            let state = match share.state {
                ShareState::InUse if is_attached => "it may hold what is nowhere else",
                ShareState::InUse => "detached",
                ShareState::Making => "it was not made whole",
                ShareState::Leaving => "it is about to be given back",
            };
            text += &format!("  {} {of}, cache {}: {state}\n", share.name, share.cache);
        }
        text
    }

    fn service_of(&self, share: &Share) -> Option<&Service> {
        let is_its = |it: &String| *it == share.name || *it == share.cache.to_string();
        self.services.iter().find(|service| service.share.as_ref().is_some_and(is_its))
    }

    /// For programs.
    pub fn json(&self, device: &Path) -> Value {
        let share = |share: &Share| {
            let path = device.join(&share.name);
            json!({
                "share": share.name,
                "service": self.service_of(share).map(|service| &service.name),
                "cache": share.cache.to_string(),
                "attached": share.state == ShareState::InUse
                    && read_cache(&[path.as_path()], None).may_be_newer(),
                "state": match share.state {
                    ShareState::InUse => "in use",
                    ShareState::Making => "being made",
                    ShareState::Leaving => "being given back",
                },
            })
        };
        json!({
            "device": device.display().to_string(),
            "role": "cache-disk",
            "attached": self.is_attached,
            "free_bytes": self.directory.free_bytes(),
            "shares": self.directory.shares().iter().map(share).collect::<Vec<_>>(),
        })
    }
}
