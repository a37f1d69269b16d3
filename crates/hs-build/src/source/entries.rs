//! The tree that archives describe, in memory: names and attributes, with the places of contents.
//!
//! What an archive does to the tree is what unpacking it by a program that cannot leave its root would do:
//!
//! - Names begin at the root, with or without a slash before. `..` in the name of an entry, or in what a hard
//!   link names, is refused.
//! - A parent that is a symbolic link is followed, within the tree; the last part of a name is not.
//! - A parent that is missing becomes a directory of root's with permissions 755.
//! - What has the same name as an entry before replaces it; a directory keeps what is in it where it is
//!   replaced by a directory.
//! - A layer's whiteouts take away what layers below have, and nothing of its own.

use std::collections::BTreeMap;

use hs_ext4::{Attributes, Time};

use super::archive_fault::ArchiveFault;
use super::assembly::{Status, file_type};
use super::contents::Stored;

/// A node of the tree; the root is the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EntryId(u32);

impl EntryId {
    pub(super) const ROOT: Self = Self(0);

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The most entries of a tree.
pub(super) const MOST_ENTRIES: usize = 16 << 20;
/// The most bytes of names, targets of links and attributes.
pub(super) const MOST_NAME_BYTES: u64 = 1 << 30;
/// Symbolic links that the way to one entry may have, as for the kernel.
const MOST_FOLLOWED: u32 = 40;
/// Bytes of a symbolic link's target, as for the kernel.
const MOST_TARGET_BYTES: usize = 4095;
/// Permissions of directories that no entry is for.
const MISSING_MODE: u16 = file_type::DIRECTORY | 0o755;
const NO_ATTRIBUTES: u32 = u32::MAX;

/// What an entry is.
#[derive(Debug)]
enum Body {
    Directory(Box<Names>),
    File(Stored),
    Symlink(Box<[u8]>),
    Device(u32, u32),
    Other,
}

/// What an entry that is added is.
#[derive(Debug)]
pub(super) enum NewBody<'a> {
    Directory,
    File(Stored),
    Symlink(&'a [u8]),
    Device(u32, u32),
    Other,
}

/// A name leads to a node, and has been given by a layer.
#[derive(Clone, Copy, Debug)]
struct Named {
    node: EntryId,
    layer: u32,
}

type Names = BTreeMap<Box<[u8]>, Named>;

#[derive(Debug)]
struct Node {
    body: Body,
    modified: Time,
    uid: u32,
    gid: u32,
    attributes: u32,
    mode: u16,
}

/// A tree of entries.
#[derive(Debug)]
pub(super) struct EntryTree {
    nodes: Vec<Node>,
    sets: Vec<Box<Attributes>>,
    known_sets: BTreeMap<Box<Attributes>, u32>,
    name_bytes: u64,
    layer: u32,
}

/// One level of a tree: a name, and what it leads to.
pub(super) type NamedEntry<'a> = (&'a [u8], EntryId);

impl EntryTree {
    /// An empty directory.
    pub(super) fn new() -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            sets: Vec::new(),
            known_sets: BTreeMap::new(),
            name_bytes: 0,
            layer: 0,
        };
        tree.nodes.push(missing_directory());
        tree
    }

    /// Entries that were added, those that are gone included.
    pub(super) fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// What comes now is a layer above all that came before.
    pub(super) fn next_layer(&mut self) {
        self.layer += 1;
    }

    /// Adds an entry, or replaces the one of that name. Of `status`, the type says nothing: that is the body.
    pub(super) fn put(
        &mut self,
        path: &[u8],
        status: &Status,
        attributes: Vec<(Vec<u8>, Vec<u8>)>,
        body: &NewBody<'_>,
    ) -> Result<(), ArchiveFault> {
        let attributes = self.intern(attributes)?;
        let parts = parts(path)?;
        let Some((&name, folders)) = parts.split_last() else {
            if !matches!(body, NewBody::Directory) {
                return Err(ArchiveFault::RootIsDirectory);
            }
            self.nodes[0].describe(status, attributes);
            return Ok(());
        };
        let parent = self.make_folders(folders)?;
        let known = self.lookup(parent, name);
        if let (NewBody::Directory, Some(Named { node, .. })) = (body, known)
            && matches!(self.nodes[node.index()].body, Body::Directory(_))
        {
            self.nodes[node.index()].describe(status, attributes);
            return self.name(parent, name, node);
        }
        let mut node = missing_directory();
        node.describe(status, attributes);
        node.body = match *body {
            NewBody::Directory => Body::Directory(Box::default()),
            NewBody::File(content) => Body::File(content),
            NewBody::Symlink(target) => {
                if target.len() > MOST_TARGET_BYTES {
                    return Err(ArchiveFault::LongTarget { most_bytes: MOST_TARGET_BYTES });
                }
                self.count_bytes(target.len())?;
                Body::Symlink(target.into())
            }
            NewBody::Device(major, minor) => Body::Device(major, minor),
            NewBody::Other => Body::Other,
        };
        let node = self.push(node)?;
        self.name(parent, name, node)
    }

    /// Gives a further name to what is there by the name `target`.
    pub(super) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ArchiveFault> {
        let missing = || ArchiveFault::LinkToNothing { target: shown(target) };
        let node = self.find_last(target)?.ok_or_else(missing)?;
        if matches!(self.nodes[node.index()].body, Body::Directory(_)) {
            return Err(ArchiveFault::LinkToDirectory { target: shown(target) });
        }
        let parts = parts(path)?;
        let (&name, folders) = parts.split_last().ok_or(ArchiveFault::RootIsDirectory)?;
        let parent = self.make_folders(folders)?;
        self.name(parent, name, node)
    }

    /// Takes away what layers below have by this name.
    pub(super) fn white_out(&mut self, path: &[u8]) -> Result<(), ArchiveFault> {
        let parts = parts(path)?;
        let Some((&name, folders)) = parts.split_last() else { return Ok(()) };
        let Some(parent) = self.walk(folders)? else { return Ok(()) };
        let Some(Named { node, layer }) = self.lookup(parent, name) else { return Ok(()) };
        let keeps = self.purge(node) || layer == self.layer;
        if !keeps && let Body::Directory(names) = &mut self.nodes[parent.index()].body {
            names.remove(name);
        }
        Ok(())
    }

    /// Takes away everything that layers below have in this directory.
    pub(super) fn make_opaque(&mut self, path: &[u8]) -> Result<(), ArchiveFault> {
        if let Some(node) = self.walk(&parts(path)?)? {
            self.purge(node);
        }
        Ok(())
    }

    /// Takes everything that is not of this layer out of a directory, whether anything is left.
    fn purge(&mut self, top: EntryId) -> bool {
        // Parents come before what is in them, and are done after it: names may be nested without end.
        let mut folders = vec![top];
        let mut next = 0;
        while let Some(&folder) = folders.get(next) {
            if let Body::Directory(names) = &self.nodes[folder.index()].body {
                let below = names.values().map(|named| named.node);
                folders
                    .extend(below.filter(|node| matches!(self.nodes[node.index()].body, Body::Directory(_))));
            }
            next += 1;
        }
        for folder in folders.into_iter().rev() {
            let Body::Directory(names) = &mut self.nodes[folder.index()].body else { continue };
            let mut names = std::mem::take(names);
            let has_names = |node: EntryId| matches!(&self.nodes[node.index()].body, Body::Directory(names) if !names.is_empty());
            names.retain(|_, named| named.layer == self.layer || has_names(named.node));
            self.nodes[folder.index()].body = Body::Directory(names);
        }
        matches!(&self.nodes[top.index()].body, Body::Directory(names) if !names.is_empty())
    }

    /// The entry of this name, with links followed everywhere but at its end.
    fn find_last(&self, path: &[u8]) -> Result<Option<EntryId>, ArchiveFault> {
        let parts = parts(path)?;
        let Some((&name, folders)) = parts.split_last() else { return Ok(Some(EntryId::ROOT)) };
        let parent = self.walk(folders)?;
        Ok(parent.and_then(|parent| self.lookup(parent, name)).map(|named| named.node))
    }

    /// The entry that a path leads to, with all links followed.
    pub(super) fn find(&self, path: &[u8]) -> Result<Option<EntryId>, ArchiveFault> {
        self.walk(&parts(path)?)
    }

    fn lookup(&self, folder: EntryId, name: &[u8]) -> Option<Named> {
        match &self.nodes[folder.index()].body {
            Body::Directory(names) => names.get(name).copied(),
            _ => None,
        }
    }

    /// Where these names lead from the root.
    fn walk(&self, names: &[&[u8]]) -> Result<Option<EntryId>, ArchiveFault> {
        let mut way = Way::new(names);
        while let Some(name) = way.next_name() {
            let Some(Named { node, .. }) = self.lookup(way.at(), &name) else { return Ok(None) };
            match &self.nodes[node.index()].body {
                Body::Symlink(target) => way.follow(target)?,
                _ => way.enter(node),
            }
        }
        Ok(Some(way.at()))
    }

    /// Where these names lead, which become directories where nothing is.
    fn make_folders(&mut self, names: &[&[u8]]) -> Result<EntryId, ArchiveFault> {
        let mut way = Way::new(names);
        while let Some(name) = way.next_name() {
            let node = match self.lookup(way.at(), &name) {
                Some(named) => named.node,
                None => {
                    let node = self.push(missing_directory())?;
                    self.name(way.at(), &name, node)?;
                    node
                }
            };
            match &self.nodes[node.index()].body {
                Body::Symlink(target) => way.follow(target)?,
                Body::Directory(_) => way.enter(node),
                _ => return Err(ArchiveFault::NotADirectory { name: shown(&name) }),
            }
        }
        match &self.nodes[way.at().index()].body {
            Body::Directory(_) => Ok(way.at()),
            _ => Err(ArchiveFault::NotADirectory { name: String::new() }),
        }
    }

    fn push(&mut self, node: Node) -> Result<EntryId, ArchiveFault> {
        if self.nodes.len() >= MOST_ENTRIES {
            return Err(ArchiveFault::TooManyEntries { most: MOST_ENTRIES });
        }
        self.nodes.push(node);
        Ok(EntryId(u32::try_from(self.nodes.len() - 1).expect("bounded above")))
    }

    fn name(&mut self, parent: EntryId, name: &[u8], node: EntryId) -> Result<(), ArchiveFault> {
        let layer = self.layer;
        let Body::Directory(names) = &mut self.nodes[parent.index()].body else {
            return Err(ArchiveFault::NotADirectory { name: shown(name) });
        };
        if let Some(named) = names.get_mut(name) {
            *named = Named { node, layer };
            return Ok(());
        }
        names.insert(name.into(), Named { node, layer });
        self.count_bytes(name.len())
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), ArchiveFault> {
        self.name_bytes += bytes as u64;
        if self.name_bytes > MOST_NAME_BYTES {
            return Err(ArchiveFault::TooManyNameBytes { most_bytes: MOST_NAME_BYTES });
        }
        Ok(())
    }

    fn intern(&mut self, mut attributes: Vec<(Vec<u8>, Vec<u8>)>) -> Result<u32, ArchiveFault> {
        if attributes.is_empty() {
            return Ok(NO_ATTRIBUTES);
        }
        attributes.sort_unstable();
        let set = attributes.into_boxed_slice();
        if let Some(&known) = self.known_sets.get(&set) {
            return Ok(known);
        }
        // Each is kept twice.
        self.count_bytes(2 * set.iter().map(|(name, value)| name.len() + value.len() + 96).sum::<usize>())?;
        let number = u32::try_from(self.sets.len()).expect("fewer sets than entries");
        self.sets.push(set.clone());
        self.known_sets.insert(set, number);
        Ok(number)
    }

    /// What is in a directory, in byte order; nothing for anything else.
    pub(super) fn names(&self, folder: EntryId) -> impl DoubleEndedIterator<Item = NamedEntry<'_>> {
        let names = match &self.nodes[folder.index()].body {
            Body::Directory(names) => Some(names.iter()),
            _ => None,
        };
        names.into_iter().flatten().map(|(name, named)| (&**name, named.node))
    }

    /// What is said of an entry.
    pub(super) fn status(&self, node: EntryId) -> Status {
        let node = &self.nodes[node.index()];
        let bytes = if let Body::File(content) = &node.body { content.bytes } else { 0 };
        let device = if let Body::Device(major, minor) = node.body { (major, minor) } else { (0, 0) };
        Status { mode: node.mode, uid: node.uid, gid: node.gid, bytes, device, modified: node.modified }
    }

    /// The attributes of an entry, sorted.
    pub(super) fn attributes(&self, node: EntryId) -> &Attributes {
        self.sets.get(self.nodes[node.index()].attributes as usize).map_or(&[], |set| set)
    }

    /// The content of a file.
    pub(super) fn content(&self, node: EntryId) -> Option<Stored> {
        match self.nodes[node.index()].body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self, node: EntryId) -> Option<&[u8]> {
        match &self.nodes[node.index()].body {
            Body::Symlink(target) => Some(target),
            _ => None,
        }
    }
}

impl Node {
    fn describe(&mut self, status: &Status, attributes: u32) {
        (self.mode, self.uid, self.gid) = (status.mode, status.uid, status.gid);
        (self.modified, self.attributes) = (status.modified, attributes);
    }
}

fn missing_directory() -> Node {
    Node {
        body: Body::Directory(Box::default()),
        modified: Time::default(),
        uid: 0,
        gid: 0,
        attributes: NO_ATTRIBUTES,
        mode: MISSING_MODE,
    }
}

/// The way from the root along names, some of which may be links.
struct Way {
    /// Where it has come, with the directories that it came through: `..` of a link leads back there.
    through: Vec<EntryId>,
    /// What is to come, the next one last.
    names: Vec<Box<[u8]>>,
    followed: u32,
}

impl Way {
    fn new(names: &[&[u8]]) -> Self {
        let names = names.iter().rev().map(|&name| name.into()).collect();
        Self { through: vec![EntryId::ROOT], names, followed: 0 }
    }

    fn at(&self) -> EntryId {
        *self.through.last().expect("the root stays")
    }

    fn enter(&mut self, node: EntryId) {
        self.through.push(node);
    }

    fn next_name(&mut self) -> Option<Box<[u8]>> {
        loop {
            let name = self.names.pop()?;
            if &*name != b".." {
                return Some(name);
            }
            // Above the root is the root.
            if self.through.len() > 1 {
                self.through.pop();
            }
        }
    }

    fn follow(&mut self, target: &[u8]) -> Result<(), ArchiveFault> {
        self.followed += 1;
        if self.followed > MOST_FOLLOWED {
            return Err(ArchiveFault::TooManyLinks);
        }
        if target.first() == Some(&b'/') {
            self.through.truncate(1);
        }
        let names = target.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && name != b".");
        self.names.extend(names.rev().map(Into::into));
        Ok(())
    }
}

/// The names of a path from the root.
fn parts(path: &[u8]) -> Result<Vec<&[u8]>, ArchiveFault> {
    let parts: Vec<&[u8]> =
        path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && part != b".").collect();
    if parts.contains(&&b".."[..]) {
        return Err(ArchiveFault::Above { name: shown(path) });
    }
    Ok(parts)
}

/// As it is shown in a message.
pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests;
