//! `headstart verify`

use anyhow::Context;
use hs_image::source::{Source, SourceOptions};
use hs_output::show::{self, Bar};
use hs_start::channel;
use hs_start::open::open_image;
use hs_start::progress;
use hs_trust::keys::Key;
use hs_units::ByteSize;
use serde::Serialize;

use crate::cli::Verify;

#[derive(Serialize)]
struct Verified {
    image: String,
    /// Every byte of the file was looked at; else all but its mirror and padding, which no cache has.
    whole_file: bool,
    disk_bytes: u64,
    cold_chunks: u64,
    hot_chunks: u32,
    compared_bytes: u64,
    disk_digest: String,
    image_digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_by: Option<String>,
}

/// Checks an image.
pub(crate) fn run(args: &Verify, quiet: bool) -> anyhow::Result<()> {
    let image = open_image(&args.image)?;
    let is_offline = args.image.remote.offline && args.image.file().is_none();
    let key = args.key.as_deref().map(Key::from_word).transpose()?;
    let signed = match &key {
        Some(key) => {
            let path = args.signature.clone().or_else(|| args.image.file().map(channel::beside));
            let path = path.context("of an image that lies elsewhere, give the --signature")?;
            Some(channel::verify_file(&path, key, image.image_digest())?)
        }
        None => None,
    };
    let other = match &args.against {
        Some(path) => {
            Some((Source::open(path, &SourceOptions::default(), &|_| {})?, path.display().to_string()))
        }
        None => None,
    };
    let bar = Bar::new(quiet);
    let against = other.as_ref().map(|(source, name)| (source, name.as_str()));
    // Verification serves no disk, so there is no cache to use.
    let verify = if is_offline { hs_image::verify_content } else { hs_image::verify };
    let report = verify(&image, against, &|progress| progress::of_image(&bar, progress))?;
    drop(bar);
    let verified = Verified {
        image: args.image.display().to_string(),
        whole_file: !is_offline,
        disk_bytes: report.disk_bytes,
        cold_chunks: report.cold_chunks,
        hot_chunks: report.hot_chunks,
        compared_bytes: report.compared_bytes,
        disk_digest: image.disk_digest().to_string(),
        image_digest: image.image_digest().to_string(),
        signed_by: key.as_ref().map(ToString::to_string),
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
    if let (Some(pointer), Some(key)) = (&signed, &key) {
        show::line(format_args!("signed as {} by {key} on {}", pointer.channel, pointer.date));
    }
    show::line(verified.image_digest);
    Ok(())
}
