//! What lies on the medium: as an image has it, or as one would have it.

use anyhow::ensure;
use hs_image::{Image, WindowRef};
use hs_lab::predict::{HotChunk, ImageLayout};
use hs_trace::Profile;
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Nanos};

/// Windows that are modelled, each with its place: 1 TiB in windows of 128 KiB.
const MOST_WINDOWS: u64 = 8 << 20;
/// Windows of an image that is not there.
const WINDOW_BYTES: u64 = 128 << 10;
/// Bytes of the disk in a hot chunk, as `optimize` makes them.
const HOT_CHUNK_BYTES: u64 = 256 << 10;
/// Superblock, and so the first byte of whatever follows.
const SUPERBLOCK_BYTES: u64 = 4096;
/// An index entry of a window, and of a hot chunk with its extents.
const WINDOW_ENTRY_BYTES: u64 = 48;
const HOT_ENTRY_BYTES: u64 = 104;

/// A file on the medium.
pub(super) struct OnMedium {
    pub(super) layout: ImageLayout,
    pub(super) file_bytes: u64,
    /// It was not there and has been made up.
    pub(super) estimated: bool,
}

fn check_windows(count: u64) -> anyhow::Result<()> {
    ensure!(count <= MOST_WINDOWS, "the disk has {count} windows, and {MOST_WINDOWS} can be modelled");
    Ok(())
}

/// As `image` has it.
pub(super) fn of_image(image: &Image) -> anyhow::Result<OnMedium> {
    let superblock = image.superblock();
    check_windows(superblock.windows())?;
    ensure!(!superblock.features.borrows(), "some of its hot chunks lie in another image: predict that one");
    let windows = (0..superblock.windows())
        .map(|window| {
            Ok(match image.window(window)? {
                WindowRef::Zero => None,
                WindowRef::Chunk(chunk) => Some(image.cold_range(&chunk)),
            })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let hot = (0..image.hot_chunk_count())
        .map(|chunk| {
            let at = image.hot_chunk(chunk).1;
            let extents = image.hot_extents(chunk).to_vec();
            HotChunk { at, raw_bytes: image.hot_bytes(chunk), extents, needed: image.hot_needed(chunk) }
        })
        .collect();
    let tables = superblock.hot.first().map_or(ByteRange::new(SUPERBLOCK_BYTES, 0), |segment| {
        ByteRange::new(segment.index.offset, segment.chunks.offset - segment.index.offset)
    });
    let cold = &superblock.cold;
    let index = ByteRange::new(cold.range.offset + cold.leaves_offset, cold.range.len - cold.leaves_offset);
    let layout = ImageLayout { window_bytes: image.window_bytes(), windows, index, tables, hot };
    Ok(OnMedium { layout, file_bytes: superblock.image_bytes, estimated: false })
}

/// An image of `disk_bytes`, all of which is compressed alike.
pub(super) fn of_ratio(disk_bytes: u64, ratio: f64) -> anyhow::Result<OnMedium> {
    let stored = ((WINDOW_BYTES as f64 * ratio) as u64).max(1);
    let count = disk_bytes.div_ceil(WINDOW_BYTES);
    check_windows(count)?;
    let at = |window: u64| ByteRange::new(SUPERBLOCK_BYTES + window * stored, stored);
    let end = at(count).offset;
    let index = ByteRange::new(end, count * WINDOW_ENTRY_BYTES);
    let layout = ImageLayout {
        window_bytes: WINDOW_BYTES,
        windows: (0..count).map(|window| Some(at(window))).collect(),
        index,
        tables: ByteRange::new(SUPERBLOCK_BYTES, 0),
        hot: Vec::new(),
    };
    Ok(OnMedium { layout, file_bytes: index.end() + SUPERBLOCK_BYTES, estimated: true })
}

impl OnMedium {
    /// The same without its hot region: what lies behind moves forward.
    pub(super) fn without_hot(mut self) -> Self {
        let hot = self.layout.tables.len + self.layout.hot.iter().map(|chunk| chunk.at.len).sum::<u64>();
        let from = self.layout.tables.offset;
        let moved = |range: ByteRange| {
            let back = if range.offset > from { hot } else { 0 };
            ByteRange::new(range.offset - back, range.len)
        };
        for window in self.layout.windows.iter_mut().flatten() {
            *window = moved(*window);
        }
        self.layout.index = moved(self.layout.index);
        self.file_bytes -= hot;
        self.layout.tables.len = 0;
        self.layout.hot.clear();
        self
    }

    /// The same with a hot region in front for `profile`, compressed as its windows are.
    pub(super) fn with_hot(mut self, profile: &Profile) -> Self {
        self.estimated = true;
        let mut chunks: Vec<Vec<BlockRange>> = vec![Vec::new()];
        let mut room = HOT_CHUNK_BYTES / BLOCK_BYTES;
        for mut run in profile.first_access_runs() {
            while run.count > 0 {
                let taken = run.count.min(room);
                chunks.last_mut().expect("there is one").push(BlockRange::new(run.start, taken));
                run = BlockRange::new(hs_units::Lba(run.start.0 + taken), run.count - taken);
                room -= taken;
                if room == 0 {
                    chunks.push(Vec::new());
                    room = HOT_CHUNK_BYTES / BLOCK_BYTES;
                }
            }
        }
        chunks.retain(|chunk| !chunk.is_empty());
        let tables = SUPERBLOCK_BYTES * (chunks.len() as u64 * HOT_ENTRY_BYTES).div_ceil(SUPERBLOCK_BYTES);
        self.layout.tables = ByteRange::new(SUPERBLOCK_BYTES, tables);
        let mut at = self.layout.tables.end();
        self.layout.hot = chunks
            .into_iter()
            .map(|mut extents| {
                extents.sort_unstable_by_key(|run| run.start);
                let raw: u64 = extents.iter().map(|run| run.bytes()).sum();
                let stored = extents.iter().map(|run| self.stored(*run)).sum::<f64>().max(1.0) as u64;
                let at_file = ByteRange::new(at, stored);
                let chunk = HotChunk { at: at_file, raw_bytes: raw as u32, extents, needed: Nanos::ZERO };
                at += stored;
                chunk
            })
            .collect();
        let hot = at - SUPERBLOCK_BYTES;
        for window in self.layout.windows.iter_mut().flatten() {
            window.offset += hot;
        }
        self.layout.index.offset += hot;
        self.file_bytes += hot;
        self
    }

    /// Bytes that these blocks take in their windows.
    fn stored(&self, run: BlockRange) -> f64 {
        let window = (run.start.byte_offset() / self.layout.window_bytes) as usize;
        let stored = self.layout.windows.get(window).copied().flatten().map_or(0, |at| at.len);
        run.bytes() as f64 * stored as f64 / self.layout.window_bytes as f64
    }
}
