//! Carries a profile over to another disk, by the contents of its blocks.

use std::collections::HashMap;

use hs_units::{BLOCK_BYTES, BlockRange, Digest, Lba};

use crate::{BlockDigest, BlockSet, FileMap, FileRun, FileUse, Profile, Read, RecordedBlocks};

/// Where the blocks of a profile lie on another disk.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Addresses at which both disks hold the same block.
    pub same: BlockSet,
    /// Addresses of each block on the other disk, ascending; of many only some.
    pub elsewhere: HashMap<BlockDigest, Vec<Lba>>,
}

/// A file of the other disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundFile {
    /// Its inode number there.
    pub inode: u64,
    /// Blocks of metadata that looking it up and opening it reads, beyond those of files before it.
    pub lookup: Vec<(Lba, BlockDigest)>,
}

/// A profile on another disk.
#[derive(Clone, PartialEq, Debug)]
pub struct Remapped {
    /// The profile. Of its files those stay that the other disk has too.
    pub profile: Profile,
    /// Distinct blocks of the first profile.
    pub blocks: u64,
    /// Of these, blocks that the other disk has.
    pub matched: u64,
    /// Of these, blocks that it has at another address.
    pub moved: u64,
    /// Files of the first profile.
    pub files: u64,
    /// Of these, files that the other disk has under the same path.
    pub matched_files: u64,
}

impl Profile {
    /// This profile for the disk with `digest` and size, which has its blocks at `places`. Of its reads only
    /// those stay that were the first of a block.
    ///
    /// A block that lies where it was stays there. Of several other addresses, the one is taken that is as
    /// far from the last found block as it was before, or nearest to that: files move as wholes. A block of
    /// zeros is found only where it was, since it could belong to any file.
    ///
    /// `files` are those that the other disk has under the paths of this profile's. Their metadata is added
    /// before their first block: with other inode numbers, inode tables and directories are other blocks.
    #[must_use]
    pub fn remap(
        &self,
        digest: Digest,
        disk_bytes: u64,
        places: &Places,
        files: &HashMap<&str, FoundFile>,
    ) -> Remapped {
        let disk_blocks = disk_bytes.div_ceil(BLOCK_BYTES);
        let found = FoundBlocks::new(self, places, disk_blocks);
        let mut metadata =
            Metadata { owners: FileMap::new(&self.files), files: files.clone(), added: HashMap::new() };
        let mut seen = BlockSet::new();
        let mut reads = Vec::new();
        for read in &self.reads {
            seen.insert(read.blocks, |first| {
                metadata.add(read, first, disk_blocks, &mut reads);
                remap_run(read, first, &found, &mut reads);
            });
        }
        let mut profile = Self {
            disk_digest: digest,
            disk_bytes,
            command: self.command.clone(),
            medium: self.medium.clone(),
            reads,
            digests: Vec::new(),
            files: self.files.iter().filter_map(|file| remap_file(file, &found, files)).collect(),
            ..*self
        };
        let recorded = RecordedBlocks::new(self);
        let digest_of = |lba: Lba| {
            let other = metadata.added.get(&lba).or_else(|| found.moved_digests.get(&lba)).copied();
            other.or_else(|| recorded.digest(lba)).expect("its reads are of blocks that were found")
        };
        let blocks = profile.first_access_runs().into_iter().flat_map(BlockRange::blocks);
        profile.digests = blocks.map(digest_of).collect();
        Remapped {
            blocks: self.digests.len() as u64,
            matched: found.matched,
            moved: found.moved.len() as u64,
            files: self.files.len() as u64,
            matched_files: profile.files.len() as u64,
            profile,
        }
    }
}

/// Where the blocks of a profile were found. Memory follows those that moved: the others are runs.
struct FoundBlocks<'a> {
    same: &'a BlockSet,
    disk_blocks: u64,
    moved: HashMap<Lba, Lba>,
    /// By the new addresses.
    moved_digests: HashMap<Lba, BlockDigest>,
    matched: u64,
}

impl<'a> FoundBlocks<'a> {
    fn new(profile: &Profile, places: &'a Places, disk_blocks: u64) -> Self {
        let (moved, moved_digests) = (HashMap::new(), HashMap::new());
        let mut found = Self { same: &places.same, disk_blocks, moved, moved_digests, matched: 0 };
        let zeroes = BlockDigest::of(&[]);
        let mut last: Option<(Lba, Lba)> = None;
        let blocks = profile.first_access_runs().into_iter().flat_map(BlockRange::blocks);
        for (old, digest) in blocks.zip(&profile.digests) {
            let new = if let Some(same) = found.place(old) {
                same
            } else {
                let expected = last.map_or(old.0, |(old_last, new_last)| {
                    new_last.0.saturating_add(old.0).saturating_sub(old_last.0)
                });
                let candidates = places.elsewhere.get(digest).filter(|_| *digest != zeroes);
                let nearest =
                    candidates.and_then(|all| all.iter().min_by_key(|lba| lba.0.abs_diff(expected)));
                let Some(&new) = nearest.filter(|new| new.0 < disk_blocks) else { continue };
                found.moved.insert(old, new);
                found.moved_digests.insert(new, *digest);
                new
            };
            found.matched += 1;
            last = Some((old, new));
        }
        found
    }

    fn place(&self, old: Lba) -> Option<Lba> {
        let is_same = old.0 < self.disk_blocks && self.same.contains(old);
        if is_same { Some(old) } else { self.moved.get(&old).copied() }
    }
}

/// Metadata of the other disk that the reads of this one do not name.
struct Metadata<'a> {
    owners: FileMap<'a>,
    /// Files whose lookups have not been added.
    files: HashMap<&'a str, FoundFile>,
    added: HashMap<Lba, BlockDigest>,
}

impl Metadata<'_> {
    /// Adds the lookups of the files that `run` is the first to read of.
    fn add(&mut self, read: &Read, run: BlockRange, disk_blocks: u64, reads: &mut Vec<Read>) {
        for lba in run.blocks() {
            let Some((owner, _)) = self.owners.locate(lba) else { continue };
            let Some(file) = self.files.remove(owner.path.as_str()) else { continue };
            for (lba, digest) in file.lookup.into_iter().filter(|(lba, _)| lba.0 < disk_blocks) {
                if self.added.insert(lba, digest).is_none() {
                    reads.push(Read { blocks: BlockRange::new(lba, 1), ..*read });
                }
            }
        }
    }
}

/// Adds what was found of `run`, which `read` was the first to read.
fn remap_run(read: &Read, run: BlockRange, found: &FoundBlocks<'_>, reads: &mut Vec<Read>) {
    let mut piece: Option<BlockRange> = None;
    for lba in run.blocks().filter_map(|old| found.place(old)) {
        match &mut piece {
            Some(piece) if piece.end() == lba => piece.count += 1,
            _ => {
                let whole = piece.replace(BlockRange::new(lba, 1));
                reads.extend(whole.map(|blocks| Read { blocks, ..*read }));
            }
        }
    }
    reads.extend(piece.map(|blocks| Read { blocks, ..*read }));
}

/// The file as the other disk has it: the pages whose blocks were found there, under its inode number there.
fn remap_file(file: &FileUse, found: &FoundBlocks<'_>, files: &HashMap<&str, FoundFile>) -> Option<FileUse> {
    let inode = files.get(file.path.as_str())?.inode;
    let mut runs: Vec<FileRun> = Vec::new();
    for run in &file.runs {
        for (page, old) in (run.page..).zip(run.blocks.blocks()) {
            let Some(new) = found.place(old) else { continue };
            match runs.last_mut() {
                Some(last) if last.blocks.end() == new && last.page + last.blocks.count == page => {
                    last.blocks.count += 1;
                }
                _ => runs.push(FileRun { page, blocks: BlockRange::new(new, 1) }),
            }
        }
    }
    (!runs.is_empty()).then(|| FileUse { path: file.path.clone(), inode, runs })
}

#[cfg(test)]
mod tests {
    use hs_units::Nanos;

    use super::*;

    fn block(content: u8) -> BlockDigest {
        BlockDigest::of(&[content])
    }

    /// A profile that read these runs of a disk whose blocks hold their own address, modulo 100.
    fn profile(runs: &[(u64, u64)]) -> Profile {
        let read = |&(start, count): &(u64, u64)| Read {
            at: Nanos(start),
            blocks: BlockRange::new(Lba(start), count),
            cost: Nanos(1),
        };
        let mut reads: Vec<Read> = runs.iter().map(read).collect();
        reads.sort_by_key(|read| read.at);
        let mut profile =
            Profile { disk_bytes: 1000 * BLOCK_BYTES, ended: Nanos(2000), reads, ..Profile::default() };
        profile.digests = profile.first_access().iter().map(|lba| block((lba.0 % 100) as u8)).collect();
        profile.validate().expect("a good profile");
        profile
    }

    fn places(same: &[u64], elsewhere: &[(u8, &[u64])]) -> Places {
        let lbas = |all: &[u64]| all.iter().map(|lba| Lba(*lba)).collect::<Vec<_>>();
        Places {
            same: same.iter().map(|lba| BlockRange::new(Lba(*lba), 1)).collect(),
            elsewhere: elsewhere.iter().map(|(content, all)| (block(*content), lbas(all))).collect(),
        }
    }

    fn runs(remapped: &Remapped) -> Vec<(u64, u64)> {
        remapped.profile.reads.iter().map(|read| (read.blocks.start.0, read.blocks.count)).collect()
    }

    #[test]
    fn blocks_stay_or_move_with_their_neighbours_or_are_lost() {
        let profile = profile(&[(10, 3), (20, 2), (30, 1)]);
        let found = places(&[10, 11, 12], &[(20, &[5, 120]), (21, &[6, 121, 400])]);
        let remapped = profile.remap(Digest([9; 32]), 500 * BLOCK_BYTES, &found, &HashMap::new());
        // From 12 to 20 is eight blocks on; 5 and 120 are elsewhere, 5 is nearer to 20.
        assert_eq!(runs(&remapped), [(10, 3), (5, 2)]);
        assert_eq!((remapped.blocks, remapped.matched, remapped.moved), (6, 5, 2));
        remapped.profile.validate().expect("a good profile");
        assert_eq!(remapped.profile.disk_digest, Digest([9; 32]));
        assert_eq!(remapped.profile.digests, [10, 11, 12, 20, 21].map(block));
    }

    #[test]
    fn zeroes_and_places_outside_the_disk_are_not_found() {
        let profile = profile(&[(100, 1), (150, 1)]);
        let everywhere = places(&[], &[(0, &[1, 2, 3]), (50, &[600])]);
        let remapped = profile.remap(Digest::default(), 500 * BLOCK_BYTES, &everywhere, &HashMap::new());
        assert_eq!((remapped.matched, runs(&remapped).len()), (0, 0));
        remapped.profile.validate().expect("a good profile");
    }

    #[test]
    fn files_keep_the_pages_that_were_found_under_their_new_inode() {
        let mut profile = profile(&[(10, 3), (20, 2)]);
        let run = |page, start, count| FileRun { page, blocks: BlockRange::new(Lba(start), count) };
        let file = |path: &str, inode, runs| FileUse { path: path.to_owned(), inode, runs };
        profile.files =
            vec![file("/a", 12, vec![run(0, 10, 3), run(7, 20, 1)]), file("/gone", 13, vec![run(0, 21, 1)])];
        profile.validate().expect("a good profile");
        let moved = places(&[10], &[(12, &[300]), (20, &[301]), (21, &[302])]);
        let metadata = |lba| (Lba(lba), block(lba as u8));
        let files = HashMap::from([("/a", FoundFile { inode: 77, lookup: vec![metadata(3), metadata(4)] })]);
        let remapped = profile.remap(Digest::default(), 500 * BLOCK_BYTES, &moved, &files);
        assert_eq!(runs(&remapped), [(3, 1), (4, 1), (10, 1), (300, 1), (301, 2)]);
        assert_eq!(remapped.profile.digests, [3, 4, 10, 12, 20, 21].map(block));
        assert_eq!((remapped.files, remapped.matched_files), (2, 1));
        // Blocks 300 and 301 follow one another on the disk, but not in the file.
        assert_eq!(
            remapped.profile.files,
            [file("/a", 77, vec![run(0, 10, 1), run(2, 300, 1), run(7, 301, 1)])]
        );
        remapped.profile.validate().expect("a good profile");
    }

    #[test]
    fn two_blocks_that_became_one_are_one() {
        let profile = profile(&[(1, 2), (101, 2)]);
        let moved = places(&[], &[(1, &[7]), (2, &[8])]);
        let remapped = profile.remap(Digest::default(), 500 * BLOCK_BYTES, &moved, &HashMap::new());
        assert_eq!(runs(&remapped), [(7, 2), (7, 2)]);
        remapped.profile.validate().expect("a good profile");
    }
}
