//! A device in memory behind the two sockets of `dcd serve`: what clients can be tested with where
//! there is no volume.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use dcd_client::{Allocation, AttributeChange, BlockDevice, Geometry, MemoryDevice, PointerChange};
use dcd_protocol::{Code, Failure};
use serde_json::{Value, json};

/// 512-byte blocks of an extent.
const WIRE: u64 = 8;

/// The server; its folder is gone at the end.
pub struct Server {
    pub folder: PathBuf,
    pub device: Arc<Mutex<MemoryDevice>>,
}

impl Server {
    pub fn start(name: &str, blocks: u64) -> Server {
        let folder = std::env::temp_dir().join(format!("dcd-client-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let device = MemoryDevice::new(Geometry { block_bytes: 4096, blocks });
        let device = Arc::new(Mutex::new(device));
        let server = Server { folder, device };
        server.listen("ctl", serve_control);
        server.listen("nbd", serve_nbd);
        server
    }

    pub fn control(&self) -> PathBuf {
        self.folder.join("ctl")
    }

    pub fn nbd(&self) -> PathBuf {
        self.folder.join("nbd")
    }

    fn listen(&self, name: &str, serve: fn(UnixStream, &Mutex<MemoryDevice>)) {
        let listener = UnixListener::bind(self.folder.join(name)).unwrap();
        let device = Arc::clone(&self.device);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let device = Arc::clone(&device);
                std::thread::spawn(move || serve(stream.unwrap(), &device));
            }
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn serve_control(mut stream: UnixStream, device: &Mutex<MemoryDevice>) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let asked: Value = serde_json::from_str(&line).unwrap();
        if asked["command"] == "drain" {
            stream.write_all(b"{\"progress\":{\"done\":1,\"total\":2}}\n{\"ok\":true}\n").unwrap();
            continue;
        }
        let answer = answer(&asked["volume"], &mut device.lock().unwrap());
        let answer = answer.unwrap_or_else(|failure| failure.to_value());
        if stream.write_all(format!("{answer}\n").as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(asked: &Value, device: &mut MemoryDevice) -> Result<Value, Box<Failure>> {
    let failed = |error: dcd_client::DeviceError| {
        // Blocks are named as the wire names them.
        Box::new(match &error {
            dcd_client::DeviceError::Volume(error) => Failure::of(on_the_wire(*error).into(), ""),
            other => Failure::new(Code::Io, other.to_string(), ""),
        })
    };
    let block = |value: &Value| value.as_u64().unwrap() / WIRE;
    let words = |value: &Value| value.as_str().unwrap().parse();
    let bad = |error: dcd_client::AttributeError| {
        Failure::new(Code::BadRequest, error.to_string(), "see the manual")
    };
    if let Some(asked) = asked.get("allocate") {
        let near = asked["near"].as_u64().map(|near| near / WIRE);
        let attributes = words(&asked["attributes"]).map_err(bad)?;
        let found = device.allocate(&[Allocation { near, attributes }]).remove(0);
        return Ok(json!({"ok":true,"block":found.map_err(failed)? * WIRE}));
    }
    for (verb, make) in [
        ("create-pointer", PointerChange::create as fn(u64, u64) -> PointerChange),
        ("delete-pointer", PointerChange::delete),
    ] {
        if let Some(asked) = asked.get(verb) {
            let change = make(block(&asked["from"]), block(&asked["to"]));
            device.change_pointers(&[change]).remove(0).map_err(failed)?;
            return Ok(json!({"ok":true}));
        }
    }
    if let Some(asked) = asked.get("set-attributes") {
        let change = AttributeChange {
            set: words(&asked["set"]).map_err(bad)?,
            clear: words(&asked["clear"]).map_err(bad)?,
        };
        let ranges = asked["ranges"].as_array().unwrap();
        let blocks: Vec<u64> = ranges.iter().map(|range| block(&range[0])).collect();
        device.set_attributes(&blocks, change).map_err(failed)?;
        return Ok(json!({"ok":true}));
    }
    if let Some(asked) = asked.get("get-attributes") {
        let found = device.attributes(&[block(&asked["block"])]).map_err(failed)?;
        return Ok(json!({"ok":true,"attributes":found[0].to_string(),"place":null}));
    }
    if let Some(asked) = asked.get("places") {
        let range = &asked["ranges"][0];
        let first = block(&range[0]);
        let runs = device.mapped(first..first + block(&range[1])).map_err(failed)?;
        let places = runs.iter().map(
            |run| json!({"block":run.start * WIRE,"blocks":(run.end - run.start) * WIRE,"level":1}),
        );
        return Ok(json!({"ok":true,"places":places.collect::<Vec<_>>()}));
    }
    if let Some(pointers) = asked["set-pointers"]["pointers"].as_u64() {
        device.make_pointer_room(pointers).map_err(failed)?;
        return Ok(json!({"ok":true}));
    }
    match asked.as_str() {
        Some("collect") => Ok(json!({"ok":true,"freed":device.collect().map_err(failed)?})),
        Some("status") => {
            let usage = device.usage().map_err(failed)?;
            Ok(json!({"ok":true,"volume":{
                "extent_bytes":device.geometry().block_bytes,
                "extents_mapped":usage.mapped,
                "pointers":usage.pointers,
                "pointers_max":usage.pointers_max,
            }}))
        }
        _ => {
            let error = format!("what is {asked}?");
            Err(Box::new(Failure::new(Code::BadRequest, error, "see the manual")))
        }
    }
}

fn on_the_wire(mut error: dcd_client::VolumeError) -> dcd_client::VolumeError {
    use dcd_client::VolumeError::{NoPointer, NotAllocated, PointerExists};
    match &mut error {
        NotAllocated(block) => block.0 *= WIRE,
        NoPointer { from, to } | PointerExists { from, to } => {
            from.0 *= WIRE;
            to.0 *= WIRE;
        }
        _ => {}
    }
    error
}

fn serve_nbd(mut stream: UnixStream, device: &Mutex<MemoryDevice>) {
    let geometry = device.lock().unwrap().geometry();
    let size = geometry.blocks * geometry.block_bytes as u64;
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    let mut hello = [0; 26];
    if stream.read_exact(&mut hello).is_err() {
        return;
    }
    let reply = |kind: u32, data: &[u8]| {
        let mut reply = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
        reply.extend(7u32.to_be_bytes());
        reply.extend(kind.to_be_bytes());
        reply.extend((data.len() as u32).to_be_bytes());
        reply.extend(data);
        reply
    };
    let mut info = 0u16.to_be_bytes().to_vec();
    info.extend(size.to_be_bytes());
    info.extend(0x6du16.to_be_bytes());
    stream.write_all(&reply(3, &info)).unwrap();
    stream.write_all(&reply(1, &[])).unwrap();
    let mut request = [0; 28];
    while stream.read_exact(&mut request).is_ok() {
        let word = |at: usize| u32::from_be_bytes(request[at..at + 4].try_into().unwrap());
        let (command, length) = (request[7], word(24) as usize);
        let offset = u64::from(word(16)) << 32 | u64::from(word(20));
        let mut data = vec![0; if command < 2 { length } else { 0 }];
        if command == 1 {
            stream.read_exact(&mut data).unwrap();
        }
        let is_bad = offset % 4096 != 0 || length % 4096 != 0 || offset + length as u64 > size;
        let error =
            if is_bad { 22 } else { serve_request(command, offset, length, &mut data, device) };
        let mut reply = 0x6744_6698u32.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(&request[8..16]);
        if command == 0 && error == 0 {
            reply.extend(&data);
        }
        if command == 2 || stream.write_all(&reply).is_err() {
            return;
        }
    }
}

fn serve_request(
    command: u8,
    offset: u64,
    length: usize,
    data: &mut Vec<u8>,
    device: &Mutex<MemoryDevice>,
) -> u32 {
    let mut device = device.lock().unwrap();
    let block = offset / 4096;
    let done = match command {
        0 => device.read(&mut [dcd_client::Read { block, data }]),
        1 => device.write(&[dcd_client::Write { block, data }]),
        3 => device.flush(),
        // Trim, and write zeroes.
        4 | 6 => device.write(&[dcd_client::Write { block, data: &vec![0; length] }]),
        _ => return 22,
    };
    done.map_or(5, |()| 0)
}
