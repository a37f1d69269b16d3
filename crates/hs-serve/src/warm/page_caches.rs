//! The page caches of a mounted file system, and the calls that fill them.
//!
//! Each of these calls may wait for a read of the disk that this very process shows, where no signal ends it.
//! Before Linux 6.9 the reads that a killed server had taken fail when its FUSE queues are closed, and such a
//! thread would keep them open. So a thread can make the calls that has no descriptors of the process.

use std::collections::HashSet;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use hs_linux::LinuxError;
use hs_units::BLOCK_BYTES;
use rustix::fs::{Advice, CWD, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

/// Bytes of holes that are put into the page cache for one file.
const MAX_HOLE_BYTES: u64 = 1 << 20;

/// The page caches, by who makes the calls.
pub(super) enum PageCaches {
    /// The warmer itself.
    Here(OpenCaches),
    /// A thread of its own.
    Apart(Apart),
}

impl PageCaches {
    /// Those of the file system that is mounted at `mount_point` from `device`.
    pub(super) fn open(mount_point: &Path, device: &Path, apart: bool) -> Result<Self, LinuxError> {
        if apart {
            Apart::start(mount_point, device).map(Self::Apart)
        } else {
            OpenCaches::open(mount_point, device).map(Self::Here)
        }
    }

    /// The size of the file with this inode number.
    pub(super) fn file_bytes(&mut self, inode: u64) -> rustix::io::Result<u64> {
        match self {
            Self::Here(caches) => caches.file_bytes(inode),
            Self::Apart(apart) => apart.call(Call::FileBytes(inode)),
        }
    }

    /// Has the kernel read these pages of a file, or of the device where the inode number is 0.
    pub(super) fn ask(&mut self, inode: u64, pages: Range<u32>) {
        let asked = match self {
            Self::Here(caches) => caches.ask(inode, &pages),
            Self::Apart(apart) => apart.call(Call::Ask(inode, pages.clone())).map(drop),
        };
        if let Err(error) = asked {
            log::debug!("hint for inode {inode} pages {pages:?}: {error}");
        }
    }
}

/// What is open, and the file that was asked last.
pub(super) struct OpenCaches {
    mount: File,
    device: File,
    open: Option<(u64, OwnedFd)>,
    seen: HashSet<u64>,
}

impl OpenCaches {
    fn open(mount_point: &Path, device: &Path) -> Result<Self, LinuxError> {
        let open = |path: &Path| File::open(path).map_err(LinuxError::io("open", path));
        let mount = open_clone(mount_point).or_else(|error| {
            log::debug!("{} is busy while it is warmed: {error}", mount_point.display());
            open(mount_point)
        })?;
        Ok(Self { mount, device: open(device)?, open: None, seen: HashSet::new() })
    }

    fn file_bytes(&mut self, inode: u64) -> rustix::io::Result<u64> {
        Ok(rustix::fs::fstat(self.file(inode)?)?.st_size as u64)
    }

    fn ask(&mut self, inode: u64, pages: &Range<u32>) -> rustix::io::Result<()> {
        let offset = u64::from(pages.start) * BLOCK_BYTES;
        let Some(len) = NonZeroU64::new(pages.len() as u64 * BLOCK_BYTES) else { return Ok(()) };
        if inode == 0 {
            return rustix::fs::fadvise(&self.device, offset, Some(len), Advice::WillNeed);
        }
        rustix::fs::fadvise(self.file(inode)?, offset, Some(len), Advice::WillNeed)
    }

    /// The file with this inode number, without looking for its name.
    fn file(&mut self, inode: u64) -> rustix::io::Result<&OwnedFd> {
        let known = matches!(&self.open, Some((open, _)) if *open == inode);
        if !known {
            let file = hs_linux::open_by_inode(&self.mount, inode)?;
            if self.seen.insert(inode) {
                ask_for_holes(&file);
            }
            self.open = Some((inode, file));
        }
        match &self.open {
            Some((_, file)) => Ok(file),
            None => Err(Errno::BADF),
        }
    }
}

/// Opens the top folder of a clone of the mount that is mounted nowhere. What is opened there does not keep
/// the mount busy: `umount` succeeds while the caches are warmed. The file system, and with it the device,
/// stays until the last such file is closed.
fn open_clone(mount_point: &Path) -> rustix::io::Result<File> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let clone = rustix::mount::open_tree(CWD, mount_point, flags)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(clone, ".", flags, Mode::empty()).map(File::from)
}

/// Asks the kernel for the pages of a file's holes; they cause no request to the server.
fn ask_for_holes(file: &OwnedFd) {
    let mut left = MAX_HOLE_BYTES;
    let mut at = 0;
    // The end of a file counts as a hole, which has no data after it.
    while let Ok(hole) = rustix::fs::seek(file, SeekFrom::Hole(at)) {
        let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(hole)) else { return };
        let Some(len) = NonZeroU64::new((data - hole).min(left)) else { return };
        if rustix::fs::fadvise(file, hole, Some(len), Advice::WillNeed).is_err() {
            return;
        }
        left -= len.get();
        at = data;
    }
}

/// A call; its answer is the size of the file, or 0.
enum Call {
    FileBytes(u64),
    Ask(u64, Range<u32>),
}

/// A thread that makes the calls, and has no descriptors of this process. Dropping it waits for its end.
pub(super) struct Apart {
    calls: Option<Sender<Call>>,
    answers: Receiver<rustix::io::Result<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Apart {
    fn start(mount_point: &Path, device: &Path) -> Result<Self, LinuxError> {
        let (mount_point, device) = (mount_point.to_owned(), device.to_owned());
        let ((calls, to_make), (answer, answers)) = (channel(), channel());
        let (opened, is_open) = channel();
        let thread = std::thread::Builder::new()
            .name("hs-page-caches".to_owned())
            .spawn(move || {
                // Before Linux 5.9 it makes the calls all the same.
                let _ = hs_linux::leave_descriptors();
                match OpenCaches::open(&mount_point, &device) {
                    Ok(caches) => {
                        let _ = opened.send(Ok(()));
                        make_calls(caches, &to_make, &answer);
                    }
                    Err(error) => drop(opened.send(Err(error))),
                }
            })
            .map_err(LinuxError::io("start a thread for", "warming"))?;
        let started = Self { calls: Some(calls), answers, thread: Some(thread) };
        // A thread that ended without a word answers no call.
        is_open.recv().unwrap_or(Ok(()))?;
        Ok(started)
    }

    fn call(&self, call: Call) -> rustix::io::Result<u64> {
        let made = self.calls.as_ref().is_some_and(|calls| calls.send(call).is_ok());
        if made { self.answers.recv().unwrap_or(Err(Errno::IO)) } else { Err(Errno::IO) }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn make_calls(mut caches: OpenCaches, calls: &Receiver<Call>, answer: &Sender<rustix::io::Result<u64>>) {
    while let Ok(call) = calls.recv() {
        let answered = match call {
            Call::FileBytes(inode) => caches.file_bytes(inode),
            Call::Ask(inode, pages) => caches.ask(inode, &pages).map(|()| 0),
        };
        if answer.send(answered).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_thread_apart_answers_and_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, [7; 5000]).expect("written");
        let inode = fs::metadata(&path).expect("there").ino();
        let is_open_here = || {
            let mut descriptors = fs::read_dir("/proc/self/fd").expect("listed").flatten();
            descriptors.any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|target| target == path))
        };
        let mut caches = PageCaches::open(folder.path(), &path, true).expect("opened");
        assert!(!is_open_here(), "what it opens is its own");
        let mut here = PageCaches::open(folder.path(), &path, false).expect("opened");
        assert!(is_open_here());
        // Without the right to open by number it says so, as the warmer itself does.
        assert_eq!(caches.file_bytes(inode), here.file_bytes(inode));
        caches.ask(0, 0..1);
        drop((caches, here));
        assert!(!is_open_here());
        assert!(PageCaches::open(folder.path(), &folder.path().join("none"), true).is_err());
    }
}
