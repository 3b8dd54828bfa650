//! Proves that what is written is read again, also over several row groups, and that damage
//! anywhere is an error or unnoticed, never a panic.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use dcd_parquet::{Cell, Column, ColumnKind, Error, Row, TraceReader, TraceWriter, write_table};

/// A file that goes with this.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> TestFile {
        let path = std::env::temp_dir().join(format!("dcd-parquet-{}-{name}", std::process::id()));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        TestFile(path)
    }

    fn open(&self) -> File {
        File::open(&self.0).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn row(number: u64) -> Row {
    Row {
        time_ns: number * 1_000_003,
        operation: b"RWDF"[number as usize % 4],
        device: if number.is_multiple_of(7) { u32::MAX } else { 3 },
        offset_bytes: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        size_bytes: number % 5 * 4096,
        flags: (number % 32) as u8,
        latency_ns: (!number.is_multiple_of(3)).then_some(u64::MAX - number),
    }
}

fn written(count: u64) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new()).unwrap();
    (0..count).for_each(|number| writer.write(row(number)).unwrap());
    writer.finish().unwrap()
}

fn read(file: &TestFile) -> Result<Vec<Row>, Error> {
    let mut reader = TraceReader::new(file.open())?;
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row()? {
        rows.push(row);
    }
    assert_eq!(reader.rows_given(), rows.len() as u64);
    Ok(rows)
}

#[test]
fn what_is_written_is_read_again() {
    // None, a few, and more than two row groups.
    for count in [0, 1, 1000, 300_000] {
        let file = TestFile::new(&format!("rows-{count}"), &written(count));
        assert!(read(&file).unwrap().into_iter().eq((0..count).map(row)), "{count}");
    }
}

#[test]
fn a_file_that_ends_early_is_an_error() {
    let bytes = written(100);
    for size in (0..bytes.len()).step_by(7) {
        let file = TestFile::new("truncated", &bytes[..size]);
        let error = read(&file).unwrap_err().to_string();
        assert!(!error.is_empty() && !error.contains('\n'), "{size}: {error}");
    }
}

/// Every byte, changed in three ways. What only changes values may be unnoticed: Parquet has no
/// checksums unless they are asked for.
#[test]
fn damage_anywhere_is_no_panic() {
    let bytes = written(200);
    let mut refused = 0;
    for at in 0..bytes.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            let file = TestFile::new("damaged", &damaged);
            match read(&file) {
                Ok(rows) => assert!(rows.len() <= 200_000, "{at}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!error.contains(char::is_control) && error.len() < 1000, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > bytes.len() / 2, "{refused} of {}", bytes.len());
}

#[test]
fn other_columns_are_refused_by_name() {
    let column = |name: &str, kind| Column { name: name.to_owned(), kind };
    let shown = |columns: &[Column]| {
        let bytes = write_table(Vec::new(), columns, &[]).unwrap();
        read(&TestFile::new("columns", &bytes)).unwrap_err().to_string()
    };
    let wrong = shown(&[column("t_us\n", ColumnKind::Number)]);
    assert!(wrong.starts_with("t_us\\n: expected only t_ns"), "{wrong}");
    assert_eq!(shown(&[column("t_ns", ColumnKind::Number)]), "t_ns: expected whole numbers");
    assert_eq!(
        shown(&[column("op", ColumnKind::Text)]),
        "t_ns: expected such a column, found none"
    );
    assert_eq!(shown(&[column("op", ColumnKind::Number)]), "op: expected strings");
}

#[test]
fn tables_are_written_with_their_nulls() {
    let columns = [
        Column { name: "disk".into(), kind: ColumnKind::Text },
        Column { name: "reads".into(), kind: ColumnKind::Number },
    ];
    let rows = [
        vec![Cell::Text("a, \"b\"".into()), Cell::Number(1.5)],
        vec![Cell::Null, Cell::Number(2.0)],
        vec![Cell::Text("c".into())],
    ];
    let bytes = write_table(Vec::new(), &columns, &rows).unwrap();
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let file = TestFile::new("table", &bytes);
    let reader = SerializedFileReader::new(file.open()).unwrap();
    let shown: Vec<String> =
        reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
    assert_eq!(
        shown,
        [
            r#"{disk: "a, "b"", reads: 1.5}"#,
            "{disk: null, reads: 2.0}",
            r#"{disk: "c", reads: null}"#
        ]
    );
}
