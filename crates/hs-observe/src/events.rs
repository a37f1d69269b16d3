//! The events that are watched: which, filtered how, and what their records say.

use std::collections::HashMap;

use hs_units::Nanos;

use super::NotObserved;
use super::format::{EventFormat, Field};
use super::tracefs::Instance;

/// System calls that read files through the page cache. Their beginning is when the reader began to
/// need the pages: the kernel's own event for a buffered read comes when the data are there.
const READING_CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_copy_file_range,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_io_uring_enter,
];

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body {
    /// A buffered read had these pages, the last one included.
    Read { inode: u64, first: u64, last: u64 },
    /// A fault needed this page, which was not mapped.
    Fault { inode: u64, page: u64 },
    /// Those of these pages that were cached were mapped, the last one included.
    Mapped { inode: u64, first: u64, last: u64 },
    /// The file system looked at a block it had looked at shortly before.
    Touched { block: u64, bytes: u64 },
    /// A system call that may read begins.
    Call,
}

/// A record with its time and the thread that caused it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) at: Nanos,
    pub(super) thread: i32,
    pub(super) body: Body,
}

#[derive(Clone, Copy)]
enum Kind {
    Read { inode: Field, first: Field, last: Field },
    Fault { inode: Field, page: Field },
    Mapped { inode: Field, first: Field, last: Field },
    Touched { block: Field, bytes: Field },
    Call,
}

/// Reads records of the events that were enabled.
pub(super) struct Decoder {
    id: Field,
    thread: Field,
    kinds: HashMap<u64, Kind>,
    /// Blocks of the device that were touched repeatedly are seen.
    pub(super) touches: bool,
    /// The beginning of reading calls is seen.
    pub(super) calls: bool,
}

impl Decoder {
    /// Filters and enables, in `instance`, the events of the file system and the block device that the
    /// kernel knows by these numbers.
    pub(super) fn enable(instance: &Instance, fs_dev: u64, device: Option<u64>) -> Result<Self, NotObserved> {
        let filter = pages_filter(kernel_dev(fs_dev), device.map(kernel_dev));
        let read = enable(instance, "filemap/mm_filemap_get_pages", &filter)?;
        let fault = enable(instance, "filemap/mm_filemap_fault", &filter)?;
        let mapped = enable(instance, "filemap/mm_filemap_map_pages", &filter)?;
        let mut decoder = Self {
            id: read.need("common_type")?,
            thread: read.need("common_pid")?,
            kinds: HashMap::new(),
            touches: false,
            calls: false,
        };
        decoder.kinds.insert(
            read.format.id,
            Kind::Read {
                inode: read.need("i_ino")?,
                first: read.need("index")?,
                last: read.need("last_index")?,
            },
        );
        decoder
            .kinds
            .insert(fault.format.id, Kind::Fault { inode: fault.need("i_ino")?, page: fault.need("index")? });
        decoder.kinds.insert(
            mapped.format.id,
            Kind::Mapped {
                inode: mapped.need("i_ino")?,
                first: mapped.need("index")?,
                last: mapped.need("last_index")?,
            },
        );
        if let Some(device) = device
            && instance.has_event("block/block_touch_buffer")
        {
            let touched =
                enable(instance, "block/block_touch_buffer", &format!("dev == {}", kernel_dev(device)))?;
            let kind = Kind::Touched { block: touched.need("sector")?, bytes: touched.need("size")? };
            decoder.kinds.insert(touched.format.id, kind);
            decoder.touches = true;
        }
        if instance.has_event("raw_syscalls/sys_enter") {
            let calls: Vec<String> = READING_CALLS.iter().map(|call| format!("id == {call}")).collect();
            let call = enable(instance, "raw_syscalls/sys_enter", &calls.join(" || "))?;
            decoder.kinds.insert(call.format.id, Kind::Call);
            decoder.calls = true;
        }
        Ok(decoder)
    }

    /// The event that `record` is; `None` when it makes no sense.
    pub(super) fn decode(&self, at: Nanos, record: &[u8]) -> Option<Event> {
        let get = |field: Field| field.read(record);
        let body = match *self.kinds.get(&get(self.id)?)? {
            Kind::Read { inode, first, last } => {
                Body::Read { inode: get(inode)?, first: get(first)?, last: get(last)? }
            }
            Kind::Fault { inode, page } => Body::Fault { inode: get(inode)?, page: get(page)? },
            Kind::Mapped { inode, first, last } => {
                Body::Mapped { inode: get(inode)?, first: get(first)?, last: get(last)? }
            }
            Kind::Touched { block, bytes } => Body::Touched { block: get(block)?, bytes: get(bytes)? },
            Kind::Call => Body::Call,
        };
        Some(Event { at, thread: get(self.thread)? as i32, body })
    }
}

/// Bits of a minor number in the kernel's own device numbers (include/linux/kdev_t.h).
const MINOR_BITS: u32 = 20;

/// From `st_dev` as user space has it to the kernel's own.
pub(super) fn kernel_dev(dev: u64) -> u64 {
    u64::from(rustix::fs::major(dev)) << MINOR_BITS | u64::from(rustix::fs::minor(dev))
}

/// The filter of events of pages, for those of a file system and of a block device, by the kernel's numbers.
///
/// Pages of a block device belong to an inode of a pseudo file system: its number is the device's, and its
/// file system's an anonymous one, whose major number is zero.
pub(super) fn pages_filter(fs_dev: u64, device: Option<u64>) -> String {
    let of_files = format!("s_dev == {fs_dev}");
    let with = |device| format!("({of_files}) || (i_ino == {device} && s_dev < {})", 1 << MINOR_BITS);
    device.map(with).unwrap_or(of_files)
}

pub(super) struct Enabled<'a> {
    name: &'a str,
    pub(super) format: EventFormat,
}

impl Enabled<'_> {
    pub(super) fn need(&self, field: &str) -> Result<Field, NotObserved> {
        let unknown = || NotObserved::new(format!("this kernel's event {} has no field {field}", self.name));
        self.format.field(field).ok_or_else(unknown)
    }
}

pub(super) fn enable<'a>(
    instance: &Instance,
    name: &'a str,
    filter: &str,
) -> Result<Enabled<'a>, NotObserved> {
    if !instance.has_event(name) {
        return Err(NotObserved::new(format!(
            "this kernel has no event {name} (Linux 6.12 brought the last one)"
        )));
    }
    let format = EventFormat::parse(&instance.read(&format!("events/{name}/format"))?)
        .ok_or_else(|| NotObserved::new(format!("the format of the event {name} is not understood")))?;
    instance.write(&format!("events/{name}/filter"), filter)?;
    instance.write(&format!("events/{name}/enable"), "1")?;
    Ok(Enabled { name, format })
}
