//! How the files of a list lie on the device, and as runs for a program that lays them anew.

use hs_units::{BLOCK_BYTES, ByteRange};
use serde::Serialize;

use crate::list::{FileIdentity, PageList};

/// Consecutive pages of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRun {
    /// The file's path from the root of the file system, where it is known.
    pub path: String,
    /// What the kernel calls the file, where it is known: then it is found by that.
    pub identity: Option<FileIdentity>,
    /// Its inode number.
    pub inode: u64,
    /// The first page, in units of 4 KiB.
    pub first_page: u64,
    /// How many.
    pub pages: u64,
}

/// A reader that goes on at most so far from its last byte has not moved the arm of a drive: at 120 MB/s
/// this gap passes in 4.2 ms, half a turn at 7,200 rpm, which is less than a seek takes. What lies so near
/// behind is in the drive's cache, or was a part of the same request: recorders see large requests in
/// pieces, in any order.
pub const NEAR_BYTES: u64 = 512 << 10;

/// A layout that saves fewer seeks than this is not worth its writes (a seek of a hard disk takes some 13
/// ms).
const FEWEST_SEEKS_SAVED: u64 = 16;
/// Nor is one that saves less than this share of the seeks.
const LEAST_SHARE_SAVED: u64 = 10;

/// What it takes to read a list of places in its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Scatter {
    /// How often the next place lies further than [`NEAR_BYTES`] from the end of the last one. The first
    /// place counts.
    pub seeks: u64,
    /// Pieces that lie in one, whatever gap is between them.
    pub runs: u64,
    /// Bytes in the list.
    pub bytes: u64,
}

impl Scatter {
    /// Of these places of a device, in the order in which they are read.
    pub fn of(places: impl IntoIterator<Item = ByteRange>) -> Self {
        let mut scatter = Self::default();
        let mut at: Option<u64> = None;
        for place in places {
            let gap = at.map(|at| place.offset.abs_diff(at));
            scatter.runs += u64::from(gap != Some(0));
            scatter.seeks += u64::from(gap.is_none_or(|gap| gap > NEAR_BYTES));
            scatter.bytes += place.len;
            at = Some(place.offset.saturating_add(place.len));
        }
        scatter
    }

    /// Whether it pays to have `after` instead.
    #[must_use]
    pub fn pays(&self, after: &Self) -> bool {
        let saved = self.seeks.saturating_sub(after.seeks);
        saved >= FEWEST_SEEKS_SAVED && saved.saturating_mul(LEAST_SHARE_SAVED) >= self.seeks
    }

    /// Whether it would pay to have all of it in one piece.
    #[must_use]
    pub fn is_scattered(&self) -> bool {
        self.pays(&Self { seeks: 1, runs: 1, bytes: self.bytes })
    }
}

impl PageList {
    /// The pages of files, in the order of first use.
    #[must_use]
    pub fn file_runs(&self) -> Vec<FileRun> {
        let of_file = self.runs.iter().filter_map(|run| {
            let file = &self.files[run.file? as usize];
            let (path, identity) = (file.path.clone(), Some(file.identity.clone()));
            let pages = u64::from(run.pages);
            Some(FileRun { path, identity, inode: file.inode, first_page: run.page, pages })
        });
        of_file.collect()
    }

    /// How they lie on the device, as far as their places are known. Metadata does not count: it stays where
    /// it is.
    #[must_use]
    pub fn scatter(&self) -> Scatter {
        let known = self.runs.iter().filter(|run| run.file.is_some() && run.place != 0);
        Scatter::of(known.map(|run| {
            // The place is what a file says.
            ByteRange::new(run.place.saturating_mul(BLOCK_BYTES), u64::from(run.pages) * BLOCK_BYTES)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{FileIdentity, FsIdentity, ListedFile, ListedRun};

    fn scatter(places: &[(u64, u64)]) -> Scatter {
        Scatter::of(places.iter().map(|&(offset, len)| ByteRange::new(offset, len)))
    }

    #[test]
    fn near_gaps_are_runs_and_no_seeks() {
        assert_eq!(scatter(&[]), Scatter::default());
        assert_eq!(
            scatter(&[(0, 8192), (8192, 4096), (20_480, 4096)]),
            Scatter { seeks: 1, runs: 2, bytes: 16_384 }
        );
        assert_eq!(scatter(&[(0, 4096), (4096 + NEAR_BYTES, 4096)]).seeks, 1);
        assert_eq!(scatter(&[(0, 4096), (4097 + NEAR_BYTES, 4096)]).seeks, 2);
        assert_eq!(scatter(&[(8192, 4096), (4096, 4096)]).seeks, 1);
        assert_eq!(scatter(&[(8192 + NEAR_BYTES, 4096), (4096, 4096)]).seeks, 2, "far back is a seek");
        assert_eq!(scatter(&[(u64::MAX - 1, 4096), (0, 1)]).seeks, 2);
    }

    #[test]
    fn a_layout_pays_by_seeks_and_by_their_share() {
        let of = |seeks| Scatter { seeks, runs: seeks, bytes: 0 };
        assert!(of(1000).pays(&of(20)));
        assert!(of(17).pays(&of(1)));
        assert!(!of(16).pays(&of(1)), "too few");
        assert!(!of(1000).pays(&of(950)), "too small a share");
        assert!(!of(10).pays(&of(20)));
    }

    #[test]
    fn files_of_a_list_are_runs_and_lie_somewhere() {
        let run =
            |file, page, pages, place, at_ms| ListedRun { file, page, pages, place, at_ms, unused_starts: 0 };
        let identity = FileIdentity { kind: 1, handle: vec![1] };
        let list = PageList {
            files: vec![ListedFile { identity, inode: 12, path: "/bin/a".to_owned() }],
            runs: vec![
                run(Some(0), 3, 10, 1000, 1),
                run(None, 40, 1, 40, 2),
                run(Some(0), 0, 2, 1020, 3),
                run(Some(0), 20, 1, 0, 4),
            ],
            ..PageList::empty(FsIdentity { uuid: [0; 16], subvolume: 0 })
        };
        assert_eq!(list.scatter(), Scatter { seeks: 1, runs: 2, bytes: 12 * BLOCK_BYTES });
        let runs = list.file_runs();
        let (path, identity) = ("/bin/a".to_owned(), Some(list.files[0].identity.clone()));
        assert_eq!(runs[0], FileRun { path, identity, inode: 12, first_page: 3, pages: 10 });
        assert_eq!((runs.len(), runs[1].first_page), (3, 0));
        // As many places as are worth it, and one less.
        let lying = |places: u32| {
            let runs = (0..places).map(|at| run(Some(0), at.into(), 1, 1 + u64::from(at) * 1000, at));
            PageList { runs: runs.collect(), ..list.clone() }.scatter().is_scattered()
        };
        assert!(lying(17) && !lying(16));
    }
}
