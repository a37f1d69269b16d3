//! A start is recorded: which pages it brought into the page cache and used.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use hs_accelerate::{FileIdentity, ListedFile, PageList, RecordedPage};
use hs_linux::LinuxError;
use hs_observe::{Object, PageIn, PageIns};
use rustix::fs::FileType;

use crate::places::Places;
use crate::{EarlyError, Root};

/// A recording under way. Dropping it ends it.
#[derive(Debug)]
pub struct Recording {
    page_ins: PageIns,
    /// Files that change from here on are what the start writes, such as logs.
    began_ns: i128,
}

/// What was in memory when a recording began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Nothing: the machine was just switched on, and a page that does not come is not used.
    Nothing,
    /// Anything, as of a machine that is at work: a listed page that is in memory and did not come was there.
    Anything,
}

/// What a recording has brought into a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Pages that came and were used.
    pub came: u64,
    /// Listed pages that were in memory before.
    pub there: u64,
}

/// Pages of a file with the time of their coming.
type ByInode<'a> = BTreeMap<u64, Vec<&'a PageIn>>;

impl Recording {
    /// Begins to record.
    ///
    /// # Errors
    /// [`EarlyError::NotObserved`] where the kernel does not show what comes.
    pub fn start(root: &Root) -> Result<Self, EarlyError> {
        let page_ins = PageIns::start(root.targets())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self { page_ins, began_ns: now.as_nanos().cast_signed() })
    }

    /// What is seen of pages.
    #[must_use]
    pub fn page_ins(&self) -> &PageIns {
        &self.page_ins
    }

    /// Takes what came so far into `list`.
    ///
    /// # Errors
    /// Those of reading the marks of pages.
    pub fn merge_into(&self, root: &Root, list: &mut PageList, before: Before) -> Result<Taken, EarlyError> {
        let failed = LinuxError::io("read", "/proc/kpageflags");
        let (came, lost) = self.page_ins.pages().map_err(failed)?;
        if lost > 0 {
            log::info!("{lost} pages came for which there was no room: their start is not wholly recorded");
        }
        let mut by_inode: ByInode<'_> = BTreeMap::new();
        let mut pages = Vec::with_capacity(came.len());
        for page in &came {
            match page.object {
                Object::Device => pages.push(recorded(page, None, page.page)),
                Object::Inode(inode) => by_inode.entry(inode).or_default().push(page),
            }
        }
        let mut files = Vec::new();
        for (inode, came) in by_inode.into_iter().filter(|(_, came)| came.iter().any(|page| page.is_used)) {
            let Some((file, listed)) = self.examine(root, inode) else { continue };
            let places = Places::of(&file);
            let number = files.len() as u32;
            pages.extend(came.iter().map(|page| recorded(page, Some(number), places.of_page(page.page))));
            files.push(listed);
        }
        let mut memory = InMemory::new(root, list, &came);
        let was_there = |file, page| before == Before::Anything && memory.was_there(file, page);
        let there = list.merge(files, &pages, was_there);
        let came = pages.iter().filter(|page| page.is_used).count() as u64;
        Ok(Taken { came, there })
    }

    /// The file with this inode; nothing when it is gone, is written to by the start, or is not read.
    fn examine(&self, root: &Root, inode: u64) -> Option<(OwnedFd, ListedFile)> {
        let file = root.open_inode(inode).ok()?;
        let found = rustix::fs::fstat(&file).ok()?;
        let is_file = FileType::from_raw_mode(found.st_mode).is_file();
        let changed_ns = i128::from(found.st_mtime) * 1_000_000_000 + i128::from(found.st_mtime_nsec);
        if !is_file || found.st_nlink == 0 || found.st_ino != inode || changed_ns >= self.began_ns {
            return None;
        }
        let handle = hs_linux::handle_of(&file).ok()?;
        if handle.bytes.len() > FileIdentity::MAX_HANDLE_BYTES {
            return None;
        }
        let identity = FileIdentity { kind: handle.kind, handle: handle.bytes };
        let path = path_of(root, &file);
        Some((file, ListedFile { identity, inode, path }))
    }
}

/// Tells which pages of a list were in memory before a recording: those that are, and did not come.
struct InMemory<'a> {
    root: &'a Root,
    files: Vec<ListedFile>,
    came: HashSet<(Object, u64)>,
    /// The file that was looked at last: its number, and the file where it is still there.
    opened: Option<(u32, Option<OwnedFd>)>,
}

impl<'a> InMemory<'a> {
    fn new(root: &'a Root, list: &PageList, came: &[PageIn]) -> Self {
        let came = came.iter().map(|page| (page.object, page.page)).collect();
        Self { root, files: list.files.clone(), came, opened: None }
    }

    fn was_there(&mut self, file: Option<u32>, page: u64) -> bool {
        let Some(file) = file else {
            let is_there = |device| hs_linux::is_cached(device, page).unwrap_or(false);
            return !self.came.contains(&(Object::Device, page)) && self.root.device().is_some_and(is_there);
        };
        let listed = &self.files[file as usize];
        if self.came.contains(&(Object::Inode(listed.inode), page)) {
            return false;
        }
        if self.opened.as_ref().is_none_or(|(number, _)| *number != file) {
            self.opened = Some((file, self.root.open_listed(&listed.identity).ok()));
        }
        let opened = self.opened.as_ref().and_then(|(_, file)| file.as_ref());
        opened.is_some_and(|file| hs_linux::is_cached(file, page).unwrap_or(false))
    }
}

fn recorded(page: &PageIn, file: Option<u32>, place: u64) -> RecordedPage {
    RecordedPage {
        file,
        page: page.page,
        place,
        at_ms: u32::try_from(page.at.0 / 1_000_000).unwrap_or(u32::MAX),
        is_used: page.is_used,
        was_asked: page.is_own,
    }
}

/// The path from the root of the file system, where the kernel knows it: of a file whose names it has
/// forgotten meanwhile, the path is that of a root.
fn path_of(root: &Root, file: &OwnedFd) -> String {
    let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else {
        return String::new();
    };
    let inside = path.strip_prefix(&root.path).unwrap_or(&path);
    let path = Path::new("/").join(inside).to_string_lossy().into_owned();
    if (2..=ListedFile::MAX_PATH_BYTES).contains(&path.len()) { path } else { String::new() }
}
