//! `headstart inspect PROFILE --layers IMAGE`: what a start reads, counted at each layer below it, as tables
//! 1 and 3 of the paper on starting Linux from CD count it (docs/PAPERS.md).

use std::collections::HashMap;

use hs_format::WindowRef;
use hs_image::Image;
use hs_output::show;
use hs_trace::{BlockSet, Profile};
use hs_units::{BLOCK_BYTES, BlockRange, ByteSize};
use serde::Serialize;

/// What one layer was asked for.
#[derive(Clone, Copy, Default, Serialize)]
struct Layer {
    /// Units, each as often as it was asked for.
    references: u64,
    bytes: u64,
    /// Units, each once.
    unique: u64,
    unique_bytes: u64,
}

impl Layer {
    fn add(&mut self, bytes: u64, is_first: bool) {
        self.references += 1;
        self.bytes += bytes;
        if is_first {
            self.unique += 1;
            self.unique_bytes += bytes;
        }
    }
}

/// All layers of a start.
#[derive(Serialize)]
struct Layers {
    /// Blocks of the file system: 4 KiB. Those of windows that are zero come from no layer below, and are not
    /// counted.
    blocks: Layer,
    /// Windows and hot chunks of the image, decompressed. One that follows itself counts once, as in a reader
    /// that keeps the last one.
    chunks: Layer,
    /// The same, compressed: what the medium delivers.
    medium: Layer,
    /// The time that its reads took, one after the other.
    read_cost_s: f64,
    /// What this image would have delivered in that time.
    bytes_per_s: Option<f64>,
    /// Share of the decompressed bytes that was asked for.
    used_share: f64,
}

/// What holds a block of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    Hot(u32),
    Window(u64),
}

/// Prints the layers of a start from this image.
pub(super) fn run(profile: &Profile, image: &Image, json: bool) -> anyhow::Result<()> {
    let layers = count(profile, image)?;
    if json {
        return show::json(&layers);
    }
    let mut table = show::table(&["layer", "references", "bytes", "unique", "unique bytes"]);
    let rows = [
        ("file system, 4 KiB", layers.blocks),
        ("image, decompressed", layers.chunks),
        ("medium", layers.medium),
    ];
    for (name, layer) in rows {
        let bytes = [layer.bytes, layer.unique_bytes].map(|bytes| ByteSize(bytes).to_string());
        let [all, unique] = bytes;
        table.add_row([name.to_owned(), layer.references.to_string(), all, layer.unique.to_string(), unique]);
    }
    show::line(&table);
    show::line(format_args!("{:.0}% of what is decompressed is asked for", layers.used_share * 100.0));
    if let Some(rate) = layers.bytes_per_s {
        let rate = ByteSize(rate as u64);
        show::line(format_args!("{:.3} s of reading, {rate}/s on average", layers.read_cost_s));
    }
    Ok(())
}

fn count(profile: &Profile, image: &Image) -> anyhow::Result<Layers> {
    let (mut blocks, mut chunks, mut medium) = (Layer::default(), Layer::default(), Layer::default());
    let mut sizes: HashMap<Holder, (u64, u64)> = HashMap::new();
    let mut last = None;
    let mut seen = BlockSet::default();
    for read in &profile.reads {
        let mut rest = read.blocks;
        while rest.count > 0 {
            let (holder, run) = holder(image, rest);
            rest = BlockRange::new(run.end(), rest.count - run.count);
            let is_first = !sizes.contains_key(&holder);
            if is_first {
                sizes.insert(holder, size(image, holder)?);
            }
            let (raw, stored) = sizes[&holder];
            if stored == 0 {
                continue;
            }
            blocks.references += run.count;
            blocks.bytes += run.bytes();
            seen.insert(run, |new| {
                blocks.unique += new.count;
                blocks.unique_bytes += new.bytes();
            });
            if last.replace(holder) != Some(holder) {
                chunks.add(raw, is_first);
                medium.add(stored, is_first);
            }
        }
    }
    let read_cost_s: f64 = profile.reads.iter().map(|read| read.cost.as_secs_f64()).sum();
    Ok(Layers {
        blocks,
        chunks,
        medium,
        read_cost_s,
        bytes_per_s: (read_cost_s > 0.0).then(|| medium.bytes as f64 / read_cost_s),
        used_share: blocks.unique_bytes as f64 / chunks.unique_bytes.max(1) as f64,
    })
}

/// What holds the first block of a run, and how much of the run.
fn holder(image: &Image, run: BlockRange) -> (Holder, BlockRange) {
    let (holder, count) = match image.hot_place(run.start) {
        Some(place) => (Holder::Hot(place.chunk), u64::from(place.run)),
        None => {
            let blocks = image.window_bytes() / BLOCK_BYTES;
            // What follows in the window may be hot.
            let next_hot = image.next_hot_after(run.start).map_or(u64::MAX, |next| next.0 - run.start.0);
            (Holder::Window(run.start.0 / blocks), (blocks - run.start.0 % blocks).min(next_hot))
        }
    };
    (holder, BlockRange::new(run.start, run.count.min(count)))
}

/// Decompressed and compressed bytes; none where nothing is stored.
fn size(image: &Image, holder: Holder) -> anyhow::Result<(u64, u64)> {
    let chunk = match holder {
        Holder::Hot(chunk) => image.hot_chunk(chunk).0,
        Holder::Window(window) => match image.window(window)? {
            WindowRef::Zero => return Ok((0, 0)),
            WindowRef::Chunk(chunk) => chunk,
        },
    };
    Ok((u64::from(chunk.raw_bytes), chunk.range.len))
}
