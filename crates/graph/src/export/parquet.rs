//! Tables as Parquet, compressed by zstd.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::ByteArray;
use ::parquet::errors::{ParquetError, Result as Written};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{Type, TypePtr};
use graphweft_base::{Error, Result};

use super::columns::{Column, Table, Values};

/// Rows of a row group.
const ROWS: usize = 1 << 18;

/// Writes a table.
pub(super) fn write(table: &Table<'_>, path: &Path) -> Result<()> {
    let file = File::create(path).map_err(Error::write("create", path))?;
    let other = |e: ParquetError| Error::write("write", path)(std::io::Error::other(e.to_string()));
    rows(table, &file).map_err(other)?;
    file.sync_all().map_err(Error::write("write", path))
}

fn rows(table: &Table<'_>, file: &File) -> Written<()> {
    let fields = table.columns.iter().map(schema).collect::<Written<Vec<TypePtr>>>()?;
    let root = Type::group_type_builder("table").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(root), Arc::new(properties))?;
    for start in (0..table.rows).step_by(ROWS) {
        let rows = start..table.rows.min(start + ROWS);
        let mut group = writer.next_row_group()?;
        for column in &table.columns {
            let Some(mut out) = group.next_column()? else { break };
            values(column, rows.clone(), out.untyped())?;
            out.close()?;
        }
        group.close()?;
    }
    writer.close().map(|_| ())
}

fn schema(column: &Column<'_>) -> Written<TypePtr> {
    let field = |physical, repetition| Type::primitive_type_builder(&column.name, physical).with_repetition(repetition);
    Ok(Arc::new(match &column.values {
        Values::Text(_) => {
            field(Physical::BYTE_ARRAY, Repetition::REQUIRED).with_logical_type(Some(LogicalType::String)).build()?
        }
        Values::Integers(_) => field(Physical::INT64, Repetition::REQUIRED).build()?,
        Values::Numbers(_) => field(Physical::FLOAT, Repetition::OPTIONAL).build()?,
        Values::Lists(..) => {
            let element =
                Type::primitive_type_builder("element", Physical::FLOAT).with_repetition(Repetition::REQUIRED);
            let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
            let list = list.with_fields(vec![Arc::new(element.build()?)]).build()?;
            let all = Type::group_type_builder(&column.name).with_repetition(Repetition::REQUIRED);
            all.with_logical_type(Some(LogicalType::List)).with_fields(vec![Arc::new(list)]).build()?
        }
    }))
}

fn values(column: &Column<'_>, rows: std::ops::Range<usize>, out: &mut ColumnWriter<'_>) -> Written<()> {
    match (&column.values, out) {
        (Values::Text(of), ColumnWriter::ByteArrayColumnWriter(out)) => {
            let all: Vec<ByteArray> = rows.map(|row| of(row).as_bytes().to_vec().into()).collect();
            out.write_batch(&all, None, None)?;
        }
        (Values::Integers(of), ColumnWriter::Int64ColumnWriter(out)) => {
            out.write_batch(&rows.map(of).collect::<Vec<i64>>(), None, None)?;
        }
        (Values::Numbers(of), ColumnWriter::FloatColumnWriter(out)) => {
            let all: Vec<Option<f32>> = rows.map(of).collect();
            let levels: Vec<i16> = all.iter().map(|x| x.is_some().into()).collect();
            out.write_batch(&all.into_iter().flatten().collect::<Vec<_>>(), Some(&levels), None)?;
        }
        (Values::Lists(width, fill), ColumnWriter::FloatColumnWriter(out)) => {
            // Some rows at a time: lists are long.
            const VALUES: usize = 1 << 20;
            let step = (VALUES / (*width).max(1)).max(1);
            for start in rows.clone().step_by(step) {
                let (mut all, count) = (Vec::new(), step.min(rows.end - start));
                (start..start + count).for_each(|row| fill(row, &mut all));
                let repetitions: Vec<i16> = (0..all.len()).map(|at| i16::from(at % width != 0)).collect();
                out.write_batch(&all, Some(&vec![1; all.len()]), Some(&repetitions))?;
            }
        }
        _ => return Err(ParquetError::General(format!("column {} is of another type", column.name))),
    }
    Ok(())
}
