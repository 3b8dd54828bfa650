//! Volatile disks, and the power that all of them lose at one instant.
//!
//! The disks are NBD servers in the test process, shown as files by nbdfuse and as block devices by
//! loop (with direct I/O). A write goes to their "cache"; only a flush makes it last. At a power
//! cut, under one lock and so at one instant for all disks, the unflushed writes are thrown away
//! except for a random part of them, each torn at 512 bytes, in no order: what real disks do.
//!
//! Why not `nbdkit --filter=cache cache=writeback`: it loses *everything* unflushed, so it would
//! not notice a missing flush between two dependent writes, and two servers cannot be killed at one
//! instant. Both are what the tests are about. Why not the files of nbdfuse as they are: a write
//! with RWF_DSYNC through io_uring to a FUSE file is not flushed by the kernel (6.18); the block
//! layer above the loop device does it right.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use super::random::Random;
use super::{Helper, Site, until};

const SECTOR: usize = 512;

/// Names of the disks of a pair in the folder of the test, cache-disk first.
pub const PAIR: [&str; 2] = ["c", "d"];

/// What one disk holds: what lasts, and the unflushed sectors with every version since.
#[derive(Default)]
struct Platter {
    lasting: Vec<u8>,
    volatile: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    flushes: u64,
}

impl Platter {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        for (index, sector) in bytes.chunks_exact(SECTOR).enumerate() {
            let versions = self.volatile.entry(offset / SECTOR + index).or_default();
            versions.push(sector.try_into().unwrap());
        }
    }

    fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = self.lasting[offset..offset + length].to_vec();
        for (sector, versions) in self.volatile.range(offset / SECTOR..(offset + length) / SECTOR) {
            bytes[sector * SECTOR - offset..][..SECTOR].copy_from_slice(versions.last().unwrap());
        }
        bytes
    }

    fn flush(&mut self) {
        self.flushes += 1;
        for (sector, versions) in std::mem::take(&mut self.volatile) {
            self.lasting[sector * SECTOR..][..SECTOR].copy_from_slice(versions.last().unwrap());
        }
    }

    /// Of each unflushed sector: nothing, or any version that was written, arrived.
    fn cut(&mut self, random: &mut Random) {
        let arrived = [0, 1, 50, 99, 100][random.below(5) as usize];
        for (sector, versions) in std::mem::take(&mut self.volatile) {
            if random.below(100) < arrived {
                let version = &versions[random.below(versions.len() as u64) as usize];
                self.lasting[sector * SECTOR..][..SECTOR].copy_from_slice(version);
            }
        }
    }
}

/// All disks. `power` is the count of power cuts: a server of an older one answers nothing.
struct Platters {
    power: u64,
    disks: Vec<Platter>,
    /// Transmission flags of the servers.
    flags: u16,
    /// How long a flush takes.
    flush_milliseconds: u64,
    /// Every request is answered with NBD_ESHUTDOWN.
    is_shut_out: bool,
    /// How many have come.
    connections: u64,
    /// Those who are connected.
    clients: Vec<UnixStream>,
}

/// Flags, flush, FUA, write zeroes.
const FLAGS: u16 = 1 | 4 | 8 | 0x40;
/// A flush on one connection covers the writes of all.
pub const MULTI_CONN: u16 = 0x100;
/// FUA is understood.
pub const FUA: u16 = 8;

impl Platters {
    /// Nothing that anybody asks for after it counts, and nobody is answered.
    fn cut(&mut self, random: &mut Random) {
        self.power += 1;
        self.disks.iter_mut().for_each(|platter| platter.cut(random));
        for client in self.clients.drain(..) {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// One such disk as an NBD server at a unix socket, which dies with what nobody has flushed.
pub struct VolatileServer {
    platters: Shared,
    socket: std::path::PathBuf,
}

impl VolatileServer {
    /// Of a blank disk; it runs. `flags`: what else it can do, or (those of [`FLAGS`]) cannot.
    pub fn start(socket: std::path::PathBuf, bytes: u64, flags: u16) -> VolatileServer {
        let disk = Platter { lasting: vec![0; bytes as usize], ..Platter::default() };
        let flags = FLAGS ^ flags;
        let platters = Platters {
            power: 0,
            disks: vec![disk],
            flags,
            flush_milliseconds: 20,
            is_shut_out: false,
            connections: 0,
            clients: Vec::new(),
        };
        let server = VolatileServer { platters: Arc::new(Mutex::new(platters)), socket };
        server.come_back();
        server
    }

    /// The server dies, and its machine with it.
    pub fn die(&self, random: &mut Random) {
        self.platters.lock().unwrap().cut(random);
        fs::remove_file(&self.socket).unwrap();
    }

    /// The server dies, and nobody else: it had given all to its kernel.
    pub fn die_alone(&self) {
        let mut platters = self.platters.lock().unwrap();
        platters.disks[0].flush();
        platters.cut(&mut Random::new(0));
        fs::remove_file(&self.socket).unwrap();
    }

    /// It runs again.
    pub fn come_back(&self) {
        let power = self.platters.lock().unwrap().power;
        let listener = UnixListener::bind(&self.socket).unwrap();
        serve_disk(listener, self.platters.clone(), 0, power);
    }

    /// Another disk from now on; to be called while it is dead.
    pub fn exchange(&self, bytes: Vec<u8>) -> Vec<u8> {
        let disk = &mut self.platters.lock().unwrap().disks[0];
        std::mem::replace(&mut disk.lasting, bytes)
    }

    /// From now on, or no more: it listens, and says of every request that it shuts down.
    pub fn shut_out(&self, is_shut_out: bool) {
        self.platters.lock().unwrap().is_shut_out = is_shut_out;
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> u64 {
        self.platters.lock().unwrap().connections
    }

    /// What lasts of the disk.
    pub fn lasting(&self) -> Vec<u8> {
        self.platters.lock().unwrap().disks[0].lasting.clone()
    }
}

type Shared = Arc<Mutex<Platters>>;

/// All disks, under power or not.
pub struct VolatileDisks {
    names: Vec<String>,
    platters: Shared,
    powered: Vec<PoweredDisk>,
}

/// A disk under power.
struct PoweredDisk {
    nbdfuse: Helper,
    device: String,
}

impl VolatileDisks {
    /// Takes over what these files hold, and removes them. The power is off.
    pub fn new(site: &Site, names: &[&str]) -> VolatileDisks {
        let take = |name: &&str| {
            let lasting = fs::read(site.path(name)).unwrap();
            fs::remove_file(site.path(name)).unwrap();
            Platter { lasting, ..Platter::default() }
        };
        let disks = names.iter().map(take).collect();
        let platters = Arc::new(Mutex::new(Platters {
            power: 0,
            disks,
            flags: FLAGS,
            flush_milliseconds: 0,
            is_shut_out: false,
            connections: 0,
            clients: Vec::new(),
        }));
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        VolatileDisks { names, platters, powered: Vec::new() }
    }

    /// The block devices, in the order of the names. Switches the power on if it is off.
    pub fn devices(&mut self, site: &Site) -> Vec<String> {
        if self.powered.is_empty() {
            self.powered = self.power_on(site);
        }
        self.powered.iter().map(|disk| disk.device.clone()).collect()
    }

    fn power_on(&self, site: &Site) -> Vec<PoweredDisk> {
        let power = self.platters.lock().unwrap().power;
        let mut disks = Vec::new();
        for (disk, name) in self.names.iter().enumerate() {
            let socket = site.path(&format!("{name}.sock"));
            let _ = fs::remove_file(&socket);
            serve_disk(UnixListener::bind(&socket).unwrap(), self.platters.clone(), disk, power);
            let path = site.path(name);
            if !path.exists() {
                File::create(&path).unwrap();
            }
            let log =
                File::options().create(true).append(true).open(site.path("nbdfuse.log")).unwrap();
            let nbdfuse = Helper::start(
                Command::new("nbdfuse")
                    .args([path.as_os_str(), "--unix".as_ref(), socket.as_os_str()])
                    .current_dir(site.path(""))
                    .stderr(log),
            );
            let size = self.platters.lock().unwrap().disks[disk].lasting.len() as u64;
            until("nbdfuse shows the disk", || {
                fs::metadata(&path).is_ok_and(|m| m.len() == size).then_some(())
            });
            let device = site.run(&format!("losetup --find --show --direct-io=on {name}"));
            disks.push(PoweredDisk { nbdfuse, device: device.trim().to_owned() });
        }
        disks
    }

    /// The instant: nothing that the disks are asked for after it counts.
    pub fn cut(&mut self, random: &mut Random) {
        let mut platters = self.platters.lock().unwrap();
        platters.cut(random);
        for disk in &mut self.powered {
            disk.nbdfuse.kill_now();
        }
    }

    /// After a cut: waits for the end of what was killed. Mounts and loop devices are the site's.
    pub fn forget_devices(&mut self) {
        self.powered.clear();
    }

    /// What the data-disk holds.
    pub fn data(&self) -> Vec<u8> {
        let platters = self.platters.lock().unwrap();
        let platter = &platters.disks[1];
        platter.read(0, platter.lasting.len())
    }

    /// The fewest flushes that one of the disks has seen.
    pub fn flushes(&self) -> u64 {
        self.platters.lock().unwrap().disks.iter().map(|disk| disk.flushes).min().unwrap()
    }
}

/// Serves one disk over NBD until the power goes, to nbdfuse only.
fn serve_disk(listener: UnixListener, platters: Shared, disk: usize, power: u64) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut locked = platters.lock().unwrap();
            if locked.power != power {
                return;
            }
            locked.clients.push(stream.try_clone().unwrap());
            locked.connections += 1;
            drop(locked);
            let platters = platters.clone();
            std::thread::spawn(move || converse(stream, &platters, disk, power));
        }
    });
}

fn converse(
    mut stream: UnixStream,
    platters: &Mutex<Platters>,
    disk: usize,
    power: u64,
) -> io::Result<()> {
    let (size, flags, flush_takes) = {
        let platters = platters.lock().unwrap();
        (platters.disks[disk].lasting.len() as u64, platters.flags, platters.flush_milliseconds)
    };
    negotiate(&mut stream, size, flags)?;
    loop {
        let mut head = [0; 28];
        stream.read_exact(&mut head)?;
        let fua = head[5] & 1 != 0;
        let command = head[7];
        let offset = u64::from_be_bytes(head[16..24].try_into().unwrap()) as usize;
        let length = u32::from_be_bytes(head[24..].try_into().unwrap()) as usize;
        let mut data = vec![0; if command == 1 { length } else { 0 }];
        stream.read_exact(&mut data)?;
        let (mut answer, mut errno) = (Vec::new(), 0);
        // As a disk would: there is an instant in which the writes are answered and the flush is not.
        std::thread::sleep(std::time::Duration::from_millis(if command == 3 {
            flush_takes
        } else {
            0
        }));
        {
            let mut platters = platters.lock().unwrap();
            if platters.power != power || command == 2 {
                return Ok(()); // no power, no answer
            }
            let is_shut_out = platters.is_shut_out;
            let platter = &mut platters.disks[disk];
            match command {
                _ if is_shut_out => errno = 108,
                0 => answer = platter.read(offset, length),
                1 => platter.write(offset, &data),
                3 => platter.flush(),
                6 => platter.write(offset, &vec![0; length]),
                _ => {}
            }
            if fua && !is_shut_out {
                platter.flush();
            }
        }
        let mut reply = vec![0x67, 0x44, 0x66, 0x98, 0, 0, 0, errno];
        reply.extend(&head[8..16]);
        reply.extend(answer);
        stream.write_all(&reply)?;
    }
}

/// Fixed newstyle, up to the reply to NBD_OPT_GO.
fn negotiate(stream: &mut UnixStream, size: u64, flags: u16) -> io::Result<()> {
    let read_u32 = |stream: &mut UnixStream| -> io::Result<u32> {
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    };
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    read_u32(stream)?;
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let option = read_u32(stream)?;
        let mut data = vec![0; read_u32(stream)? as usize];
        stream.read_exact(&mut data)?;
        let mut reply = |kind: u32, data: &[u8]| -> io::Result<()> {
            let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
            bytes.extend(option.to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
            stream.write_all(&bytes)
        };
        if option == 7 {
            let mut info = vec![0, 0];
            info.extend(size.to_be_bytes());
            info.extend(flags.to_be_bytes());
            reply(3, &info)?;
            return reply(1, &[]);
        }
        reply(0x8000_0001, &[])?;
    }
}
