//! What is known to be zero is zero, and every window that is zero is known.

use hs_image::ImageError;
use hs_units::{ByteRange, Prng};

use crate::sample::{Bench, disk, fast_build, open};

const WINDOW: u64 = 32 << 10;

#[test]
fn runs_tell_zero_windows_from_others() {
    let mut prng = Prng::new(90);
    let bench = Bench::new(disk(&mut prng, 700, WINDOW));
    bench.build("cold.hsi", &fast_build(WINDOW, 2));
    let image = open(&bench.path("cold.hsi"));
    let size = bench.disk.len() as u64;
    let is_zero = |window: u64| {
        let end = ((window + 1) * WINDOW).min(size);
        bench.disk[(window * WINDOW) as usize..end as usize].iter().all(|byte| *byte == 0)
    };
    for _ in 0..300 {
        let offset = prng.below(size);
        let range = ByteRange::new(offset, prng.below(size - offset + 1));
        let limit = prng.below(5) as usize;
        let runs = image.allocation(range, limit).expect("the index is whole");
        assert!(runs.len() <= limit.max(1));
        assert!(runs.windows(2).all(|pair| pair[0].zero != pair[1].zero));
        let mut at = offset;
        for run in &runs {
            let end = at + run.len;
            assert!(run.len > 0 && end <= range.end());
            assert!((at / WINDOW..end.div_ceil(WINDOW)).all(|window| is_zero(window) == run.zero));
            at = end;
        }
        // Only the limit may leave something out.
        assert!(at == range.end() || runs.len() == limit.max(1));
    }
    let outside = image.allocation(ByteRange::new(size - 1, 2), 1);
    assert!(matches!(outside, Err(ImageError::OutsideDisk { .. })));
}
