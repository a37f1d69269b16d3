//! `headstart inspect`

mod layers;
mod trace;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use hs_image::FileKind;
use hs_trace::ReadAhead;
use hs_units::{BLOCK_BYTES, ByteSize};
use serde_json::{Map, Value, json};

use super::pack::trust_word;
use crate::cli::Inspect;
use hs_output::show;
use hs_start::image::ImageSource;
use hs_start::open::{file_kind, open_image, read_profile, read_profile_head};

/// Prints the contents of a file.
pub(crate) fn run(args: &Inspect) -> anyhow::Result<()> {
    let Some(path) = args.file.file() else {
        if args.csv || args.layers.is_some() {
            bail!("--csv and --layers print the reads of a profile, which is a file of this machine");
        }
        return image(&args.file, args.json);
    };
    let file = File::open(path).with_context(|| format!("open {}", args.file.display()))?;
    let kind = file_kind(&file).with_context(|| format!("read {}", args.file.display()))?;
    match kind {
        FileKind::Profile => profile(args, path),
        FileKind::Text if args.csv || args.layers.is_some() => bail!(
            "--csv and --layers print the reads of a profile; without them, what a trace says of stages and files \
             is printed"
        ),
        FileKind::Text => {
            let Err(error) = trace::run(path, args.json) else { return Ok(()) };
            // The start of an image may be text by damage.
            let read = image(&args.file, args.json);
            if trace::is_meant(path) { read.map_err(|_| error) } else { read }
        }
        _ if args.csv || args.layers.is_some() => {
            bail!("--csv and --layers print the reads of a profile; {} is {kind}", args.file.display())
        }
        // Any other file may be an image with a damaged start; its mirror shows that.
        _ => image(&args.file, args.json),
    }
}

fn profile(args: &Inspect, path: &Path) -> anyhow::Result<()> {
    if let Some(image) = &args.layers {
        let image = open_image(image.as_path())?;
        read_profile_head(path)?.check_disk(image.disk_digest(), image.disk_bytes())?;
        return layers::run(&read_profile(path)?, &image, args.json);
    }
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
    let fields = [
        ("kind", json!("profile")),
        ("command", json!(profile.command)),
        ("medium", json!(profile.medium)),
        ("read_ahead", json!(read_ahead)),
        ("ready_s", json!(profile.ready.map(hs_units::Nanos::as_secs_f64))),
        ("recorded_s", json!(profile.ended.as_secs_f64())),
        ("reads", json!(profile.reads.len())),
        ("read_bytes", json!(read_bytes)),
        ("read_cost_s", json!(wait)),
        ("hot_bytes", json!(profile.distinct_blocks() * BLOCK_BYTES)),
        ("extents", json!(profile.extents().len())),
        ("files", json!(profile.files.len())),
        ("logical_bytes", json!(profile.disk_bytes)),
        ("disk_digest", json!(profile.disk_digest.to_string())),
    ];
    print(fields, args.json)
}

/// Bytes of hot chunks that are none of the disk.
fn stale_hot_bytes(image: &hs_image::Image) -> u64 {
    let raw = |chunk| u64::from(image.hot_chunk(chunk).0.raw_bytes - image.hot_bytes(chunk));
    (0..image.hot_chunk_count()).map(raw).sum()
}

fn image(image: &ImageSource, json: bool) -> anyhow::Result<()> {
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
    let packed = image.pack().map(|pack| pack.header());
    let backing = image.pack().map(|pack| pack.backing()).transpose()?.unwrap_or_default();
    let backing: Vec<_> = backing
        .iter()
        .map(|file| json!({ "name": file.name, "bytes": file.file_bytes, "modified_ns": file.modified_ns }))
        .collect();
    let fields = [
        ("kind", json!(if packed.is_some() { "pack" } else { "image" })),
        ("packed_disk", json!(packed.map(|header| &header.name))),
        ("packed_backing", json!(backing)),
        ("packed_trust", json!(packed.map(|header| trust_word(header.trust)))),
        ("pack_bytes", json!(packed.map(hs_format::PackHeader::pack_bytes))),
        ("format_version", json!(hs_format::limits::VERSION)),
        ("image_bytes", json!(superblock.image_bytes)),
        ("logical_bytes", json!(superblock.exact_bytes())),
        ("window_bytes", json!(image.window_bytes())),
        ("cold_bytes", json!(superblock.cold.range.len)),
        ("cold_chunks", json!(superblock.cold.distinct_chunks)),
        ("hot_segments", json!(segments)),
        ("borrowed_chunks", json!((0..image.hot_chunk_count()).filter(|at| image.is_borrowed(*at)).count())),
        ("stale_hot_bytes", json!(stale_hot_bytes(&image))),
        ("hints", json!(image.hints().count())),
        ("superblock_from_mirror", json!(image.from_mirror())),
        ("base_digest", json!(superblock.base.map(|base| base.disk_digest.to_string()))),
        ("cold_digest", json!(superblock.cold.root_digest.to_string())),
        ("disk_digest", json!(superblock.disk_digest.to_string())),
        ("image_digest", json!(image.image_digest().to_string())),
    ];
    print(fields, json)
}

/// Prints one JSON object, or a line for each field and for each element of a list.
fn print<const N: usize>(fields: [(&str, Value); N], json: bool) -> anyhow::Result<()> {
    if json {
        let object: Map<String, Value> =
            fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        return show::json(&object);
    }
    for (key, value) in fields {
        let Value::Array(parts) = &value else {
            show::line(format_args!("{key:24} {}", text(key, &value)));
            continue;
        };
        show::line(format_args!("{key:24} {}", parts.len()));
        for (number, part) in parts.iter().enumerate() {
            for (key, value) in part.as_object().into_iter().flatten() {
                show::line(format_args!("  {:22} {}", format!("{number} {key}"), text(key, value)));
            }
        }
    }
    Ok(())
}

/// One value for people.
fn text(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).to_owned(),
        Value::Number(number) if key.ends_with("_bytes") => {
            format!("{number} ({})", ByteSize(number.as_u64().unwrap_or_default()))
        }
        Value::Number(number) if number.is_f64() => format!("{:.3}", number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}
