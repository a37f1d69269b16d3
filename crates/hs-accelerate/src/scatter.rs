//! How the pages of a list lie on the device, and as runs for a program that lays them anew.

use crate::list::PageList;

/// Consecutive pages of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRun {
    /// The file's path from the root of the file system.
    pub path: String,
    /// Its inode number.
    pub inode: u64,
    /// The first page, in units of 4 KiB.
    pub first_page: u64,
    /// How many.
    pub pages: u64,
}

/// How the pages of a list lie on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scatter {
    /// Pages whose place is known.
    pub pages: u64,
    /// Pieces of the device in which they lie: a drive goes to a new place for each.
    pub pieces: u64,
    /// Pages of the device between the first and the last one.
    pub span_pages: u64,
}

/// Pieces that are smaller (256 KiB) on average are scattered: a disk needs longer to get there than to read
/// them.
const SMALL_PIECE_PAGES: u64 = 64;
/// A gap that is read over as fast as it is jumped over (128 KiB).
const GAP_PAGES: u64 = 32;

impl Scatter {
    /// Whether laying the pages anew would make reading them much faster where heads move.
    #[must_use]
    pub const fn is_scattered(&self) -> bool {
        self.pieces > 1 && self.pages < self.pieces.saturating_mul(SMALL_PIECE_PAGES)
    }
}

impl PageList {
    /// The pages of files, in the order of first use.
    #[must_use]
    pub fn file_runs(&self) -> Vec<FileRun> {
        let of_file = self.runs.iter().filter_map(|run| {
            let file = &self.files[run.file? as usize];
            let (path, pages) = (file.path.clone(), u64::from(run.pages));
            Some(FileRun { path, inode: file.inode, first_page: run.page, pages })
        });
        of_file.collect()
    }

    /// How all pages lie on the device.
    #[must_use]
    pub fn scatter(&self) -> Scatter {
        let mut places: Vec<(u64, u64)> = self
            .runs
            .iter()
            .filter(|run| run.place != 0)
            .map(|run| (run.place, run.place + u64::from(run.pages)))
            .collect();
        places.sort_unstable();
        let mut found = Scatter { pages: 0, pieces: 0, span_pages: 0 };
        let mut end = None;
        for &(start, stop) in &places {
            found.pages += stop - start;
            found.pieces += u64::from(end.is_none_or(|end| start > end + GAP_PAGES));
            end = Some(end.map_or(stop, |end: u64| end.max(stop)));
        }
        if let (Some((first, _)), Some(end)) = (places.first(), end) {
            found.span_pages = end - first;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{FileIdentity, FsIdentity, ListedFile, ListedRun};

    #[test]
    fn pieces_are_counted_and_runs_named() {
        let run =
            |file, page, pages, place, at_ms| ListedRun { file, page, pages, place, at_ms, unused_starts: 0 };
        let identity = FileIdentity { kind: 1, handle: vec![1] };
        let list = PageList {
            files: vec![ListedFile { identity, inode: 12, path: "/bin/a".to_owned() }],
            runs: vec![run(Some(0), 3, 10, 1000, 1), run(None, 40, 1, 40, 2), run(Some(0), 0, 2, 1020, 3)],
            ..PageList::empty(FsIdentity { uuid: [0; 16], subvolume: 0 })
        };
        let scatter = list.scatter();
        assert_eq!(scatter, Scatter { pages: 13, pieces: 2, span_pages: 982 });
        assert!(scatter.is_scattered());
        let runs = list.file_runs();
        assert_eq!(runs[0], FileRun { path: "/bin/a".to_owned(), inode: 12, first_page: 3, pages: 10 });
        assert_eq!((runs.len(), runs[1].first_page), (2, 0));
        let one = PageList { runs: vec![run(None, 40, 900, 40, 2)], ..list };
        assert!(!one.scatter().is_scattered());
    }
}
