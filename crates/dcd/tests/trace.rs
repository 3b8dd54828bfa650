//! Proves that `dcd trace` and `dcd simulate` read traces in all ways, tell the same as text and as
//! JSON, and that what is wrong with a trace is one line that says where.

mod common;

use common::Folder;
use serde_json::Value;

const CSV: &str = "t_us,op,dev,off,len,fl,lat_us
0,W,0,0,4096,1,500
10,W,0,4096,4096,1,500
200000,R,0,0,8192,0,300
5000000,W,0,0,4096,2,
5000100,F,0,0,0,0,
5000200,D,0,65536,4096,0,
";
const SPC: &str = "0,8,4096,W,0.5\n1,16,512,r,0.6\n";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn folder_with(files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    for (name, text) in files {
        std::fs::write(folder.path(name), text).unwrap();
    }
    folder
}

#[test]
fn a_summary_tells_what_is_in_the_trace() {
    let folder = folder_with(&[("t.csv", CSV), ("t.spc", SPC)]);
    let facts = json(&folder.dcd("trace summary t.csv --json").ok());
    assert_eq!((&facts["format"], &facts["requests"]), (&Value::from("csv"), &Value::from(6)));
    assert_eq!((&facts["writes"]["count"], &facts["reads"]["bytes"]), (&3.into(), &8192.into()));
    assert_eq!((&facts["flushes"], &facts["discards"]["count"]), (&1.into(), &1.into()));
    assert_eq!((&facts["sync_writes"], &facts["fua_writes"]), (&2.into(), &1.into()));
    assert_eq!((&facts["bursts"]["count"], &facts["end_bytes"]), (&3.into(), &8192.into()));
    assert_eq!(facts["working_set"]["bytes"], 8192);
    let overwritten = facts["working_set"]["overwritten_30_s_percent"].as_f64().unwrap();
    assert!((overwritten - 100.0 / 3.0).abs() < 1e-9, "{facts}");
    assert_eq!(facts["write_latency_ms"]["max"], 0.5);
    let longer = json(&folder.dcd("trace summary t.csv --burst-gap 1s --json").ok());
    assert_eq!(longer["bursts"]["count"], 2);
    let words = folder.dcd("trace summary t.csv").ok();
    for wanted in
        ["requests                6", "33.3 % within 30 s", "latency of reads", "size up to"]
    {
        assert!(words.contains(wanted), "{wanted}: {words}");
    }
    let facts = json(&folder.dcd("trace summary t.spc --device 1 --json").ok());
    assert_eq!((&facts["format"], &facts["requests"]), (&"spc".into(), &1.into()));
}

/// Runs `dcd` with this on its standard input.
fn piped(folder: &Folder, line: &str, input: &[u8]) -> common::Outcome {
    use std::io::Write;
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(line.split(' '))
        .current_dir(folder.path(""))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Whoever refuses it does not read it.
    let _ = child.stdin.take().unwrap().write_all(input);
    common::Outcome::of(line, child.wait_with_output().unwrap())
}

#[test]
fn a_dash_is_standard_input_or_output() {
    let folder = folder_with(&[("t.csv", CSV), ("t.spc", SPC)]);
    assert_eq!(piped(&folder, "trace convert - -", CSV.as_bytes()).ok(), CSV);
    assert_eq!(folder.dcd("trace convert t.csv -").ok(), CSV);
    let facts = json(&piped(&folder, "trace summary - --json", SPC.as_bytes()).ok());
    assert_eq!((&facts["format"], &facts["trace"]), (&"spc".into(), &"-".into()));
    let made = folder.dcd("trace generate uniform,requests=3 -").ok();
    assert_eq!(made.lines().count(), 4, "{made}");
    let page = piped(&folder, "trace plot - --out -", SPC.as_bytes()).ok();
    assert!(page.starts_with("<!-- dcd trace plot -->") && page.trim_end().ends_with("</html>"));
    piped(&folder, "trace summary -", b"x\n").fails(
        1,
        "-:1:1: the format of the trace",
        "--format",
    );
    piped(&folder, "sweep --trace - --disk hp-97560 --out o.csv", b"").fails(
        1,
        "-: expected a file",
        "convert -",
    );
    assert!(!folder.path("-").exists());
}

/// As `--device` takes them, so that they can be chosen.
#[test]
fn disks_are_listed_by_their_numbers() {
    let blkparse = "8,16 1 1 0.1 7 Q R 16 + 8 [x]\n8,0 1 2 1.1 7 Q W 16 + 8 [x]\n";
    let snoop = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n1.0 a 1 vda W 8 4096 0.5\n\
                 2.0 a 1 vdb R 8 512 0.5\n";
    let folder = folder_with(&[("t.spc", SPC), ("t.blk", blkparse), ("t.snoop", snoop)]);
    let listed = |file: &str| {
        json(&folder.dcd(&format!("trace summary {file} --json")).ok())["by_device"].clone()
    };
    let disks = listed("t.blk");
    assert_eq!((&disks[0]["device"], &disks[0]["name"]), (&(8 << 20).into(), &"8,0".into()));
    assert_eq!(
        (&disks[0]["writes"]["bytes"], &disks[1]["reads"]["count"]),
        (&4096.into(), &1.into())
    );
    for disk in disks.as_array().unwrap() {
        let line = format!("trace summary t.blk --json --device {}", disk["device"]);
        assert_eq!(json(&folder.dcd(&line).ok())["requests"], 1);
    }
    assert_eq!(listed("t.snoop")[1]["name"], "vdb");
    assert_eq!(listed("t.spc")[1]["name"], Value::Null);
    let words = folder.dcd("trace summary t.blk").ok();
    assert!(words.contains("8388624  8,16"), "{words}");
    assert!(words.contains("clock                   1 s: all times"), "{words}");
}

/// A tar of a compressed trace, as programs make it, and what is refused of one.
#[test]
fn a_trace_is_read_out_of_what_it_is_packed_in() {
    let folder = folder_with(&[("t.spc", SPC), ("more.spc", SPC)]);
    let has = |tool: &str| {
        let found = std::process::Command::new(tool).arg("--version").output();
        found.is_ok_and(|output| output.status.success())
    };
    if !has("tar") || !has("xz") {
        println!("SKIPPED: tar or xz is missing");
        return;
    }
    let shell = |line: &str| {
        let mut run = std::process::Command::new("sh");
        assert!(run.arg("-c").arg(line).current_dir(folder.path("")).status().unwrap().success());
    };
    shell(
        "xz -k t.spc && tar -cf t.tar t.spc.xz && tar -cJf t.txz t.tar && tar -cf two.tar t.spc more.spc",
    );
    for file in ["t.spc.xz", "t.tar", "t.txz"] {
        let facts = json(&folder.dcd(&format!("trace summary {file} --json")).ok());
        assert_eq!((&facts["format"], &facts["requests"]), (&"spc".into(), &2.into()), "{file}");
    }
    let wanted =
        "two.tar: cannot read the trace: expected one file in the tar archive, found `t.spc`";
    folder.dcd("trace summary two.tar").fails(1, wanted, "to its end");
}

#[test]
fn a_trace_is_drawn_on_one_page_that_needs_nothing_else() {
    let folder = folder_with(&[("a&b.csv", CSV)]);
    let told = folder.dcd("trace plot a&b.csv --out p.html").ok();
    assert_eq!(told, "6 requests in p.html\n");
    let page = std::fs::read_to_string(folder.path("p.html")).unwrap();
    for wanted in [
        "<h1>a&amp;b.csv</h1>",
        "<th>overwritten sectors</th><td>33.3 % within 30 s",
        ">Reads: where and when<",
        ">Writes: where and when<",
        ">Requests per second, means of",
        ">Throughput, means of",
        ">Working set: ",
        ">Sizes of requests<",
        ">Time from request to request<",
        ">Bursts: requests in each<",
        ">Written sectors: time to the next write",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    for outside in ["src=", "href=", "url(", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // One that is there is replaced; as SVG it has the same drawings.
    folder.dcd("trace plot a&b.csv --device 0 --out p.svg").ok();
    folder.dcd("trace plot a&b.csv --out p.svg").ok();
    let svg = std::fs::read_to_string(folder.path("p.svg")).unwrap();
    assert_eq!(svg.matches("<svg").count(), page.matches("<svg").count() + 1);
    std::fs::write(folder.path("mine.html"), "my notes").unwrap();
    folder.dcd("trace plot a&b.csv --out mine.html").fails(
        1,
        "not written by dcd trace plot",
        "--out",
    );
    assert_eq!(std::fs::read_to_string(folder.path("mine.html")).unwrap(), "my notes");
    // Before the trace is read.
    folder.dcd("trace plot none.csv --out none/p.html").fails(
        1,
        "cannot write none/p.html",
        "exist",
    );
    folder.dcd("trace plot a&b.csv --out p.png").fails(2, "ends in .html or .svg", "");
    folder.dcd("trace plot a&b.csv --device 9 --out n.svg").fails(1, "has no requests", "");
    assert!(!folder.path("n.svg").exists());
}

#[test]
fn a_converted_trace_is_the_same_and_overwrites_nothing() {
    let folder =
        folder_with(&[("t.csv", CSV), ("t.spc", SPC), ("bad.csv", "t_us,op,off,len\nx\n")]);
    folder.dcd("trace convert t.csv again.csv").ok();
    assert_eq!(std::fs::read_to_string(folder.path("again.csv")).unwrap(), CSV);
    folder.dcd("trace convert t.spc spc.csv").ok();
    let converted = std::fs::read_to_string(folder.path("spc.csv")).unwrap();
    assert!(converted.ends_with("0,W,0,4096,4096,0,\n100000,R,1,8192,512,0,\n"), "{converted}");
    folder.dcd("trace convert t.csv t.spc").fails(
        1,
        "cannot create t.spc",
        "nothing is overwritten",
    );
    folder.dcd("trace convert bad.csv out.csv").fails(1, "bad.csv:2:1: t_us: expected a time", "");
    assert!(!folder.path("out.csv").exists(), "half a trace is left");
    // One that nothing could read.
    std::fs::write(folder.path("header.csv"), "t_us,op,off,len\n").unwrap();
    for left in ["t.csv --device 77", "header.csv"] {
        let convert = folder.dcd(&format!("trace convert {left} out.csv"));
        convert.fails(1, "csv: the trace has no requests", "does --device leave any?");
        assert!(!folder.path("out.csv").exists(), "a trace of nothing is left");
    }
}

/// What is written is told to programs as an object; where it is on stdout, nothing is beside it.
#[test]
fn what_was_written_is_told_as_json() {
    let folder = folder_with(&[("t.csv", CSV), ("one.csv", "t_us,op,off,len\n1,W,0,512\n")]);
    for (line, wanted) in [
        ("trace convert t.csv c.csv", serde_json::json!({ "requests": 6, "trace": "c.csv" })),
        (
            "trace generate uniform,requests=7 g.csv",
            serde_json::json!({ "requests": 7, "trace": "g.csv" }),
        ),
        ("trace plot t.csv --out p.svg", serde_json::json!({ "requests": 6, "file": "p.svg" })),
    ] {
        assert_eq!(json(&folder.dcd(&format!("{line} --json")).ok()), wanted);
    }
    assert_eq!(folder.dcd("trace convert t.csv - --json").ok(), CSV);
    let one = folder.dcd("trace plot one.csv --out one.html").ok();
    assert_eq!(one, "1 request in one.html\n");
}

/// More disks than may be open at once, whose requests come in turn.
#[test]
fn a_trace_is_split_by_disks() {
    let mut whole = String::from("t_us,op,dev,off,len,fl,lat_us\n");
    for at in 0..1000 {
        whole += &format!("{at},W,{},{},4096,0,\n", 7 * (at % 300), 4096 * at);
    }
    let folder = folder_with(&[("t.csv", &whole), ("bad.csv", "t_us,op,off,len\n1,W,0,512\nx\n")]);
    let facts = json(&folder.dcd("trace split t.csv parts --json").ok());
    let disks = facts["disks"].as_array().unwrap();
    assert_eq!(
        (disks.len(), &disks[1]["device"], &disks[1]["requests"]),
        (300, &7.into(), &4.into())
    );
    let mut joined: Vec<String> = Vec::new();
    for disk in disks {
        let part = std::fs::read_to_string(folder.path(disk["file"].as_str().unwrap())).unwrap();
        let (first, rest) = part.split_once('\n').unwrap();
        assert!(whole.starts_with(first), "{first}");
        joined.extend(rest.lines().map(str::to_owned));
    }
    joined.sort_by_key(|row| row.split(',').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(joined, whole.lines().skip(1).collect::<Vec<_>>());
    folder.dcd("trace summary parts/disk-2093.csv").ok();
    let one = folder.dcd("trace split t.csv one --device 14").ok();
    assert!(one.contains("disk-14.csv") && one.contains("1 disk in one"), "{one}");
    folder.dcd("trace split t.csv parts").fails(1, "cannot create parts", "nothing is overwritten");
    folder.dcd("trace split t.csv -").fails(1, "-: expected a directory", "does not exist");
    folder.dcd("trace split bad.csv half").fails(1, "bad.csv:3:1: t_us: expected a time", "");
    assert!(!folder.path("half").exists(), "half a trace is left");
    assert!(folder.path("parts/disk-0.csv").exists(), "it is not ours to remove");
}

#[test]
fn a_trace_is_simulated_on_a_disk() {
    let folder = folder_with(&[("t.csv", CSV)]);
    let facts = json(&folder.dcd("simulate --trace t.csv --disk hp-2200a --json").ok());
    assert_eq!(
        (&facts["requests"], &facts["reads"], &facts["writes"]),
        (&6.into(), &1.into(), &3.into())
    );
    assert_eq!((&facts["disk_writes"], &facts["disk_write_bytes"]), (&3.into(), &12_288.into()));
    for direction in ["read", "write"] {
        let mean = |time: &str| facts[direction][time]["mean"].as_f64().unwrap();
        assert!(mean("service_ms") > 1.0, "{facts}");
        let sum = mean("service_ms") + mean("queue_ms");
        assert!((mean("response_ms") - sum).abs() < 1e-6, "{facts}");
    }
    // The second write waits for the first.
    assert!(facts["write"]["queue_ms"]["max"].as_f64().unwrap() > 0.0, "{facts}");
    let closed =
        json(&folder.dcd("simulate --trace t.csv --disk hp2200a --closed-loop --json").ok());
    assert_eq!(closed["write"]["queue_ms"]["max"], 0.0);
    let stretched =
        json(&folder.dcd("simulate --trace t.csv --disk hp-2200a --stretch 10 --json").ok());
    assert!(stretched["duration_s"].as_f64().unwrap() > 50.0);
    assert!(folder.dcd("simulate --trace t.csv --disk sata-ssd").ok().contains("reads, response"));
}

/// A full disk is no wrong word, nor a reader that has gone.
#[test]
fn an_output_that_takes_nothing_is_told_of() {
    let folder = folder_with(&[("t.csv", CSV)]);
    for line in [
        "trace summary t.csv",
        "trace summary t.csv --json",
        "trace convert t.csv -",
        "--version",
        "trace --help",
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dcd"));
        command.args(line.split(' ')).current_dir(folder.path("")).stdout(full);
        let outcome = common::Outcome::of(line, command.output().unwrap());
        match line.ends_with("--json") {
            true => assert!(outcome.stderr.contains("make room where the output goes")),
            false => outcome.fails(1, "cannot write the output: No space left", "make room where"),
        }
    }
}

#[test]
fn what_is_wrong_is_told_where() {
    let folder = folder_with(&[("t.csv", CSV), ("t.spc", SPC), ("odd", "hello\n"), ("empty", "")]);
    folder.dcd("trace summary odd").fails(
        1,
        "odd:1:1: the format of the trace is not known",
        "--format",
    );
    folder.dcd("trace summary empty").fails(1, "empty: the trace has no requests", "traces.md");
    folder.dcd("trace summary .").fails(1, ".: cannot read the trace", "a file in it");
    let zero = "t_us,op,off,len\n0,W,0,0\n";
    std::fs::write(folder.path("zero.csv"), zero).unwrap();
    let simulate = "simulate --trace zero.csv --disk hp-2200a";
    folder.dcd(simulate).fails(1, "zero.csv:2:5: size: a request for no bytes", "has a size");
    std::fs::write(folder.path("torn.csv"), "t_us,op,off,len\n0,W,0,512\n1,W,0").unwrap();
    folder.dcd("trace summary torn.csv").fails(1, "torn.csv:3:6: len: missing", "traces.md");
    std::fs::write(folder.path("torn.gz"), [0x1f, 0x8b, 8, 0]).unwrap();
    folder.dcd("trace summary torn.gz").fails(1, "torn.gz: cannot read the trace", "to its end");
    folder.dcd("trace summary empty --format csv").fails(1, "empty: the trace has no requests", "");
    folder.dcd("trace summary odd --format fio").fails(
        1,
        "odd:1:1: header: expected `fio",
        "traces.md",
    );
    folder.dcd("trace summary none").fails(1, "none: cannot read the trace", "name");
    folder.dcd("trace summary t.csv --format hp").fails(2, "no trace format is called `hp`", "");
    folder.dcd("trace summary t.csv --device x").fails(2, "MAJOR,MINOR", "");
    folder.dcd("simulate --trace t.spc --disk hp-2200a").fails(1, "t.spc:2:3: device:", "--device");
    let beyond = "t_us,op,off,len\n0,R,0,512\n1,R,999999999999,512\n";
    std::fs::write(folder.path("beyond.csv"), beyond).unwrap();
    folder.dcd("simulate --trace beyond.csv --disk hp-2200a").fails(
        1,
        "beyond.csv:3:5: address: 512 bytes at 999999999999",
        "larger disks",
    );
    let last = format!("t_us,op,off,len\n0,R,{},512\n", u64::MAX - 511);
    std::fs::write(folder.path("last.csv"), last).unwrap();
    folder.dcd("trace summary last.csv").fails(
        1,
        "512 bytes at 18446744073709551104 end at or",
        "",
    );
    folder.dcd("simulate --trace t.csv --disk hp-2200a --stretch 0").fails(2, "above 0", "");
    folder.dcd("simulate --trace t.csv --disk hp-2200a --stretch 2 --closed-loop").fails(
        2,
        "--stretch",
        "",
    );
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_parquet_it_is_said_how_to_get_it() {
    let folder = folder_with(&[("t.csv", CSV), ("p", "PAR1 and so on")]);
    for line in [
        "trace summary p",
        "trace convert t.csv t.parquet",
        "trace generate uniform,requests=3 t.parquet",
        "sweep --trace t.csv --disk hp-97560 --out t.parquet",
    ] {
        folder.dcd(line).fails(1, "built without Parquet", "--features parquet");
    }
    assert!(!folder.path("t.parquet").exists());
}

/// Names of files are bytes; JSON and pages are text.
#[test]
fn a_name_that_is_no_text_is_told_as_well_as_it_can_be() {
    use std::os::unix::ffi::OsStringExt;
    let folder = Folder::new();
    let name = std::ffi::OsString::from_vec(b"n\xff.csv".to_vec());
    std::fs::write(folder.path("").join(&name), CSV).unwrap();
    for (before, after) in [
        ("trace summary", "--json"),
        ("simulate --disk hp-2200a --trace", "--json"),
        ("trace plot", "--out p.html"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dcd"))
            .current_dir(folder.path(""))
            .args(before.split(' '))
            .arg(&name)
            .args(after.split(' '))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{before}: {stderr}");
        if after == "--json" {
            let facts = json(&String::from_utf8(output.stdout).unwrap());
            assert_eq!(facts["trace"], "n\u{fffd}.csv");
        }
    }
}

/// A conversion whose input is a pipe that says no more after the trace above, when it has begun.
fn stuck(folder: &Folder, verb: &str, out: &str) -> std::process::Child {
    use std::io::Write;
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(["trace", verb, "/dev/stdin", out, "--format", "csv"])
        .current_dir(folder.path(""))
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(CSV.as_bytes()).unwrap();
    let has_begun = || [out, &format!("{out}.part")].iter().any(|it| folder.path(it).exists());
    for _ in 0..2000 {
        if has_begun() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(has_begun(), "{verb} makes no {out}");
    child
}

/// Half a trace would look like a whole one; also when its input is a pipe that says nothing.
#[test]
fn a_conversion_that_is_cancelled_leaves_nothing() {
    let folder = Folder::new();
    for (verb, out) in [("convert", "out.csv"), ("split", "out")] {
        let mut child = stuck(&folder, verb, out);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        // The pipe is still open: it is the signal that ends it.
        let _pipe = child.stdin.take();
        let outcome = common::Outcome::of("trace", child.wait_with_output().unwrap());
        outcome.fails(7, &format!("{out}: cancelled before its end"), "again");
        assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0, "{verb} leaves {out}");
    }
    folder.dcd("trace generate uniform,requests=10 whole.csv").ok();
    assert!(folder.path("whole.csv").exists() && !folder.path("whole.csv.part").exists());
}

/// Nobody could take it away then, but it has not the name of a whole one.
#[test]
fn a_trace_whose_maker_is_killed_has_not_its_name() {
    let folder = folder_with(&[("t.csv", CSV)]);
    for (verb, out) in [("convert", "out.csv"), ("split", "out")] {
        let mut child = stuck(&folder, verb, out);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!folder.path(out).exists(), "{verb} leaves half of {out}");
        let part = format!("{out}.part");
        assert!(folder.path(&part).exists());
        // It may be the only copy of something, as anything else that is there.
        let again = folder.dcd(&format!("trace {verb} t.csv {out}"));
        again.fails(1, &format!("cannot create {part}: File exists"), "nothing is overwritten");
        assert!(folder.path(&part).exists() && !folder.path(out).exists());
    }
}
