//! Parquet tables, read with the column readers of the crate `parquet`, without Arrow.
//!
//! A row group is read [`ROWS`] rows at a time: the columns that are needed are decoded in parallel, then the rows are
//! taken from them in parallel pieces. So memory does not depend on how large the row groups are. Compressed by snappy,
//! zstd, gzip, or not at all.

use ::parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::ColumnDescriptor;
use graphweft_base::{Error, Position, Problem, Result};
use half::f16;
use rayon::prelude::*;

use super::batch::{Batch, Field, Plan, Use};
use super::blocks::{Blocks, Checked};
use super::csv::SAMPLE;
use super::source::{Column, Holds};
use crate::read::text::Wrong;
use crate::read::{Context, Input};

/// Rows decoded at a time.
const ROWS: usize = 1 << 16;
/// Rows of a piece, which is parsed on its own.
const PIECE: usize = 1 << 13;
/// Longer lists are no features.
const LONGEST_LIST: i64 = 1 << 16;

/// A file that is open.
pub(super) struct ParquetTable {
    reader: SerializedFileReader<Blocks>,
    kinds: Vec<Kind>,
}

/// What is stored in a column, and how it is to be taken.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Unsigned,
    Half,
    Refused(&'static str),
}

impl ParquetTable {
    pub(super) fn open(input: &Input) -> Result<Self> {
        let reader = SerializedFileReader::new(Blocks::open(input)?).map_err(|e| corrupt(input, "file", &e))?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let kinds = (0..schema.num_columns()).map(|i| kind(&schema.column(i), schema.get_column_root(i))).collect();
        let columns = schema.num_columns();
        let table = Self { reader, kinds };
        let groups = table.reader.metadata().row_groups();
        if let Some(group) = groups.iter().position(|g| g.num_columns() != columns || g.num_rows() < 0) {
            let problem = format!("row group {group} does not have the columns of the file");
            return Err(input.bad("row groups", problem, "the file is corrupt; write it again"));
        }
        Ok(table)
    }

    /// The columns, with what the first rows hold.
    pub(super) fn columns(&self, input: &Input) -> Result<Vec<Column>> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let all: Vec<usize> = (0..self.kinds.len()).collect();
        let read = |&c: &usize| !matches!(self.kinds[c], Kind::Refused(_));
        let readable: Vec<usize> = all.iter().copied().filter(read).collect();
        let mut firsts: Vec<Option<Data>> = all.iter().map(|_| None).collect();
        if self.reader.num_row_groups() > 0 {
            let mut group = Group::open(self, 0, &readable, input)?;
            for (c, data) in readable.iter().zip(group.next(SAMPLE.min(ROWS), input)?) {
                firsts[*c] = Some(data);
            }
        }
        let columns = all.iter().zip(firsts).map(|(&c, data)| {
            let (holds, example) = match (self.kinds[c], &data) {
                (Kind::Refused(what), _) => (Holds::Other(what), String::new()),
                (_, None) => (Holds::Nothing, String::new()),
                (_, Some(data)) => (data.holds(), data.example()),
            };
            Column { name: name_of(&schema.column(c), schema.get_column_root(c)), holds, example }
        });
        Ok(columns.collect())
    }

    /// Reads all rows as `plan` says; `consume` takes them in order.
    pub(super) fn scan(
        &self,
        input: &Input,
        plan: &Plan<'_>,
        cx: &Context<'_>,
        mut consume: impl FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        let used: Vec<usize> = (0..plan.uses.len()).filter(|&c| !matches!(plan.uses[c], Use::Skip)).collect();
        if used.is_empty() {
            let remedy = "name a column that is to be read";
            return Err(input.bad("columns", "all columns are left out", remedy));
        }
        for &c in &used {
            if let Kind::Refused(what) = self.kinds[c] {
                let (problem, remedy) = (format!("it holds {what}, which is not read"), plan.leave_out);
                return Err(input.bad(
                    format!("column {:?}", plan.names[c]),
                    problem,
                    format!("leave it out: {remedy}"),
                ));
            }
        }
        let name = input.path().file_name().unwrap_or(input.path().as_os_str()).to_string_lossy();
        let total = self.reader.metadata().row_groups().iter().map(|g| g.num_rows() as u64).sum();
        let phase = cx.progress.start(&format!("read {name}"), total, graphweft_base::progress::Unit::Items);
        let mut before = 0u64;
        for g in 0..self.reader.num_row_groups() {
            let mut group = Group::open(self, g, &used, input)?;
            while group.left > 0 {
                let rows = group.left.min(ROWS);
                let columns = group.next(rows, input)?;
                let pieces: Vec<std::ops::Range<usize>> =
                    (0..rows).step_by(PIECE).map(|at| at..rows.min(at + PIECE)).collect();
                let parse = |piece: &std::ops::Range<usize>| self.parse(piece.clone(), &used, &columns, plan);
                let parsed: Vec<std::result::Result<Batch, (usize, Wrong)>> = pieces.par_iter().map(parse).collect();
                for batch in parsed {
                    consume(batch.map_err(|(row, wrong)| at_row(input, before + row as u64, &wrong))?)?;
                }
                before += rows as u64;
                phase.add(rows as u64);
            }
        }
        Ok(())
    }

    fn parse(
        &self,
        rows: std::ops::Range<usize>,
        used: &[usize],
        columns: &[Data],
        plan: &Plan<'_>,
    ) -> std::result::Result<Batch, (usize, Wrong)> {
        let mut batch = plan.batch();
        let mut fields = vec![Field::Missing; plan.uses.len()];
        for row in rows {
            used.iter().zip(columns).for_each(|(&c, data)| fields[c] = data.field(row));
            plan.row(fields.iter().copied(), &mut batch).map_err(|wrong| (row, wrong))?;
        }
        Ok(batch)
    }
}

fn at_row(input: &Input, row: u64, wrong: &Wrong) -> Error {
    let column = (wrong.column as u64).saturating_sub(1);
    let field = format!("row {}, column {}", row + 1, column + 1);
    input.bad(field, Problem::at(Position::Cell { row, column }, &wrong.problem), &wrong.remedy)
}

fn corrupt(input: &Input, field: &str, e: &ParquetError) -> Error {
    input.bad(field, e.to_string(), "the file is corrupt, or of a kind that is not read; write it again, with snappy")
}

fn is_list(root: &::parquet::schema::types::Type) -> bool {
    let info = root.get_basic_info();
    root.is_group()
        && (info.converted_type() == ConvertedType::LIST || info.logical_type_ref() == Some(&LogicalType::List))
}

/// What users call a column: the field, not the path inside of a list.
fn name_of(column: &ColumnDescriptor, root: &::parquet::schema::types::Type) -> String {
    let parts = column.path().parts();
    match parts.first() {
        Some(first) if is_list(root) => first.clone(),
        _ => parts.join("."),
    }
}

fn kind(column: &ColumnDescriptor, root: &::parquet::schema::types::Type) -> Kind {
    let logical = column.logical_type_ref();
    match column.max_rep_level() {
        0 => {}
        1 if is_list(root) || column.path().parts().len() == 1 => {}
        _ => return Kind::Refused("values inside of others"),
    }
    if matches!(logical, Some(LogicalType::Decimal(_))) || column.converted_type() == ConvertedType::DECIMAL {
        return Kind::Refused("decimals");
    }
    match column.physical_type() {
        Physical::INT96 => Kind::Refused("times of 96 bits"),
        Physical::FIXED_LEN_BYTE_ARRAY if logical == Some(&LogicalType::Float16) => Kind::Half,
        Physical::FIXED_LEN_BYTE_ARRAY => Kind::Refused("bytes"),
        Physical::INT64 if column.converted_type() == ConvertedType::UINT_64 => Kind::Unsigned,
        Physical::INT32 if column.converted_type() == ConvertedType::UINT_32 => Kind::Unsigned,
        Physical::BYTE_ARRAY if column.max_rep_level() > 0 => Kind::Refused("lists of words"),
        _ => Kind::Plain,
    }
}

/// A row group, read from its start.
struct Group<'a> {
    table: &'a ParquetTable,
    columns: Vec<(usize, ColumnReader)>,
    left: usize,
}

impl<'a> Group<'a> {
    fn open(table: &'a ParquetTable, number: usize, columns: &[usize], input: &Input) -> Result<Self> {
        let wrong = |e: ParquetError| corrupt(input, &format!("row group {number}"), &e);
        let group = table.reader.get_row_group(number).map_err(wrong)?;
        let about = group.metadata();
        let rows = about.num_rows();
        let open = |&c: &usize| -> Result<(usize, ColumnReader)> {
            let (column, values) = (about.column(c).column_descr_ptr(), about.column(c).num_values());
            let most = if column.max_rep_level() == 0 { rows } else { rows.saturating_mul(LONGEST_LIST) };
            if values < 0 || values > most {
                let problem = format!("{values} values of {:?} in {rows} rows", column.path().string());
                return Err(input.bad(format!("row group {number}"), problem, "the file is corrupt; write it again"));
            }
            let pages = Checked::new(group.get_column_page_reader(c).map_err(wrong)?, values as u64);
            Ok((c, ::parquet::column::reader::get_column_reader(column, Box::new(pages))))
        };
        let columns = columns.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { table, columns, left: rows as usize })
    }

    /// The next rows, at most so many as are left, of each column.
    fn next(&mut self, rows: usize, input: &Input) -> Result<Vec<Data>> {
        let rows = rows.min(self.left);
        let table = self.table;
        let read = |(c, reader): &mut (usize, ColumnReader)| {
            let column = table.reader.metadata().file_metadata().schema_descr().column(*c);
            let data = Data::read(reader, &column, table.kinds[*c], rows);
            data.map_err(|e| corrupt(input, &format!("column {:?}", column.path().string()), &e))
        };
        let read: Vec<Result<Data>> = self.columns.par_iter_mut().map(read).collect();
        self.left -= rows;
        read.into_iter().collect()
    }
}

/// Some rows of a column.
struct Data {
    values: Values,
    /// Where the values of each row are; one range more than a place for each row where they are lists.
    places: Places,
}

enum Values {
    Truths(Vec<bool>),
    Integers(Vec<i64>),
    Unsigned(Vec<u64>),
    Numbers(Vec<f64>),
    Texts(Vec<ByteArray>),
}

enum Places {
    /// Row i is value i.
    All,
    /// The value of each row, or `u32::MAX`.
    Some(Vec<u32>),
    /// Where the list of each row begins, and where the last one ends.
    Lists(Vec<u32>),
}

impl Data {
    fn read(
        reader: &mut ColumnReader,
        column: &ColumnDescriptor,
        kind: Kind,
        rows: usize,
    ) -> std::result::Result<Self, ParquetError> {
        macro_rules! integers {
            ($reader:expr, $unsigned:ty) => {{
                let (values, places) = read($reader, column, rows)?;
                match kind {
                    Kind::Unsigned => {
                        (Values::Unsigned(values.iter().map(|&x| (x as $unsigned).into()).collect()), places)
                    }
                    _ => (Values::Integers(values.iter().map(|&x| x.into()).collect()), places),
                }
            }};
        }
        let (values, places) = match reader {
            ColumnReader::BoolColumnReader(r) => {
                let (values, places) = read(r, column, rows)?;
                (Values::Truths(values), places)
            }
            ColumnReader::Int32ColumnReader(r) => integers!(r, u32),
            ColumnReader::Int64ColumnReader(r) => integers!(r, u64),
            ColumnReader::FloatColumnReader(r) => {
                let (values, places) = read(r, column, rows)?;
                (Values::Numbers(values.iter().map(|&x| x.into()).collect()), places)
            }
            ColumnReader::DoubleColumnReader(r) => {
                let (values, places) = read(r, column, rows)?;
                (Values::Numbers(values), places)
            }
            ColumnReader::ByteArrayColumnReader(r) => {
                let (values, places) = read(r, column, rows)?;
                (Values::Texts(values), places)
            }
            ColumnReader::FixedLenByteArrayColumnReader(r) => {
                let (values, places) = read(r, column, rows)?;
                let half = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, |two| f16::from_le_bytes(two).into());
                (Values::Numbers(values.iter().map(|x| half(x.data())).collect()), places)
            }
            ColumnReader::Int96ColumnReader(_) => return Err(ParquetError::General("times of 96 bits".into())),
        };
        // Lists become numbers of one kind.
        let values = match (&places, values) {
            (Places::Lists(_), Values::Integers(all)) => Values::Numbers(all.iter().map(|&x| x as f64).collect()),
            (Places::Lists(_), Values::Unsigned(all)) => Values::Numbers(all.iter().map(|&x| x as f64).collect()),
            (Places::Lists(_), Values::Truths(all)) => Values::Numbers(all.iter().map(|&x| x.into()).collect()),
            (_, values) => values,
        };
        Ok(Self { values, places })
    }

    fn field(&self, row: usize) -> Field<'_> {
        let at = match &self.places {
            Places::All => row,
            Places::Some(places) if places[row] == u32::MAX => return Field::Missing,
            Places::Some(places) => places[row] as usize,
            Places::Lists(starts) => {
                return match &self.values {
                    Values::Numbers(all) => Field::List(&all[starts[row] as usize..starts[row + 1] as usize]),
                    _ => Field::Missing,
                };
            }
        };
        match &self.values {
            Values::Truths(all) => Field::Truth(all[at]),
            Values::Integers(all) => Field::Integer(all[at]),
            Values::Unsigned(all) => Field::Unsigned(all[at]),
            Values::Numbers(all) => Field::Number(all[at]),
            Values::Texts(all) => Field::Text(all[at].data()),
        }
    }

    fn rows(&self) -> usize {
        match (&self.places, &self.values) {
            (Places::Some(places), _) => places.len(),
            (Places::Lists(starts), _) => starts.len() - 1,
            (Places::All, Values::Truths(all)) => all.len(),
            (Places::All, Values::Integers(all)) => all.len(),
            (Places::All, Values::Unsigned(all)) => all.len(),
            (Places::All, Values::Numbers(all)) => all.len(),
            (Places::All, Values::Texts(all)) => all.len(),
        }
    }

    /// What the rows hold.
    fn holds(&self) -> Holds {
        let first = (0..self.rows()).map(|row| self.field(row)).find(|f| !matches!(f, Field::Missing));
        match (first, &self.values) {
            (None, _) => Holds::Nothing,
            (Some(Field::List(all)), _) => Holds::List(all.len()),
            (_, Values::Integers(_) | Values::Unsigned(_)) => Holds::Integers,
            (_, Values::Texts(all)) => super::csv::holds(&all.iter().map(|x| x.data().to_vec()).collect::<Vec<_>>()),
            _ => Holds::Numbers,
        }
    }

    fn example(&self) -> String {
        let first = (0..self.rows()).map(|row| self.field(row)).find(|f| !matches!(f, Field::Missing));
        first.map_or(String::new(), |field| match field {
            Field::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Field::List(all) => all.iter().take(3).map(f64::to_string).collect::<Vec<_>>().join(" "),
            other => other.show(),
        })
    }
}

/// The next `rows` records of a column, exactly.
fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    column: &ColumnDescriptor,
    rows: usize,
) -> std::result::Result<(Vec<T::T>, Places), ParquetError> {
    let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    let mut found = 0;
    while found < rows {
        let (records, _, levels) =
            reader.read_records(rows - found, Some(&mut definitions), Some(&mut repetitions), &mut values)?;
        if records == 0 && levels == 0 {
            return Err(ParquetError::EOF(format!("there are only {found} of {rows} rows")));
        }
        found += records;
    }
    let most = column.max_def_level();
    let places = if column.max_rep_level() > 0 {
        lists(&definitions, &repetitions, most, rows)?
    } else if most > 0 && definitions.iter().any(|&d| d < most) {
        let mut next = 0u32;
        let place = |&d: &i16| {
            next += u32::from(d == most);
            if d == most { next - 1 } else { u32::MAX }
        };
        Places::Some(definitions.iter().map(place).collect())
    } else {
        Places::All
    };
    let stored = match &places {
        Places::All => values.len(),
        Places::Some(places) => places.len(),
        Places::Lists(starts) => starts.len() - 1,
    };
    if stored != rows {
        return Err(ParquetError::General(format!("{stored} values in {rows} rows")));
    }
    Ok((values, places))
}

/// Where the list of each row begins. A list that is empty or missing has no values, and a value that is missing makes
/// its list shorter.
fn lists(
    definitions: &[i16],
    repetitions: &[i16],
    most: i16,
    rows: usize,
) -> std::result::Result<Places, ParquetError> {
    let mut starts = Vec::with_capacity(rows + 1);
    let mut values = 0u32;
    for (&d, &r) in definitions.iter().zip(repetitions) {
        if r == 0 {
            starts.push(values);
        } else if starts.is_empty() {
            return Err(ParquetError::General("a list begins before its row".into()));
        }
        values += u32::from(d == most);
    }
    starts.push(values);
    Ok(Places::Lists(starts))
}
