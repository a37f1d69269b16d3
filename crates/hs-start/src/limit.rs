//! What no start from an image can be quicker than.

use hs_device::{Medium, Stream};
use hs_image::Image;
use hs_units::Nanos;

use crate::summary::Summary;

/// Sets [`Summary::limit_s`] of a start that is ready. It computed at most while it did not wait for the
/// medium. That is less than the recorded time where recording was slower; then all recorded times are less
/// by the same factor. A start that beats its limit shows that the limit is lower.
pub(crate) fn fill(summary: &mut Summary, image: &Image, medium: Medium) {
    let own_time = summary.ready_s.zip(summary.demand_wait_s).map(|(ready, waited)| ready - waited);
    let own_time = own_time.filter(|own_s| *own_s > 0.0).map(Nanos::from_secs_f64);
    let limit = own_time.and_then(|own_time| of_image(image, medium, own_time)).map(Nanos::as_secs_f64);
    summary.limit_s = limit.zip(summary.ready_s).map(|(limit, ready)| limit.min(ready));
}

/// The critical path through the program's own times and one stream of the hot region: the program computes
/// as it did when it was recorded, for `at_most` altogether, and waits for a chunk only if the stream has
/// not brought it yet. `None` where the medium or the program's time is not known.
///
/// `lab predict --limit` finds it more exactly, from the recording itself: block by block, with the program's
/// time from memory, and with processes that compute while another one waits.
fn of_image(image: &Image, medium: Medium, at_most: Nanos) -> Option<Nanos> {
    let recorded = image.own_time()?;
    let own_time = recorded.min(at_most);
    let pace = own_time.as_secs_f64() / recorded.as_secs_f64();
    let superblock = image.superblock();
    // Of hot chunks that lie in two files there is no single stream.
    if superblock.features.borrows() {
        return None;
    }
    let first = superblock.hot.first()?;
    // The stream begins with the tables, as the opening request does.
    let tables_bytes = first.chunks.offset.saturating_sub(first.index.offset);
    let hot_bytes: u64 = superblock.hot.iter().map(|segment| segment.range().len).sum();
    let stream = Stream::new(medium, superblock.image_bytes, hot_bytes).ok()??;
    let (mut stored, mut ready) = (tables_bytes, own_time);
    for chunk in 0..image.hot_chunk_count() {
        stored += image.hot_chunk(chunk).1.len;
        let needed = Nanos::from_secs_f64(image.hot_needed(chunk).as_secs_f64() * pace);
        let computing_behind = own_time.saturating_sub(needed);
        ready = ready.max(stream.arrival(stored.min(hot_bytes)) + computing_behind);
    }
    Some(ready)
}
