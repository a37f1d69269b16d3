//! A kept disk over a disk in memory, used by several threads at a time.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use hs_disk::Requester;
use hs_keep::{
    Below, KeepError, KeepFile, KeptDisk, NewFile, OpenedAs, SnapshotChange, SnapshotFile, ZeroKind,
};
use hs_overlay::Content;
use hs_units::{ByteRange, Digest, Prng};

const BYTES: u64 = 300 << 12;
const THREADS: u64 = 6;
/// Threads have every sixth piece of so many bytes, so that they share blocks.
const PIECE: u64 = 700;
/// So many copies of a file in use are made; or as many as this variable says.
const COPIES: usize = 15;
const COPIES_VARIABLE: &str = "COPIES";

/// A disk whose answers come from another thread, as those of a medium do.
struct Memory(Vec<u8>);

impl Below for Memory {
    fn bytes(&self) -> u64 {
        BYTES
    }

    fn exact_bytes(&self) -> u64 {
        BYTES - 3000
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
    assert_eq!(disk.close(), Ok(()));
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

/// What nothing was written to is no file of the user's; what a start makes and fails goes with it.
#[test]
fn a_file_that_a_failed_start_has_made_goes_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("changes");
    drop(keeping(&path));
    assert!(!path.exists(), "it was opened only");
    drop(open(&path));
    assert!(!path.exists(), "it was begun only");
    assert_eq!(open(&path).close(), Ok(()));
    assert!(path.exists(), "it was closed");
    drop((open(&path), keeping(&folder.path().join("other"))));
    assert!(path.exists(), "it was there before");
    std::fs::remove_file(&path).expect("removed");
    let disk = open(&path);
    wait(|answer| disk.write(Requester::default(), 0, vec![1; 4096], true, answer));
    drop(disk);
    assert!(path.exists(), "it has something");
    // Of two that open one file at a time the second is refused, and removes nothing.
    let path = folder.path().join("third");
    let first = keeping(&path);
    assert!(KeepFile::open(&path, OpenedAs::Keeping, Duration::ZERO).is_err() && path.exists());
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, "of another").expect("written");
    drop(first);
    assert!(path.exists(), "it is another one");
}

#[test]
fn the_disk_has_its_exact_length() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = open(&folder.path().join("changes"));
    assert_eq!((disk.exact_bytes(), disk.block_bytes()), (BYTES - 3000, BYTES));
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
    for opened in [OpenedAs::Existing, OpenedAs::ReadOnly] {
        let refused = KeepFile::open(&path, opened, Duration::ZERO).expect_err("no file");
        assert!(matches!(refused, KeepError::NotAFile { .. }), "{refused}");
    }
}

#[test]
fn what_is_damaged_is_not_compacted_and_one_that_is_told_to_end_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("changes");
    let disk = open(&path);
    wait(|answer| disk.write(Requester::default(), 8192, vec![0xa7; 8192], true, answer));
    drop(disk);
    let names = || std::fs::read_dir(folder.path()).expect("listed").count();
    let told = hs_keep::compact(&path, &|| true).expect_err("told to end");
    assert!(told.to_string().contains("told to end") && names() == 1, "{told}");
    hs_keep::compact(&path, &|| false).expect("compacted");
    // With the longest name there is.
    let long = folder.path().join("ä".repeat(127) + "z");
    std::fs::rename(&path, &long).expect("renamed");
    hs_keep::compact(&long, &|| false).expect("compacted");
    std::fs::rename(&long, &path).expect("renamed");
    assert_eq!(names(), 1);

    let mut bytes = std::fs::read(&path).expect("read");
    let at = bytes.windows(4096).position(|block| block == [0xa7; 4096]).expect("it is there");
    bytes[at + 4096 + 100] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let damaged = hs_keep::compact(&path, &|| false).expect_err("damaged").to_string();
    assert!(damaged.contains("1 of 2 blocks are not what was written (blocks 3 of the disk)"), "{damaged}");
    assert!(std::fs::read(&path).expect("read") == bytes && names() == 1);
}

fn keeping(path: &Path) -> KeepFile {
    KeepFile::open(path, OpenedAs::Keeping, Duration::from_secs(60)).expect("opened")
}

/// Descriptors of this process that lead to a file.
fn descriptors(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("listed").flatten();
    all.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path)).count()
}

/// Else all that it writes would be in a file that has no name any more.
#[test]
fn who_waited_for_a_file_that_was_replaced_uses_the_one_that_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a folder");
    let (path, other) = (folder.join("changes"), folder.join("other"));
    let held = keeping(&path);
    std::fs::write(&other, "the other").expect("written");
    let found = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| keeping(&path));
        while descriptors(&path) < 2 {
            std::thread::yield_now();
        }
        std::fs::rename(&other, &path).expect("replaced");
        drop(held);
        waiting.join().expect("no panic")
    });
    assert_eq!(found.read_some(0, 100).expect("read"), b"the other");
}

#[test]
fn a_file_that_is_written_as_a_whole_appears_when_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, link) = (folder.path().join("changes"), folder.path().join("link"));
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let disk = (Digest([4; 32]), BYTES);
    let mut expected = content();
    let begin = || NewFile::instead_of(keeping(&link), disk).expect("begun");
    let names = || std::fs::read_dir(folder.path()).expect("listed").count();
    // One that is given up leaves nothing.
    let mut new = begin();
    new.write(0, &[1; 4096]).expect("written");
    assert_eq!(names(), 3);
    drop(new);
    assert!(names() == 2 && keeping(&path).is_new().expect("read"));

    let mut new = begin();
    assert!(new.write(299, &[1; 8192]).is_err(), "outside of the disk");
    for block in (0..200).step_by(3) {
        let range = block << 12..(block + 1) << 12;
        expected[range.clone()].fill(block as u8);
        new.write(block as u64, &expected[range]).expect("written");
    }
    new.zero(250, 10, false).expect("zeroed");
    expected[250 << 12..260 << 12].fill(0);
    new.take_snapshot("begun", 1).expect("a free name");
    let file = new.finish().expect("in its place");
    assert!(KeepFile::open(&path, OpenedAs::Existing, Duration::ZERO).is_err(), "it is locked");
    assert!(names() == 2 && link.is_symlink() && file.path() == link);
    assert_eq!(file.overlay(Some(disk), false).expect("an overlay").is_at("begun"), Some(true));
    let kept = KeptDisk::new(Arc::new(Memory(content())), file).expect("an overlay");
    assert!(read(&kept, 0, BYTES) == expected);

    // It is at that place until something is written.
    let is_at = |name: &str| {
        let overlay = keeping(&path).overlay(Some(disk), true).expect("an overlay");
        overlay.is_at(name)
    };
    assert_eq!(kept.close(), Ok(()));
    drop(kept);
    assert_eq!((is_at("begun"), is_at("other")), (Some(true), None));
    let kept = open(&path);
    wait(|answer| kept.write(Requester::default(), 0, expected[..4096].to_vec(), true, answer));
    drop(kept);
    assert_eq!(is_at("begun"), Some(false), "also when what was there is written again");
    let file = keeping(&path);
    let mut overlay = file.overlay(Some(disk), true).expect("an overlay");
    overlay.revert("begun").expect("it is there");
    file.run_alone(&mut overlay).expect("written");
    drop(file);
    assert_eq!(is_at("begun"), Some(true));
}

/// What a snapshot has of the first blocks of the disk.
fn of_snapshot(path: &Path, name: &str, blocks: u64) -> Vec<u64> {
    let (snapshot, checked) = SnapshotFile::open(path, name, (Digest([4; 32]), BYTES)).expect("it is there");
    assert_eq!(checked.damaged, 0);
    let mut found = vec![0; blocks as usize];
    for (start, count, content) in snapshot.extents() {
        let Content::Data(place) = content else { continue };
        for block in 0..count {
            let mut bytes = [0; 8];
            snapshot.read((place + block) << 12, &mut bytes).expect("what was written");
            found[(start + block) as usize] = u64::from_le_bytes(bytes);
        }
    }
    found
}

/// Writers flush behind each block, one after the other; a snapshot has all blocks up to some moment.
#[test]
fn snapshots_lie_between_two_flushes() {
    const WRITERS: u64 = 3;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("changes");
    let disk = open(&path);
    let (written, ends) = ([(); WRITERS as usize].map(|()| AtomicU64::new(0)), AtomicBool::new(false));
    let take = |name: &str| SnapshotChange::Take { name: name.to_owned(), now_s: 1 };
    std::thread::scope(|scope| {
        for (writer, written) in written.iter().enumerate() {
            let (disk, ends) = (&disk, &ends);
            scope.spawn(move || {
                for version in 1.. {
                    let block = version % 8 * WRITERS + writer as u64;
                    let bytes = [&version.to_le_bytes()[..], &[7; 4088]].concat();
                    wait(|answer| disk.write(Requester::default(), block << 12, bytes, false, answer));
                    wait(|answer| disk.flush_here(answer));
                    written.store(version, SeqCst);
                    if ends.load(SeqCst) {
                        break;
                    }
                }
            });
        }
        for round in 0..30 {
            let before = written.each_ref().map(|written| written.load(SeqCst));
            let name = format!("{round}");
            disk.change_snapshots(take(&name)).expect("taken");
            let after = written.each_ref().map(|written| written.load(SeqCst) + 1);
            let found = of_snapshot(&path, &name, 8 * WRITERS);
            for writer in 0..WRITERS as usize {
                let own = |block: usize| found[block * WRITERS as usize + writer];
                let last = (0..8).map(own).max().expect("eight");
                assert!((before[writer]..=after[writer]).contains(&last), "round {round}");
                let expected = (0..8).map(|block| (1..=last).rev().find(|version| version % 8 == block));
                let expected: Vec<_> = expected.map(Option::unwrap_or_default).collect();
                assert_eq!((0..8).map(own).collect::<Vec<_>>(), expected, "round {round}");
            }
            if round % 2 == 1 {
                disk.change_snapshots(SnapshotChange::Delete { name }).expect("deleted");
            }
        }
        assert!(
            disk.change_snapshots(take("0")).is_err_and(|error| error.to_string().contains("one of this"))
        );
        ends.store(true, SeqCst);
    });
    disk.close().expect("written");
    assert!(disk.change_snapshots(take("late")).is_err());
    drop(disk);
    let (_, overlay) = KeepFile::glance(&path).expect("it is there");
    assert_eq!(overlay.snapshots().len(), 15);
}

/// What a copy of the file has of each block: its version. Each word has that, and the block's number.
fn of_copy(path: &Path) -> Result<Vec<u64>, String> {
    let file = KeepFile::open(path, OpenedAs::ReadOnly, Duration::ZERO).expect("a file");
    let overlay = file.overlay(None, false).map_err(|error| error.to_string())?;
    let checked = file.check(&overlay).map_err(|error| error.to_string())?;
    if checked.damaged > 0 {
        return Err("the check finds damaged blocks".to_owned());
    }
    let mut found = vec![0; (BYTES >> 12) as usize];
    for (start, blocks, content) in overlay.extents() {
        let Content::Data(place) = content else { continue };
        for block in 0..blocks {
            let mut bytes = [0; 4096];
            file.read((place + block) << 12, &mut bytes).expect("in the file");
            assert!(bytes.chunks(8).all(|word| *word == bytes[..8]), "block {} is none", start + block);
            let word = u64::from_le_bytes(*bytes.first_chunk().expect("eight"));
            assert_eq!(word >> 40, start + block, "it was written to another block");
            found[(start + block) as usize] = word & ((1 << 40) - 1);
        }
    }
    Ok(found)
}

/// Ends writers, also where what they are watched by fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A copy has what was flushed before it was begun, unless a map was stored meanwhile. Then it may be refused
/// by its opening or by a check, and has in each block something that was written there.
#[test]
fn a_copy_of_a_file_in_use_is_right_or_refused() {
    const WRITERS: usize = 3;
    const OWN: usize = BYTES as usize / 4096 / WRITERS;
    let copies = std::env::var(COPIES_VARIABLE).map_or(COPIES, |said| said.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let (path, copy) = (folder.path().join("changes"), folder.path().join("copy"));
    let disk = open(&path);
    let flushed: Vec<_> = (0..WRITERS * OWN).map(|_| AtomicU64::new(0)).collect();
    let ends = AtomicBool::new(false);
    let mut right = 0;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (disk, ends, flushed) = (&disk, &ends, &flushed);
            scope.spawn(move || {
                let mut prng = Prng::new(writer as u64);
                for version in 1_u64.. {
                    let first = writer * OWN + prng.below(OWN as u64) as usize;
                    let most = if prng.below(4) == 0 { OWN as u64 } else { 3 };
                    let end = (writer * OWN + OWN).min(first + 1 + prng.below(most) as usize);
                    let at = (first as u64) << 12;
                    let words = (first as u64..end as u64).map(|block| (block << 40 | version).to_le_bytes());
                    let bytes = words.flat_map(|word| word.repeat(512)).collect();
                    wait(|answer| disk.write(Requester::default(), at, bytes, false, answer));
                    wait(|answer| disk.flush_here(answer));
                    flushed[first..end].iter().for_each(|block| block.store(version, SeqCst));
                    if ends.load(SeqCst) {
                        break;
                    }
                }
            });
        }
        let _ends = Ends(&ends);
        let mut prng = Prng::new(9);
        for number in 0..copies {
            std::thread::sleep(Duration::from_millis(prng.below(100)));
            let now = || flushed.iter().map(|block| block.load(SeqCst)).collect::<Vec<_>>();
            let before = now();
            let slots = || {
                let mut slots = [0; 2 * 4096];
                std::fs::File::open(&path).and_then(|mut file| file.read_exact(&mut slots)).expect("read");
                slots
            };
            let slots_before = slots();
            std::fs::copy(&path, &copy).expect("copied");
            let found = of_copy(&copy);
            if slots_before == slots() {
                let found = found.expect("nothing was used again");
                let is_there = found.iter().zip(&before).all(|(found, before)| found >= before);
                assert!(is_there, "copy {number}: {found:?}, not {before:?}");
                right += 1;
            }
        }
    });
    assert!(right > 0);
    disk.close().expect("written");
}

#[test]
fn those_who_may_ask_find_the_server_by_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, link) = (folder.path().join("changes"), folder.path().join("link"));
    let file = KeepFile::open(&path, OpenedAs::Keeping, Duration::ZERO).expect("opened");
    let disk = KeptDisk::new(Arc::new(Memory(content())), file.asked_in(folder.path())).expect("an overlay");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let ask = |path: &Path, name: &str| {
        let change = SnapshotChange::Take { name: name.to_owned(), now_s: 0 };
        hs_keep::ask([Path::new("/nowhere"), folder.path()], path, &change)
    };
    // What was answered is in it, also where it was not flushed.
    wait(|answer| disk.write(Requester::default(), 4096, vec![7; 4096], false, answer));
    assert!(ask(&path, "first").expect("answered"));
    assert_eq!(of_snapshot(&path, "first", 2), [0, 0x0707_0707_0707_0707]);
    assert!(ask(&link, "a second").expect("answered"));
    let refused = ask(&link, "first").expect_err("refused").to_string();
    assert!(refused.starts_with(&link.display().to_string()) && refused.contains("one of this name"));
    let sockets = || {
        let names = std::fs::read_dir(folder.path()).expect("listed").map(|entry| entry.expect("one").path());
        names.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect::<Vec<_>>()
    };
    let socket = sockets().pop().expect("one");
    assert_eq!(std::fs::metadata(&socket).expect("there").permissions().mode() & 0o777, 0o600);
    // One who asks nothing keeps no other from being heard, and none the disk from ending.
    let silent = std::os::unix::net::UnixStream::connect(&socket).expect("connected");
    assert!(ask(&path, "third").expect("answered"));
    disk.close().expect("written");
    assert!(!ask(&path, "late").expect("it has ended"));
    drop((disk, silent));
    assert!(sockets().is_empty() && !ask(&path, "later").expect("none is asked"));
    let (_, overlay) = KeepFile::glance(&path).expect("it is there");
    let names: Vec<_> = overlay.snapshots().iter().map(|snapshot| &*snapshot.name).collect();
    assert_eq!(names, ["first", "a second", "third"]);
}
