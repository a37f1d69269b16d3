//! `headstart inspect`

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use hs_trace::ReadAhead;
use hs_units::{BLOCK_BYTES, ByteSize};
use serde_json::json;

use super::{open_image, read_profile};
use crate::cli::Inspect;
use crate::cli::image::ImageArg;
use crate::show;

/// Says what a file holds.
pub(crate) fn run(args: &Inspect) -> anyhow::Result<()> {
    let Some(path) = args.file.file() else {
        if args.csv {
            bail!("--csv prints the reads of a profile, which is a file of this machine");
        }
        return image(&args.file, args.json);
    };
    let mut magic = Vec::new();
    let file = File::open(path).with_context(|| format!("open {}", args.file.display()))?;
    file.take(8).read_to_end(&mut magic).with_context(|| format!("read {}", args.file.display()))?;
    match magic.as_slice() {
        b"HSPROF\0\0" => profile(args, path),
        b"HSIMAGE\0" if args.csv => {
            bail!("--csv prints the reads of a profile; {} is an image", args.file.display())
        }
        // Anything else may be an image with a damaged start, whose mirror tells.
        _ => image(&args.file, args.json),
    }
}

fn profile(args: &Inspect, path: &Path) -> anyhow::Result<()> {
    let profile = read_profile(path)?;
    if args.csv {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let written = profile.csv(&mut out).and_then(|()| out.flush());
        return match written {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.context("write standard output"),
        };
    }
    let read_ahead = match profile.read_ahead {
        ReadAhead::Off => "off".to_owned(),
        ReadAhead::Kernel { kib } => format!("{kib} KiB"),
    };
    let read_bytes: u64 = profile.reads.iter().map(|read| read.blocks.bytes()).sum();
    let wait: f64 = profile.reads.iter().map(|read| read.cost.as_secs_f64()).sum();
    let object = json!({
        "kind": "profile",
        "command": profile.command,
        "medium": profile.medium,
        "read_ahead": read_ahead,
        "ready_s": profile.ready.map(hs_units::Nanos::as_secs_f64),
        "recorded_s": profile.ended.as_secs_f64(),
        "reads": profile.reads.len(),
        "read_bytes": read_bytes,
        "read_cost_s": wait,
        "hot_bytes": profile.distinct_blocks() * BLOCK_BYTES,
        "extents": profile.extents().len(),
        "files": profile.files.len(),
        "logical_bytes": profile.disk_bytes,
        "disk_digest": profile.disk_digest.to_string(),
    });
    print(&object, args.json)
}

fn image(image: &ImageArg, json: bool) -> anyhow::Result<()> {
    let image = open_image(image)?;
    let superblock = image.superblock();
    let segments: Vec<_> = superblock
        .hot
        .iter()
        .map(|segment| {
            json!({
                "offset": segment.range().offset,
                "hot_bytes": segment.blocks * BLOCK_BYTES,
                "hot_compressed_bytes": segment.range().len,
                "chunks": segment.chunk_count,
                "table_bytes": segment.index.len + segment.hints.len,
            })
        })
        .collect();
    let object = json!({
        "kind": "image",
        "format_version": hs_format::limits::VERSION,
        "image_bytes": superblock.image_bytes,
        "logical_bytes": superblock.disk_bytes,
        "window_bytes": image.window_bytes(),
        "cold_bytes": superblock.cold.range.len,
        "cold_chunks": superblock.cold.distinct_chunks,
        "cold_digest": superblock.cold.root_digest.to_string(),
        "hot_segments": segments,
        "hints": image.hints().count(),
        "superblock_from_mirror": image.from_mirror(),
        "disk_digest": superblock.disk_digest.to_string(),
        "image_digest": image.image_digest().to_string(),
    });
    print(&object, json)
}

fn print(object: &serde_json::Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show::json(object);
    }
    for (key, value) in object.as_object().into_iter().flatten() {
        let text = match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Number(number) if key.ends_with("_bytes") => {
                format!("{number} ({})", ByteSize(number.as_u64().unwrap_or_default()))
            }
            other => other.to_string(),
        };
        show::line(format_args!("{key:24} {text}"));
    }
    Ok(())
}
