//! Tables 7.1 to 7.3 of the thesis, ours beside the printed ones.

use super::thesis::Characteristics;
use super::{Compared, Disk, Experiments, Printed, Scope, THESIS, experiments};
use crate::sweep::Load;
use crate::trace::{Operation, Request, TraceReader};

/// Tables 7.1 to 7.3, or those that there are of a disk.
///
/// # Errors
/// If the load cannot be read; the text says why.
pub fn tables(disk: &Disk, runs: &Experiments) -> Result<Vec<Compared>, String> {
    let mut rows = table_7_1(disk, runs)?;
    if let (Some(printed), Scope::All) = (disk.table_7_2, disk.scope) {
        rows.extend(table_7_2(disk, runs, printed));
    }
    if let Some(printed) = disk.table_7_3 {
        rows.extend(table_7_3(disk, runs, printed));
    }
    Ok(rows)
}

fn row(disk: &Disk, place: &'static str, what: String, printed: f64, ours: f64) -> Compared {
    Compared {
        paper: THESIS,
        place,
        disk: disk.name.into(),
        what,
        printed: Printed::Number(printed),
        ours,
        unit: "",
        percent_of_writes: None,
    }
}

/// A count that grows with the load.
fn counted(
    disk: &Disk,
    runs: &Experiments,
    place: &'static str,
    what: String,
    [printed, ours]: [u64; 2],
) -> Compared {
    let writes = [disk.table_7_1.writes, runs.get(&Experiments::bare()).writes];
    let percent = |count: u64, of: u64| 100.0 * count as f64 / of.max(1) as f64;
    let shares = [percent(printed, writes[0]), percent(ours, writes[1])];
    let row = row(disk, place, what, printed as f64, ours as f64);
    Compared { percent_of_writes: Some(shares), ..row }
}

/// What the load is like, and how the bare disk serves it.
fn table_7_1(disk: &Disk, runs: &Experiments) -> Result<Vec<Compared>, String> {
    let bare = runs.get(&Experiments::bare());
    let ours = Characteristics {
        service_ms: bare.service_ms,
        write_service_ms: bare.write_service_ms,
        ..characteristics(&disk.load)?
    };
    let values = |of: &Characteristics| {
        [
            ("reads", of.reads as f64, ""),
            ("mean size of a read", of.read_kb, "KB"),
            ("mean service time, all", of.service_ms, "ms"),
            ("writes", of.writes as f64, ""),
            ("mean size of a write", of.write_kb, "KB"),
            ("mean service time, writes", of.write_service_ms, "ms"),
        ]
    };
    let pairs = values(&disk.table_7_1).into_iter().zip(values(&ours));
    Ok(pairs
        .map(|((what, printed, unit), (_, ours, _))| Compared {
            unit,
            ..row(disk, "Table 7.1", what.into(), printed, ours)
        })
        .collect())
}

/// Its requests, without times.
fn characteristics(load: &Load) -> Result<Characteristics, String> {
    let mut found = Characteristics::default();
    let mut bytes = [0u64; 2];
    let mut add = |request: &Request| match request.operation {
        Operation::Read => {
            found.reads += 1;
            bytes[0] += request.size_bytes;
        }
        Operation::Write => {
            found.writes += 1;
            bytes[1] += request.size_bytes;
        }
        Operation::Discard | Operation::Flush => {}
    };
    match load {
        Load::Workload(workload) => {
            let requests = workload.workload().map_err(|error| error.to_string())?;
            requests.for_each(|request| add(&request));
        }
        Load::Memory(requests) => requests.iter().for_each(&mut add),
        Load::Trace(trace) => {
            let reader = TraceReader::open(&trace.path, trace.format);
            for request in reader.map_err(|error| error.to_string())? {
                let request = request.map_err(|error| error.to_string())?;
                if trace.device.is_none_or(|device| device == request.device) {
                    add(&request);
                }
            }
        }
    }
    let mean_kb = |bytes: u64, count: u64| bytes as f64 / 1024.0 / count.max(1) as f64;
    found.read_kb = mean_kb(bytes[0], found.reads);
    found.write_kb = mean_kb(bytes[1], found.writes);
    Ok(found)
}

fn table_7_2(disk: &Disk, runs: &Experiments, printed: [[u64; 3]; 3]) -> Vec<Compared> {
    let mut rows = Vec::new();
    for (policy, printed) in ["lru", "lst", "stf"].iter().zip(printed) {
        let keys = [
            ("write behind", Experiments::write_behind(policy, 256)),
            ("single threshold", Experiments::single(policy, experiments::SINGLE)),
            ("dual threshold", Experiments::dual(policy, 256, disk.low)),
        ];
        for ((name, key), printed) in keys.into_iter().zip(printed) {
            let what = format!("disk writes, {}, {name}", policy.to_uppercase());
            let values = [printed, runs.get(&key).disk_writes];
            rows.push(counted(disk, runs, "Table 7.2", what, values));
        }
    }
    rows
}

fn table_7_3(disk: &Disk, runs: &Experiments, printed: [[u64; 3]; 3]) -> Vec<Compared> {
    let mut rows = Vec::new();
    let policies = [("lru", "LRU"), ("lst", "LST"), ("stack", "stack model")];
    for ((policy, policy_name), printed) in policies.into_iter().zip(printed) {
        let run = runs.get(&Experiments::dual(policy, 128, disk.low));
        let ours = [run.disk_writes, run.stalled_writes, run.overwrites];
        let names = ["disk writes", "stalled writes", "overwrites"];
        for ((name, printed), ours) in names.into_iter().zip(printed).zip(ours) {
            let what = format!("{name}, {policy_name}");
            rows.push(counted(disk, runs, "Table 7.3", what, [printed, ours]));
        }
    }
    rows
}
