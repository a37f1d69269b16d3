//! A tree that is laid out like the disk of an image: which of its files that disk has, and where.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hs_ext4::{Earlier, KeptNode, Layout, NodeId, Plan};
use hs_format::Decompressor;
use hs_image::{Blocks, Image, LoadedChunk};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, to_usize};
use parking_lot::Mutex;

use super::SourceError;
use crate::ext4::{Ext4, Ext4Error, FileKind, ROOT_INODE, ReadDisk};

/// Bytes of a file that are hashed at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A digest of the blocks of a file that are not zeros, the last one filled up with zeros. Files with the
/// same one are laid out alike, wherever their holes are.
pub(super) type ContentDigest = blake3::Hash;

/// An inode of the earlier file system.
#[derive(Clone, Copy, Debug)]
struct OldNode {
    kind: FileKind,
    /// Where its content lies, if that is one run.
    place: Option<(u64, u64)>,
    content: Option<ContentDigest>,
}

/// What the earlier file system has.
#[derive(Debug)]
struct OldTree {
    nodes: BTreeMap<u32, OldNode>,
    /// By folder and name.
    names: HashMap<(u32, Vec<u8>), u32>,
}

/// The disk of an image that a tree is laid out like.
pub(super) struct LikeDisk {
    image: Arc<Image>,
    last: Mutex<LastWindow>,
    moves: Moves,
}

impl std::fmt::Debug for LikeDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LikeDisk").field("image", &self.image).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct LastWindow {
    tools: Option<Decompressor>,
    number: u64,
    raw: Option<Vec<u8>>,
}

/// Where the content of the earlier file system is now.
#[derive(Clone, Default, Debug)]
pub(crate) struct Moves {
    /// Runs of it in their order, and where each begins now with how many blocks, if it is there.
    runs: Vec<(BlockRange, Option<(u64, u64)>)>,
    /// The files whose content has changed: where it was, and where it is.
    changed: Vec<(BlockRange, BlockRange)>,
}

impl Moves {
    /// The files whose content has changed: where it was, and where it is.
    pub(crate) fn changed(&self) -> &[(BlockRange, BlockRange)] {
        &self.changed
    }

    /// Where a block of the earlier disk is now.
    pub(crate) fn of_block(&self, block: Lba) -> Option<Lba> {
        self.of(BlockRange::new(block, 1)).first().map(|now| now.start)
    }

    /// Where blocks of the earlier disk are now, in their order. What belongs to no file is where it was.
    pub(crate) fn of(&self, blocks: BlockRange) -> Vec<BlockRange> {
        let mut now: Vec<BlockRange> = Vec::new();
        let (mut at, end) = (blocks.start.0, blocks.start.0 + blocks.count);
        let mut next = self.runs.partition_point(|(run, _)| run.start.0 + run.count <= at);
        while at < end {
            let run = self.runs.get(next).filter(|(run, _)| run.start.0 < end);
            let Some((run, place)) = run.copied() else {
                now.push(BlockRange::new(Lba(at), end - at));
                break;
            };
            if at < run.start.0 {
                now.push(BlockRange::new(Lba(at), run.start.0 - at));
                at = run.start.0;
            }
            let (within, stop) = (at - run.start.0, end.min(run.start.0 + run.count));
            if let Some((first, count)) = place {
                let count = (stop - at).min(count.saturating_sub(within));
                now.extend((count > 0).then(|| BlockRange::new(Lba(first + within), count)));
            }
            at = stop;
            next += 1;
        }
        now
    }
}

/// Lays a tree out like the disk of an image; `contents` are those of its files by node. Without the second
/// result it could not be done, because the disk holds no file system of this crate, or one that cannot grow.
pub(super) fn lay_out(
    plan: Plan,
    contents: &[Option<ContentDigest>],
    image: &Arc<Image>,
    options: &hs_ext4::LayoutOptions,
) -> Result<(Result<Layout, hs_ext4::LayoutError>, Option<LikeDisk>), SourceError> {
    let mut blocks = Blocks::new(image);
    let Some(earlier) = earlier(image, &mut blocks).map_err(failed(image))? else {
        return Ok((plan.lay_out(&[], options), None));
    };
    let old = OldTree::read(image, &mut blocks)
        .map_err(|error| SourceError::NotLike { path: image.name().into(), reason: error.to_string() })?;
    let (kept, from) = old.keep(&plan, contents);
    let layout = match plan.lay_out_like(&earlier, &kept, options) {
        Ok(layout) if layout.is_like_earlier() => layout,
        other => return Ok((other, None)),
    };
    let moves = old.moves(&layout, &from, &kept);
    let like = LikeDisk { image: Arc::clone(image), last: Mutex::default(), moves };
    Ok((Ok(layout), Some(like)))
}

/// What the disk begins with, if that is a file system of this crate.
fn earlier(image: &Image, blocks: &mut Blocks<'_>) -> std::io::Result<Option<Earlier>> {
    let mut start = vec![0; to_usize(BLOCK_BYTES)];
    blocks.read_at(0, &mut start)?;
    let Some(needed) =
        Earlier::needed_blocks(&start).filter(|&needed| needed * BLOCK_BYTES <= image.disk_bytes())
    else {
        return Ok(None);
    };
    start.resize(to_usize(needed * BLOCK_BYTES), 0);
    blocks.read_at(0, &mut start)?;
    Ok(Earlier::read(&start, image.disk_bytes() / BLOCK_BYTES))
}

fn failed(image: &Image) -> impl Fn(std::io::Error) -> SourceError {
    let path = std::path::PathBuf::from(image.name());
    move |error| SourceError::Unreadable { path: path.clone(), error }
}

impl OldTree {
    /// Walks the file system, and reads the contents of its files.
    fn read(image: &Image, blocks: &mut Blocks<'_>) -> Result<Self, Ext4Error> {
        let mut old = Self { nodes: BTreeMap::new(), names: HashMap::new() };
        {
            let disk = ReadDisk::new(image.disk_bytes(), |offset, bytes| blocks.read_at(offset, bytes));
            let mut files = Ext4::open(disk)?;
            let mut pending = vec![ROOT_INODE];
            while let Some(number) = pending.pop() {
                if old.nodes.contains_key(&number) {
                    continue;
                }
                let inode = files.inode(number)?;
                let place = one_run(&files.runs(&inode)?);
                old.nodes.insert(number, OldNode { kind: inode.kind(), place, content: None });
                if inode.kind() == FileKind::Directory {
                    files.names(&inode, &mut |name, child| {
                        if name != b"." && name != b".." {
                            old.names.insert((number, name.to_vec()), child);
                            pending.push(child);
                        }
                        true
                    })?;
                }
            }
        }
        let mut by_place: Vec<(u64, u64, u32)> = old
            .nodes
            .iter()
            .filter(|(_, node)| node.kind == FileKind::Regular)
            .filter_map(|(&number, node)| node.place.map(|(first, count)| (first, count, number)))
            .collect();
        by_place.sort_unstable();
        let mut piece = vec![0; to_usize(PIECE_BYTES)];
        for (first, count, number) in by_place {
            let mut hasher = blake3::Hasher::new();
            let (mut at, end) = (first * BLOCK_BYTES, (first + count) * BLOCK_BYTES);
            while at < end {
                let piece = &mut piece[..to_usize(PIECE_BYTES.min(end - at))];
                blocks.read_at(at, piece).map_err(|error| Ext4Error::Read {
                    offset: at,
                    len: piece.len(),
                    error,
                })?;
                hasher.update(piece);
                at += piece.len() as u64;
            }
            old.nodes.entry(number).and_modify(|node| node.content = Some(hasher.finalize()));
        }
        Ok(old)
    }

    /// What of this each node of the plan has, and the inode that its content comes from.
    fn keep(
        &self,
        plan: &Plan,
        contents: &[Option<ContentDigest>],
    ) -> (Vec<KeptNode>, BTreeMap<u32, NodeId>) {
        let mut by_content: HashMap<ContentDigest, Vec<u32>> = HashMap::new();
        for (&number, node) in self.nodes.iter().rev() {
            node.content.iter().for_each(|content| by_content.entry(*content).or_default().push(number));
        }
        let mut kept = vec![KeptNode::default(); plan.nodes()];
        let mut from = BTreeMap::new();
        kept[0] = self.kept(plan, NodeId::ROOT, ROOT_INODE);
        for index in 1..plan.nodes() {
            let node = plan.node(index);
            let Some((folder, name)) = plan.first_name(node) else { continue };
            let key = (kept[folder.index()].inode, name.to_vec());
            let Some(&number) = self.names.get(&key).filter(|_| key.0 != 0) else { continue };
            kept[index] = self.kept(plan, node, number);
            let content = contents.get(index).copied().flatten();
            let old_content = self.nodes.get(&number).and_then(|old| old.content);
            kept[index].is_same = content.is_some() && content == old_content;
            if kept[index].place.is_some() {
                from.entry(number).or_insert(node);
            }
        }
        // What has moved in the tree, with the inode of its old path unless that has it still.
        for index in 1..plan.nodes() {
            let Some(content) = contents.get(index).copied().flatten().filter(|_| !kept[index].is_same)
            else {
                continue;
            };
            let has_moved =
                |number: &u32| from.get(number).is_none_or(|owner: &NodeId| !kept[owner.index()].is_same);
            let found =
                by_content.get(&content).and_then(|numbers| numbers.iter().rev().copied().find(has_moved));
            if let Some(number) = found {
                kept[index].place = self.nodes[&number].place;
                kept[index].is_same = true;
                from.insert(number, plan.node(index));
            }
        }
        (kept, from)
    }

    /// The inode and the place of an inode whose path a node has, if it is of the same kind.
    fn kept(&self, plan: &Plan, node: NodeId, inode: u32) -> KeptNode {
        let old = self.nodes.get(&inode).filter(|old| {
            matches!(old.kind, FileKind::Regular | FileKind::Directory | FileKind::Link)
                && (old.kind == FileKind::Directory) == plan.is_directory(node)
        });
        KeptNode { inode, place: old.and_then(|old| old.place), is_same: false }
    }

    fn moves(&self, layout: &Layout, from: &BTreeMap<u32, NodeId>, kept: &[KeptNode]) -> Moves {
        let mut moves = Moves::default();
        for (number, old) in self.nodes.iter().filter(|(_, old)| old.kind != FileKind::Link) {
            let Some((first, count)) = old.place else { continue };
            let (run, node) = (BlockRange::new(Lba(first), count), from.get(number).copied());
            let now = node.and_then(|node| layout.place(node));
            moves.runs.push((run, now));
            let is_changed = |node: NodeId| old.kind == FileKind::Regular && !kept[node.index()].is_same;
            if let Some((first, count)) = now.filter(|_| node.is_some_and(is_changed)) {
                moves.changed.push((run, BlockRange::new(Lba(first), count)));
            }
        }
        moves.runs.sort_unstable_by_key(|(run, _)| run.start);
        moves
    }
}

/// Runs as one, if they lie one behind the other.
fn one_run(runs: &[(u64, u64)]) -> Option<(u64, u64)> {
    let (&(first, _), mut end) = (runs.first()?, runs.first()?.0);
    for &(start, count) in runs {
        if start != end {
            return None;
        }
        end = start.checked_add(count)?;
    }
    Some((first, end - first))
}

impl LikeDisk {
    /// The image.
    pub(super) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Where its content is now.
    pub(super) const fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Fills `buf` with what the earlier disk has from `offset` on.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let mut last = self.last.lock();
        let window_bytes = self.image.window_bytes();
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (number, within) = (at / window_bytes, at % window_bytes);
            let (now, later) = rest.split_at_mut(rest.len().min(to_usize(window_bytes - within)));
            if last.tools.is_none() || last.number != number {
                let tools = last.tools.get_or_insert_with(Decompressor::new);
                let raw = self.image.load_window(number, tools).map_err(damaged)?;
                (last.number, last.raw) = (number, raw);
            }
            match &last.raw {
                Some(raw) => now.copy_from_slice(&raw[to_usize(within)..][..now.len()]),
                None => now.fill(0),
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// The chunk that the image has of a window with these bytes at this place, without raw bytes; none where
    /// it has other bytes, or takes some from a base.
    pub(super) fn chunk_of(&self, offset: u64, raw: &[u8]) -> Result<Option<LoadedChunk>, SourceError> {
        if !offset.is_multiple_of(self.image.window_bytes()) || offset >= self.image.disk_bytes() {
            return Ok(None);
        }
        let mut last = self.last.lock();
        let tools = last.tools.get_or_insert_with(Decompressor::new);
        let chunk = self.image.load_chunk(offset / self.image.window_bytes(), tools).map_err(damaged)?;
        let is_kept = |chunk: &LoadedChunk| {
            chunk.raw == raw && chunk.chunk.codec != hs_format::Codec::Composed && chunk.chunk.has_digest()
        };
        let chunk = chunk.filter(is_kept);
        Ok(chunk.map(|chunk| LoadedChunk { raw: Vec::new(), ..chunk }))
    }
}

fn damaged(error: hs_image::ImageError) -> SourceError {
    SourceError::Image(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_where_their_files_are() {
        let range = |start, count| BlockRange::new(Lba(start), count);
        let moves = Moves {
            runs: vec![
                (range(10, 4), Some((100, 4))),
                (range(14, 2), None),
                (range(20, 5), Some((20, 5))),
                (range(30, 5), Some((200, 3))),
            ],
            changed: Vec::new(),
        };
        assert_eq!(moves.of(range(0, 5)), [range(0, 5)]);
        assert_eq!(moves.of(range(8, 16)), [range(8, 2), range(100, 4), range(16, 4), range(20, 4)]);
        assert_eq!(moves.of(range(12, 3)), [range(102, 2)]);
        assert_eq!(moves.of(range(32, 9)), [range(202, 1), range(35, 6)]);
    }

    #[test]
    fn only_runs_one_behind_the_other_are_a_place() {
        assert_eq!(one_run(&[(5, 2), (7, 1)]), Some((5, 3)));
        assert_eq!(one_run(&[(5, 2), (8, 1)]), None);
        assert_eq!(one_run(&[]), None);
        assert_eq!(one_run(&[(u64::MAX, 2)]), None);
    }
}
