//! `dcd serve` with several files of --config: each is a cache with a daemon of its own. Here all
//! of them are looked at before the first is started, so that a mistake in one changes nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use dcd_client::plain::plain;
use dcd_daemon::device::identity::DiskIdentity;
use dcd_daemon::frontend::nbd::listen::NbdAddress;
use dcd_daemon::http::address::HttpAddress;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::process::service_manager;
use dcd_daemon::serve::ServeError;
use dcd_daemon::serve::several::{CacheProcess, Said, SeveralOptions, serve_several};
use dcd_daemon::serve::share_choice::choose_shares;
use serde_json::{Map, Value};

use super::serve::{ServeArguments, options, settings_of};
use crate::error::{CommandError, exit_code};
use crate::output::wants_json;
use crate::ready_line::ReadyLine;
use crate::settings::Settings;
use crate::stdout::{print, print_json_line};

pub fn run(arguments: &ServeArguments) -> Result<(), CommandError> {
    check(arguments)?;
    let program = std::env::current_exe().map_err(ServeError::system("find the program dcd"))?;
    let flags: Vec<OsString> = without_files(std::env::args_os().skip(1)).collect();
    let names = names(&arguments.config);
    let caches = arguments.config.iter().zip(names).map(|(file, name)| {
        let file_arguments = ["--config".into(), file.clone().into_os_string()];
        let again = flags.iter().chain(&file_arguments).map(|word| word.to_string_lossy());
        let again = format!("dcd {}", again.collect::<Vec<_>>().join(" "));
        CacheProcess {
            name,
            again,
            arguments: flags.iter().cloned().chain(file_arguments).collect(),
        }
    });
    let options = SeveralOptions {
        program,
        caches: caches.collect(),
        quiet: arguments.quiet,
        json: wants_json(),
    };
    // A reader that wants only the first lines, or none, ends no daemon.
    let failed = serve_several(options, &mut |said| drop(relay(&said)))?;
    let Some(first) = failed.first() else { return Ok(()) };
    Err(CommandError::CachesFailed {
        code: first.code.unwrap_or(exit_code::USER),
        failed: failed.iter().map(|cache| format!("{} {}", cache.name, cache.how)).collect(),
        of: arguments.config.len(),
    })
}

/// Tells on stdout what a cache has said there, and that all have begun.
fn relay(said: &Said<'_>) -> Result<(), CommandError> {
    match said {
        Said::Line { cache, line } if wants_json() => print_json_line(&of_name(cache, line)),
        Said::Line { cache, line } => print(&format!("{cache}: {line}\n")),
        Said::Ready { running, ended } => {
            let mut line = ReadyLine::new();
            line.word("caches", running.len());
            line.field("caches", running.clone());
            ended.iter().for_each(|name| line.word("ended", name));
            line.field("ended", ended.clone());
            line.print()
        }
    }
}

/// The object that a cache has printed, with its name.
fn of_name(cache: &str, line: &str) -> Value {
    let mut object = match serde_json::from_str(line) {
        Ok(Value::Object(object)) => object,
        _ => Map::from_iter([("said".into(), line.into())]),
    };
    object.insert("cache".into(), cache.into());
    object.into()
}

/// The words of our command line for each daemon, which gets a file of its own.
fn without_files(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut is_file = false;
    words.filter(move |word| {
        let is_value = is_file;
        is_file = !is_value && word == "--config";
        !is_value && !is_file && !word.as_encoded_bytes().starts_with(b"--config=")
    })
}

/// What each is called: as its file, `sdb` of `/etc/dcd/sdb.toml`, or with the path of that if two
/// would be called the same.
fn names(files: &[PathBuf]) -> Vec<String> {
    let stem = |file: &PathBuf| file.file_stem().map(|stem| plain(&stem.to_string_lossy()).into());
    let stems: Vec<Option<String>> = files.iter().map(stem).collect();
    let all: BTreeSet<&Option<String>> = stems.iter().collect();
    let is_clear = all.len() == files.len() && stems.iter().all(Option::is_some);
    let path = |file: &PathBuf| plain(&file.to_string_lossy()).into_owned();
    match is_clear {
        true => stems.into_iter().flatten().collect(),
        false => files.iter().map(path).collect(),
    }
}

/// One of the caches, as its file and the flags have it.
struct Cache<'a> {
    file: &'a Path,
    settings: Settings,
}

/// Whether all can be served, and beside each other, as far as that can be told before. Nothing is
/// opened for writing.
fn check(arguments: &ServeArguments) -> Result<(), CommandError> {
    let files = arguments.config.len();
    let flag = arguments.null.then_some("--null");
    if let Some(what) = flag.or_else(|| arguments.settings.is_for_one_cache()) {
        return Err(CommandError::OfOneCache { what, files });
    }
    if service_manager::has_listener() {
        let what = "a socket that the service manager hands over";
        return Err(CommandError::OfOneCache { what, files });
    }
    let mut caches: Vec<Cache<'_>> = Vec::new();
    for file in &arguments.config {
        if file.as_os_str() == "-" {
            return Err(CommandError::OfOneCache { what: "--config -", files });
        }
        let real = |file: &Path| file.canonicalize().unwrap_or_else(|_| file.to_owned());
        if caches.iter().any(|cache| real(cache.file) == real(file)) {
            return Err(CommandError::SetTwice { key: file.display().to_string() });
        }
        let alone = ServeArguments { config: vec![file.clone()], ..arguments.clone() };
        let settings = settings_of(&alone)?;
        options(alone).map_err(|error| of_cache(file, error))?;
        caches.push(Cache { file, settings });
    }
    no_name_twice(&caches)?;
    no_disk_twice(&caches)
}

fn of_cache(file: &Path, error: CommandError) -> CommandError {
    CommandError::OfCache { file: file.to_owned(), error: Box::new(error) }
}

/// Sockets, directories and numbers that only one can have.
fn no_name_twice(caches: &[Cache<'_>]) -> Result<(), CommandError> {
    let mut taken: Vec<(String, &Path)> = Vec::new();
    for cache in caches {
        for name in names_taken(&cache.settings) {
            if let Some((what, first)) = taken.iter().find(|(it, _)| *it == name) {
                return Err(in_two(what.clone(), first, cache.file));
            }
            taken.push((name, cache.file));
        }
    }
    Ok(())
}

fn in_two(what: String, first: &Path, second: &Path) -> CommandError {
    CommandError::InTwoCaches { what, first: first.to_owned(), second: second.to_owned() }
}

/// What a cache takes that has a name, in words that are the same for the same.
fn names_taken(settings: &Settings) -> BTreeSet<String> {
    let nbd = settings.nbd.iter().filter_map(|address| match address {
        NbdAddress::Unix(path) => Some(path),
        NbdAddress::Tcp { .. } => None,
    });
    let sockets = nbd.chain(&settings.control).chain(&settings.vhost_user);
    let sockets = sockets.map(|path| format!("the socket {}", whole(path).display()));
    let ports = settings.nbd.iter().filter_map(|address| match address {
        NbdAddress::Tcp { host, port } if *port != 0 => Some(format!("the address {host}:{port}")),
        _ => None,
    });
    let metrics = settings.metrics.filter(|address| address.port() != 0);
    let metrics = metrics.map(|address| format!("the address {address}"));
    let http = settings.http.as_ref().and_then(|address| match address {
        HttpAddress::Unix(path) => Some(format!("the socket {}", whole(path).display())),
        HttpAddress::Tcp(address) if address.port() == 0 => None,
        HttpAddress::Tcp(address) => Some(format!("the address {address}")),
    });
    let directory = settings.fuse.as_deref().map(whole);
    let directory = directory.map(|path| format!("the directory {}", path.display()));
    let ublk = settings.ublk_number().map(|number| format!("the ublk device {number}"));
    let memory = settings.nvram.as_ref().map(|memory| whole(memory.path()));
    let memory = memory.map(|path| format!("the memory {}", path.display()));
    sockets
        .chain(ports)
        .chain(metrics)
        .chain(http)
        .chain(directory)
        .chain(ublk)
        .chain(memory)
        .collect()
}

/// A name that is the same for all that lead there, also of what is not there yet.
fn whole(path: &Path) -> PathBuf {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return path.to_owned();
    };
    let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    path.canonicalize()
        .or_else(|_| here.canonicalize().map(|directory| directory.join(name)))
        .unwrap_or_else(|_| path.to_owned())
}

/// Disks that share bytes, under whatever names. Of a disk with shares only the share counts that
/// is meant.
fn no_disk_twice(caches: &[Cache<'_>]) -> Result<(), CommandError> {
    let mut known: Vec<(PathBuf, DiskIdentity, &Path)> = Vec::new();
    for cache in caches {
        let settings = &cache.settings;
        let data_disks: Vec<&Path> = settings.data_disk.iter().map(|disk| disk.path()).collect();
        let mut cache_disks = settings.cache_disk.clone();
        let share = settings.share.as_deref();
        let book = PairBook::from_environment(false);
        match choose_shares(&mut cache_disks, share, &data_disks, &book) {
            Ok(()) => {}
            // Its data-disk may say which, and come later.
            Err(_) if settings.wait == Some(true) => cache_disks.clear(),
            Err(error) => return Err(of_cache(cache.file, error.into())),
        }
        let paths = cache_disks.iter().map(|disk| disk.path()).chain(data_disks);
        // What is not there shares nothing; opening it says so.
        let disks: Vec<_> = paths
            .filter_map(|path| Some((path.to_owned(), DiskIdentity::of(path).ok()?)))
            .collect();
        for (path, identity) in &disks {
            let of_another = known.iter().find(|(_, it, _)| identity.shared_with(it).is_some());
            if let Some((other, _, first)) = of_another {
                let what = match path == other {
                    true => format!("the disk {}", path.display()),
                    false => format!("the disk {}, also {},", other.display(), path.display()),
                };
                return Err(in_two(what, first, cache.file));
            }
        }
        known.extend(disks.into_iter().map(|(path, identity)| (path, identity, cache.file)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_gets_all_words_but_the_files() {
        let words = "serve --config a --quiet --config=b --ack durable --config c --wait";
        let left = without_files(words.split(' ').map(OsString::from));
        assert_eq!(left.collect::<Vec<_>>(), ["serve", "--quiet", "--ack", "durable", "--wait"]);
    }

    #[test]
    fn names_are_short_and_clear() {
        let of = |files: [&str; 2]| names(&files.map(PathBuf::from));
        assert_eq!(of(["/etc/dcd/sdb.toml", "sdc.toml"]), ["sdb", "sdc"]);
        assert_eq!(of(["a/x.toml", "b/x.toml"]), ["a/x.toml", "b/x.toml"]);
    }
}
