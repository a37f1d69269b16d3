//! What the file system shall hold: entries, without the data of files.

use std::collections::BTreeMap;
use std::sync::Arc;

use hs_units::{BLOCK_BYTES, to_u32, to_usize};

use crate::attributes::{self, AttributeSet};
use crate::earlier::{Earlier, KeptNode};
use crate::error::{LayoutError, Refusal};
use crate::extents::{EXTENT_BLOCKS, Extent};
use crate::inode;
use crate::layout::{Layout, LayoutOptions};

/// Names of one file, as ext4 counts them.
pub(crate) const MOST_LINKS: u32 = 65_000;
/// Symbolic links of fewer bytes lie in the inode.
pub(crate) const SHORT_TARGET: u64 = 60;
/// The largest file that ext4 holds.
pub const MOST_FILE_BYTES: u64 = (u32::MAX as u64) * BLOCK_BYTES;
const NO_ATTRIBUTES: u32 = u32::MAX;

/// An entry's inode, in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    /// Its place in the order in which nodes were added; the root is 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The number of its inode.
    #[must_use]
    pub const fn inode(self) -> u32 {
        // 1 and 3 to 10 are reserved.
        if self.0 == 0 { 2 } else { self.0 + 10 }
    }
}

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// Extended attributes: full names, and values as system calls give them.
pub type Attributes = [(Vec<u8>, Vec<u8>)];

/// What every entry has.
#[derive(Clone, Copy, Default, Debug)]
pub struct Meta<'a> {
    /// Permissions, the lower 12 bits of the mode.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// Becomes all four times of the inode. Times before 1901 and after 2446 are moved to the nearest end.
    pub modified: Time,
    /// Extended attributes in any order.
    pub attributes: &'a Attributes,
}

/// Blocks of a file that are stored; what lies between runs is holes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataRun {
    /// The first block, counted in the file.
    pub first: u32,
    /// How many.
    pub blocks: u32,
}

/// What an entry is.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Its size.
        bytes: u64,
        /// What of it is stored: ascending, within the size.
        runs: &'a [DataRun],
    },
    /// A symbolic link, with its target.
    Symlink(&'a [u8]),
    /// A block device.
    BlockDevice {
        /// The upper part of its number.
        major: u32,
        /// The lower part of its number.
        minor: u32,
    },
    /// A character device.
    CharacterDevice {
        /// The upper part of its number.
        major: u32,
        /// The lower part of its number.
        minor: u32,
    },
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

/// An inode to be. `first` is the first block of a file or directory, the place of a target in
/// [`Plan::names`], or the number of a device.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) size: u64,
    pub(crate) first: u64,
    pub(crate) time: inode::EncodedTime,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u32,
    /// Blocks of data that are stored.
    pub(crate) blocks: u32,
    /// Where its extents begin in [`Plan::extents`], and how many there are; none when its blocks are one run
    /// that begins with the file.
    pub(crate) extents: (u32, u32),
    /// Sets of attributes; the second becomes the number of a block.
    pub(crate) attributes: u32,
    pub(crate) attribute_block: u32,
    pub(crate) entry: u32,
    pub(crate) mode: u16,
}

impl Node {
    pub(crate) fn is(&self, file_type: u16) -> bool {
        self.mode & inode::TYPE == file_type
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Where it lies in [`Plan::names`].
    name: u64,
    pub(crate) parent: u32,
    pub(crate) node: u32,
    name_len: u8,
}

/// Equal sets of attributes, kept once.
#[derive(Default, Debug)]
pub(crate) struct Sets {
    sets: Vec<Arc<AttributeSet>>,
    known: BTreeMap<Arc<AttributeSet>, u32>,
}

impl Sets {
    fn intern(&mut self, set: AttributeSet) -> u32 {
        if set.is_empty() {
            return NO_ATTRIBUTES;
        }
        if let Some(&known) = self.known.get(&set) {
            return known;
        }
        let (set, number) = (Arc::new(set), to_u32(self.sets.len() as u64));
        self.sets.push(Arc::clone(&set));
        self.known.insert(set, number);
        number
    }

    /// The set with this number, if it is one.
    pub(crate) fn get(&self, number: u32) -> Option<&AttributeSet> {
        self.sets.get(number as usize).map(|set| &**set)
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }
}

/// A tree to be laid out.
#[derive(Debug)]
pub struct Plan {
    pub(crate) nodes: Vec<Node>,
    pub(crate) entries: Vec<Entry>,
    /// Names and targets of links.
    pub(crate) names: Vec<u8>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) sets: Sets,
    /// Files whose data is that of others.
    pub(crate) shared: Vec<(u32, u32)>,
    moved_times: u64,
}

impl Plan {
    /// A plan with a root directory.
    ///
    /// # Errors
    /// [`Refusal::Attributes`], [`Refusal::AccessList`].
    pub fn new(root: &Meta<'_>) -> Result<Self, Refusal> {
        let mut plan = Self {
            nodes: Vec::new(),
            entries: Vec::new(),
            names: Vec::new(),
            extents: Vec::new(),
            sets: Sets::default(),
            shared: Vec::new(),
            moved_times: 0,
        };
        plan.push_node(&Kind::Directory, root)?;
        plan.push_entry(NodeId::ROOT, b"", NodeId::ROOT);
        Ok(plan)
    }

    /// Adds an entry to a directory. Inodes have the order in which entries are added.
    ///
    /// # Errors
    /// The [`Refusal`] of what ext4 cannot hold. The plan is as before.
    ///
    /// # Panics
    /// When the parent is no directory, or runs do not ascend within the size.
    pub fn add(
        &mut self,
        parent: NodeId,
        name: &[u8],
        kind: &Kind<'_>,
        meta: &Meta<'_>,
    ) -> Result<NodeId, Refusal> {
        self.check_name(parent, name)?;
        let node = self.push_node(kind, meta)?;
        self.push_entry(parent, name, node);
        if matches!(kind, Kind::Directory) {
            self.nodes[parent.index()].links += 1;
        }
        Ok(node)
    }

    /// Adds a further name of a node.
    ///
    /// # Errors
    /// [`Refusal::Links`] above 65,000 names, [`Refusal::Name`].
    ///
    /// # Panics
    /// When the parent is no directory, or the node is one.
    pub fn link(&mut self, parent: NodeId, name: &[u8], node: NodeId) -> Result<(), Refusal> {
        self.check_name(parent, name)?;
        let linked = &mut self.nodes[node.index()];
        assert!(!linked.is(inode::DIRECTORY), "a directory has one name");
        if linked.links >= MOST_LINKS {
            return Err(Refusal::Links);
        }
        linked.links += 1;
        self.push_entry(parent, name, node);
        Ok(())
    }

    /// Stores the data of two files once, which the caller knows to be equal. The kernel mounts such a file
    /// system for reading only.
    ///
    /// # Panics
    /// When sizes or runs differ.
    pub fn share(&mut self, file: NodeId, with: NodeId) {
        let (one, other) = (&self.nodes[file.index()], &self.nodes[with.index()]);
        let key = |node: &Node| (node.mode & inode::TYPE, node.size, node.blocks);
        assert_eq!(key(one), key(other), "files with the same data");
        assert!(self.extents_of(one) == self.extents_of(other), "files with the same holes");
        self.shared.push((file.0, with.0));
    }

    /// Gives everything its place. The data of the files in `first` comes first and in this order, then that
    /// of all others by folder and kind.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn lay_out(self, first: &[NodeId], options: &LayoutOptions) -> Result<Layout, LayoutError> {
        Layout::new(self, first, None, options)
    }

    /// Gives everything the place that it has in an earlier file system, if it has one there, as `kept` says
    /// of each node. What is new or has changed goes where all is free, in whole chunks, and free blocks
    /// beside what stays hold what they held: so chunks of the disk are the same where they can be.
    /// [`Layout::is_like_earlier`] says whether that could be done.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn lay_out_like(
        self,
        earlier: &Earlier,
        kept: &[KeptNode],
        options: &LayoutOptions,
    ) -> Result<Layout, LayoutError> {
        Layout::new(self, &[], Some((earlier, kept)), options)
    }

    /// Nodes so far.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The node with this place in the order in which they are added.
    #[must_use]
    pub fn node(&self, index: usize) -> NodeId {
        NodeId(to_u32(index as u64))
    }

    /// Times that were moved to the nearest one that ext4 has.
    #[must_use]
    pub const fn moved_times(&self) -> u64 {
        self.moved_times
    }

    /// The directory that a node lies in by its first name, and that name; nothing for the root.
    #[must_use]
    pub fn first_name(&self, node: NodeId) -> Option<(NodeId, &[u8])> {
        if node == NodeId::ROOT {
            return None;
        }
        let entry = &self.entries[self.nodes[node.index()].entry as usize];
        Some((NodeId(entry.parent), self.name(entry)))
    }

    /// The path of a node by its first name, from the root and without a slash before.
    #[must_use]
    pub fn path(&self, node: NodeId) -> Vec<u8> {
        let names = std::iter::successors(self.first_name(node), |(folder, _)| self.first_name(*folder));
        let mut names: Vec<&[u8]> = names.map(|(_, name)| name).collect();
        names.reverse();
        names.join(&b'/')
    }

    /// Each name of each node but the root, as a path from the root and without a slash before.
    pub fn names(&self) -> impl Iterator<Item = (NodeId, Vec<u8>)> {
        self.entries.iter().map(|entry| {
            let mut path = self.path(NodeId(entry.parent));
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(self.name(entry));
            (NodeId(entry.node), path)
        })
    }

    /// Whether a node is a directory.
    #[must_use]
    pub fn is_directory(&self, node: NodeId) -> bool {
        self.nodes[node.index()].is(inode::DIRECTORY)
    }

    /// The size of a file.
    #[must_use]
    pub fn bytes(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].size
    }

    pub(crate) fn name(&self, entry: &Entry) -> &[u8] {
        let start = to_usize(entry.name);
        &self.names[start..start + usize::from(entry.name_len)]
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&self, node: &Node) -> &[u8] {
        &self.names[to_usize(node.first)..to_usize(node.first + node.size)]
    }

    pub(crate) fn extents_of(&self, node: &Node) -> &[Extent] {
        let (start, count) = node.extents;
        &self.extents[start as usize..][..count as usize]
    }

    fn check_name(&self, parent: NodeId, name: &[u8]) -> Result<(), Refusal> {
        assert!(self.nodes[parent.index()].is(inode::DIRECTORY), "names are in directories");
        let is_name = (1..=255).contains(&name.len())
            && name != b"."
            && name != b".."
            && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if is_name { Ok(()) } else { Err(Refusal::Name) }
    }

    fn push_entry(&mut self, parent: NodeId, name: &[u8], node: NodeId) {
        let name_len = u8::try_from(name.len()).expect("names are checked");
        let start = self.names.len() as u64;
        self.names.extend_from_slice(name);
        self.entries.push(Entry { name: start, parent: parent.0, node: node.0, name_len });
    }

    fn push_node(&mut self, kind: &Kind<'_>, meta: &Meta<'_>) -> Result<NodeId, Refusal> {
        let number = u32::try_from(self.nodes.len()).ok().filter(|&number| number < u32::MAX - 10);
        let number = NodeId(number.ok_or(Refusal::Inodes)?);
        let (in_inode, in_block) = attributes::distribute(meta.attributes)?;
        let (time, moved) = inode::encode_time(meta.modified);
        let mut node = Node {
            size: 0,
            first: 0,
            time,
            uid: meta.uid,
            gid: meta.gid,
            links: 1,
            blocks: 0,
            extents: (0, 0),
            attributes: NO_ATTRIBUTES,
            attribute_block: NO_ATTRIBUTES,
            entry: to_u32(self.entries.len() as u64),
            mode: meta.permissions & !inode::TYPE,
        };
        node.mode |= self.fill(&mut node, kind)?;
        node.attributes = self.sets.intern(in_inode);
        node.attribute_block = self.sets.intern(in_block);
        self.moved_times += u64::from(moved);
        self.nodes.push(node);
        Ok(number)
    }

    /// Sets what depends on the kind, and gives the bits of the mode that say it.
    fn fill(&mut self, node: &mut Node, kind: &Kind<'_>) -> Result<u16, Refusal> {
        Ok(match *kind {
            Kind::Directory => {
                node.links = 2;
                inode::DIRECTORY
            }
            Kind::File { bytes, runs } => {
                if bytes > MOST_FILE_BYTES {
                    return Err(Refusal::FileSize);
                }
                node.size = bytes;
                self.push_extents(node, runs);
                inode::REGULAR
            }
            Kind::Symlink(target) => {
                if target.is_empty() || target.len() >= to_usize(BLOCK_BYTES) {
                    return Err(Refusal::Target);
                }
                node.size = target.len() as u64;
                node.first = self.names.len() as u64;
                self.names.extend_from_slice(target);
                inode::SYMLINK
            }
            Kind::BlockDevice { major, minor } => {
                node.first = device_number(major, minor)?;
                inode::BLOCK_DEVICE
            }
            Kind::CharacterDevice { major, minor } => {
                node.first = device_number(major, minor)?;
                inode::CHARACTER_DEVICE
            }
            Kind::Fifo => inode::FIFO,
            Kind::Socket => inode::SOCKET,
        })
    }

    fn push_extents(&mut self, node: &mut Node, runs: &[DataRun]) {
        let mut end = 0;
        for run in runs {
            assert!(run.blocks > 0 && run.first >= end, "runs ascend");
            end = run.first + run.blocks;
            node.blocks += run.blocks;
        }
        assert!(u64::from(end) <= node.size.div_ceil(BLOCK_BYTES), "runs lie within the size");
        if runs.len() < 2 && end == node.blocks {
            return;
        }
        let (start, mut before) = (self.extents.len(), 0);
        for run in runs {
            for first in (run.first..run.first + run.blocks).step_by(EXTENT_BLOCKS as usize) {
                let blocks = EXTENT_BLOCKS.min(run.first + run.blocks - first);
                self.extents.push(Extent { first, before, blocks });
                before += blocks;
            }
        }
        node.extents = (to_u32(start as u64), to_u32((self.extents.len() - start) as u64));
    }
}

/// The number of a device in one number, as the kernel keeps it in an inode.
fn device_number(major: u32, minor: u32) -> Result<u64, Refusal> {
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(Refusal::DeviceNumber);
    }
    Ok(u64::from(minor & 0xff | major << 8 | (minor & !0xff) << 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_less_than_200_bytes() {
        // Beside these, its place among the names of its directory and in the order of data. Lists grow by
        // doubling.
        let entry_bytes = size_of::<Node>() + size_of::<Entry>() + 2 * size_of::<u32>();
        assert!(2 * entry_bytes < 200, "{entry_bytes} bytes");
    }
}
