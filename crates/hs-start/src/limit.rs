//! What no start from an image can be quicker than.

use hs_device::{Medium, Stream};
use hs_image::Image;
use hs_units::Nanos;

/// The critical path through the recorded program's own times and one stream of the hot region: the program
/// computes as it did when it was recorded, and waits for a chunk only if the stream has not brought it yet.
/// `None` where the medium or the program's time is not known.
///
/// `lab predict --limit` finds it more exactly, from the recording itself: block by block, with the program's
/// time from memory, and with processes that compute while another one waits.
pub(crate) fn of_image(image: &Image, medium: Medium) -> Option<Nanos> {
    let own_time = image.own_time()?;
    let superblock = image.superblock();
    let first = superblock.hot.first()?;
    // The stream begins with the tables, as the opening request does.
    let tables_bytes = first.chunks.offset.saturating_sub(first.index.offset);
    let hot_bytes: u64 = superblock.hot.iter().map(|segment| segment.range().len).sum();
    let stream = Stream::new(medium, superblock.image_bytes, hot_bytes).ok()??;
    let opened = stream.arrival(tables_bytes);
    let (mut stored, mut ready) = (tables_bytes, opened + own_time);
    for chunk in 0..image.hot_chunk_count() {
        stored += image.hot_chunk(chunk).1.len;
        let computing_behind = own_time.saturating_sub(image.hot_needed(chunk));
        ready = ready.max(stream.arrival(stored.min(hot_bytes)) + computing_behind);
    }
    Some(ready)
}
