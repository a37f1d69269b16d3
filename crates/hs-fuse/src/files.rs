//! The file system itself: a root directory with one file, the disk. Where the journal of the file system in
//! a disk that takes no writes must be replayed, a second file, which no listing names, is the same disk and
//! takes writes, which stay in memory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use hs_serve::FileAccess;
use hs_units::ByteRange;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::device::Device;
use super::replay::Replay;
use super::reply::{Disk, DoneReply, Reply};
use super::wire::{
    Attr, AttrOut, Dirent, EntryOut, FATTR_SIZE, FallocateIn, OpenIn, OpenOut, ROOT_NODE, ReadIn, Request,
    SetattrIn, StatfsOut, WriteIn, opcode, open_flag,
};

/// The node of the disk.
pub(crate) const DISK_NODE: u64 = 2;
/// The node of the disk that takes writes.
const REPLAY_NODE: u64 = 3;
/// Its name.
pub(crate) const REPLAY_NAME: &str = ".replay.img";

/// How long the kernel may believe names and attributes, in seconds. They never change; this is 34
/// years, and far from any overflow of the kernel's clock.
const FOR_EVER_S: u64 = 1 << 30;

const BLOCK_BYTES: u64 = 4096;

/// A directory entry's type, as in `d_type`.
const TYPE_DIRECTORY: u32 = 4;
const TYPE_FILE: u32 = 8;

/// Answers the kernel's requests; knows nothing of threads or mounts.
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    bytes: u64,
    file_name: Vec<u8>,
    file_open_flags: u32,
    mtime_s: u64,
    access: FileAccess,
    writes: bool,
    refuses_resent: bool,
    replay: OnceLock<Replay>,
}

/// How the one file is shown.
pub(crate) struct FileView {
    pub(crate) file_name: Vec<u8>,
    pub(crate) direct_io: bool,
    pub(crate) keep_cache: bool,
    pub(crate) mtime_s: u64,
    pub(crate) access: FileAccess,
}

impl Files {
    pub(crate) fn new(disk: Arc<dyn Disk>, view: FileView) -> Self {
        // Closing the file makes no request. Otherwise a program that closes it, or ends, would hang while
        // there is no server, and so would programs that look at that process.
        let mut file_open_flags = open_flag::NOFLUSH;
        if view.direct_io {
            file_open_flags |= open_flag::DIRECT_IO;
        }
        if view.keep_cache {
            file_open_flags |= open_flag::KEEP_CACHE;
        }
        let bytes = disk.bytes();
        let FileView { file_name, mtime_s, access, .. } = view;
        let (writes, replay) = (disk.takes_writes(), OnceLock::new());
        Self {
            disk,
            bytes,
            file_name,
            file_open_flags,
            mtime_s,
            access,
            writes,
            refuses_resent: false,
            replay,
        }
    }

    /// From now on there is a file that takes writes: those that a server before this one has kept, or none.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn take_writes(&self, kept: Option<OwnedFd>) -> io::Result<&Replay> {
        if let Some(replay) = self.replay.get() {
            return Ok(replay);
        }
        let replay = match kept {
            Some(kept) => Replay::of(kept, Arc::clone(&self.disk)),
            None => Replay::new(Arc::clone(&self.disk))?,
        };
        Ok(self.replay.get_or_init(|| replay))
    }

    /// What was written, if writes are taken.
    pub(crate) fn replay(&self) -> Option<&Replay> {
        self.replay.get()
    }

    /// From now on requests that the kernel sends again, since a server that died had taken them, fail.
    pub(crate) fn refuse_resent(&mut self) {
        self.refuses_resent = true;
    }

    /// Whether the disk takes writes.
    pub(crate) fn takes_writes(&self) -> bool {
        self.writes
    }

    /// Size of the disk, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The name of the disk's file.
    pub(crate) fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(&self.file_name)
    }

    /// Answers one request, or leaves the answer to the disk.
    pub(crate) fn handle(&self, request: &Request<'_>, device: &Arc<Device>) {
        let node = request.header.nodeid;
        if self.refuses_resent && request.is_resent() {
            return respond(request, device, libc::EIO, &[]);
        }
        match request.header.opcode {
            opcode::READ => self.read(request, device),
            opcode::LOOKUP => self.lookup(request, device),
            opcode::GETATTR => match self.attributes(node) {
                Some(attr) => {
                    let out = AttrOut { attr_valid: FOR_EVER_S, attr, ..Default::default() };
                    respond(request, device, 0, &[out.as_bytes()]);
                }
                None => respond(request, device, libc::ESTALE, &[]),
            },
            opcode::OPEN => self.open(request, device),
            opcode::OPENDIR => {
                let open_flags = open_flag::KEEP_CACHE | open_flag::CACHE_DIR;
                let out = OpenOut { open_flags, ..Default::default() };
                respond(request, device, 0, &[out.as_bytes()]);
            }
            opcode::READDIR => self.read_directory(request, device),
            opcode::STATFS => {
                let blocks = self.bytes.div_ceil(BLOCK_BYTES);
                let (bsize, frsize) = (BLOCK_BYTES as u32, BLOCK_BYTES as u32);
                let out = StatfsOut { blocks, files: 1, bsize, frsize, namelen: 255, ..Default::default() };
                respond(request, device, 0, &[out.as_bytes()]);
            }
            opcode::RELEASE | opcode::RELEASEDIR | opcode::ACCESS | opcode::DESTROY => {
                respond(request, device, 0, &[]);
            }
            // These have no answer. Nodes live as long as the session, so nothing is to be forgotten.
            opcode::FORGET | opcode::BATCH_FORGET | opcode::NOTIFY_REPLY => {}
            opcode::WRITE | opcode::FALLOCATE | opcode::SETATTR if !self.may_change(request) => {
                respond(request, device, libc::EROFS, &[]);
            }
            opcode::WRITE => self.write(request, device),
            opcode::FALLOCATE => self.fallocate(request, device),
            opcode::SETATTR => self.set_attributes(request, device),
            opcode::FSYNC | opcode::FLUSH if self.writes => {
                self.disk.flush(done(request, device, None));
            }
            opcode::IOCTL => respond(request, device, libc::ENOTTY, &[]),
            // The kernel then never sends it again. A read is not worth interrupting: its answer is on the
            // way.
            opcode::INTERRUPT => respond(request, device, libc::ENOSYS, &[]),
            _ => respond(request, device, libc::ENOSYS, &[]),
        }
    }

    fn read(&self, request: &Request<'_>, device: &Arc<Device>) {
        let Some(read) = request.body_as::<ReadIn>() else {
            return respond(request, device, libc::EINVAL, &[]);
        };
        let Some(disk) = self.disk_of(request) else {
            return respond(request, device, libc::EISDIR, &[]);
        };
        // A short answer marks the end of the file; the last page reaches beyond it.
        let len = u64::from(read.size).min(self.bytes.saturating_sub(read.offset)) as u32;
        if len == 0 {
            return respond(request, device, 0, &[]);
        }
        let reply = Reply::new(Arc::clone(device), request.header.unique, len, request.header.uid);
        disk.read(read.offset, len, reply);
    }

    /// The disk whose file is asked for.
    fn disk_of(&self, request: &Request<'_>) -> Option<&dyn Disk> {
        match request.header.nodeid {
            DISK_NODE => Some(&*self.disk),
            REPLAY_NODE => Some(self.replay.get()?),
            _ => None,
        }
    }

    fn may_change(&self, request: &Request<'_>) -> bool {
        self.disk_of(request).map_or(self.writes, Disk::takes_writes)
    }

    fn write(&self, request: &Request<'_>, device: &Arc<Device>) {
        let bytes = request.body.get(size_of::<WriteIn>()..).unwrap_or_default();
        let Some(write) = request.body_as::<WriteIn>().filter(|write| write.size as usize == bytes.len())
        else {
            return respond(request, device, libc::EINVAL, &[]);
        };
        let Some(disk) = self.disk_of(request) else {
            return respond(request, device, libc::EISDIR, &[]);
        };
        if !ByteRange::new(write.offset, write.size.into()).fits_in(self.bytes) {
            // The disk does not grow.
            return respond(request, device, libc::ENOSPC, &[]);
        }
        disk.write(write.offset, bytes.to_vec(), done(request, device, Some(write.size)));
    }

    /// Holes and zeros; taking space beforehand means nothing here.
    fn fallocate(&self, request: &Request<'_>, device: &Arc<Device>) {
        let Some(wanted) = request.body_as::<FallocateIn>() else {
            return respond(request, device, libc::EINVAL, &[]);
        };
        let range = ByteRange::new(wanted.offset, wanted.length);
        let mode = wanted.mode as i32 & !libc::FALLOC_FL_KEEP_SIZE;
        let is_known = matches!(mode, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE);
        match (self.disk_of(request), range.fits_in(self.bytes)) {
            (Some(disk), true) if is_known => {
                let may_be_hole = mode == libc::FALLOC_FL_PUNCH_HOLE;
                disk.zero(range, may_be_hole, done(request, device, None));
            }
            (Some(_), false) if is_known => respond(request, device, libc::ENOSPC, &[]),
            _ => respond(request, device, libc::EOPNOTSUPP, &[]),
        }
    }

    /// Times and permissions stay as they are, and so does the size.
    fn set_attributes(&self, request: &Request<'_>, device: &Arc<Device>) {
        let Some(wanted) = request.body_as::<SetattrIn>() else {
            return respond(request, device, libc::EINVAL, &[]);
        };
        let resizes = wanted.valid & FATTR_SIZE != 0 && wanted.size != self.bytes;
        match self.attributes(request.header.nodeid) {
            Some(_) if resizes => respond(request, device, libc::EPERM, &[]),
            Some(attr) => {
                let out = AttrOut { attr_valid: FOR_EVER_S, attr, ..Default::default() };
                respond(request, device, 0, &[out.as_bytes()]);
            }
            None => respond(request, device, libc::ESTALE, &[]),
        }
    }

    fn lookup(&self, request: &Request<'_>, device: &Device) {
        let Some(name) = request.name() else {
            return respond(request, device, libc::EINVAL, &[]);
        };
        let is_replay = name == REPLAY_NAME.as_bytes();
        let node = match request.header.nodeid {
            // It may come later, so the kernel is not told that it need not ask again.
            ROOT_NODE if is_replay && self.replay.get().is_none() => {
                return respond(request, device, libc::ENOENT, &[]);
            }
            ROOT_NODE if is_replay => Some(REPLAY_NODE),
            ROOT_NODE if name == self.file_name => Some(DISK_NODE),
            _ => None,
        };
        // Node 0 says "no such name", and that the kernel need not ask again.
        let mut out = EntryOut { entry_valid: FOR_EVER_S, attr_valid: FOR_EVER_S, ..Default::default() };
        if let Some((nodeid, attr)) = node.and_then(|node| Some((node, self.attributes(node)?))) {
            out = EntryOut { nodeid, generation: 1, attr, ..out };
        }
        respond(request, device, 0, &[out.as_bytes()]);
    }

    fn open(&self, request: &Request<'_>, device: &Device) {
        let Some(open) = request.body_as::<OpenIn>() else {
            return respond(request, device, libc::EINVAL, &[]);
        };
        let may_write = self.access.opens_for_writing()
            || request.header.nodeid == REPLAY_NODE && self.may_change(request);
        if !may_write && open.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
            return respond(request, device, libc::EROFS, &[]);
        }
        let out = OpenOut { open_flags: self.file_open_flags, ..Default::default() };
        respond(request, device, 0, &[out.as_bytes()]);
    }

    fn read_directory(&self, request: &Request<'_>, device: &Device) {
        let Some(read) = request.body_as::<ReadIn>() else {
            return respond(request, device, libc::EINVAL, &[]);
        };
        if request.header.nodeid != ROOT_NODE {
            return respond(request, device, libc::ENOTDIR, &[]);
        }
        let names: [(&[u8], u64, u32); 3] = [
            (b".", ROOT_NODE, TYPE_DIRECTORY),
            (b"..", ROOT_NODE, TYPE_DIRECTORY),
            (&self.file_name, DISK_NODE, TYPE_FILE),
        ];
        let mut listing = Vec::with_capacity(names.len() * 64 + self.file_name.len());
        let first = usize::try_from(read.offset).unwrap_or(usize::MAX);
        for (index, (name, ino, kind)) in names.into_iter().enumerate().skip(first) {
            let entry = Dirent { ino, off: index as u64 + 1, namelen: name.len() as u32, kind };
            let padded = (size_of::<Dirent>() + name.len()).next_multiple_of(8);
            if listing.len() + padded > read.size as usize {
                break;
            }
            let end = listing.len() + padded;
            listing.extend_from_slice(entry.as_bytes());
            listing.extend_from_slice(name);
            listing.resize(end, 0);
        }
        respond(request, device, 0, &[&listing]);
    }

    fn attributes(&self, node: u64) -> Option<Attr> {
        let FileAccess { uid, gid, mode } = self.access;
        let mtime = self.mtime_s;
        let both = Attr { ino: node, atime: mtime, mtime, ctime: mtime, uid, gid, ..Default::default() };
        match node {
            ROOT_NODE => {
                Some(Attr { mode: libc::S_IFDIR | 0o555, nlink: 2, blksize: BLOCK_BYTES as u32, ..both })
            }
            DISK_NODE | REPLAY_NODE => {
                // Root alone opens the replay's file, as it does to attach a loop device.
                let (uid, gid, mode) = if node == DISK_NODE { (uid, gid, mode) } else { (0, 0, 0o600) };
                Some(Attr {
                    mode: libc::S_IFREG | mode,
                    uid,
                    gid,
                    nlink: 1,
                    size: self.bytes,
                    blocks: self.bytes.div_ceil(512),
                    blksize: BLOCK_BYTES as u32,
                    ..both
                })
            }
            _ => None,
        }
    }
}

/// What answers a request that changes the disk.
fn done(request: &Request<'_>, device: &Arc<Device>, written: Option<u32>) -> DoneReply {
    DoneReply::new(Arc::clone(device), request.header.unique, written, request.header.uid)
}

/// Sends an answer that this module knows by itself.
fn respond(request: &Request<'_>, device: &Device, errno: i32, pieces: &[&[u8]]) {
    match device.answer(request.header.unique, errno, pieces) {
        Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => {}
        Err(errno) => {
            log::error!("the kernel did not take the answer to operation {}: {errno}", request.header.opcode);
        }
    }
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;

    use super::super::wire::InHeader;
    use super::*;

    const BYTES: u64 = 10_000;

    struct StrictDisk;

    impl Disk for StrictDisk {
        fn bytes(&self) -> u64 {
            BYTES
        }

        fn read(&self, offset: u64, len: u32, reply: Reply) {
            assert!(len > 0 && offset + u64::from(len) <= BYTES, "{offset}+{len}");
            reply.data(&[&vec![0; len as usize]]);
        }
    }

    #[test]
    fn no_message_makes_it_panic() {
        let view = FileView {
            file_name: b"disk.img".into(),
            direct_io: true,
            keep_cache: true,
            mtime_s: 0,
            access: FileAccess { mode: 0o600, ..FileAccess::default() },
        };
        let files = Files::new(Arc::new(StrictDisk), view);
        files.take_writes(None).unwrap();
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let device = Arc::new(Device::from_fd(null.into()));
        let mut prng = Prng::new(11);
        for _ in 0..100_000 {
            let mut body = vec![0; prng.below(60) as usize];
            // Small numbers are the interesting ones: offsets near the end, sizes near nothing.
            if prng.below(2) == 0 {
                prng.fill(&mut body);
            } else if let Some(offset) = body.get_mut(8..20) {
                offset[..8].copy_from_slice(&(BYTES - 50 + prng.below(100)).to_ne_bytes());
                offset[8..].copy_from_slice(&(prng.below(100) as u32).to_ne_bytes());
            }
            let header = InHeader {
                len: (size_of::<InHeader>() + body.len()) as u32,
                opcode: prng.below(60) as u32,
                nodeid: prng.below(5),
                ..Default::default()
            };
            let message = [header.as_bytes(), &body].concat();
            files.handle(&Request::parse(&message).unwrap(), &device);
        }
    }
}
