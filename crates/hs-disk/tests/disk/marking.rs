//! Blocks that are left out elsewhere so that use of their chunks is seen.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

use hs_disk::{Deliver, ReadOptions, ServedDisk, UseVisibility};
use hs_store::{Count, FileStore};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Prng};

use crate::reading::sample_with_hot;
use crate::sample::open;
use crate::served::{Held, begin, check_read, reads, streaming};

/// Takes one chunk, and leaves a block of it out; refuses all others.
struct Kernel {
    disk: OnceLock<Weak<ServedDisk>>,
    chunk: u32,
    extents: Vec<BlockRange>,
    taken: AtomicU64,
}

impl Deliver for Kernel {
    fn visibility(&self) -> UseVisibility {
        UseVisibility::Asked
    }
    fn comes_before_answers(&self) -> bool {
        false
    }
    fn deliver(&self, extents: &[BlockRange], _raw: &[u8], _left_out: &[Range<u32>]) -> bool {
        if extents != self.extents {
            return false;
        }
        let disk = self.disk.get().and_then(Weak::upgrade).expect("it is there");
        assert!(disk.leave_out(self.chunk, 1));
        self.taken.fetch_add(1, SeqCst);
        true
    }
}

#[test]
fn a_tripwire_is_answered_from_memory_when_all_else_has_left_and_tells_of_use() {
    let bench = sample_with_hot(&mut Prng::new(31));
    let image = open(&bench.path("hot.hsi"));
    let blocks = |chunk: u32| -> Vec<Lba> {
        image.hot_extents(chunk).iter().flat_map(|extent| extent.blocks()).collect()
    };
    let chunks: Vec<u32> =
        (0..image.hot_chunk_count()).filter(|chunk| blocks(*chunk).len() > 2).take(3).collect();
    let [before, after, pushed] = chunks[..] else { panic!("three chunks: {chunks:?}") };
    let held = Held::new(FileStore::open(bench.path("hot.hsi")).expect("opened"));
    held.hold(ByteRange::new(image.hot_chunk(0).1.offset, u64::MAX >> 1));
    let count = Count::new(held.clone());
    let counters = count.counters();
    let read = ReadOptions { readers_keep: true, read_ahead_bytes: 0, ..reads(8, 40 << 20) };
    let disk = ServedDisk::open(Arc::new(count), &streaming(read, 1 << 20), None).expect("an image");
    let read = |lba: Lba| check_read(&disk, &bench.disk, lba.byte_offset(), BLOCK_BYTES);
    // Marked before it comes, after that, and where the rest goes to the kernel.
    assert!(disk.leave_out(before, 1));
    let kernel = Arc::new(Kernel {
        disk: OnceLock::from(Arc::downgrade(&disk)),
        chunk: pushed,
        extents: image.hot_extents(pushed).to_vec(),
        taken: AtomicU64::new(0),
    });
    begin(&disk, Some(kernel.clone()));
    held.go_on();
    disk.wait_prefetch();
    assert_eq!(kernel.taken.load(SeqCst), 1);
    assert!(disk.leave_out(after, 1));
    for chunk in [before, after] {
        let others = blocks(chunk).into_iter().enumerate().filter(|(number, _)| *number != 1);
        others.for_each(|(_, lba)| read(lba));
    }
    (0..image.hot_chunk_count())
        .filter(|chunk| !chunks.contains(chunk))
        .for_each(|chunk| disk.release(chunk));
    assert_eq!(disk.stats().unserved_prefetch_bytes, 0, "nothing waits for a tripwire but the tripwire");
    assert_eq!(disk.tripwire_count().used, 0);
    // What is kept in other forms goes as well.
    disk.set_cache_budget(0);
    assert!(!disk.leave_out(pushed + 1, 0), "it is not here");
    assert!(!disk.leave_out(pushed, 0), "it has one");
    let asked = counters.snapshot().requests;
    for chunk in [before, after, pushed] {
        read(blocks(chunk)[1]);
    }
    assert_eq!(counters.snapshot().requests, asked, "the medium has nothing to do with it");
    // A read that continues from the block before it may be the kernel's read-ahead: that shows no use.
    let continues = |chunk: &u32| blocks(*chunk)[0].0 + 1 == blocks(*chunk)[1].0;
    let told = chunks.iter().filter(|chunk| **chunk == pushed || !continues(chunk)).count() as u64;
    let counted = disk.tripwire_count();
    assert_eq!((counted.placed, counted.used), (3, told));
    // Its reader keeps it: asked for once more, the chunk was dropped.
    read(blocks(pushed)[1]);
    assert_eq!(counters.snapshot().requests, asked + 1);
}
