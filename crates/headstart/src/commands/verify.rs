//! `headstart verify`

use hs_image::source::{Source, SourceOptions};
use hs_units::ByteSize;
use serde::Serialize;

use super::open_image;
use crate::cli::Verify;
use crate::show::{self, Bar};

#[derive(Serialize)]
struct Verified {
    image: String,
    disk_bytes: u64,
    cold_chunks: u64,
    hot_chunks: u32,
    compared_bytes: u64,
    disk_digest: String,
    image_digest: String,
}

/// Checks an image.
pub(crate) fn run(args: &Verify, quiet: bool) -> anyhow::Result<()> {
    let image = open_image(&args.image)?;
    let other = match &args.against {
        Some(path) => {
            Some((Source::open(path, &SourceOptions::default(), &|_| {})?, path.display().to_string()))
        }
        None => None,
    };
    let bar = Bar::new(quiet);
    let against = other.as_ref().map(|(source, name)| (source, name.as_str()));
    let report = hs_image::verify(&image, against, &|progress| bar.update(progress))?;
    drop(bar);
    let verified = Verified {
        image: args.image.display().to_string(),
        disk_bytes: report.disk_bytes,
        cold_chunks: report.cold_chunks,
        hot_chunks: report.hot_chunks,
        compared_bytes: report.compared_bytes,
        disk_digest: image.disk_digest().to_string(),
        image_digest: image.image_digest().to_string(),
    };
    if args.json {
        return show::json(&verified);
    }
    show::line(format_args!(
        "{}: {} of disk in {} cold and {} hot chunks agree with every digest",
        verified.image,
        ByteSize(report.disk_bytes),
        report.cold_chunks,
        report.hot_chunks
    ));
    if let Some((_, name)) = &other {
        show::line(format_args!("every block equals {name}"));
    }
    show::line(verified.image_digest);
    Ok(())
}
