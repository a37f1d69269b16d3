//! A kept disk over a disk in memory, used by several threads at a time.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use hs_disk::Requester;
use hs_keep::{Below, KeepError, KeepFile, KeptDisk, OpenedAs, ZeroKind};
use hs_units::{ByteRange, Digest, Prng};

const BYTES: u64 = 300 << 12;
const THREADS: u64 = 6;
/// Threads have every sixth piece of so many bytes, so that they share blocks.
const PIECE: u64 = 700;

/// A disk whose answers come from another thread, as those of a medium do.
struct Memory(Vec<u8>);

impl Below for Memory {
    fn bytes(&self) -> u64 {
        BYTES
    }

    fn digest(&self) -> Digest {
        Digest([4; 32])
    }

    fn submit(
        &self,
        _: Requester,
        offset: u64,
        len: u32,
        answer: Box<dyn FnOnce(Result<&[&[u8]], i32>) + Send>,
    ) {
        let bytes = self.0[offset as usize..][..len as usize].to_vec();
        std::thread::spawn(move || answer(Ok(&[&bytes])));
    }

    fn allocation(&self, range: ByteRange, _: usize) -> Result<Vec<(u64, bool)>, i32> {
        Ok(vec![(range.len, false)])
    }
}

fn content() -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    Prng::new(1).fill(&mut bytes);
    bytes
}

fn open(path: &Path) -> KeptDisk {
    let file = KeepFile::open(path, OpenedAs::Keeping, Duration::ZERO).expect("opened");
    KeptDisk::new(Arc::new(Memory(content())), file).expect("an overlay")
}

fn wait(begin: impl FnOnce(Box<dyn FnOnce(Result<(), i32>) + Send>)) {
    let (sender, receiver) = channel();
    begin(Box::new(move |result| sender.send(result).expect("it is waited for")));
    receiver.recv().expect("answered").expect("done");
}

fn read(disk: &KeptDisk, offset: u64, len: u64) -> Vec<u8> {
    let (sender, receiver) = channel();
    disk.submit(Requester::default(), offset, len as u32, move |result| {
        sender.send(result.expect("read").concat()).expect("it is waited for");
    });
    receiver.recv().expect("answered")
}

/// What one thread does to its own pieces; gives what it knows of them.
fn use_own(disk: &KeptDisk, thread: u64, mut known: Vec<u8>) -> Vec<u8> {
    let mut prng = Prng::new(thread);
    for _ in 0..300 {
        let piece = prng.below(BYTES / PIECE / THREADS) * THREADS + thread;
        let from = piece * PIECE + prng.below(PIECE);
        let len = 1 + prng.below(piece * PIECE + PIECE - from);
        let own = from as usize..(from + len) as usize;
        match prng.below(8) {
            0..4 => {
                prng.fill(&mut known[own.clone()]);
                let (bytes, lasting) = (known[own].to_vec(), prng.below(4) == 0);
                wait(|answer| disk.write(Requester::default(), from, bytes, lasting, answer));
            }
            4 => {
                known[own].fill(0);
                let (range, kind) = (ByteRange::new(from, len), ZeroKind::Holes);
                wait(|answer| disk.zero(Requester::default(), range, kind, false, answer));
            }
            5 => wait(|answer| disk.flush(answer)),
            6 => wait(|answer| disk.flush_here(answer)),
            _ => assert!(read(disk, from, len) == known[own], "thread {thread}: {len} bytes at {from}"),
        }
    }
    known
}

#[test]
fn threads_that_write_to_parts_of_the_same_blocks_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("changes");
    let disk = open(&path);
    let mut expected = content();
    std::thread::scope(|scope| {
        let disk = &disk;
        let start = |thread| scope.spawn(move || use_own(disk, thread, content()));
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        for (thread, running) in threads.into_iter().enumerate() {
            let known = running.join().expect("no panic");
            for piece in (thread as u64..BYTES / PIECE).step_by(THREADS as usize) {
                let own = (piece * PIECE) as usize..((piece + 1) * PIECE) as usize;
                expected[own.clone()].copy_from_slice(&known[own]);
            }
        }
    });
    assert!(read(&disk, 0, BYTES) == expected);
    assert_eq!(disk.close(), Ok(()));
    let (sender, receiver) = channel();
    let refused = move |result| sender.send(result).expect("it is waited for");
    disk.write(Requester::default(), 0, vec![1; 4096], false, refused);
    assert_eq!(receiver.recv(), Ok(Err(libc::ESHUTDOWN)));
    drop(disk);
    assert!(read(&open(&path), 0, BYTES) == expected);
}

#[test]
fn one_process_uses_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("changes");
    let disk = open(&path);
    for opened in [OpenedAs::Keeping, OpenedAs::Existing, OpenedAs::ReadOnly] {
        let error = KeepFile::open(&path, opened, Duration::ZERO).expect_err("in use");
        assert!(matches!(error, KeepError::InUse { .. }), "{error}");
    }
    drop(disk);
    KeepFile::open(&path, OpenedAs::Existing, Duration::ZERO).expect("free again");
}

/// A process that died while it began the file has left zeros.
#[test]
fn a_file_that_was_not_begun_is_begun_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("changes");
    std::fs::write(&path, vec![0; 1 << 20]).expect("written");
    assert_eq!(open(&path).close(), Ok(()));
    // Anything else is another file.
    std::fs::write(&path, [&[0; 5000][..], b"mine"].concat()).expect("written");
    let file = KeepFile::open(&path, OpenedAs::Keeping, Duration::ZERO).expect("opened");
    assert!(KeptDisk::new(Arc::new(Memory(content())), file).is_err());
    assert!(std::fs::read(&path).expect("read").ends_with(b"mine"));
}
