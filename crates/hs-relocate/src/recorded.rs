//! From a profile to the runs of files that its start has read.

use hs_accelerate::FileRun;
use hs_trace::{FileMap, Profile};

/// The runs of files that the recorded start has read, in the order of first access. Metadata of the file
/// system belongs to no file, and cannot move.
#[must_use]
pub fn recorded_runs(profile: &Profile) -> Vec<FileRun> {
    let map = FileMap::new(&profile.files);
    let pieces = profile.first_access_runs().into_iter().flat_map(|run| map.split(run));
    let run = |piece: hs_trace::FilePiece<'_>| {
        let (file, first_page) = piece.page_of?;
        let path = file.path.clone();
        Some(FileRun { path, identity: None, inode: file.inode, first_page, pages: piece.blocks.count })
    };
    pieces.filter_map(run).collect()
}
