//! `cd-24x-cav` alone, without queue and cache, against a published measurement: table 2. 4,920
//! references took 124.056 s where they lie scattered, 26.288 s after they were put in the order of their use
//! on the outer tracks. No figure of the model comes from that paper.

use hs_device::Medium;
use hs_units::{ByteRange, Nanos, Prng};

use super::{BLOCKS, FILE_BYTES, TABLE_1, TABLE_2, places, scattered, think};

const SCATTERED_S: f64 = 124.056;
const ORDERED_S: f64 = 26.288;

/// Seconds that a reader waits for `requests`, each made `think` after the one before is done.
fn replay(think: Nanos, requests: impl IntoIterator<Item = ByteRange>) -> f64 {
    let mut drive = Medium::Cd24xCav.device(FILE_BYTES).expect("fits").expect("modelled");
    let (mut now, mut waited) = (Nanos::ZERO, Nanos::ZERO);
    for request in requests {
        let done = drive.submit(now, request).done;
        waited += done - now;
        now = done + think;
    }
    waited.as_secs_f64()
}

/// The same for blocks that are referred to in this order.
fn replay_blocks(think: Nanos, order: &[u64]) -> f64 {
    replay(think, places(order, TABLE_2.block_bytes()))
}

fn within(share: f64, measured: f64, paper: f64) {
    let off = measured / paper - 1.0;
    assert!(off.abs() <= share, "{measured:.1} s, the paper has {paper} s: {:+.0} %", off * 100.0);
}

#[test]
fn scattered_references_take_as_long_as_in_the_paper() {
    for seed in 1..=8 {
        let order = scattered(seed, TABLE_2.count);
        let took = replay_blocks(think(), &order);
        within(0.20, took, SCATTERED_S);
    }
}

#[test]
fn ordered_references_take_as_long_as_in_the_paper() {
    // One after the other without a pause (section 5), at the end of the file.
    let (first, len) = (FILE_BYTES - TABLE_2.bytes, TABLE_2.block_bytes());
    let took =
        replay(Nanos::ZERO, (0..TABLE_2.count).map(|number| ByteRange::new(first + number * len, len)));
    within(0.20, took, ORDERED_S);
}

/// What table 2 would come to under other assumptions: for docs/MEDIA.md, and to show that the agreement
/// means something. Uniformly random references must *not* agree.
#[test]
fn references_without_locality_would_take_three_times_as_long() {
    let mut prng = Prng::new(1);
    let order: Vec<u64> = (0..TABLE_2.count).map(|_| prng.below(BLOCKS)).collect();
    let took = replay_blocks(think(), &order);
    assert!(took > 3.0 * SCATTERED_S, "{took}");
    // 59 % of the references of table 1 are to blocks not referred to before.
    let took = replay_blocks(think(), &scattered(1, TABLE_2.count * 2_172 / TABLE_1.count));
    assert!(took < 0.8 * SCATTERED_S, "{took}");
    let mut sorted = scattered(1, TABLE_2.count);
    sorted.sort_unstable();
    let took = replay_blocks(think(), &sorted);
    assert!(took < SCATTERED_S, "{took}");
}
