//! Meaningful inputs to begin with: what clients, users and the engine itself write.
//!
//! `cargo run --locked --release -p dcd-byte-fuzz -- seeds` writes them to `corpus/`.

use dcd_daemon::frontend::nbd::protocol::{CONTEXT_NAME, OPTION_MAGIC, option};
use dcd_daemon::frontend::vhost_user::message::request;
use dcd_daemon::report::status_report::StatusReport;
use dcd_engine::format::checkpoint::{Checkpoint, LiveSlot, LogPosition, Witness};
use dcd_engine::format::copy_page::{CopyEntry, CopyPage, CopyState, SequenceLabel};
use dcd_engine::format::creation_mark::CreationMark;
use dcd_engine::format::data_label::{DataLabel, LabelState};
use dcd_engine::format::geometry::COPIES_PER_PAGE;
use dcd_engine::format::leg_label::{LegLabel, Tag};
use dcd_engine::format::record::{Entry, Record, RecordHeader};
use dcd_engine::format::share_directory::{NewShare, ShareDirectory, ShareState};
use dcd_engine::format::superblock::{CacheState, Resized};
use dcd_engine::units::{
    CopyPageIndex, FragmentMask, Line, MemberIndex, RecordNumber, SegmentIndex, SegmentSerial,
    SequenceId, SlotIndex,
};
use dcd_engine::volume::config::{SetConfig, VolumeConfig};
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::format::journal::{self, JournalItem};
use dcd_engine::volume::format::label::{DiskTag, MemberLabel, Standing, TwinLabel};
use dcd_engine::volume::format::page::{self, PageIndex};
use dcd_engine::volume::format::root::{
    MISSED_BYTES, MemberState, MissedBits, Root, ScrubRecord, UnfinishedScrub,
};
use dcd_engine::volume::members::MemberMask;
use dcd_engine::volume::placement::{DeviceClass, Placement, RaidLevel};
use dcd_engine::volume::raid::SetLine;
use dcd_engine::zero_ranges::ZeroRange;
use dcd_engine::{LbaRange, Superblock, Uuid};
use dcd_sim::disk::profiles;

use crate::decoders::{UUID, geometry};
use crate::image::{BASES, data_disk_info};
use crate::{clients, nbd_disk, nvram, vhost_user, volume_recovery};

/// The seeds of a target: a name for the file, and the bytes.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let numbered = |seeds: Vec<Vec<u8>>| {
        let name = |index| format!("seed-{index:02}");
        seeds.into_iter().enumerate().map(|(index, bytes)| (name(index), bytes)).collect()
    };
    let texts =
        |texts: &[&str]| numbered(texts.iter().map(|text| text.as_bytes().to_vec()).collect());
    match target {
        "nbd_handshake" => numbered(handshakes()),
        "nbd_transmission" => numbered(transmissions()),
        "nbd_disk" => numbered(nbd_disk::seeds()),
        "nbd_tls" => numbered(tls_conversations()),
        "vhost_user_message" => numbered(vhost_user_messages()),
        "vhost_user_queue" => numbered(vhost_user_queues()),
        "vhost_user_record" => numbered(vhost_user_records()),
        "vhost_user_session" => numbered(vhost_user_sessions()),
        "superblock" => numbered(superblocks()),
        "share_directory" => numbered(share_directories()),
        "checkpoint" => numbered(checkpoints()),
        "record" => numbered(records()),
        "copy_page" => numbered(copy_pages()),
        "volume_format" => numbered(volume_structures()),
        "recovery" => numbered(recoveries()),
        "segment_memory" => numbered(memories()),
        "volume_recovery" => numbered(volume_recoveries()),
        "volume_import" => numbered(volume_imports()),
        "nvram" => numbered(nvram::seeds()),
        "control_client" => numbered(control_answers()),
        "nbd_client" => numbered(nbd_answers()),
        "device_client" => numbered(device_answers()),
        "control_request" => texts(&[
            "{\"command\":\"status\"}\n{\"command\":\"metrics\"}\n",
            "{\"store\":{\"snapshot\":{\"name\":\"a-1\"}}}\n{\"store\":{\"remove-snapshot\":{\"name\":\"../a\"}}}\n",
            "{\"command\":\"ping\"}\n\n  \n{\"command\":\"drain\"}\n{\"command\":\"detach\"}",
            "{\"command\":\"flush\",\"more\":[1,2.5e3,null,{\"a\":\"\\u00e4\"}]}\n",
            "{\"sequence\":{\"store\":{\"name\":\"boot\"}}}\n{\"sequence\":\"list\"}\n",
            "{\"ranges\":[[0,8],[4096,16]]}\n{\"ranges\":[]}\n{\"end\":true}\n",
            "{\"command\":\"record\"}\n{\"command\":\"cancel\"}\n",
            "{\"command\":\"stop\"}\nhello\n[[[[[[",
            "{\"volume\":\"status\"}\n{\"volume\":{\"set-attributes\":{\"ranges\":[[0,8],[9,1]],\"set\":\"hot,random\"}}}\n{\"volume\":{\"places\":{\"ranges\":[]}}}\n{\"volume\":{\"rebuild\":{\"member\":3}}}\n",
            "{\"volume\":{\"allocate\":{\"near\":null,\"attributes\":\"hot,cold\"}}}\n{\"volume\":{\"create-pointer\":{\"from\":0,\"to\":8}}}\n",
            "{\"set\":{}}\n{\"set\":{\"max-delay\":\"20ms\",\"dirty-low\":\"50%\",\"destage-iops\":\"7\",\"idle-max\":\"\"}}\n",
            "{\"set\":{\"ack\":\"log\",\"segment-buffers\":\"4\"}}\n{\"set\":{\"no-verify-reads\":\"maybe\"}}\n{\"set\":{\"idle-min\":\"9h\"}}\n",
        ]),
        "http_request" => texts(&[
            "PUT /api/v1/settings/max-delay HTTP/1.1\r\nHost: [::1]:9465\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Length: 16\r\n\r\n{\"value\":\"20ms\"}",
            "GET /api/v1/map?start=4096&bytes=1048576&cells=64 HTTP/1.1\nhost: localhost\nContent-Length: 0\n\n",
            "POST /api/v1/drain HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\nAccept: application/openmetrics-text\r\n\r\n",
            "HEAD /metrics?name=dcd HTTP/1.0\n\n",
            "POST / HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
            "GET /../metrics HTTP/2\r\nHost",
        ]),
        "recorded_batch" => texts(&[
            "{\"recorded\":{\"requests\":[],\"until_ns\":0,\"lost\":0}}\n",
            "{\"recorded\":{\"requests\":[[10,15,\"write\",true,4096,512,1],[11,12,\"read\",false,0,1,2]],\"until_ns\":9,\"lost\":3}}",
            "{\"recorded\":{\"requests\":[[1,2,\"write-zeroes\",false,0,512,1],[1,2,\"discard\",false,0,512,2],[2,2,\"flush\",true,0,0,3]],\"until_ns\":1,\"lost\":0}}",
            "{\"recorded\":{\"requests\":[[2,1,\"read\",false,0,512,1]],\"until_ns\":1,\"lost\":0}}",
            "{\"ok\":true}\n",
        ]),
        "volume_file" => texts(&[
            "extent = \"64k\"\ntemporary = \"5%\"\n[[set]]\nlevel = 1\nshare = \"20%\"\ncopies = 2\nmembers = [0, 1]\n[[set]]\nlevel = 5\n",
            "size = \"1G\"\nselective-caching = true\nmigrate-max = \"50M\"\n[[set]]\nlevel = 0\nstripe-unit = \"4k\"\nper-member = \"64M\"\n",
            "[[set]]\nlevel = 0\n[[placement]]\nall-of = \"important,random\"\nnone-of = \"hot\"\nlevels = [1, 5, 0]\n[[placement]]\nlevels = [0, 5, 1]\n",
            "[[set]]\nlevel = 9",
            "set = [{ level = 1 }, { level = 0, members = [] }]",
        ]),
        "hint_rules" => texts(&[
            "[[rule]]\nmatch = [\"*.c\", \"build/**\"]\nset = \"important,random\"\n[[rule]]\nmatch = \"*.o\"\nset = \"temporary\"\n",
            "[[rule]]\nmatch = \"*a*a*a*a*a*a*a*b\"\nset = \"none\"\n",
            "[[rule]]\nmatch = \"[!a-z]?[]]\"\nset = \"hot,cold\"\n",
            "rule = 3",
        ]),
        "static_metadata" => numbered(file_systems()),
        "units" => texts(&[
            "512",
            "4k",
            "1.5MiB",
            "16 m",
            "99999999t",
            "8ms",
            "0.1s",
            "50us",
            "1h",
            "80%",
            "unix:/run/dcd.sock",
            "tcp:127.0.0.1:10809",
            "tcp:[::1]:1",
            "µs",
            "0",
        ]),
        "pair_record" => texts(&[
            "written 7\ncache 1b0e5f5c-8a53-4c0d-9a3e-0123456789ab\ngeneration 12\nstate closed dirty\ncache-disk /srv/fast.img\nkey file 5a01 130 1764040000000000000 0 18446744073709551615\ndirectory file 5a01 2 1764040000000000000 0 18446744073709551615\nchanged 1764041234000000000\ndata-disk /srv/slow%20disk.img\nkey serial eui.0025385b 1000204886016\nearlier device 2049 b-1 4096\n",
            "written 0\ncache 1b0e5f5c-8a53-4c0d-9a3e-0123456789ab\ngeneration 1\nstate detached\ncache-disk /dev/nvme0n1p4\ndata-disk \ndata-disk /dev/sdb\n",
            "written 1\ncache 1b0e5f5c-8a53-4c0d-9a3e-0123456789ab\ngeneration 3\nstate open\ncache-disk \n",
            "1b0e5f5c-8a53-4c0d-9a3e-0123456789ab 12 dirty",
            "key file 1",
        ]),
        "config_file" => texts(&[
            "cache-disk = \"/dev/nvme0n1p4\"\ndata-disk = \"/dev/sdb\"\nnbd = [\"unix:/run/s\"]\n",
            "fuse = \"/mnt\"\nloop = true\nack = \"durable\"\nmax-delay = \"50ms\"\n",
            "bypass-threshold = \"64k\"\ndirty-high = \"80%\"\ndirty-low = 10\nidle-max = \"2s\"\n",
            "segment-buffers = 8\ndestage-rate = \"10m\"\nio-timeout = \"30s\"\none-disk = \"auto\"\n",
            "data-disk = \"slow:d,read=8ms,write=8ms\"\n[table]\nx = 0x10\n",
            "bypass_treshold = 1\n",
            "accept-damage = true",
            "ack = \n",
            // One for each pair of settings that do not fit together.
            "segment-buffers = 2\n",
            "dirty-high = 96\n",
            "dirty-high = 50\ndirty-low = 60\n",
            "idle-min = \"2s\"\nidle-max = \"1s\"\n",
            "idle-min = \"0s\"\n",
            "max-delay = \"0ms\"\n",
            "bypass-threshold = 512\n",
            "io-timeout = \"0s\"\n",
        ]),
        "device_spec" => texts(&[
            "nbd://[fe80::1%25eth0]:7/a%20b%3f",
            "slow:nbd+unix:///x?socket=/run/a%26b,read=8ms,write=8ms",
            "/dev/sdb",
            "slow:disk.img,read=8ms,write=8ms,flush=0ms",
            "slow:d,x=1.img,write=9ms,flush=2ms,read=8ms",
            "faulty:slow:d,read=1ms,write=2ms,control=/tmp/f",
            "faulty:./slow:x,control=a",
            "faulty:model:hp97560:d:1,x,control=a",
        ]),
        "fault_rules" => texts(&[
            "# drill\nread eio 4k-8k\nread enospc\nwrite hang\nflush eio once\n",
            "gone\n",
            "any eio 0-512 once # x\n\nwrite enospc",
        ]),
        "trace" => numbered(traces()),
        "trace_packed" => numbered(packed_traces()),
        "disk_profile" => {
            // Without their comments, which only cost time.
            let plain = |text: &str| {
                let is_text = |line: &&str| !line.is_empty() && !line.starts_with('#');
                text.lines().filter(is_text).collect::<Vec<_>>().join("\n").into_bytes()
            };
            let mut all: Vec<Vec<u8>> = profiles::all().map(|(_, text)| plain(text)).collect();
            all.extend([b"title = \"x\"\n".to_vec(), b"[mechanical]\n[simple]\n".to_vec()]);
            numbered(all)
        }
        "workload" => texts(&[
            "snake,disk=6,requests=100",
            "zipf,theta=1.1,reads=30,rate=200,duration=10m,seed=7",
            "users,users=4,task=copy,files=20,folders=3,file-size=10k,think=1ms,page-cache=warm,flushes=yes",
            "hot-cold,hot=8,cold=1000,ratio=50,size=512",
            "sequential,random=10,streams=3,size=4k,size-max=64k,span=1G",
            "bursts,burst=5,within=1ms,arrivals=bursts",
            "uniform,span=1T,rate=0.001,requests=3",
            "uniform,rate=0",
            "snake,disk=7",
            "none,x=1",
        ]),
        other => panic!("no byte fuzz target is called {other}"),
    }
}

/// The number of a format, 0 for none and 20 for measured service times; then the file.
fn traces() -> Vec<Vec<u8>> {
    let texts: [(u8, &[u8]); 12] = [
        (0, b"t_us,op,dev,off,len,fl,lat_us\n0,W,0,0,4096,3,500\n10.5,R,1,4096,512,0,\n11,F,0,0,0,0,\n12,D,0,0,65536,0,-1\n"),
        (0, b"op,off,len,t_us\nread,0,1,7\nW,8,512,2\n"),
        (2, b"  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n  8,0 3 2 0.1 697 D FWFS 8 + 8 [x]\n"),
        (4, b"# tracer: nop\n a b-71 [001] d..1. 1234.500000: block_rq_issue: 8,0 WSM 4096 () 1234 + 8 be,0,4 [k]\n"),
        (4, b"x-1 [0] .. 1.5: block_bio_queue: 8,16 R 8 + 16 [dd]\n"),
        (5, b"fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda write 4096 4096\n/dev/sda wait 100\n/dev/sda sync 0 0\n"),
        (5, b"fio version 3 iolog\n0 /dev/sda add\n3 /dev/sda read 0 512\n4 /dev/sda trim 0 512\n"),
        (6, b"0,8,4096,W,0.5\n1,16,512,r,0.6\n"),
        (7, b"128166372003061629,hm,1,Read,383496192,32768,113736\n"),
        (8, b"419,W,8792731648,16384,1577808144360767\n"),
        (9, b"1538323200,4,8,1,1283\n"),
        (20, b"op,blkno_512,bcount_512,measured_us,next_inter_us\nR,10,2,1000,500\n"),
    ];
    let mut all: Vec<Vec<u8>> =
        texts.iter().map(|(format, text)| [&[*format], *text].concat()).collect();
    all.push([&[3], &blktrace()[..]].concat());
    all.push([&[0], &b"PAR1\0\0\0\0PAR1"[..]].concat());
    all.extend([0, 10, 11].map(|format| [&[format], &srt()[..]].concat()));
    let more: [&[u8]; 14] = [
        b"\x0212,5 0 1 0.1 7 Q FN [x]\n8,0 0 2 0.2 7 C WBS 8 + 8 [0]\nTotal (sda):\n Reads\n8,0 0 1 0.1 7 Q R 8 + 8 [x]\n",
        b"\x028,0 1 1 0.1 0 C FWS 0 (     900) [0]\n8,0 1 2 0.2 0 C WS 16 + 8 [0]\n",
        b"\x04 fio  42 [003]  5432.123456:   block:block_rq_issue: 259,0 WS 4096 () 2048 + 8 [fio]\n",
        b"\x050, 0, 4096\n1,8192,512\n",
        b"\0\xef\xbb\xbfTimestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n1,hm,1,read,0,512,5\n",
        b"\0ASU,LBA,Size,Opcode,Timestamp\n0,8,4096,W,0.5\n",
        b"\0Timestamp,Response,IOType,LUN,Offset,Size\n1.5,0.0008,R,4,8192,512\n1.6,,,4,0,512\n1.7,-1,W,0,0,512\n",
        b"\x000 4892 syslogd 904265560 8 W 6 0 531e779d\n467651 20782 Web Content 8 16 R 8 17 a1 b2\n",
        b"\x0f0.000000 0 2 8 1\n2.5004 1 1024 16 0x80\n",
        b"\0TIME(s) COMM PID DISK T SECTOR BYTES QUE(ms) LAT(ms)\n0.1 a b 1 sda FWFS 8 4096 0.1 0.25\n0.2 ? 0 R 0 512 0.1 0.1\n",
        b"\x1110, 4000000, 1, 4096, 8192, 0\n11, 2500000, 0, 512, 0, 0x4001, 17\n",
        b"\0\x07\0\0\0\0\x10\0\0\x01\0\0\0\x2a\0\x05\x01\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0",
        b"\0\x88\0\x05\x02\x07\0\0\0\0\x10\0\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x63\0\0\0\0\0\0\0",
        b"\0\x05\0\0\0\x07\0\0\0\0\0\0\0\0\x10\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    all.extend(more.map(<[u8]>::to_vec));
    all.push([&[3], &blktrace_8()[..]].concat());
    all
}

/// Two requests as SPC, packed by the programs of that name, and in a tar.
fn packed_traces() -> Vec<Vec<u8>> {
    let packed: [&[u8]; 5] = [
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x33\xd0\xb1\xd0\x31\x31\xb0\x34\xd3\x09\xd7\x31\xd0\x33\xe5\x32\xd4\x31\x34\xd3\x31\x35\x34\xd2\x29\x02\x72\xcd\xb8\0\x3d\x3b\xcd\xce\x1e\0\0\0",
        b"\xfd\x37\x7a\x58\x5a\0\0\x04\xe6\xd6\xb4\x46\x02\0\x21\x01\x16\0\0\0\x74\x2f\xe5\xa3\x01\0\x1d0,8,4096,W,0.5\n1,16,512,r,0.6\n\0\0\0\x6f\x0e\x67\x82\x67\x70\x0c\x23\0\x01\x36\x1e\x3d\x19\x95\x53\x1f\xb6\xf3\x7d\x01\0\0\0\0\x04\x59\x5a",
        b"\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x76\x41\x41\xdd\0\0\x06\x5a\x80\0\x10\0\0\x57\x76\0\x08\x01\0\x02\0\x21\xa9\xe8\x83\xd1\xa4\x20\x1a\0\x49\xe2\x7c\xa3\x70\x15\x07\x17\x28\xb2\x63\x27\xc4\x7c\x5d\xc9\x14\xe1\x42\x41\xd9\x05\x07\x74",
        b"\x04\x22\x4d\x18\x64\x40\xa7\x1e\0\0\x800,8,4096,W,0.5\n1,16,512,r,0.6\n\0\0\0\0\x22\x65\xc2\x66",
        b"\x28\xb5\x2f\xfd\x04\x58\xf1\0\x000,8,4096,W,0.5\n1,16,512,r,0.6\n\x6b\xd4\x90\x08",
    ];
    let mut all: Vec<Vec<u8>> = packed.iter().map(|bytes| bytes.to_vec()).collect();
    let twice = packed[3..].concat();
    all.push(twice);
    all.push(tar(&[(b"d/", b'5', b""), (b"pax", b'x', b"11 size=30\n"), (b"t", b'0', packed[3])]));
    all.push(tar(&[(b"a", b'0', b"0,8,4096,W,0.5\n"), (b"b", b'0', b"0,8,4096,W,0.5\n")]));
    all
}

/// Entries of an archive: name, kind, content.
fn tar(entries: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, content) in entries {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name);
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = *kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend(header);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// The text of an SRT trace, a read of version 3, a suspect one, and a write of version 4.
fn srt() -> Vec<u8> {
    let mut bytes = b"system = \"x\";\ntracedate\t= \"Fri Apr 17 00:00:00 1992\";\n\x0c".to_vec();
    let common = |flags: u32| [1, 500, 70, 20_070, 8192, 1000, 0x0700_0108, 7, 3, flags, 0x22];
    for (id, flags, more) in
        [(3 << 16 | 1, 1, &[][..]), (3 << 16 | 4, 1, &[0x80]), (4 << 16 | 1, 0x8_810a, &[2])]
    {
        let words: Vec<u32> = [&common(flags)[..], more].concat();
        let size = 8 + 4 * words.len() as u32;
        bytes.extend([size, id].into_iter().chain(words).flat_map(u32::to_be_bytes));
    }
    bytes
}

/// Two records of blktrace, version 7: a queued write, and the issue of a read.
fn blktrace() -> Vec<u8> {
    let record = |action: u32, sector: u64| {
        let mut bytes = Vec::new();
        bytes.extend(0x6561_7407u32.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend((1000 * sector).to_le_bytes());
        bytes.extend(sector.to_le_bytes());
        bytes.extend(4096u32.to_le_bytes());
        bytes.extend(action.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((8u32 << 20).to_le_bytes());
        bytes.extend([0; 8]);
        bytes
    };
    // Queue and write; issue and read.
    [record(1 | 2 << 16, 8), record(7 | 1 << 16, 16)].concat()
}

/// Two records of version 8: a queued zone append, and the issue of a read.
fn blktrace_8() -> Vec<u8> {
    let record = |action: u64, sector: u64| {
        let mut bytes = Vec::new();
        bytes.extend(0x6561_7408u32.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend((1000 * sector).to_le_bytes());
        bytes.extend(sector.to_le_bytes());
        bytes.extend(4096u32.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(action.to_le_bytes());
        bytes.extend((8u32 << 20).to_le_bytes());
        bytes.extend([0; 20]);
        bytes
    };
    [record(1 | 1 << 32, 8), record(7 | 1 << 16, 16)].concat()
}

/// What clients say: an option, its payload.
/// Programs of `nbd_tls.rs`.
fn tls_conversations() -> Vec<Vec<u8>> {
    let conversation = |how: u8, acts: &[&[u8]]| [&[how][..], &acts.concat()].concat();
    let [start, exchange, go, read, write]: [&[u8]; 5] = [&[1], &[3], &[6, 0], &[6, 2], &[6, 3]];
    let renew: &[u8] = &[7];
    let goodbye: &[u8] = &[8];
    let secured = [start, exchange, exchange];
    let all =
        [&secured[..], &[go, exchange, write, read, exchange, renew, read, exchange]].concat();
    vec![
        // All in order, with new keys in the middle, and a goodbye.
        conversation(3, &[&all[..], &[goodbye, exchange]].concat()),
        // No certificate, with requests behind the handshake.
        conversation(1, &[&secured[..], &[go, write, exchange]].concat()),
        // Options before TLS, and STARTTLS twice.
        conversation(3, &[&[2, 7, 6], &[2, 8, 0], &[2, 1, 0], start, start]),
        conversation(3, &[&secured[..], &[&[6, 1, 5], exchange]].concat()),
        // Bytes of nobody: with STARTTLS, behind its answer, and within TLS.
        conversation(3, &[start, &[0, 3, 22, 3, 1], &[0, 4, 9, 9, 9, 9], exchange]),
        conversation(
            3,
            &[&secured[..], &[go, exchange, &[0, 5, 23, 3, 3, 0, 1], exchange]].concat(),
        ),
        // A byte of the hello, of the client's certificate, of a request is changed.
        conversation(3, &[start, &[4, 60, 0, 1], exchange]),
        conversation(3, &[start, exchange, &[4, 200, 0, 255], exchange]),
        conversation(3, &[&secured[..], &[go, exchange, write, &[4, 99, 0, 1]]].concat()),
        // Cut off: within the hello, within a request.
        conversation(3, &[start, &[5, 100, 0]]),
        conversation(3, &[&secured[..], &[go, exchange, write, &[5, 100, 1]]].concat()),
    ]
}

fn handshakes() -> Vec<Vec<u8>> {
    let option = |number: u32, payload: &[u8]| {
        let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend((payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes
    };
    let info = [0, 0, 0, 0, 0, 3, 0, 1, 0, 2, 0, 3];
    let mut contexts = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, CONTEXT_NAME.len() as u8];
    contexts.extend(CONTEXT_NAME);
    let structured = option(option::STRUCTURED_REPLY, &[]);
    let conversation = |how: u8, options: &[Vec<u8>]| {
        let mut bytes = vec![how];
        options.iter().for_each(|option| bytes.extend(option));
        bytes
    };
    vec![
        conversation(1, &[option(option::GO, &info)]),
        conversation(0, &[vec![0, 0, 0, 1], option(option::EXPORT_NAME, &[])]),
        conversation(
            3,
            &[
                structured.clone(),
                option(option::LIST_META_CONTEXT, &contexts),
                option(option::SET_META_CONTEXT, &contexts),
                option(option::GO, &info),
            ],
        ),
        conversation(
            0x25,
            &[
                option(option::STARTTLS, &[]),
                option(option::LIST, &[]),
                option(option::INFO, &info),
                option(option::SET_META_CONTEXT, &contexts),
                option(99, b"what?"),
                option(option::GO, &[0, 0, 0, 1, b'x', 0, 0]),
                option(option::ABORT, &[]),
            ],
        ),
        conversation(1, &[option(option::GO, &[0xff; 6]), structured, vec![1, 2, 3]]),
    ]
}

/// Requests: command, flags, offset, length, scale, what the disk does.
fn transmissions() -> Vec<Vec<u8>> {
    let request = |command: u8, flags: u8, offset: u16, length: u16, scale: u8, then: u8| {
        let mut bytes = vec![command, flags];
        bytes.extend(offset.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend([scale, then]);
        bytes
    };
    let all: Vec<u8> = (0..8).flat_map(|n| request(n % 8, 0, n as u16 * 8, 8, 0, 1)).collect();
    let mut pile = Vec::new();
    for n in 0..40 {
        pile.extend(request([1, 0, 6, 4, 0, 3][n % 6], (n % 2) as u8, n as u16, 8, 0, 0));
    }
    let odd: Vec<u8> = [
        request(0, 0, 1, 512, 2, 0),
        request(1, 0, 7, 4096, 3, 0),
        request(1, 0, 2047, 2, 0, 0),
        request(0, 4, 0, 0x900, 0, 0),
        request(7, 8, 17, 100, 0, 0x21),
        request(5, 0, 0, 0x700, 0, 0x41),
        request(8, 0, 0, 0, 0, 3),
        request(2, 0, 0, 0, 0, 0),
    ]
    .concat();
    let with = |how: u8, requests: &[u8]| [&[how], requests].concat();
    vec![
        with(0, &all),
        with(3, &all),
        with(3 | 8, &pile),
        with(1 | 64, &pile),
        with(3 | 4, &all),
        with(2 | 16 | 32 | 128, &odd),
        with(0, &[&odd[..56], &request(9, 0, 0, 0, 0, 0)].concat()),
    ]
}

fn volume_structures() -> Vec<Vec<u8>> {
    let set = |level, copies, place: u64| SetConfig {
        level,
        class: DeviceClass::Slow,
        members: (0..4).map(MemberIndex).collect(),
        stripe_unit_bytes: 16 << 10,
        copies,
        member_offset_bytes: (1 + place) << 20,
        member_bytes: 1 << 20,
    };
    let config = VolumeConfig {
        members: 4,
        sets: vec![
            set(RaidLevel::Raid1, 2, 0),
            set(RaidLevel::Raid5, 1, 1),
            set(RaidLevel::Raid0, 1, 2),
        ],
        extent_bytes: 64 << 10,
        logical_bytes: 4 << 20,
        temporary_bytes: 1 << 20,
        selective_caching: true,
        twin_region_pages: 16,
        migrate_bytes_per_second_max: 0,
        placement: Placement::default(),
    };
    let header = VolumeHeader { uuid: UUID, config, pointers_max: 100, journal_bytes: 1 << 20 };
    let rebuilding = MemberState::Rebuilding { set: 1, stripe: 7 };
    let root = Root {
        pointer_pages_added: 0,
        uuid: UUID,
        checkpoint: 5,
        tail_sequence: 9,
        tail_line: 3,
        epoch: 2,
        map: None,
        lost_since_record: 1,
        twin_since: 1,
        members: vec![MemberState::UpToDate, MemberState::Stale, rebuilding],
        label_epochs: vec![2, 0, 1],
        disks: vec![DiskTag(0), DiskTag(7), DiskTag(0)],
        missed: Some(MissedBits {
            members: 0b110,
            region_bytes: 64 << 10,
            bits: vec![5; MISSED_BYTES],
        }),
        scrub: ScrubRecord {
            since: 5,
            ended: 4,
            found: 3,
            unfinished: Some(UnfinishedScrub {
                began: 6,
                set: 1,
                stripe: 2,
                found: 1,
                is_put_off: false,
            }),
        },
    };
    let items = [
        JournalItem::Lines { set: 1, stripe: 3, row: 2, column: 1, lines: 1 },
        JournalItem::Extent { extent: 1, packed: 0 },
        JournalItem::Pointer { slot: 1, packed: 1 << 32 | 2 },
        JournalItem::Member { member: MemberIndex(2), state: rebuilding, is_noted: true },
        JournalItem::Epoch { epoch: 2, labelled: Some(MemberMask(0b101)) },
        JournalItem::Lost { set: 1, stripe: 3, row: 0, column: 1, lines: 1 },
        JournalItem::Found { set: 0, first: SetLine(3), lines: 2 },
        JournalItem::Unsure { set: 1, stripe: 3, row: 1, column: 1, lines: 1 },
        JournalItem::Marked { region: 0 },
        JournalItem::Disk { member: MemberIndex(1), disk: DiskTag(7) },
    ];
    let record = journal::encode(UUID, 9, &items, &[0; 4096]);
    let twin = TwinLabel { offset: 4 << 20, generation: 2, holders: MemberMask(0b11) };
    let twin = Some(twin);
    let (disk, standing) = (DiskTag(7), Standing::Incoming);
    let label =
        MemberLabel { epoch: 2, twin, disk, standing, ..MemberLabel::first(UUID, MemberIndex(2)) };
    // What is behind is zero, and comes by itself.
    let with = |kind: u8, bytes: &[u8]| [&[1, kind], &bytes[..bytes.len().min(800)]].concat();
    vec![
        with(0, header.encode().bytes()),
        with(1, root.encode().bytes()),
        with(2, record.bytes()),
        with(3, label.encode().bytes()),
        with(4, page::encode(UUID, PageIndex(3), 5, &[1; 100]).bytes()),
    ]
}

fn data_label() -> DataLabel {
    DataLabel {
        uuid: UUID,
        writing: 5,
        epoch: 3,
        epoch_max: 4,
        state: LabelState::Dirty,
        payload_offset_bytes: 1 << 20,
        payload_bytes: 1 << 20,
    }
}

/// Without shares, with some, with a hole between two, and with one in several windows.
fn share_directories() -> Vec<Vec<u8>> {
    let mut directory = ShareDirectory::new(UUID, 64 << 20);
    let mut seeds = vec![directory.encode()];
    for (index, name) in ["sdb", "gone", "db.1"].into_iter().enumerate() {
        let new = NewShare {
            name: name.into(),
            cache: Uuid([index as u8; 16]),
            size_bytes: (index as u64 + 2) << 20,
            data_disk: format!("/dev/{name}"),
        };
        directory.allocate(new).expect("there is room");
    }
    directory.generation = 4;
    directory.set_state(Uuid([0; 16]), ShareState::InUse).expect("it is there");
    seeds.push(directory.encode());
    directory.give_back(Uuid([1; 16])).expect("it is there");
    directory.set_state(Uuid([2; 16]), ShareState::Leaving).expect("it is there");
    seeds.push(directory.encode());
    directory.resize(Uuid([0; 16]), 8 << 20).expect("there is room");
    seeds.push(directory.encode());
    // The rest is zero, and comes by itself.
    seeds.iter().map(|bytes| [&[1], &bytes.bytes()[..1024]].concat()).collect()
}

fn superblocks_of_sessions() -> [Vec<u8>; 3] {
    let superblock = |generation, state, serial: &str| {
        let bytes = Superblock {
            uuid: UUID,
            generation,
            state,
            geometry: geometry(),
            data_disk: data_disk_info(),
            data_disk_serial: serial.to_owned(),
            volume_bytes: 0,
            volume_moved_to: 0,
            data_offset_bytes: 0,
            data_label_epoch: 0,
            has_end_mark: true,
            has_legs: false,
            resized: None,
            nvram: None,
            memory: None,
            created_unix_seconds: 1_700_000_000,
        }
        .encode();
        // The rest is zero, and comes by itself.
        [&[1], &bytes.bytes()[..208]].concat()
    };
    [
        superblock(0, CacheState::Detached, ""),
        superblock(7, CacheState::Open, "WD-1"),
        superblock(8, CacheState::Closed, &"x".repeat(64)),
    ]
}

/// Of a witness: what is in it lies behind the marks.
fn witness_label() -> LegLabel {
    LegLabel::of_new(UUID, &[UUID], 0, Tag(7)).with_witness(Uuid([9; 16])).of_witness()
}

fn superblocks() -> Vec<Vec<u8>> {
    let mut superblocks = superblocks_of_sessions().to_vec();
    superblocks.extend([
        [&[1], &CreationMark { end: 5 << 30 }.encode().bytes()[..24]].concat(),
        [&[1], &data_label().encode().bytes()[..80]].concat(),
        [&[1], &LegLabel::of_new(UUID, &[UUID], 0, Tag(7)).encode().bytes()[..920]].concat(),
        [&[1], witness_label().encode().bytes()].concat(),
        resized_superblock(),
        grown_superblock(),
    ]);
    superblocks
}

/// Of a log that has grown twice.
/// Of a volume whose tables have moved.
fn grown_superblock() -> Vec<u8> {
    let bytes = superblocks_of_sessions()[1][1..].to_vec();
    let mut whole = [0; 4096];
    whole[..bytes.len()].copy_from_slice(&bytes);
    let mut superblock = Superblock::decode(&whole).expect("one of the seeds");
    superblock.volume_bytes = 5 << 20;
    superblock.volume_moved_to = superblock.geometry.end() + (3 << 20);
    [&[1], &superblock.encode().bytes()[..512]].concat()
}

fn resized_superblock() -> Vec<u8> {
    let mut superblock = Superblock::decode(&{
        let mut bytes = superblocks_of_sessions()[1][1..].to_vec();
        bytes.resize(4096, 0);
        bytes
    })
    .expect("it was encoded");
    for bytes in [40 << 20, 80 << 20] {
        superblock.geometry = superblock.geometry_on(bytes).expect("it fits");
    }
    superblock.resized = Some(Resized { session_epoch: 6, checkpoint_generation: 12 });
    [&[1], &superblock.encode().bytes()[..512]].concat()
}

fn checkpoints() -> Vec<Vec<u8>> {
    let checkpoint = |items: u32| {
        let each = |count: u32| 0..count.min(items);
        let bytes = Checkpoint {
            uuid: UUID,
            generation: 7,
            epoch: 2,
            position: LogPosition {
                segment: SegmentIndex(4),
                serial: SegmentSerial(40),
                slot_in_segment: 9,
                next_record: RecordNumber(1000),
                previous_checksum: 77,
            },
            order: u64::from(items) | 1,
            free: each(8).map(|n| SegmentIndex(5 + n)).collect(),
            filled: each(4).map(|n| (SegmentIndex(n), SegmentSerial(36 + u64::from(n)))).collect(),
            live: each(20)
                .map(|n| LiveSlot {
                    line: Line(u64::from(n) * 3),
                    mask: FragmentMask(0x3c),
                    slot: SlotIndex(n + 1),
                    checksum: n,
                })
                .collect(),
            zeroes: each(2)
                .map(|n| ZeroRange {
                    line: Line(100 + u64::from(n) * 50),
                    lines: 20,
                    may_unmap: n % 2 == 1,
                })
                .collect(),
            poisoned: each(1).map(|n| (Line(90 + u64::from(n)), FragmentMask(1))).collect(),
            witnesses: each(3).map(|n| Witness { line: Line(n.into()), checksum: 3 }).collect(),
            copy_pages: Vec::new(),
        }
        .encode();
        let end = bytes.bytes().iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        [&[1], &bytes.bytes()[..end]].concat()
    };
    vec![checkpoint(0), checkpoint(1), checkpoint(20)]
}

fn records() -> Vec<Vec<u8>> {
    let record = |entries: Vec<Entry>, unfinished| {
        let header = RecordHeader {
            uuid: UUID,
            epoch: 3,
            serial: SegmentSerial(9),
            segment: SegmentIndex(2),
            slot_in_segment: 17,
            number: RecordNumber(100),
            previous_checksum: 0x1234,
            durable: RecordNumber(98),
            checkpoint_generation: 4,
            unfinished,
        };
        let length = 128 + entries.len() * 16;
        let bytes = Record { header, entries, checksum: 0 }.encode();
        [&[1], &bytes[..length]].concat()
    };
    vec![
        record(Vec::new(), 0),
        record(
            vec![
                Entry::Data { line: Line(77), mask: FragmentMask(0x0f), checksum: 0xdead_beef },
                Entry::Zero { line: Line(5), lines: 1 << 30, may_unmap: true },
                Entry::Bypass { range: LbaRange::new(513, 2048) },
            ],
            2,
        ),
    ]
}

fn copy_pages() -> Vec<Vec<u8>> {
    let label = SequenceLabel {
        id: SequenceId(3),
        name: "start".to_owned(),
        is_pinned: true,
        is_detected: true,
        runs: 7,
        lines_served: 1 << 33,
    };
    let page = |sequence, count: u64| {
        let entry = |n| {
            let state = if n % 3 == 0 { CopyState::Stale } else { CopyState::Valid };
            CopyEntry { line: Line(n * 37), checksum: n as u32, state }
        };
        let mut entries: Vec<Option<CopyEntry>> = (0..count).map(|n| Some(entry(n))).collect();
        entries.resize(COPIES_PER_PAGE as usize, None);
        let page = CopyPageIndex(1);
        let page = CopyPage { uuid: UUID, page, generation: 4, sequence, entries };
        let (bytes, _) = page.encode();
        let end = bytes.bytes().iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        [&[1], &bytes.bytes()[..end]].concat()
    };
    vec![page(None, 0), page(None, 9), page(Some((label, 2)), 20)]
}

/// One step: which place, how, where in it, and what the step takes.
fn step(place: u8, how: u8, at: u16, value: &[u8]) -> Vec<u8> {
    let at = at.to_le_bytes();
    [&[place, how, at[0], at[1]], value].concat()
}

fn recoveries() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for base in 0..BASES as u8 {
        // As it is, with and without memory, believed and not.
        seeds.push(vec![base | 8]);
        seeds.push(vec![base, 7]);
        // Superblock: generation, state. Checkpoint: counts, slot. Record: number, entries.
        seeds.push([vec![base | 8, 7], step(0, 3 | 1 << 2, 48, &[])].concat());
        seeds.push([vec![base, 7], step(1, 6 << 2 | 2, 120, &[3, 0])].concat());
        seeds.push(
            [vec![base, 7], step(2, 1 | 1 << 2, 0x50, &[]), step(4, 4 << 2, 72, &[])].concat(),
        );
        seeds.push([vec![base | 24, 7], step(8, 3 | 1 << 2, 48, &[])].concat());
        seeds.push([vec![base, 7], step(9, 7 << 2, 0, &[8])].concat());
        // Items of the payload of both checkpoints.
        seeds.push([vec![base | 16, 7], step(3, 2, 8, &[1; 8]), step(5, 2, 8, &[2; 8])].concat());
        // Data that does not match, and is believed or not.
        seeds.push([vec![base, 3], step(255, 0, 5000, &[1; 8])].concat());
    }
    seeds
}

fn volume_recoveries() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (base, image) in volume_recovery::base_images().iter().enumerate() {
        let base = base as u8;
        seeds.push(vec![base]);
        seeds.push(vec![base, 3]);
        // A member is missing, and that is accepted.
        seeds.push(vec![base | 2 | 8 | 4]);
        // Header, root: a count, a state. The journal: a number, an item.
        seeds.push([vec![base, 3], step(0, 1 | 1 << 2, 40, &[])].concat());
        seeds.push([vec![base, 3], step(2, 1 | 1 << 2, 40, &[])].concat());
        seeds.push([vec![base, 3], step(3, 3 << 2, 64, &[1])].concat());
        for page in 0..8 {
            let Some(place) = image.place_of_page(page) else { continue };
            // An entry that cannot be, one that is another, and one that is not believed.
            seeds.push([vec![base, 3], step(place, 5 << 2 | 3, 64, &[])].concat());
            seeds.push([vec![base, 3], step(place, 1 << 2 | 3, 72, &[])].concat());
            seeds.push([vec![base, 0], step(place, 1 << 2, 70, &[])].concat());
            // The checkpoint that it is of, and a page in the place of another.
            seeds.push([vec![base, 3], step(place, 1 << 2 | 3, 32, &[])].concat());
            seeds.push([vec![base, 3], step(place, 7 << 2, 0, &[place ^ 1])].concat());
        }
    }
    seeds
}

/// Places are headers, roots, two of what a superblock would be, and pages.
fn volume_imports() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![0, 3], vec![2], vec![2 | 4]];
    for place in [0, 1, 2, 3] {
        seeds.push([vec![0, 3], step(place, 1 | 1 << 2, 40, &[])].concat());
        seeds.push([vec![0, 3], step(place, 3 << 2, 64, &[1])].concat());
    }
    for place in 6..60 {
        seeds.push([vec![0, 3], step(place, 5 << 2 | 3, 64, &[])].concat());
        seeds.push([vec![0, 3], step(place, 1 << 2 | 3, 72, &[])].concat());
        seeds.push([vec![0, 0], step(place, 1 << 2, 70, &[])].concat());
    }
    seeds
}

fn control_answers() -> Vec<Vec<u8>> {
    let report = serde_json::to_string(&StatusReport::default()).expect("it is plain");
    let progress = "{\"progress\":{\"done\":1,\"total\":18446744073709551615}}\n";
    let says = |what: u8, text: &str| [&[what], text.as_bytes()].concat();
    vec![
        says(
            0,
            &format!(
                "{{\"ok\":true,\"status\":{report}}}\n{{\"ok\":true,\"metrics\":\"# EOF\\n\"}}\n"
            ),
        ),
        says(0, "{\"ok\":true,\"status\":{\"dirty_bytes\":18446744073709551615}}\n"),
        says(1, "{\"ok\":true,\"metrics\":7}\n{\"ok\":true}\n"),
        says(2, &format!("{progress}{{\"ok\":true}}\n{progress}{{\"ok\":true}}\n")),
        says(
            2,
            "{\"ok\":false,\"error\":\"a\\u001b[2Jb\\nc\",\"hint\":\"\\u202e\"}\n{\"ok\":false,\"cancelled\":true}\n",
        ),
        says(
            3,
            "{\"ok\":false,\"error\":\"lost\",\"lost\":{\"lines\":2,\"bytes\":8192,\"ranges\":[[0,8],[18446744073709551615,8]]}}\n",
        ),
        says(
            3,
            "{\"ok\":false,\"stuck\":{\"dirty_bytes\":8192,\"zero_bytes\":0,\"why\":\"full\",\"way_out\":\"more\"}}\n",
        ),
        says(4, "{\"ok\":true,\"sequences\":[]}\n{\"ok\":true}\n"),
        says(6, "{\"ok\":true,\"volume\":{}}\n"),
        says(7, "{\"recorded\":{\"requests\":[[1,2,3,4,5]]}}\n{\"ok\":true}\n"),
        says(7, "{\"recorded\":{\"requests\":[[1,2,"),
        says(5, "[[[[[[[[\n\u{fffd}\n"),
    ]
}

fn nbd_answers() -> Vec<Vec<u8>> {
    let reply = |cookie: u64, error: u32, data: &[u8]| {
        let head = [0x6744_6698u32.to_be_bytes(), error.to_be_bytes()].concat();
        [&head[..], &cookie.to_be_bytes(), data].concat()
    };
    let handshake = clients::handshake(1 << 20);
    vec![
        [vec![0], handshake.clone()].concat(),
        [vec![0], handshake[..30].to_vec()].concat(),
        // Informed again and again, longer than can be, refused.
        [vec![0], handshake[..18].to_vec(), handshake[18..50].repeat(70)].concat(),
        [&[0], &handshake[..34], &[0xff; 8]].concat(),
        [&[0], &handshake[..30], &[0x80, 0, 0, 1, 0, 0, 0, 0]].concat(),
        // Reads, flushes and writes are answered; one fails; what is none.
        [vec![1], reply(0, 0, &[7; 512]), reply(1, 0, &[]), reply(2, 5, &[])].concat(),
        [vec![1], reply(0, 22, &[]), reply(9, 0, &[])].concat(),
        [vec![1], reply(0, 0, &[7; 100])].concat(),
        [vec![1], b"HTTP/1.1 400 Bad Request".to_vec()].concat(),
    ]
}

fn device_answers() -> Vec<Vec<u8>> {
    let says = |control: &str, nbd: &[u8]| {
        let length = (control.len() as u16).to_le_bytes();
        [&length[..], control.as_bytes(), nbd].concat()
    };
    let ok = "{\"ok\":true}\n";
    let block = |block: u64| format!("{{\"ok\":true,\"block\":{block}}}\n");
    let words = "{\"ok\":true,\"attributes\":\"important\"}\n".repeat(2);
    let begun = [block(128), block(256), ok.repeat(3), words].concat();
    let places = |places: &str| format!("{{\"ok\":true,\"places\":[{places}]}}\n");
    let run =
        |block: u64, blocks: u64| format!("{{\"level\":1,\"block\":{block},\"blocks\":{blocks}}}");
    let replies: Vec<u8> = (0..4u64)
        .flat_map(|cookie| {
            let head = [0x6744_6698u32.to_be_bytes(), [0; 4]].concat();
            let data = if cookie == 0 { 1 << 14 } else { 0 };
            [&head[..], &cookie.to_be_bytes(), &vec![1; data]].concat()
        })
        .collect();
    let freed = "{\"ok\":true,\"freed\":3}\n";
    vec![
        says(&[&begun[..], &places(&run(0, 128)), freed, ok].concat(), &replies),
        says(&[&begun[..], &places(&format!("{},{}", run(512, 128), run(0, 128)))].concat(), &[]),
        says(&[&begun[..], &places(&run(0, u64::MAX)), freed].concat(), &replies[..16]),
        says(&[&begun[..], &places(&run(256, 0))].concat(), &[]),
        says(&[block(u64::MAX), block(1 << 11)].concat(), &[]),
        says("{\"ok\":false,\"error\":\"no \\u001b]0;x\\u0007room\"}\n", &[]),
        says("{\"progress\":{}}\n{\"progress\":{}}\n7\n", b"no reply"),
    ]
}

fn memories() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for base in [0, 1, 2] {
        seeds.push(vec![base]);
        seeds.push(vec![base | 16, 7]);
        // The mark: entries, slot, buffer, count. Then headers, sealed or open.
        for at in [24, 20, 16, 0] {
            seeds.push(
                [vec![base, 7], step(0, 2 | 1 << 2, at, &[]), step(1, 2, at, &[9; 8])].concat(),
            );
        }
        seeds
            .push([vec![base, 7], step(3, 2 | 1 << 2, 48, &[]), step(4, 2, 140, &[3; 8])].concat());
        seeds.push([vec![base, 7], step(4, 7 << 2, 0, &[3])].concat());
    }
    seeds
}

/// The beginning of an ext4 of one group with a journal, as extents and in a tree, and of an XFS of
/// two groups.
fn file_systems() -> Vec<Vec<u8>> {
    let mut ext4 = vec![0; 16 << 10];
    let mut put = |at: usize, bytes: &[u8]| ext4[at..at + bytes.len()].copy_from_slice(bytes);
    for (at, value) in [
        (0, 16u32),
        (4, 64),
        (20, 1),
        (24, 0),
        (32, 8192),
        (40, 16),
        (76, 1),
        (92, 4),
        (96, 0x40),
        (100, 1),
        (224, 8),
    ] {
        put(1024 + at, &value.to_le_bytes());
    }
    put(1024 + 56, &[0x53, 0xef]);
    put(1024 + 88, &128u16.to_le_bytes());
    // The descriptor: bitmaps in blocks 3 and 4, inodes from 5 on.
    for (at, block) in [(0, 3u32), (4, 4), (8, 5)] {
        put(2048 + at, &block.to_le_bytes());
    }
    // Inode 8: extents, at blocks 10 to 14.
    let inode = 5 * 1024 + 7 * 128;
    put(inode + 32, &0x8_0000u32.to_le_bytes());
    put(inode + 40, &[0x0a, 0xf3, 1, 0, 4, 0, 0, 0]);
    put(inode + 52 + 4, &5u16.to_le_bytes());
    put(inode + 52 + 8, &10u32.to_le_bytes());
    // The same with a node in block 9 that leads to them.
    let mut tree = ext4.clone();
    let (leaf, node) = (ext4[inode + 40..inode + 64].to_vec(), 9 * 1024);
    tree[node..node + leaf.len()].copy_from_slice(&leaf);
    tree[inode + 46] = 1;
    tree[inode + 52..inode + 64].copy_from_slice(&[0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    let mut xfs = vec![0; 4096];
    xfs[..4].copy_from_slice(b"XFSB");
    for (at, value) in [(4, 4096u32), (12, 4096), (52, 100), (84, 2048), (88, 2), (96, 50)] {
        xfs[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    xfs[102] = 2;
    xfs[124] = 11;
    vec![ext4, tree, xfs]
}

/// One of each message, as front-ends send them.
fn vhost_user_messages() -> Vec<Vec<u8>> {
    let numbers =
        |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let region = [0x10_0000, 1 << 20, 0x7000_0000, 0];
    let messages: [(u32, u8, Vec<u8>); 16] = [
        (request::GET_FEATURES, 0, vec![]),
        (request::SET_FEATURES, 0, numbers(&[0x1_7000_1e46])),
        (request::SET_MEM_TABLE, 1, [numbers(&[1]), numbers(&region)].concat()),
        (request::SET_VRING_NUM, 0, numbers(&[128 << 32])),
        (request::SET_VRING_ADDR, 0, numbers(&[0, 0x7000_0000, 0x7000_1000, 0x7000_0800, 0])),
        (request::SET_VRING_BASE, 0, numbers(&[7 << 32 | 1])),
        (request::GET_VRING_BASE, 0, numbers(&[1])),
        (request::SET_VRING_KICK, 1, numbers(&[1])),
        (request::SET_VRING_CALL, 0, numbers(&[1 << 8])),
        (request::SET_VRING_ENABLE, 0, numbers(&[1 << 32])),
        (request::SET_BACKEND_REQ_FD, 1, vec![]),
        (request::GET_CONFIG, 0, [&[0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0][..], &[0; 60]].concat()),
        (request::SET_CONFIG, 0, vec![32, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        (request::GET_INFLIGHT_FD, 0, numbers(&[0, 0, 128 << 16 | 2])),
        (request::SET_INFLIGHT_FD, 1, numbers(&[4192, 0, 128 << 16 | 2])),
        (request::ADD_MEM_REG, 1, [numbers(&[0]), numbers(&region)].concat()),
    ];
    let with_header = |(request, descriptors, payload): (u32, u8, Vec<u8>)| {
        let mut bytes = vec![descriptors];
        for number in [request, 1 | 8, payload.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(payload);
        bytes
    };
    messages.into_iter().map(with_header).collect()
}

/// A guest's memory with one request: a read, a write and zeroes by chains, a flush by an indirect
/// table, and a loop.
fn vhost_user_queues() -> Vec<Vec<u8>> {
    const GUEST: u64 = 0x1_0000;
    const HEAD: u64 = 4096;
    const DATA: u64 = 8192;
    let make = |how: u8, kind: u32, sector: u64, chain: &[(u64, u32, u16, u16)], data: &[u8]| {
        let mut memory = vec![0; 16 << 10];
        let mut put = |at: u64, bytes: &[u8]| {
            memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        };
        for (index, (address, len, flags, next)) in chain.iter().enumerate() {
            let at = 16 * index as u64;
            put(at, &(GUEST + address).to_le_bytes());
            put(at + 8, &len.to_le_bytes());
            put(at + 12, &flags.to_le_bytes());
            put(at + 14, &next.to_le_bytes());
        }
        // One is available: head 0.
        put(vhost_user::AVAILABLE + 2, &[1]);
        put(HEAD, &kind.to_le_bytes());
        put(HEAD + 8, &sector.to_le_bytes());
        put(DATA, data);
        [&[how, 0][..], &memory].concat()
    };
    let head = (HEAD, 16, 1, 1);
    let status = (HEAD + 32, 1, 2, 0);
    let mut table = Vec::new();
    for (address, len, flags, next) in
        [(GUEST + HEAD, 16u32, 1u16, 1u16), (GUEST + HEAD + 32, 1, 2, 0)]
    {
        table.extend(address.to_le_bytes());
        table.extend(len.to_le_bytes());
        table.extend(flags.to_le_bytes());
        table.extend(next.to_le_bytes());
    }
    let range = [&3u64.to_le_bytes()[..], &9u32.to_le_bytes(), &1u32.to_le_bytes()].concat();
    vec![
        make(3, 0, 5, &[head, (DATA, 1024, 3, 2), status], &[]),
        make(3 | 16, 1, 8, &[head, (DATA, 4096, 1, 2), status], &[9; 4096]),
        make(3 | 32, 1, 8, &[head, (DATA, 4096, 1, 2), status], &[9; 4096]),
        make(3, 13, 0, &[head, (DATA, 16, 1, 2), status], &range),
        make(3 | 8, 4, 0, &[(DATA, 32, 4, 0)], &table),
        make(3, 8, 0, &[head, (DATA, 20, 3, 2), status], &[]),
        make(3, 0, 0, &[head, (DATA, 512, 1, 0)], &[]),
    ]
}

/// Conversations: a guest writes, reads, flushes, switches its write cache off and stops the queue;
/// and one that goes on from a record.
fn vhost_user_sessions() -> Vec<Vec<u8>> {
    use vhost_user::{AVAILABLE, GUEST, MEMORY_BYTES, USED, USER};
    let numbers = |numbers: &[u64]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    let message = |request: u32, descriptors: &[u8], payload: Vec<u8>| {
        let mut bytes = vec![0, request as u8, descriptors.len() as u8];
        bytes.extend(descriptors);
        bytes.push(payload.len() as u8);
        bytes.extend(payload);
        bytes
    };
    let put = |at: u64, bytes: &[u8]| {
        [&[1][..], &(at as u16).to_le_bytes(), &[bytes.len() as u8], bytes].concat()
    };
    let (kick, turn, done) = (vec![2, 0], vec![3], vec![4, 0, 0]);
    let (memory, event, record) = (0, 1, 2);
    let set_up = |features: u64| {
        [
            message(request::SET_FEATURES, &[], numbers(&[features])),
            message(request::SET_MEM_TABLE, &[memory], numbers(&[1, GUEST, MEMORY_BYTES, USER, 0])),
            message(request::SET_VRING_NUM, &[], numbers(&[8 << 32])),
            message(
                request::SET_VRING_ADDR,
                &[],
                numbers(&[0, USER, USER + USED, USER + AVAILABLE, 0]),
            ),
            message(request::SET_VRING_KICK, &[event], numbers(&[0])),
            message(request::SET_VRING_CALL, &[event], numbers(&[0])),
            message(request::SET_VRING_ENABLE, &[], numbers(&[1 << 32])),
        ]
        .concat()
    };
    // Head 0: 16 bytes of what is wanted, 512 of data, a byte of status.
    let chain = |kind: u32, data_flags: u16| {
        let descriptor = |address: u64, len: u32, flags: u16, next: u16| {
            let mut bytes = (GUEST + address).to_le_bytes().to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(next.to_le_bytes());
            bytes
        };
        let table = [
            descriptor(4096, 16, 1, 1),
            descriptor(8192, 512, data_flags, 2),
            descriptor(4200, 1, 2, 0),
        ];
        let wanted = [&kind.to_le_bytes()[..], &[0; 4], &5u64.to_le_bytes()].concat();
        [put(0, &table.concat()), put(4096, &wanted)].concat()
    };
    let available = |index: u8| put(AVAILABLE + 2, &[index]);
    let (write, read) = (chain(1, 1), chain(0, 3));
    let write_cache_off =
        message(request::SET_CONFIG, &[], vec![32, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let read_config = message(
        request::GET_CONFIG,
        &[],
        [&[0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0][..], &[0; 60]].concat(),
    );
    let stop = message(request::GET_VRING_BASE, &[], numbers(&[0]));
    let (all, no_flush) = (0x1_7000_7e46, 0x1_4000_0000);
    let parts: [&[&[u8]]; 4] = [
        &[
            &set_up(all),
            &write,
            &available(1),
            &kick,
            &turn,
            &done,
            &read,
            &available(2),
            &kick,
            &turn,
            &done,
        ],
        &[&set_up(no_flush), &write, &available(1), &kick, &turn, &stop, &turn, &done, &turn],
        &[
            &read_config,
            &set_up(all),
            &write,
            &available(1),
            &kick,
            &turn,
            &write_cache_off,
            &turn,
            &done,
            &turn,
            &turn,
            &done,
            &turn,
        ],
        &[
            &message(request::GET_INFLIGHT_FD, &[], numbers(&[0, 0, 8 << 16 | 1])),
            &message(request::SET_INFLIGHT_FD, &[record], numbers(&[192, 0, 8 << 16 | 1])),
            &set_up(all),
            &write,
            &available(1),
            &kick,
            &turn,
            &[4, 0, 3],
        ],
    ];
    parts.iter().map(|parts| parts.concat()).collect()
}

/// Records that a daemon leaves when it dies between the steps of an answer.
fn vhost_user_records() -> Vec<Vec<u8>> {
    let entry = |under_way: u8, next: u16, counter: u64| {
        [&[under_way, 0, 0, 0, 0, 0][..], &next.to_le_bytes(), &counter.to_le_bytes()].concat()
    };
    let record = |used_of_ring: u8, last_head: u16, used: u16, entries: &[Vec<u8>]| {
        let mut bytes = vec![used_of_ring];
        bytes.extend(0u64.to_le_bytes());
        for number in [1, 16, last_head, used] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(entries.concat());
        bytes
    };
    let entries = [entry(1, 2, 7), entry(0, 0, 3), entry(1, 1, 6), entry(1, 0, 8)];
    vec![
        record(4, 1, 4, &entries),
        record(5, 2, 4, &entries),
        record(7, 0, 4, &entries),
        record(0, 9, 200, &entries),
        vec![5],
    ]
}
