//! A trace: a row for each request.
//!
//! | column | type | |
//! |---|---|---|
//! | `t_ns` | uint64 | time since the first request |
//! | `op` | string | `R`, `W`, `D`, `F` |
//! | `dev` | uint32 | number of the disk; may be missing |
//! | `off`, `len` | uint64 | bytes |
//! | `fl` | uint8 | flags; may be missing |
//! | `lat_ns` | uint64 | how long it took; missing or null where that is not known |

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, Type as PhysicalType};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use crate::Error;
use crate::file::SharedFile;
use crate::guard::guarded;

const SCHEMA: &str = "
    message trace {
        REQUIRED INT64 t_ns (INTEGER(64, false));
        REQUIRED BYTE_ARRAY op (STRING);
        REQUIRED INT32 dev (INTEGER(32, false));
        REQUIRED INT64 off (INTEGER(64, false));
        REQUIRED INT64 len (INTEGER(64, false));
        REQUIRED INT32 fl (INTEGER(8, false));
        OPTIONAL INT64 lat_ns (INTEGER(64, false));
    }";
/// Rows that are written, or read, together: some 7 MB.
const GROUP_ROWS: usize = 1 << 17;
const BATCH_ROWS: usize = 1 << 13;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Time since the first request.
    pub time_ns: u64,
    /// `R`, `W`, `D` or `F`.
    pub operation: u8,
    /// Number of the disk.
    pub device: u32,
    /// Where it begins.
    pub offset_bytes: u64,
    /// How much.
    pub size_bytes: u64,
    /// Flags.
    pub flags: u8,
    /// How long it took.
    pub latency_ns: Option<u64>,
}

/// Writes requests.
pub struct TraceWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<Row>,
}

impl<W: Write + Send> TraceWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// When the output has one.
    pub fn new(out: W) -> Result<TraceWriter<W>, Error> {
        let delta = |properties: parquet::file::properties::WriterPropertiesBuilder, name: &str| {
            let path = ColumnPath::from(name);
            properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
        };
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("dcd ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY);
        for name in ["t_ns", "off", "lat_ns"] {
            properties = delta(properties, name);
        }
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?;
        Ok(TraceWriter { writer, rows: Vec::with_capacity(GROUP_ROWS) })
    }

    /// Writes a request.
    ///
    /// # Errors
    /// When the output has one.
    pub fn write(&mut self, row: Row) -> Result<(), Error> {
        self.rows.push(row);
        if self.rows.len() == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    /// The output, complete.
    ///
    /// # Errors
    /// When it has one.
    pub fn finish(mut self) -> Result<W, Error> {
        if !self.rows.is_empty() {
            self.write_group()?;
        }
        Ok(self.writer.into_inner()?)
    }

    fn write_group(&mut self) -> Result<(), Error> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.writer.next_row_group()?;
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            let longs = |of: fn(&Row) -> u64| -> Vec<i64> {
                rows.iter().map(|row| of(row).cast_signed()).collect()
            };
            match index {
                0 => column.typed::<Int64Type>().write_batch(
                    &longs(|row| row.time_ns),
                    None,
                    None,
                )?,
                1 => {
                    let values: Vec<ByteArray> =
                        rows.iter().map(|row| ByteArray::from(vec![row.operation])).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, None, None)?
                }
                2 => {
                    let values: Vec<i32> =
                        rows.iter().map(|row| row.device.cast_signed()).collect();
                    column.typed::<Int32Type>().write_batch(&values, None, None)?
                }
                3 => {
                    let values = longs(|row| row.offset_bytes);
                    column.typed::<Int64Type>().write_batch(&values, None, None)?
                }
                4 => {
                    let values = longs(|row| row.size_bytes);
                    column.typed::<Int64Type>().write_batch(&values, None, None)?
                }
                5 => {
                    let values: Vec<i32> = rows.iter().map(|row| row.flags.into()).collect();
                    column.typed::<Int32Type>().write_batch(&values, None, None)?
                }
                _ => {
                    let known = rows.iter().filter_map(|row| row.latency_ns);
                    let values: Vec<i64> = known.map(u64::cast_signed).collect();
                    let levels: Vec<i16> =
                        rows.iter().map(|row| row.latency_ns.is_some().into()).collect();
                    column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?
                }
            };
            column.close()?;
            index += 1;
        }
        group.close()?;
        self.rows = rows;
        self.rows.clear();
        Ok(())
    }
}

/// The columns, in the order of [`SCHEMA`].
const NAMES: [&str; 7] = ["t_ns", "op", "dev", "off", "len", "fl", "lat_ns"];
const OPTIONAL: [&str; 3] = ["dev", "fl", "lat_ns"];

/// Reads requests.
pub struct TraceReader {
    reader: SerializedFileReader<SharedFile>,
    /// For each of [`NAMES`], its place in the file.
    places: [Option<usize>; NAMES.len()],
    next_group: usize,
    /// Columns of the group that is being read, and how many rows are left in it.
    columns: [Option<ColumnReader>; NAMES.len()],
    rows_left: u64,
    /// Rows that were read and not given out yet, last one first.
    rows: Vec<Row>,
    rows_given: u64,
}

impl TraceReader {
    /// Begins to read.
    ///
    /// # Errors
    /// When it is no Parquet file, or has other columns.
    pub fn new(file: File) -> Result<TraceReader, Error> {
        guarded(|| TraceReader::open(file))
    }

    fn open(file: File) -> Result<TraceReader, Error> {
        let reader = SerializedFileReader::new(SharedFile::new(file)?)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let mut places = [None; NAMES.len()];
        for index in 0..schema.num_columns() {
            let column = schema.column(index);
            let wrong = |problem: &str| {
                let column = shortened(&column.path().string());
                Error::Column { column, problem: problem.to_owned() }
            };
            let name = column.path().string();
            let Some(which) = NAMES.iter().position(|known| *known == name) else {
                return Err(wrong("expected only t_ns, op, dev, off, len, fl and lat_ns"));
            };
            let is_right = match (NAMES[which], column.physical_type()) {
                ("op", PhysicalType::BYTE_ARRAY) => true,
                ("op", _) => return Err(wrong("expected strings")),
                (_, PhysicalType::INT32 | PhysicalType::INT64) => true,
                _ => false,
            };
            if !is_right {
                return Err(wrong("expected whole numbers"));
            }
            if column.max_rep_level() > 0 || column.max_def_level() > 1 {
                return Err(wrong("expected one value in each row"));
            }
            places[which] = Some(index);
        }
        for (name, place) in NAMES.iter().zip(places) {
            if place.is_none() && !OPTIONAL.contains(name) {
                let problem = "expected such a column, found none".to_owned();
                return Err(Error::Column { column: (*name).to_owned(), problem });
            }
        }
        Ok(TraceReader {
            reader,
            places,
            next_group: 0,
            columns: Default::default(),
            rows_left: 0,
            rows: Vec::new(),
            rows_given: 0,
        })
    }

    /// How many rows have been given out.
    pub fn rows_given(&self) -> u64 {
        self.rows_given
    }

    /// The next request; none at the end.
    ///
    /// # Errors
    /// When the file is damaged, or has what cannot be.
    pub fn next_row(&mut self) -> Result<Option<Row>, Error> {
        if self.rows.is_empty() {
            let read = guarded(|| self.fill());
            if read.is_err() {
                // Nothing comes after an error.
                self.rows.clear();
                self.rows_left = 0;
                self.next_group = self.reader.metadata().num_row_groups();
            }
            read?;
        }
        let row = self.rows.pop();
        self.rows_given += u64::from(row.is_some());
        Ok(row)
    }

    /// Reads on, up to the end or to a row.
    fn fill(&mut self) -> Result<(), Error> {
        while self.rows.is_empty() {
            if self.rows_left == 0 && !self.begin_group()? {
                return Ok(());
            }
            if self.rows_left > 0 {
                self.read_batch()?;
            }
        }
        Ok(())
    }

    /// False at the end.
    fn begin_group(&mut self) -> Result<bool, Error> {
        if self.next_group == self.reader.metadata().num_row_groups() {
            return Ok(false);
        }
        let group = self.reader.get_row_group(self.next_group)?;
        self.next_group += 1;
        self.rows_left = u64::try_from(group.metadata().num_rows())
            .map_err(|_| Error::File("expected a number of rows, found a negative one".into()))?;
        for (column, place) in self.columns.iter_mut().zip(self.places) {
            *column = place.map(|place| group.get_column_reader(place)).transpose()?;
        }
        Ok(true)
    }

    fn read_batch(&mut self) -> Result<(), Error> {
        let count = self.rows_left.min(BATCH_ROWS as u64) as usize;
        let first_row = self.rows_given + 1;
        let [times, operations, devices, offsets, sizes, flags, latencies] = &mut self.columns;
        let number = |column: &mut Option<ColumnReader>, name, may_be_null| {
            Numbers::read(column.as_mut(), count, first_row, name, may_be_null)
        };
        let (times, offsets) = (number(times, "t_ns", false)?, number(offsets, "off", false)?);
        let sizes = number(sizes, "len", false)?;
        let devices = number(devices, "dev", true)?;
        let (flags, latencies) = (number(flags, "fl", true)?, number(latencies, "lat_ns", true)?);
        let operations = read_operations(operations.as_mut(), count, first_row)?;
        let small = |value: u64, index: usize, column, most: u64| match value <= most {
            true => Ok(value),
            false => {
                let problem = format!("expected at most {most}, found {value}");
                Err(Error::Value { row: first_row + index as u64, column, problem })
            }
        };
        for (index, operation) in operations.into_iter().enumerate() {
            self.rows.push(Row {
                time_ns: times.at(index),
                operation,
                device: small(devices.at(index), index, "dev", u32::MAX.into())? as u32,
                offset_bytes: offsets.at(index),
                size_bytes: sizes.at(index),
                flags: small(flags.at(index), index, "fl", u8::MAX.into())? as u8,
                latency_ns: latencies.0[index],
            });
        }
        self.rows.reverse();
        self.rows_left -= count as u64;
        Ok(())
    }
}

/// Numbers of a column; none where there is null, or no such column.
struct Numbers(Vec<Option<u64>>);

impl Numbers {
    fn read(
        column: Option<&mut ColumnReader>,
        count: usize,
        first_row: u64,
        name: &'static str,
        may_be_null: bool,
    ) -> Result<Numbers, Error> {
        let Some(column) = column else { return Ok(Numbers(vec![None; count])) };
        let mut levels = Vec::new();
        let mut values = Vec::new();
        match column {
            ColumnReader::Int64ColumnReader(reader) => {
                let mut read = Vec::new();
                read_whole(count, |left| {
                    reader.read_records(left, Some(&mut levels), None, &mut read)
                })?;
                values.extend(read.into_iter().map(i64::cast_unsigned));
            }
            ColumnReader::Int32ColumnReader(reader) => {
                let mut read = Vec::new();
                read_whole(count, |left| {
                    reader.read_records(left, Some(&mut levels), None, &mut read)
                })?;
                values.extend(read.into_iter().map(|value| u64::from(value.cast_unsigned())));
            }
            _ => return Err(Error::File(format!("column {name}: expected numbers"))),
        }
        let values = with_nulls(values, &levels, count)
            .ok_or_else(|| Error::File(format!("column {name}: values and nulls do not fit")))?;
        if !may_be_null && let Some(index) = values.iter().position(Option::is_none) {
            let problem = "expected a number, found null".to_owned();
            return Err(Error::Value { row: first_row + index as u64, column: name, problem });
        }
        Ok(Numbers(values))
    }

    /// A number; 0 where there is none.
    fn at(&self, index: usize) -> u64 {
        self.0[index].unwrap_or(0)
    }
}

fn read_operations(
    column: Option<&mut ColumnReader>,
    count: usize,
    first_row: u64,
) -> Result<Vec<u8>, Error> {
    let Some(ColumnReader::ByteArrayColumnReader(reader)) = column else {
        return Err(Error::File("column op: expected strings".into()));
    };
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    read_whole(count, |left| reader.read_records(left, Some(&mut levels), None, &mut values))?;
    let values = with_nulls(values, &levels, count)
        .ok_or_else(|| Error::File("column op: values and nulls do not fit".into()))?;
    let operation = |(index, value): (usize, &Option<ByteArray>)| {
        let text = value.as_ref().map_or(&b"null"[..], ByteArray::data);
        match text {
            [operation @ (b'R' | b'W' | b'D' | b'F')] => Ok(*operation),
            _ => {
                let found = shortened(&String::from_utf8_lossy(text));
                let problem = format!("expected R, W, D or F, found `{found}`");
                Err(Error::Value { row: first_row + index as u64, column: "op", problem })
            }
        }
    };
    values.iter().enumerate().map(operation).collect()
}

/// Reads so many records, page by page.
fn read_whole(
    count: usize,
    mut read: impl FnMut(usize) -> Result<(usize, usize, usize), ParquetError>,
) -> Result<(), Error> {
    let mut left = count;
    while left > 0 {
        let (records, ..) = read(left)?;
        if records == 0 || records > left {
            return Err(Error::File("a column ends before the others".into()));
        }
        left -= records;
    }
    Ok(())
}

/// Values by row: without levels no row is null.
fn with_nulls<T>(values: Vec<T>, levels: &[i16], count: usize) -> Option<Vec<Option<T>>> {
    if levels.is_empty() {
        return (values.len() == count).then(|| values.into_iter().map(Some).collect());
    }
    let present = levels.iter().filter(|level| **level > 0).count();
    if levels.len() != count || present != values.len() {
        return None;
    }
    let mut values = values.into_iter();
    Some(levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect())
}

/// What a file says, fit to be shown on one line.
fn shortened(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}
