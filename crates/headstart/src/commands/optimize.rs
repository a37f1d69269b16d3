//! `headstart optimize`

use hs_image::OptimizeOptions;
use hs_units::ByteSize;
use serde::Serialize;

use super::{open_image, read_profiles};
use crate::cli::Optimize;
use crate::show::{self, Bar};

#[derive(Serialize)]
struct Optimized {
    image: String,
    image_bytes: u64,
    hot_bytes: u64,
    hot_compressed_bytes: u64,
    hot_table_bytes: u64,
    chunks: u32,
    extents: u64,
    disk_digest: String,
    image_digest: String,
}

/// Adds a hot region.
pub(crate) fn run(args: &Optimize, quiet: bool) -> anyhow::Result<()> {
    let profiles = read_profiles(&args.profiles)?;
    let image = open_image(&args.image)?;
    let mut options =
        OptimizeOptions { codec: args.codec.codec, level: args.codec.level, ..OptimizeOptions::default() };
    options.layout.first_chunk_bytes = args.first_chunk.0;
    options.layout.max_chunk_bytes = args.max_chunk.0;
    let bar = Bar::new(quiet);
    let report = hs_image::optimize(&image, &args.image, &profiles, &args.output, &options, &|progress| {
        bar.update(progress);
    })?;
    drop(bar);
    let optimized = Optimized {
        image: args.output.display().to_string(),
        image_bytes: report.image_bytes,
        hot_bytes: report.hot_bytes,
        hot_compressed_bytes: report.hot_compressed_bytes,
        hot_table_bytes: report.hot_table_bytes,
        chunks: report.chunks,
        extents: report.extents,
        disk_digest: report.disk_digest.to_string(),
        image_digest: report.image_digest.to_string(),
    };
    if args.json {
        return show::json(&optimized);
    }
    show::line(format_args!(
        "{}: hot region of {} in {} ({} chunks, {} extents); image {}",
        optimized.image,
        ByteSize(report.hot_bytes),
        ByteSize(report.hot_compressed_bytes),
        report.chunks,
        report.extents,
        ByteSize(report.image_bytes)
    ));
    show::line(optimized.image_digest);
    Ok(())
}
