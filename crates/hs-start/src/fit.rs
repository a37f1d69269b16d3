//! Profiles on a disk that differs a little from the recorded one.

use std::path::PathBuf;

use crate::progress;
use anyhow::bail;
use hs_image::Image;
use hs_trace::{Profile, ProfileHead};
use hs_units::BLOCK_BYTES;
use serde::Serialize;

use hs_output::show::{self, Bar};

/// How much of a profile another disk has.
#[derive(Clone, Debug, Serialize)]
pub struct Fitted {
    profile: String,
    blocks: u64,
    matched_blocks: u64,
    moved_blocks: u64,
    files: u64,
    matched_files: u64,
}

impl Fitted {
    /// For people.
    pub fn print(&self) {
        show::line(format_args!(
            "{} was recorded on another disk: this one has {} of its {} blocks ({:.1}%), {} of them elsewhere; \
             and {} of its {} files",
            self.profile,
            self.matched_blocks,
            self.blocks,
            self.matched_blocks as f64 * 100.0 / self.blocks.max(1) as f64,
            self.moved_blocks,
            self.matched_files,
            self.files,
        ));
    }
}

/// Refuses profiles with so many blocks that a disk of `disk_bytes` has less than `min_match` per cent of
/// them, whatever they hold: before they are read, which takes memory for all that they claim.
pub fn check_fit(
    paths: &[PathBuf],
    heads: &[ProfileHead],
    disk_bytes: u64,
    min_match: u8,
) -> anyhow::Result<()> {
    let disk_blocks = disk_bytes.div_ceil(BLOCK_BYTES);
    for (path, ProfileHead { blocks, .. }) in paths.iter().zip(heads) {
        if u128::from(disk_blocks) * 100 < u128::from(*blocks) * u128::from(min_match) {
            bail!(
                "{} was recorded on another disk: it has {blocks} blocks, and this disk has {disk_blocks} in all, \
                 less than the {min_match}% that --min-match asks for",
                path.display()
            );
        }
    }
    Ok(())
}

/// Maps the blocks of profiles of another disk to equal blocks of `image`, as far as it has them. Prints the
/// share of each profile that was found; refuses a profile with less than `min_match` per cent.
pub fn fit(
    image: &Image,
    paths: &[PathBuf],
    profiles: &mut [Profile],
    min_match: u8,
    quiet: bool,
) -> anyhow::Result<Vec<Fitted>> {
    fit_as(image, image.name(), paths, profiles, min_match, quiet)
}

/// The same for an image that has no name yet: `shown` is the one that it will get.
pub fn fit_as(
    image: &Image,
    shown: &str,
    paths: &[PathBuf],
    profiles: &mut [Profile],
    min_match: u8,
    quiet: bool,
) -> anyhow::Result<Vec<Fitted>> {
    let mut fitted = Vec::new();
    for (path, profile) in paths.iter().zip(profiles) {
        if profile.disk_digest == image.disk_digest() {
            continue;
        }
        let bar = Bar::new(quiet);
        let places = hs_build::find_blocks(image, profile, &|progress| progress::of_image(&bar, progress))?;
        drop(bar);
        let files = hs_build::find_files(image, profile.files.iter().map(|file| file.path.as_str()));
        let remapped = profile.remap(image.disk_digest(), image.disk_bytes(), &places, &files);
        if remapped.matched * 100 < u64::from(min_match) * remapped.blocks {
            bail!(
                "{} was recorded on disk {}; {} is disk {} and has only {} of its {} blocks, less than the {min_match}% \
                 that --min-match asks for",
                path.display(),
                profile.disk_digest,
                shown,
                image.disk_digest(),
                remapped.matched,
                remapped.blocks,
            );
        }
        fitted.push(Fitted {
            profile: path.display().to_string(),
            blocks: remapped.blocks,
            matched_blocks: remapped.matched,
            moved_blocks: remapped.moved,
            files: remapped.files,
            matched_files: remapped.matched_files,
        });
        *profile = remapped.profile;
    }
    Ok(fitted)
}
