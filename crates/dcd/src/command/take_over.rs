//! `dcd serve --take-over`: an object store becomes that of the cache on the cache-disk, before it
//! is served. What is that already is left to the start, which waits for the lease or does not; any
//! other cache-disk gets a new cache, if nothing is lost with that.

use std::path::{Path, PathBuf};

use dcd_daemon::device::device_file::{DeviceError, DeviceFile};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::store::store_facts;
use dcd_daemon::device::network::{NetworkProblem, TakeOver, store_of};
use dcd_daemon::device::shares::Place;
use dcd_daemon::pair::read_superblock;
use dcd_daemon::serve::{ServeError, ServeOptions};

use super::create::{CreateArguments, create_for_serving};
use crate::error::CommandError;
use crate::settings::TakeOverArgument;

/// See the module. Without `--take-over` nothing is done.
pub fn take_over(options: &ServeOptions) -> Result<(), CommandError> {
    let how = match options.take_over {
        TakeOver::No => return Ok(()),
        TakeOver::Lapsed => TakeOverArgument::Lapsed,
        TakeOver::Now => TakeOverArgument::Now,
    };
    let [data_disk] = &options.data_disks.disks[..] else {
        return Err(CommandError::OnlyForStores);
    };
    let path = data_disk.path();
    let Some(store) = store_of(path) else { return Err(CommandError::OnlyForStores) };
    let facts = store_facts(&store).map_err(|failure| {
        let (path, source) = (path.to_owned(), Box::new(NetworkProblem::Store(failure)));
        ServeError::device("data-disk")(DeviceError::Network { path, source })
    })?;
    let cache_disks = &options.cache_disks.disks;
    // Of legs any may be away.
    let mut is_its_own = false;
    for disk in cache_disks {
        is_its_own |= facts.cache.is_some() && cache_on(disk.path())? == facts.cache;
    }
    if is_its_own {
        return Ok(());
    }
    let arguments = CreateArguments::of_take_over(cache_disks.clone(), data_disk.clone(), how);
    let cache = create_for_serving(&arguments).map_err(|source| {
        let cache_disk = cache_disks.first().map_or_else(PathBuf::new, |it| it.path().to_owned());
        CommandError::TakeOver { source: Box::new(source), cache_disk, store: store.to_string() }
    })?;
    if !options.quiet {
        let disks = cache_disks.iter().map(|disk| disk.path().display().to_string());
        let disks = disks.collect::<Vec<_>>().join(" and ");
        eprintln!("dcd: {store} is taken over by a new cache {cache} on {disks}");
    }
    Ok(())
}

/// UUID of the cache there, if there is one.
fn cache_on(path: &Path) -> Result<Option<String>, CommandError> {
    if !Place::of(path).exists() {
        return Ok(None);
    }
    let disk = DeviceFile::open_of_any_size(path)?;
    Ok(read_superblock(&disk).ok().map(|superblock| superblock.uuid.to_string()))
}

impl CreateArguments {
    fn of_take_over(
        cache_disk: Vec<DeviceSpec>,
        data_disk: DeviceSpec,
        how: TakeOverArgument,
    ) -> CreateArguments {
        CreateArguments {
            size: None,
            take_over: Some(how),
            lease: None,
            witness: None,
            cache_disk,
            cache_size: None,
            share: None,
            name: None,
            data_disk: vec![data_disk],
            volume: None,
            labelled: false,
            label_head: None,
            segment_size: None,
            read_area: 0,
            fill: false,
            no_fill: false,
            sparse: false,
            force: false,
            uuid: None,
            json: false,
            import: None,
        }
    }
}
