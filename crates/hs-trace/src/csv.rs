//! A profile as a table.

use std::io::{self, Write};

use hs_units::Nanos;

use crate::{FileMap, Profile};

impl Profile {
    /// Writes a header and a row for each read, in order of arrival: `at_s`, `offset`, `bytes`,
    /// `cost_s`, `file`, `page`. Times are seconds with nine decimals, offset and size are bytes of
    /// the disk; file and page are those of the read's first block, both empty when that is metadata
    /// or not known. Fields are quoted as RFC 4180 says.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        let files = FileMap::new(&self.files);
        out.write_all(b"at_s,offset,bytes,cost_s,file,page\n")?;
        for read in &self.reads {
            let (at, cost) = (Seconds(read.at), Seconds(read.cost));
            write!(out, "{at},{},{},{cost},", read.blocks.start.byte_offset(), read.blocks.bytes())?;
            match files.locate(read.blocks.start) {
                Some((file, page)) => writeln!(out, "{},{page}", quoted(&file.path))?,
                None => out.write_all(b",\n")?,
            }
        }
        Ok(())
    }
}

/// A time in seconds that loses no nanosecond.
struct Seconds(Nanos);

impl core::fmt::Display for Seconds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{:09}", self.0.0 / 1_000_000_000, self.0.0 % 1_000_000_000)
    }
}

/// A text as a field of a table, quoted where RFC 4180 says so.
#[must_use]
pub fn quoted(field: &str) -> std::borrow::Cow<'_, str> {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\"")).into()
    } else {
        field.into()
    }
}
