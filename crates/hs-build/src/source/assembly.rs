//! From the entries of a tree, in one order whatever they come from, to the plan of a file system and a
//! digest of it all.

use std::io;

use hs_ext4::{Attributes, Kind, MOST_FILE_BYTES, Meta, NodeId, Plan, Refusal, Time};

use super::file_data::{Content, FileReader};
use super::libraries::Libraries;
use super::like::ContentDigest;

/// The bits of a mode that say what an entry is, as stat(2) has them.
pub(super) mod file_type {
    pub(in super::super) const MASK: u16 = 0o170_000;
    pub(in super::super) const REGULAR: u16 = 0o100_000;
    pub(in super::super) const DIRECTORY: u16 = 0o040_000;
    pub(in super::super) const SYMLINK: u16 = 0o120_000;
    pub(in super::super) const BLOCK_DEVICE: u16 = 0o060_000;
    pub(in super::super) const CHARACTER_DEVICE: u16 = 0o020_000;
    pub(in super::super) const FIFO: u16 = 0o010_000;
}

/// What is said of an entry beside its name, its attributes and its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    /// Type and permissions, as stat(2) has them.
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The size of a file; of anything else it has no meaning.
    pub(super) bytes: u64,
    /// Major and minor number of a device.
    pub(super) device: (u32, u32),
    pub(super) modified: Time,
}

impl Status {
    pub(super) const fn is(&self, kind: u16) -> bool {
        self.mode & file_type::MASK == kind
    }

    fn meta<'a>(&self, attributes: &'a Attributes) -> Meta<'a> {
        Meta {
            permissions: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            modified: self.modified,
            attributes,
        }
    }
}

/// What an entry holds.
pub(super) enum Payload<'a> {
    /// The content of a file.
    File(&'a dyn Content),
    /// The target of a symbolic link.
    Symlink(&'a [u8]),
    /// Its status says everything.
    Nothing,
}

/// Why an entry could not be taken up. The caller knows its path.
#[derive(Debug)]
pub(super) enum Fault {
    /// ext4 cannot hold it.
    Refused(Refusal),
    /// Its content could not be read.
    Unreadable(io::Error),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A tree under way. Folders come depth first, each with all its entries in byte order, so that equal trees
/// give equal plans and digests.
pub(super) struct Assembly {
    plan: Plan,
    names: blake3::Hasher,
    file_reader: FileReader,
    /// By node, as far as they have one.
    contents: Vec<Option<ContentDigest>>,
    libraries: Libraries,
}

/// A tree that is complete.
pub(super) struct Assembled {
    pub(super) plan: Plan,
    /// Names, attributes and data; not change and access times, nor inode numbers, nor where holes are.
    pub(super) digest: blake3::Hash,
    /// Of files, by node, where they were asked for.
    pub(super) contents: Vec<Option<ContentDigest>>,
    /// Libraries that many of its programs need, the most needed first.
    pub(super) common: Vec<NodeId>,
}

impl Assembly {
    /// A tree with a root. Each file gets a digest of its own, if `has_contents`.
    pub(super) fn new(root: &Status, attributes: &Attributes, has_contents: bool) -> Result<Self, Refusal> {
        let mut assembly = Self {
            plan: Plan::new(&root.meta(attributes))?,
            names: blake3::Hasher::new(),
            file_reader: FileReader::new(has_contents),
            contents: Vec::new(),
            libraries: Libraries::default(),
        };
        assembly.hash_attributes(attributes);
        assembly.hash_entry(NodeId::ROOT, NodeId::ROOT, b"", root);
        Ok(assembly)
    }

    pub(super) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The node of the next entry that is not a further name.
    pub(super) fn next_node(&self) -> NodeId {
        self.plan.node(self.plan.nodes())
    }

    /// Entries and bytes of files so far.
    pub(super) fn done(&self) -> (u64, u64) {
        (self.plan.nodes() as u64, self.file_reader.bytes())
    }

    /// Takes up a further name of a node.
    pub(super) fn link(
        &mut self,
        parent: NodeId,
        name: &[u8],
        status: &Status,
        first: NodeId,
    ) -> Result<(), Refusal> {
        self.hash_entry(parent, first, name, status);
        self.plan.link(parent, name, first)
    }

    /// Takes up an entry.
    pub(super) fn add(
        &mut self,
        parent: NodeId,
        name: &[u8],
        status: &Status,
        attributes: &Attributes,
        payload: &Payload<'_>,
    ) -> Result<NodeId, Fault> {
        self.hash_entry(parent, self.next_node(), name, status);
        self.hash_attributes(attributes);
        let (major, minor) = status.device;
        let runs;
        let kind = match payload {
            Payload::File(_) if status.bytes > MOST_FILE_BYTES => return Err(Refusal::FileSize.into()),
            Payload::File(content) => {
                let read = self.file_reader.read(*content, status.bytes, &mut self.names);
                runs = read.map_err(Fault::Unreadable)?;
                Kind::File { bytes: status.bytes, runs: &runs }
            }
            Payload::Symlink(target) => {
                hash_bytes(&mut self.names, target);
                Kind::Symlink(target)
            }
            Payload::Nothing => match status.mode & file_type::MASK {
                file_type::DIRECTORY => Kind::Directory,
                file_type::BLOCK_DEVICE => Kind::BlockDevice { major, minor },
                file_type::CHARACTER_DEVICE => Kind::CharacterDevice { major, minor },
                file_type::FIFO => Kind::Fifo,
                _ => Kind::Socket,
            },
        };
        let node = self.plan.add(parent, name, &kind, &status.meta(attributes))?;
        if let Some(content) = self.file_reader.content() {
            self.contents.resize(node.index(), None);
            self.contents.push(Some(content));
        }
        match payload {
            Payload::File(content) if self.file_reader.is_elf() => {
                self.libraries.add(node, name, *content, status.bytes);
            }
            Payload::Symlink(target) => self.libraries.add_link(name, target),
            _ => {}
        }
        Ok(node)
    }

    /// The tree. `shown` names it in a warning.
    pub(super) fn finish(mut self, shown: &std::path::Path) -> Assembled {
        self.names.update(self.file_reader.digest().as_bytes());
        if self.plan.moved_times() > 0 {
            log::warn!(
                "{}: {} times before 1901 or after 2446 become the nearest that ext4 has",
                shown.display(),
                self.plan.moved_times()
            );
        }
        let common = self.libraries.common(&self.plan);
        Assembled { plan: self.plan, digest: self.names.finalize(), contents: self.contents, common }
    }

    fn hash_attributes(&mut self, attributes: &Attributes) {
        self.names.update(&(attributes.len() as u64).to_le_bytes());
        for (name, value) in attributes {
            hash_bytes(&mut self.names, name);
            hash_bytes(&mut self.names, value);
        }
    }

    fn hash_entry(&mut self, parent: NodeId, node: NodeId, name: &[u8], status: &Status) {
        hash_bytes(&mut self.names, name);
        for number in [
            parent.index() as u64,
            node.index() as u64,
            u64::from(status.mode),
            u64::from(status.uid),
            u64::from(status.gid),
            // The size of a directory depends on the file system that it lies on.
            if status.is(file_type::REGULAR) { status.bytes } else { 0 },
            u64::from(status.device.0) << 32 | u64::from(status.device.1),
            status.modified.seconds.cast_unsigned(),
            u64::from(status.modified.nanoseconds),
        ] {
            self.names.update(&number.to_le_bytes());
        }
    }
}

/// Adds bytes with their length, so that no two sequences of calls look the same.
fn hash_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}
