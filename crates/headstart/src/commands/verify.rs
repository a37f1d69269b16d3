//! `headstart verify`

use anyhow::{Context, bail};
use hs_build::source::{Source, SourceOptions};
use hs_image::ImageError;
use hs_start::progress;
use hs_units::ByteSize;
use serde::Serialize;
use serde_json::json;

use crate::cli::Verify;
use hs_output::show::{self, Bar};
use hs_start::channel;
use hs_start::open::open_image;
use hs_trust::keys::Key;

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

/// Faults beyond these are only counted.
const MOST_LISTED: usize = 20;

/// What is wrong with an image.
struct Faults {
    is_remote: bool,
    is_pack: bool,
    listed: Vec<String>,
    count: u64,
}

impl Faults {
    /// Takes one fault. Bytes that a server does not give end the verification, as do many sectors that
    /// cannot be read: each of them takes long.
    fn take(&mut self, fault: ImageError) -> Result<(), ImageError> {
        let is_full = self.listed.len() == MOST_LISTED;
        if matches!(fault, ImageError::Store(_)) && (self.is_remote || is_full) {
            return Err(fault);
        }
        self.count += 1;
        if !is_full {
            self.listed.push(fault.to_string());
        }
        Ok(())
    }

    fn list(&self) {
        self.listed.iter().for_each(|fault| log::error!("{fault}"));
    }

    /// Lists them, and says what to do.
    fn fail(&self, image: &str, as_json: bool) -> anyhow::Result<()> {
        let count = self.count;
        if as_json {
            show::json(&json!({ "image": image, "faults": count, "listed": self.listed }))?;
        } else {
            self.list();
        }
        let parts = if count == 1 { "1 part is".to_owned() } else { format!("{count} parts are") };
        let of_them = if count > MOST_LISTED as u64 {
            format!(", of which {MOST_LISTED} are listed")
        } else {
            String::new()
        };
        let mend = if self.is_pack {
            "get back the disk that was packed, or make a new pack of it as it is (headstart pack)"
        } else {
            "copy the image again from where it came, or build it again"
        };
        bail!(
            "{image}: {parts} damaged{of_them}: {mend}. Reads of damaged cold windows fail; damaged hot chunks \
             make starts slower"
        )
    }
}

/// Checks an image.
pub(crate) fn run(args: &Verify, quiet: bool) -> anyhow::Result<()> {
    let image = open_image(&args.image)?;
    // Without it each window with blocks of the base would count as damaged.
    image.check_has_base()?;
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
    let against = other.as_ref().map(|(source, name)| (source as &dyn hs_image::ComparedDisk, name.as_str()));
    // Verification serves no disk, so there is no cache to use.
    let verify = if is_offline { hs_image::verify_content } else { hs_image::verify_all };
    let (is_remote, is_pack) = (args.image.file().is_none(), image.pack().is_some());
    let mut faults = Faults { is_remote, is_pack, listed: Vec::new(), count: 0 };
    let show = |progress| progress::of_image(&bar, progress);
    let report = verify(&image, against, &mut |fault| faults.take(fault), &show);
    drop(bar);
    let report = report.inspect_err(|_| faults.list())?;
    if faults.count > 0 {
        return faults.fail(&args.image.display().to_string(), args.json);
    }
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
    if quiet {
        show::line(verified.image_digest);
        return Ok(());
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
