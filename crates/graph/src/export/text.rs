//! Tables as text.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use graphweft_base::{Error, Result};

use super::columns::{Table, Values};

/// Writes a table with a header; fields are quoted where they need it.
pub(super) fn write(table: &Table<'_>, path: &Path, separator: u8) -> Result<()> {
    let failed = |e| Error::write("write", path)(e);
    let file = File::create(path).map_err(Error::write("create", path))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let (mut line, mut numbers) = (Vec::new(), Vec::new());
    for column in &table.columns {
        field(&mut line, column.name.as_bytes(), separator);
    }
    end(&mut line, &mut out).map_err(failed)?;
    for row in 0..table.rows {
        for column in &table.columns {
            match &column.values {
                Values::Text(of) => field(&mut line, of(row).as_bytes(), separator),
                Values::Integers(of) => field(&mut line, of(row).to_string().as_bytes(), separator),
                Values::Numbers(of) => {
                    field(&mut line, of(row).map_or(String::new(), |x| x.to_string()).as_bytes(), separator);
                }
                Values::Lists(_, fill) => {
                    numbers.clear();
                    fill(row, &mut numbers);
                    let words: Vec<String> = numbers.iter().map(f32::to_string).collect();
                    field(&mut line, format!("[{}]", words.join(" ")).as_bytes(), separator);
                }
            }
        }
        end(&mut line, &mut out).map_err(failed)?;
    }
    out.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)
}

fn field(line: &mut Vec<u8>, text: &[u8], separator: u8) {
    let special = |b: &u8| matches!(b, b'"' | b'\r' | b'#') || *b == separator;
    if text.iter().any(special) || text.trim_ascii().len() != text.len() {
        line.push(b'"');
        for &b in text {
            line.extend(if b == b'"' { &b"\"\""[..] } else { std::slice::from_ref(&b) });
        }
        line.push(b'"');
    } else {
        line.extend_from_slice(text);
    }
    line.push(separator);
}

fn end(line: &mut Vec<u8>, out: &mut impl Write) -> std::io::Result<()> {
    line.pop();
    line.push(b'\n');
    out.write_all(line)?;
    line.clear();
    Ok(())
}
