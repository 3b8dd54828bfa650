//! A table of results: columns of numbers or texts, any of them null, in one row group.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::Error;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnKind {
    /// 64-bit floating point.
    Number,
    /// Strings.
    Text,
}

/// A column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: ColumnKind,
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// None.
    Null,
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

/// Writes a table. A cell that is not of its column's kind is null, as is one that is missing.
///
/// # Errors
/// When the output has one.
pub fn write_table<W: Write + Send>(
    out: W,
    columns: &[Column],
    rows: &[Vec<Cell>],
) -> Result<W, Error> {
    let fields = columns.iter().map(|column| {
        let (physical, logical, converted) = match column.kind {
            ColumnKind::Number => (PhysicalType::DOUBLE, None, ConvertedType::NONE),
            ColumnKind::Text => {
                (PhysicalType::BYTE_ARRAY, Some(LogicalType::String), ConvertedType::UTF8)
            }
        };
        let builder = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .with_converted_type(converted);
        builder.build().map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("results").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_created_by(concat!("dcd ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (index, column) in columns.iter().enumerate() {
        let Some(mut out) = group.next_column()? else { break };
        let cells = || rows.iter().map(|row| row.get(index).unwrap_or(&Cell::Null));
        match column.kind {
            ColumnKind::Number => {
                let number = |cell: &Cell| match cell {
                    Cell::Number(number) => Some(*number),
                    _ => None,
                };
                let values: Vec<f64> = cells().filter_map(number).collect();
                let levels: Vec<i16> = cells().map(|cell| number(cell).is_some().into()).collect();
                out.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
            }
            ColumnKind::Text => {
                let text = |cell: &Cell| match cell {
                    Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                    _ => None,
                };
                let values: Vec<ByteArray> = cells().filter_map(text).collect();
                let levels: Vec<i16> = cells().map(|cell| text(cell).is_some().into()).collect();
                out.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
            }
        }
        out.close()?;
    }
    group.close()?;
    Ok(writer.into_inner()?)
}
