//! `headstart export`

use anyhow::bail;
use hs_build::export::{ExportFormat, default_threads, export};
use hs_start::progress;
use hs_units::ByteSize;
use serde::Serialize;

use crate::cli::{DiskFormat, Export};
use hs_output::show::{self, Bar};
use hs_start::open::open_image;

#[derive(Serialize)]
struct Exported {
    file: String,
    format: &'static str,
    disk_bytes: u64,
    shown_bytes: u64,
    file_bytes: u64,
    zero_clusters: u64,
    disk_digest: String,
}

/// Writes the disk of an image for another program.
pub(crate) fn run(args: &Export, quiet: bool) -> anyhow::Result<()> {
    let Some(disk_format) = args.format.or_else(|| DiskFormat::of_file(&args.output)) else {
        bail!("the name {} says no format: --format does", args.output.display());
    };
    let (format, name) = match disk_format {
        DiskFormat::Raw => (ExportFormat::Raw, "raw"),
        DiskFormat::Cloop => (ExportFormat::Cloop, "cloop"),
        DiskFormat::Qcow2 => (ExportFormat::Qcow2 { compress: args.compress }, "qcow2"),
    };
    if args.compress && disk_format != DiskFormat::Qcow2 {
        bail!("--compress is for qcow2: a cloop file is compressed in any case, a raw disk never is");
    }
    let image = open_image(&args.image)?;
    let threads = args.threads.unwrap_or_else(default_threads);
    let bar = Bar::new(quiet);
    let show = |progress| progress::of_image(&bar, progress);
    let report = export((&image, args.image.file()), &args.output, format, threads, &show)?;
    drop(bar);
    let exported = Exported {
        file: args.output.display().to_string(),
        format: name,
        disk_bytes: report.disk_bytes,
        shown_bytes: report.shown_bytes,
        file_bytes: report.file_bytes,
        zero_clusters: report.zero_clusters,
        disk_digest: image.disk_digest().to_string(),
    };
    if args.json {
        return show::json(&exported);
    }
    show::line(format_args!(
        "{}: {} of disk as {name}, {} in the file",
        exported.file,
        ByteSize(report.disk_bytes),
        ByteSize(report.file_bytes)
    ));
    if report.shown_bytes != report.disk_bytes {
        let zeros = report.shown_bytes - report.disk_bytes;
        log::info!("a {name} file holds whole blocks: {zeros} bytes of zeros follow the disk");
    }
    Ok(())
}
