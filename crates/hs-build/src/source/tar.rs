//! Reads a tar archive into a tree: `tar_core` finds the entries, this says what becomes of them.

use std::io;
use std::path::{Path, PathBuf};

use hs_ext4::Time;
use tar_core::parse::{Limits, ParseEvent, ParsedEntry, Parser};
use tar_core::{EntryType, SparseEntry};

use super::access_list::AccessList;
use super::archive_bytes::{ArchiveBytes, Window};
use super::archive_fault::ArchiveFault;
use super::assembly::{Status, file_type};
use super::contents::{Contents, KeepError, Stored};
use super::entries::{EntryTree, MOST_NAME_BYTES, NewBody, shown};
use super::records::{self, ForAll, id, records, whole};
use super::{SourceError, SourceProgress};

/// Entries between two progress calls.
const PROGRESS_ENTRIES: u64 = 256;
/// Parts of a sparse file; each is a few bytes of the archive and some of memory.
const MOST_SPARSE_PARTS: usize = 1 << 20;
/// What comes before the content of an entry: at most such a list, with two numbers of 20 digits a part.
const MOST_HEADER_BYTES: usize = 64 << 20;
/// Names, targets and attributes of one entry.
const MOST_METADATA_BYTES: u32 = 4 << 20;
/// Headers end at a multiple of this.
const SECTOR_BYTES: u64 = 512;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// What aufs keeps for itself.
const OF_AUFS: &[u8] = b".wh..wh.";

/// What an archive is read into, and how.
pub(super) struct TarReading<'a> {
    pub(super) tree: &'a mut EntryTree,
    pub(super) contents: &'a mut Contents,
    /// Whether names that begin with `.wh.` take away what layers below have.
    pub(super) is_layer: bool,
    /// How the archive is called in messages.
    pub(super) shown: &'a Path,
    pub(super) progress: &'a dyn Fn(SourceProgress),
}

/// What an archive has in a form that is not read.
#[derive(Default)]
struct Unread {
    access_lists: u64,
    /// The first entry with such a list.
    first_list: Option<String>,
    labels: u64,
}

impl TarReading<'_> {
    /// Reads all of an archive. What comes after its end is read and ignored.
    pub(super) fn read(&mut self, from: ArchiveBytes<'_>) -> Result<(), SourceError> {
        let mut window = Window::new(from);
        let mut unread = Unread::default();
        let read = self
            .read_entries(&mut window, &mut unread)
            .and_then(|()| window.drain().map_err(|fault| (None, fault)));
        read.map_err(|(entry, fault)| archive_error(self.shown, entry, fault))?;
        unread.warn(self.shown);
        self.report();
        Ok(())
    }

    fn read_entries(
        &mut self,
        window: &mut Window<'_>,
        unread: &mut Unread,
    ) -> Result<(), (Option<String>, ArchiveFault)> {
        let limits = Limits {
            max_metadata_size: MOST_METADATA_BYTES,
            max_sparse_entries: MOST_SPARSE_PARTS,
            ..Limits::default()
        };
        let mut parser = Parser::new(limits);
        let mut for_all = ForAll::default();
        // The numbers that matter are checked here: it knows no times before 1970.
        parser.set_ignore_pax_errors(true);
        loop {
            let needed = match parser.parse(window.next_bytes()) {
                Err(error) => return Err((None, ArchiveFault::Header(error))),
                Ok(ParseEvent::NeedData { min_bytes }) => min_bytes,
                Ok(ParseEvent::End { consumed }) => {
                    window.consume(consumed);
                    return Ok(());
                }
                Ok(ParseEvent::GlobalExtensions { consumed, pax_data }) => {
                    for_all.read(pax_data).map_err(|fault| (None, fault))?;
                    window.consume(consumed);
                    continue;
                }
                Ok(ParseEvent::Entry { consumed, entry }) => {
                    let entry = Entry::of(&entry, None, &for_all)
                        .map_err(|fault| (Some(shown(&entry.path)), fault))?;
                    window.consume(consumed);
                    self.take(entry, window, unread)?;
                    continue;
                }
                Ok(ParseEvent::SparseEntry { consumed, entry, sparse_map, real_size }) => {
                    let entry = Entry::of(&entry, Some((sparse_map, real_size)), &for_all)
                        .map_err(|fault| (Some(shown(&entry.path)), fault))?;
                    window.consume(consumed);
                    self.take(entry, window, unread)?;
                    continue;
                }
            };
            // The parser may ask for less than it has seen, where a list of holes goes on.
            let seen = window.next_bytes().len();
            if seen > MOST_HEADER_BYTES {
                return Err((None, ArchiveFault::Sparse("it is longer than any that has a meaning")));
            }
            if !window.fill(needed.max(seen + 1)).map_err(|fault| (None, fault))? {
                return at_end(window, self.is_layer).map_err(|fault| (None, fault));
            }
        }
    }

    fn take(
        &mut self,
        entry: Entry,
        window: &mut Window<'_>,
        unread: &mut Unread,
    ) -> Result<(), (Option<String>, ArchiveFault)> {
        let name = entry.path.clone();
        if entry.has_unread_list {
            unread.access_lists += 1;
            unread.first_list.get_or_insert_with(|| shown(&name));
        }
        unread.labels += u64::from(entry.has_label);
        self.take_up(entry, window).map_err(|fault| (Some(shown(&name)), fault))?;
        if self.tree.len().is_multiple_of(PROGRESS_ENTRIES) {
            self.report();
        }
        Ok(())
    }

    fn take_up(&mut self, entry: Entry, window: &mut Window<'_>) -> Result<(), ArchiveFault> {
        let end = window.position().checked_add(entry.stored_bytes);
        let end = end.and_then(|end| end.checked_next_multiple_of(SECTOR_BYTES));
        let end = end.ok_or_else(|| number("size", entry.stored_bytes))?;
        if self.is_layer && self.apply_whiteout(&entry.path)? {
            return window.skip(end - window.position());
        }
        match entry.kind {
            EntryType::Link => self.tree.link(&entry.path, &entry.target)?,
            EntryType::Symlink if entry.target.is_empty() => return Err(ArchiveFault::NoTarget),
            EntryType::Symlink => self.put(&entry, file_type::SYMLINK, &NewBody::Symlink(&entry.target))?,
            EntryType::Char => self.put(&entry, file_type::CHARACTER_DEVICE, &entry.device_body())?,
            EntryType::Block => self.put(&entry, file_type::BLOCK_DEVICE, &entry.device_body())?,
            EntryType::Fifo => self.put(&entry, file_type::FIFO, &NewBody::Other)?,
            // A directory as tar wrote it before 1988, and one of an incremental archive, with a list of
            // names.
            EntryType::Directory | EntryType::Other(b'D') => {
                self.put(&entry, file_type::DIRECTORY, &NewBody::Directory)?;
            }
            EntryType::Regular if entry.path.ends_with(b"/") => {
                self.put(&entry, file_type::DIRECTORY, &NewBody::Directory)?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GnuSparse => {
                let content = self.take_content(&entry, window)?;
                self.put(&entry, file_type::REGULAR, &NewBody::File(content))?;
            }
            // The label of the archive.
            EntryType::Other(b'V') => {}
            EntryType::Other(kind) => {
                let hint = match kind {
                    b'M' => "an archive of several volumes is joined by unpacking it",
                    _ => "unpack it by the program that made it, and build the directory",
                };
                return Err(ArchiveFault::Kind { kind: char::from(kind), hint });
            }
            _ => return Err(ArchiveFault::Kind { kind: '?', hint: "the archive is damaged" }),
        }
        window.skip(end - window.position())
    }

    fn put(&mut self, entry: &Entry, kind: u16, body: &NewBody<'_>) -> Result<(), ArchiveFault> {
        // Linux knows no permissions of symbolic links.
        let permissions = if kind == file_type::SYMLINK { 0o777 } else { entry.permissions };
        let status = Status { mode: kind | permissions, ..entry.status };
        self.tree.put(&entry.path, &status, entry.attributes.clone(), body)
    }

    /// Takes a content out of the archive, or where it lies.
    fn take_content(&mut self, entry: &Entry, window: &mut Window<'_>) -> Result<Stored, ArchiveFault> {
        let mut begun = self.contents.begin(entry.bytes).map_err(ArchiveFault::Read)?;
        let all = [SparseEntry { offset: 0, length: entry.stored_bytes }];
        for part in entry.sparse.as_deref().unwrap_or(&all) {
            if let Some(place) = window.place() {
                window.skip(part.length)?;
                self.contents.refer(&mut begun, part.offset, part.length, place);
                continue;
            }
            let before = window.position();
            let kept = self.contents.keep(&mut begun, part.offset, part.length, window);
            kept.map_err(|error| match error {
                KeepError::Read(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    ArchiveFault::Truncated { bytes: before }
                }
                KeepError::Read(error) => ArchiveFault::Read(error),
                KeepError::Write(folder, error) => ArchiveFault::Keep { folder, error },
            })?;
            window.check_size()?;
        }
        if self.contents.memory_bytes() > MOST_NAME_BYTES {
            return Err(ArchiveFault::TooManyNameBytes { most_bytes: MOST_NAME_BYTES });
        }
        Ok(begun.finish())
    }

    /// Whether the name is that of a whiteout, which then has been applied.
    fn apply_whiteout(&mut self, path: &[u8]) -> Result<bool, ArchiveFault> {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let cut = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (folder, name) = path.split_at(cut);
        if name == OPAQUE {
            self.tree.make_opaque(folder)?;
            return Ok(true);
        }
        if path.split(|&byte| byte == b'/').any(|part| part.starts_with(OF_AUFS)) {
            return Ok(true);
        }
        let Some(gone) = name.strip_prefix(WHITEOUT) else {
            let is_below = folder.split(|&byte| byte == b'/').any(|part| part.starts_with(WHITEOUT));
            return if is_below { Err(ArchiveFault::Whiteout) } else { Ok(false) };
        };
        if gone.is_empty() || gone == b"." || gone == b".." {
            return Err(ArchiveFault::Whiteout);
        }
        self.tree.white_out(&[folder, gone].concat())?;
        Ok(true)
    }

    fn report(&self) {
        (self.progress)(SourceProgress::Unpacking {
            entries: self.tree.len(),
            bytes: self.contents.spooled_bytes(),
        });
    }
}

/// Archives end with two blocks of zeros; one, and nothing after it, is as good. A layer may end without any,
/// as umoci writes it: its digest proves that it is whole.
fn at_end(window: &Window<'_>, is_layer: bool) -> Result<(), ArchiveFault> {
    let (rest, bytes) = (window.next_bytes(), window.position());
    match rest.len() {
        0 if is_layer => Ok(()),
        0 => Err(ArchiveFault::NoEnd { bytes }),
        _ if rest.iter().all(|&byte| byte == 0) && rest.len() as u64 >= SECTOR_BYTES => Ok(()),
        len => Err(ArchiveFault::Truncated { bytes: bytes + len as u64 }),
    }
}

/// An entry, without what belongs to the buffer that it was found in.
struct Entry {
    kind: EntryType,
    path: Vec<u8>,
    target: Vec<u8>,
    permissions: u16,
    status: Status,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The size of the file.
    bytes: u64,
    /// What of it is in the archive.
    stored_bytes: u64,
    sparse: Option<Vec<SparseEntry>>,
    /// It has an access control list that is not understood.
    has_unread_list: bool,
    has_label: bool,
}

/// Access control lists, as records and as attributes.
const ACCESS_RECORD: &[u8] = b"SCHILY.acl.access";
const DEFAULT_RECORD: &[u8] = b"SCHILY.acl.default";
const ACCESS_ATTRIBUTE: &[u8] = b"system.posix_acl_access";
const DEFAULT_ATTRIBUTE: &[u8] = b"system.posix_acl_default";

impl Entry {
    fn of(
        parsed: &ParsedEntry<'_>,
        sparse: Option<(Vec<SparseEntry>, u64)>,
        for_all: &ForAll,
    ) -> Result<Self, ArchiveFault> {
        let (sparse, bytes) = match sparse {
            Some((map, bytes)) => (Some(map), bytes),
            None => (None, parsed.size),
        };
        let owner = |field, value: u64, for_all: Option<u32>| match for_all {
            Some(id) => Ok(id),
            None => u32::try_from(value).map_err(|_| number(field, value)),
        };
        let attributes = parsed.xattrs.iter();
        let attributes = attributes.map(|(name, value)| (records::attribute_name(name), value.to_vec()));
        // Such entries have no content, whatever size some programs write for them.
        let is_header_only = matches!(
            parsed.entry_type,
            EntryType::Link
                | EntryType::Symlink
                | EntryType::Char
                | EntryType::Block
                | EntryType::Fifo
                | EntryType::Directory
        );
        let mut entry = Self {
            kind: parsed.entry_type,
            path: parsed.path.to_vec(),
            target: parsed.link_target.as_deref().unwrap_or_default().to_vec(),
            permissions: (parsed.mode & 0o7777) as u16,
            status: Status {
                mode: 0,
                uid: owner("owner", parsed.uid, for_all.owner)?,
                gid: owner("group", parsed.gid, for_all.group)?,
                bytes: 0,
                device: (parsed.dev_major.unwrap_or(0), parsed.dev_minor.unwrap_or(0)),
                // Negative ones are written as two's complements.
                modified: for_all
                    .modified
                    .unwrap_or(Time { seconds: parsed.mtime.cast_signed(), nanoseconds: 0 }),
            },
            attributes: last_of_each(attributes.collect()),
            bytes,
            stored_bytes: if is_header_only { 0 } else { parsed.size },
            sparse,
            has_unread_list: false,
            has_label: false,
        };
        entry.read_records(parsed.pax.unwrap_or_default())?;
        entry.check_sparse()?;
        Ok(entry)
    }

    /// Reads what `tar_core` does not: times with fractions and before 1970, and whether numbers are numbers.
    fn read_records(&mut self, list: &[u8]) -> Result<(), ArchiveFault> {
        for record in records(list) {
            let (key, value) = record?;
            match key {
                b"mtime" => self.status.modified = records::time(value)?,
                b"uid" => self.status.uid = id("owner", value)?,
                b"gid" => self.status.gid = id("group", value)?,
                b"size" if self.sparse.is_some() && self.kind != EntryType::GnuSparse => {
                    // It may count the list of holes, or not.
                    return Err(ArchiveFault::Sparse("a size above 8 GiB; use the format of GNU tar"));
                }
                b"size" => drop(whole("size", value)?),
                b"SCHILY.devmajor" => self.status.device.0 = id("device", value)?,
                b"SCHILY.devminor" => self.status.device.1 = id("device", value)?,
                key if key.starts_with(b"GNU.sparse.") => self.check_sparse_record(key, value)?,
                ACCESS_RECORD | DEFAULT_RECORD if value.is_empty() => {}
                ACCESS_RECORD => self.take_list(ACCESS_ATTRIBUTE, value),
                DEFAULT_RECORD if self.kind == EntryType::Directory => {
                    self.take_list(DEFAULT_ATTRIBUTE, value);
                }
                key => {
                    self.has_unread_list |= key.starts_with(b"SCHILY.acl.");
                    self.has_label |= key == b"RHT.security.selinux";
                }
            }
        }
        Ok(())
    }

    /// Takes up a list in words. If there is an attribute already, that is the same list.
    fn take_list(&mut self, attribute: &[u8], words: &[u8]) {
        if self.kind == EntryType::Symlink || self.attributes.iter().any(|(name, _)| name == attribute) {
            return;
        }
        let Some(list) = AccessList::parse(words) else {
            self.has_unread_list = true;
            return;
        };
        if attribute == ACCESS_ATTRIBUTE {
            self.permissions = self.permissions & !0o777 | list.permissions();
        }
        if attribute == DEFAULT_ATTRIBUTE || list.is_extended() {
            self.attributes.push((attribute.to_vec(), list.attribute()));
        }
    }

    /// The content of a sparse file whose list of holes is not understood is another one.
    fn check_sparse_record(&self, key: &[u8], value: &[u8]) -> Result<(), ArchiveFault> {
        if self.sparse.is_none() {
            return Err(ArchiveFault::Sparse("it is of no form that is known"));
        }
        match key {
            b"GNU.sparse.name" | b"GNU.sparse.map" => Ok(()),
            _ => whole("list of holes", value).map(drop),
        }
    }

    fn check_sparse(&self) -> Result<(), ArchiveFault> {
        let Some(map) = &self.sparse else { return Ok(()) };
        let (mut end, mut stored) = (0, 0_u64);
        for part in map {
            let part_end = part.offset.checked_add(part.length).filter(|&end| end <= self.bytes);
            if part.offset < end {
                return Err(ArchiveFault::Sparse("parts overlap"));
            }
            end = part_end.ok_or(ArchiveFault::Sparse("a part lies behind the end of the file"))?;
            // No overflow: parts are disjoint.
            stored += part.length;
        }
        if stored != self.stored_bytes {
            return Err(ArchiveFault::Sparse("its parts have not as many bytes as the archive has of it"));
        }
        Ok(())
    }

    const fn device_body(&self) -> NewBody<'static> {
        NewBody::Device(self.status.device.0, self.status.device.1)
    }
}

fn number(field: &'static str, value: u64) -> ArchiveFault {
    ArchiveFault::Number { field, value: value.to_string() }
}

/// Of records with one name the last counts.
fn last_of_each(mut attributes: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    attributes.reverse();
    attributes.sort_by(|one, other| one.0.cmp(&other.0));
    attributes.dedup_by(|later, first| later.0 == first.0);
    attributes
}

impl Unread {
    fn warn(&self, shown: &Path) {
        let shown = shown.display();
        if let Some(first) = &self.first_list {
            log::warn!(
                "{shown}: access control lists of {} entries ({first} is the first) are left out: they name users \
                 or groups without their numbers, or are of NFS. `tar --xattrs --xattrs-include='*'` keeps the \
                 numbers",
                self.access_lists
            );
        }
        if self.labels > 0 {
            log::warn!("{shown}: SELinux labels of {} entries are left out", self.labels);
        }
    }
}

/// An error of an archive, or of its entry.
pub(super) fn archive_error(path: &Path, entry: Option<String>, fault: ArchiveFault) -> SourceError {
    SourceError::Archive { path: PathBuf::from(path), entry, fault: Box::new(fault) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_attributes_counts() {
        let attribute = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let all = vec![attribute("user.b", "1"), attribute("user.a", "2"), attribute("user.b", "3")];
        assert_eq!(last_of_each(all), [attribute("user.a", "2"), attribute("user.b", "3")]);
    }
}
