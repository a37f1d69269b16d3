//! Borrowed chunks come from where the base's image has them, and nothing comes in their place.

use hs_store::{MemoryStore, contract};
use hs_units::Prng;
use parking_lot::Mutex;

use super::*;

/// A store that notes what it is asked for.
struct Noting {
    store: MemoryStore,
    asked: Arc<Mutex<Vec<ByteRange>>>,
}

impl Noting {
    fn new(bytes: Vec<u8>, name: &str) -> (Arc<Self>, Arc<Mutex<Vec<ByteRange>>>) {
        let asked = Arc::default();
        let store = MemoryStore::new(bytes).named(name);
        (Arc::new(Self { store, asked: Arc::clone(&asked) }), asked)
    }
}

impl Store for Noting {
    fn len(&self) -> u64 {
        self.store.len()
    }

    fn name(&self) -> &str {
        self.store.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.asked.lock().push(ByteRange::new(offset, buf.len() as u64));
        self.store.read_at(offset, buf)
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        self.asked.lock().push(range);
        self.store.stream(range, sink)
    }
}

/// Chunks of these lengths, of which some are borrowed; what all of them are, and what is asked for.
struct Example {
    hot: BorrowedHot,
    model: Vec<u8>,
    own: Arc<Mutex<Vec<ByteRange>>>,
    base: Arc<Mutex<Vec<ByteRange>>>,
}

/// Each chunk is its length, whether it is borrowed, and how long the gap before it is in the base's file.
fn example(chunks: &[(usize, bool, usize)]) -> Example {
    let (mut own, mut base, mut model) = (vec![1; 100], vec![2; 50], Vec::new());
    let (mut sources, mut places) = (Vec::new(), HashMap::new());
    for (number, (len, is_borrowed, gap)) in chunks.iter().enumerate() {
        let bytes = contract::noise(*len, number as u64 + 7);
        let digest = hs_format::chunk_digest(&bytes);
        let source = if *is_borrowed {
            base.resize(base.len() + gap, 3);
            places.insert(digest, ByteRange::new(base.len() as u64, *len as u64));
            base.extend(&bytes);
            HotSource::Base(digest)
        } else {
            own.extend(&bytes);
            HotSource::Own((own.len() - len) as u64)
        };
        sources.push((*len as u64, source));
        model.extend(bytes);
    }
    let ((own_store, own), (base_store, base)) = (Noting::new(own, "own"), Noting::new(base, "base"));
    let hot = BorrowedHot::new(own_store, 0, sources.into_iter());
    hot.lend(Lender { store: base_store, chunks: places });
    Example { hot, model, own, base }
}

#[test]
fn both_are_one_run_of_bytes() {
    let mut prng = Prng::new(1);
    for _ in 0..30 {
        let chunk = |prng: &mut Prng| {
            let long = prng.below(8) == 0;
            let len = 1 + prng.below(if long { 400_000 } else { 9_000 }) as usize;
            let gap = if prng.below(9) == 0 { 300_000 } else { prng.below(2_000) as usize };
            (len, prng.below(3) > 0, gap)
        };
        let chunks: Vec<_> = (0..1 + prng.below(30)).map(|_| chunk(&mut prng)).collect();
        let example = example(&chunks);
        contract::check_filled(&example.hot, &example.model);
    }
}

#[test]
fn few_changes_take_one_request_to_each() {
    let mut chunks = vec![(10_000, true, 0); 60];
    for number in [0, 13, 14, 40, 59] {
        chunks[number].1 = false;
    }
    // What was in the base's hot region in their place is read over.
    (chunks[15].2, chunks[41].2) = (20_000, 10_000);
    let all = example(&chunks);
    assert!(contract::collect(&all.hot, ByteRange::new(0, 600_000)).expect("read") == all.model);
    assert_eq!((all.own.lock().len(), all.base.lock().len()), (1, 1));
    // A long gap is not.
    chunks[41].2 = 300_000;
    let gap = example(&chunks);
    assert!(contract::collect(&gap.hot, ByteRange::new(0, 600_000)).expect("read") == gap.model);
    assert_eq!(gap.base.lock().len(), 2);
    // Nor do chunks of the base wait for many own ones.
    chunks[20..50].iter_mut().for_each(|chunk| chunk.1 = false);
    let many = example(&chunks);
    assert!(contract::collect(&many.hot, ByteRange::new(0, 600_000)).expect("read") == many.model);
    assert_eq!((many.own.lock().len(), many.base.lock().len()), (3, 2));
    assert_eq!(many.own.lock()[1].len, 300_000);
}

#[test]
// R57
fn what_the_base_lacks_is_an_error_behind_what_it_has() {
    let chunks = [(500, true, 0), (600, false, 0), (700, true, 0), (800, true, 0)];
    let collect = |hot: &BorrowedHot| {
        let mut came = 0;
        let result = hot.stream(ByteRange::new(0, 2600), &mut |piece| {
            came += piece.len();
            ControlFlow::Continue(())
        });
        (came, result.map_err(|error| error.with_causes()))
    };
    let mut all = example(&chunks);
    assert_eq!(collect(&all.hot), (2600, Ok(())));
    let lender = all.hot.lender.get_mut().expect("known");
    let third = lender.chunks.values_mut().find(|at| at.len == 700).expect("there");
    // One with the digest and another length is another chunk.
    third.len = 701;
    let (came, result) = collect(&all.hot);
    let said = result.expect_err("it is not there");
    assert_eq!(came, 1100);
    assert!(said.contains("own") && said.contains("base has not all hot chunks"), "{said}");
    all.hot.lender = OnceLock::new();
    let (came, result) = collect(&all.hot);
    assert_eq!(came, 0);
    assert!(result.expect_err("no base").contains("--base"));
}
