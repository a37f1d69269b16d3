//! Where the pages of files lie on the device.

use std::os::fd::{AsFd, OwnedFd};

use hs_accelerate::PageList;
use hs_observe::block_files::{self, PagePlaces};

use crate::Root;

/// Where the pages of one file lie.
pub(crate) struct Places(Vec<PagePlaces>);

impl Places {
    pub(crate) fn of(file: &OwnedFd) -> Self {
        Self(block_files::places(file.as_fd()).unwrap_or_default())
    }

    /// The page of the device; zero: not known.
    pub(crate) fn of_page(&self, page: u64) -> u64 {
        let run = self.0.partition_point(|run| run.page <= page).checked_sub(1);
        let run = run.map(|run| &self.0[run]).filter(|run| page - run.page < run.blocks.count);
        run.map_or(0, |run| run.blocks.start.0 + (page - run.page))
    }
}

/// Takes into `list` where its pages lie now; those of files that are gone stay. Gives whether anything is
/// new. It reads the inode of each file.
pub(crate) fn look_again(root: &Root, list: &mut PageList) -> bool {
    let of_file = |file: &hs_accelerate::ListedFile| {
        let opened = root.open_listed(&file.identity).ok();
        opened.map(|file| Places::of(&file)).filter(|places| !places.0.is_empty())
    };
    let places: Vec<_> = list.files.iter().map(of_file).collect();
    list.take_places(|file, page| places[file as usize].as_ref().map(|places| places.of_page(page)))
}
