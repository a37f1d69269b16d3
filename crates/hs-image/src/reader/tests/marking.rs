//! Blocks that are kept back so that use of their chunks is seen.

use super::*;

/// Every chunk is expected, as those are that a warmer has asked for; counts what is seen all the same.
#[derive(Default)]
pub(super) struct Sees {
    asked: Mutex<Vec<u32>>,
    used: AtomicU64,
    released: Mutex<Vec<u32>>,
    dropped: Mutex<Vec<u32>>,
}

impl HotPolicy for Sees {
    fn join(&self, _chunk: u32) -> bool {
        false
    }
    fn is_expected(&self, _chunk: u32) -> bool {
        true
    }
    fn used(&self) {
        self.used.fetch_add(1, Ordering::SeqCst);
    }
    fn marker_asked(&self, chunk: u32) {
        self.asked.lock().push(chunk);
    }
    fn miss(&self) {}
    fn miss_answered(&self) {}
    fn arrived(&self, _chunk: u32) {}
    fn released(&self, chunk: u32) {
        self.released.lock().push(chunk);
    }
    fn dropped(&self, chunk: u32) {
        self.dropped.lock().push(chunk);
    }
}

#[test]
fn a_marker_is_answered_from_memory_when_all_else_has_left_and_tells_of_use() {
    let bench = sample_with_hot(&mut Prng::new(31));
    let count = hs_store::Count::new(FileStore::open(bench.path("hot.hsi")).expect("opened"));
    let counters = count.counters();
    let image = Arc::new(Image::open(Arc::new(count)).expect("an image"));
    let policy = Arc::new(Sees::default());
    let options = ReaderOptions { readers_keep: true, read_ahead_bytes: 0, ..ReaderOptions::default() };
    let reader = Reader::new(Arc::clone(&image), options, policy.clone(), None).expect("a reader");
    let read = |lba: Lba| {
        let mut found = vec![0; BLOCK_BYTES as usize];
        reader.read_at(lba.byte_offset(), &mut found).expect("read");
        assert!(found == bench.disk[lba.byte_offset() as usize..][..BLOCK_BYTES as usize]);
    };
    let blocks = |chunk: u32| -> Vec<Lba> {
        image.hot_extents(chunk).iter().flat_map(|extent| extent.blocks()).collect()
    };
    let supply = |chunk: u32| {
        let at = image.hot_chunk(chunk).1;
        let stored = bench.bytes("hot.hsi")[at.offset as usize..at.end() as usize].to_vec();
        assert!(
            reader
                .supply_hot(chunk, stored.into(), &mut Decompressor::new(), || {})
                .expect("whole")
                .is_some()
        );
    };
    let chunks: Vec<u32> =
        (0..image.hot_chunk_count()).filter(|chunk| blocks(*chunk).len() > 2).take(3).collect();
    let [before, after, pushed] = chunks[..] else { panic!("three chunks: {chunks:?}") };
    // Marked before it comes, after that, and where the rest goes to the kernel.
    assert!(reader.mark(before, 1, false));
    supply(before);
    supply(after);
    assert!(reader.mark(after, 1, true));
    supply(pushed);
    assert!(reader.mark(pushed, 1, true));
    reader.forget_hot(pushed);
    for chunk in [before, after] {
        let others = blocks(chunk).into_iter().enumerate().filter(|(number, _)| *number != 1);
        others.for_each(|(_, lba)| read(lba));
    }
    assert_eq!(*policy.released.lock(), [pushed, before, after], "nothing waits for a marker but the marker");
    assert_eq!((reader.stats().unserved_prefetch_bytes, policy.used.load(Ordering::SeqCst)), (0, 0));
    assert!(!reader.mark(pushed + 1, 0, true), "it is not here");
    // What is kept in other forms goes as well.
    reader.set_cache_budget(0);
    let asked = counters.snapshot().requests;
    for chunk in [before, after, pushed] {
        read(blocks(chunk)[1]);
    }
    assert_eq!(counters.snapshot().requests, asked, "the medium has nothing to do with it");
    // A read that continues from the block before it may be the kernel's read-ahead: that shows no use.
    let told: Vec<u32> = policy.asked.lock().clone();
    assert_eq!(
        (told.len() as u64, reader.marker_count().used),
        (policy.used.load(Ordering::SeqCst), told.len() as u64)
    );
    assert!(told.contains(&pushed), "{told:?}");
    assert!(policy.dropped.lock().is_empty());
    assert_eq!(reader.marker_count().placed, 3);
    // Its reader keeps it: asked for once more, the chunk was dropped.
    read(blocks(pushed)[1]);
    assert_eq!(*policy.dropped.lock(), [pushed]);
}
