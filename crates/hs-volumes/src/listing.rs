//! A partition table as a person reads it.

use std::fmt;

use hs_units::ByteSize;

use crate::{Journal, Partition, Table};

const COLUMNS: [&str; 7] = ["number", "type", "label", "file system", "UUID", "offset", "size"];

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 7]> = self.partitions.iter().map(|partition| self.row(partition)).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([COLUMNS[column].len()]).max().unwrap_or_default()
        };
        let header = COLUMNS.map(str::to_owned);
        for (number, row) in [&header].into_iter().chain(&rows).enumerate() {
            let cells: Vec<String> = (0..7).map(|at| format!("{:1$}", row[at], width(at))).collect();
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "  {}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

impl Table {
    fn row(&self, partition: &Partition) -> [String; 7] {
        let found = partition.file_system.as_ref();
        let mut system = found.map_or_else(|| "-".to_owned(), |found| found.kind.to_string());
        if found.is_some_and(|found| found.journal == Journal::NeedsReplay) {
            system.push_str(" (journal not replayed)");
        }
        let mut size = ByteSize(partition.range.len).to_string();
        if !partition.range.fits_in(self.disk_bytes) {
            size.push_str(" (beyond the end of the disk)");
        }
        let label = partition.label.as_ref().or(found.and_then(|found| found.label.as_ref()));
        [
            partition.number.to_string(),
            partition.kind.to_string(),
            label.map_or_else(|| "-".to_owned(), |label| printable(label)),
            system,
            found
                .and_then(|found| found.uuid.as_ref())
                .map_or_else(|| "-".to_owned(), |uuid| printable(uuid)),
            partition.range.offset.to_string(),
            size,
        ]
    }
}

/// Without what would change the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
