//! `headstart pack`

use anyhow::Context;
use hs_build::source::{Source, SourceOptions, StoredDisk};
use hs_build::{
    BuildOptions, HotPlacement, OptimizeOptions, OptimizeReport, PackFrom, PackedDisk, pack, pack_unnamed,
};
use hs_format::{BackingFile, BaseKind, PackTrust};
use hs_image::Progress;
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::open::{open_image, read_profile_heads, read_profiles};
use hs_start::pack::{DiskFile, DiskFiles};
use hs_start::progress;
use hs_units::{BLOCK_BYTES, ByteSize};
use serde::Serialize;

use super::source::{refuse_mounted, warn_of_journal};
use crate::cli::Pack;
use hs_output::show::{self, Bar};
use hs_start::fit::{Fitted, check_fit, fit};

/// The result, as text and as JSON.
#[derive(Serialize)]
struct Packed {
    pack: String,
    disk: String,
    trust: &'static str,
    disk_bytes: u64,
    pack_bytes: u64,
    hot_bytes: u64,
    hot_compressed_bytes: u64,
    disk_digest: String,
    image_digest: String,
    /// Only of profiles that were recorded on another disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fitted: Vec<Fitted>,
}

/// Makes a pack.
pub(crate) fn run(args: &Pack, quiet: bool) -> anyhow::Result<()> {
    let disk = ImageSource { image: args.disk.clone(), remote: RemoteOptions::default() };
    if let Some(path) = disk.file() {
        refuse_mounted(path, args.mounted)?;
    }
    let heads = read_profile_heads(&args.profiles)?;
    let opened = hs_start::pack::open_disk(&disk)?;
    let exact_bytes = opened.disk.exact_bytes();
    check_fit(&args.profiles, &heads, exact_bytes, args.use_of.min_match)?;
    let packed_disk = describe(&opened, args.sampled)?;
    let source = if args.sampled { None } else { Some(source(&disk, opened.disk)?) };
    if let Some(source) = &source {
        warn_of_journal(source, &disk.word())?;
    }
    let from = source.as_ref().map_or(PackFrom::Unread { exact_bytes }, PackFrom::Disk);
    let bar = Bar::new(quiet);
    let show = |progress: Progress| progress::of_image(&bar, progress);
    let build = BuildOptions::default();
    let (cold, hot, fitted) = if args.profiles.is_empty() {
        (pack(&from, &packed_disk, &args.output, &build, &show)?, None, Vec::new())
    } else {
        let (cold_file, cold) = pack_unnamed(&from, &packed_disk, &args.output, &build, &show)?;
        let image = open_image(ImageSource::from(cold_file.path()).with_base(&disk))?;
        let (hot, fitted) = optimize(&image, args, &show)?;
        (cold, Some(hot), fitted)
    };
    drop(bar);
    let packed = Packed {
        pack: args.output.display().to_string(),
        disk: disk.display().to_string(),
        trust: trust_word(packed_disk.trust),
        disk_bytes: cold.exact_bytes,
        pack_bytes: hot.map_or(cold.image_bytes, |hot| hot.image_bytes),
        hot_bytes: hot.map_or(0, |hot| hot.hot_bytes),
        hot_compressed_bytes: hot.map_or(0, |hot| hot.hot_compressed_bytes),
        disk_digest: cold.disk_digest.to_string(),
        image_digest: hot.map_or(cold.image_digest, |hot| hot.image_digest).to_string(),
        fitted,
    };
    if args.json {
        show::json(&packed)
    } else {
        packed.print();
        Ok(())
    }
}

/// How a pack knows its disk, in one word.
pub(crate) const fn trust_word(trust: PackTrust) -> &'static str {
    match trust {
        PackTrust::Whole => "whole",
        PackTrust::Sampled => "sampled",
    }
}

/// The disk and its files, as the pack describes them.
fn describe(opened: &DiskFiles, sampled: bool) -> anyhow::Result<PackedDisk> {
    let (disk, behind) = opened.files.split_first().context("a disk has a file")?;
    // The names by which files are found beside the pack, or beside one another.
    let name = |file: &DiskFile| match file.name.len() <= hs_format::limits::MAX_PACK_NAME_BYTES {
        true => file.name.clone(),
        false => String::new(),
    };
    let backing = behind.iter().zip(&opened.disk.kinds()[1..]).map(|(file, kind)| {
        anyhow::Ok(BackingFile {
            kind: *kind,
            name: name(file),
            file_bytes: file.store.len(),
            modified_ns: file.modified_ns,
            samples: hs_build::backing_samples(&*file.store)?,
        })
    });
    Ok(PackedDisk {
        kind: opened.disk.kind(),
        trust: if sampled { PackTrust::Sampled } else { PackTrust::Whole },
        name: name(disk),
        file_bytes: disk.store.len(),
        modified_ns: disk.modified_ns,
        samples: hs_build::samples(&*disk.store)?,
        backing: backing.collect::<Result<_, _>>()?,
    })
}

/// A raw file of this machine says where its holes are.
fn source(disk: &ImageSource, opened: StoredDisk) -> anyhow::Result<Source> {
    Ok(match disk.file() {
        Some(path) if opened.kind() == BaseKind::Raw => {
            let options = SourceOptions { raw: true, ..SourceOptions::default() };
            Source::open(path, &options, &|_| {})?
        }
        _ => Source::of_stored(opened)?,
    })
}

fn optimize(
    image: &hs_image::Image,
    args: &Pack,
    show: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<(OptimizeReport, Vec<Fitted>)> {
    let mut profiles = read_profiles(&args.profiles)?;
    if args.sampled {
        // To look for the blocks of another disk, all of this one would be read. Each block that is packed is
        // compared with the recorded one.
        for profile in profiles.iter_mut().filter(|profile| profile.disk_bytes == image.disk_bytes()) {
            profile.disk_digest = image.disk_digest();
        }
    }
    let fitted = fit(image, &args.profiles, &mut profiles, args.use_of.min_match, true)?;
    let mut options = OptimizeOptions::default();
    options.layout.combine = args.use_of.combine();
    options.place = HotPlacement::FastestOn(args.use_of.medium);
    let hot = hs_build::optimize(image, None, &profiles, &args.output, &options, show);
    Ok((hot.context("pack what was recorded")?, fitted))
}

impl Packed {
    fn print(&self) {
        show::line(format_args!(
            "{}: hot region of {} in {}, for {} of {}; pack {}",
            self.pack,
            ByteSize(self.hot_bytes),
            ByteSize(self.hot_compressed_bytes),
            ByteSize(self.disk_bytes.next_multiple_of(BLOCK_BYTES)),
            self.disk,
            ByteSize(self.pack_bytes)
        ));
        self.fitted.iter().for_each(Fitted::print);
        show::line(&self.image_digest);
    }
}
