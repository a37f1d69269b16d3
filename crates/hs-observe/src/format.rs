//! How this kernel lays out its events: read from tracefs, never assumed.
//!
//! See the kernel's Documentation/trace/events.rst, section "Event formats".

use std::collections::HashMap;

/// Where a number lies in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// The number, without sign extension; `None` when the record is too short.
    pub(super) fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        Some(match self.size {
            1 => u64::from(bytes[0]),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }
}

/// The `format` file of one event.
#[derive(Clone, Debug)]
pub(super) struct EventFormat {
    /// What the first field of every record of this event holds.
    pub(super) id: u64,
    fields: HashMap<String, Field>,
}

impl EventFormat {
    /// Reads the text of a `format` file.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        Some(Self { id, fields: fields(text) })
    }

    /// The field `name`, when the event has it and it is a number.
    pub(super) fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied().filter(|field| matches!(field.size, 1 | 2 | 4 | 8))
    }
}

/// The head of the pages in which the ring buffer is read: tracefs' `events/header_page`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageFormat {
    /// Time of the first event, nanoseconds.
    pub(super) timestamp: Field,
    /// How many bytes of data are in the page, in the low bits.
    pub(super) commit: Field,
    /// Where the data begin.
    pub(super) data: usize,
    /// Size of a whole page.
    pub(super) page_bytes: usize,
}

impl PageFormat {
    /// Reads the text of `events/header_page`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fields = fields(text);
        let data = fields.get("data")?;
        let number = |name| fields.get(name).copied().filter(|field: &Field| matches!(field.size, 4 | 8));
        let page_bytes = data.offset.checked_add(data.size).filter(|bytes| *bytes <= 1 << 20)?;
        Some(Self {
            timestamp: number("timestamp")?,
            commit: number("commit")?,
            data: data.offset,
            page_bytes,
        })
    }
}

/// Lines as `field:unsigned long i_ino; offset:8; size:8; signed:0;`, with tabs in between.
fn fields(text: &str) -> HashMap<String, Field> {
    text.lines().filter_map(field).collect()
}

fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let name = parts.next()?.rsplit([' ', '*']).next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse().ok();
    let field = Field { offset: number("offset:")?, size: number("size:")? };
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    Some((name.to_owned(), field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read() {
        let text = "name: mm_filemap_fault\nID: 597\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;\n\
            \tfield:unsigned long args[6];\toffset:24;\tsize:48;\tsigned:0;\n\n\
            print fmt: \"dev=%d\", REC->s_dev\n";
        let format = EventFormat::parse(text).unwrap();
        assert_eq!(format.id, 597);
        assert_eq!(format.field("s_dev"), Some(Field { offset: 16, size: 4 }));
        assert_eq!(format.field("args"), None, "no number");
        assert_eq!(format.field("i_ino"), None);
        assert!(EventFormat::parse("format:").is_none());
        let mut record = [0; 20];
        record[16..].copy_from_slice(&0x70_0001_u32.to_ne_bytes());
        assert_eq!(format.field("s_dev").unwrap().read(&record), Some(0x70_0001));
        assert_eq!(format.field("s_dev").unwrap().read(&record[..19]), None);
    }

    #[test]
    fn the_page_head_is_read() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        let page = PageFormat::parse(text).unwrap();
        assert_eq!((page.data, page.page_bytes), (16, 4096));
        assert!(PageFormat::parse("").is_none());
    }
}
