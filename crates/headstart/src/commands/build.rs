//! `headstart build`

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use hs_build::HotPlacement;
use hs_build::source::{Source, SourceKind, SourceOptions, UNPACK_LIMIT_BYTES};
use hs_build::{BaseBlocks, BuildOptions, BuildReport, OptimizeOptions, OptimizeReport};
use hs_image::{Image, Progress};
use hs_start::location::ImageLocation;
use hs_start::progress;
use serde::Serialize;

use super::optimize::Placed;
use super::sign::sign_output;
use super::source::{
    check_there, folder_of, refuse_mounted, refuse_mounted_files, refuse_no_disk, say_of_source,
    warn_of_journal,
};
use crate::cli::{Build, TakenAs};
use hs_output::show::{self, Bar};
use hs_start::disk_files::DiskFiles;
use hs_start::fit::{Fitted, check_fit, fit_as};
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::open::{open_image, read_profile_heads, read_profiles};
use hs_start::source::SourceName;

/// The result of a build, as text and as JSON.
#[derive(Serialize)]
struct Built {
    image: String,
    disk_bytes: u64,
    image_bytes: u64,
    chunks: u64,
    zero_windows: u64,
    shared_windows: u64,
    /// Only with a base.
    #[serde(skip_serializing_if = "Option::is_none")]
    composed_windows: Option<u64>,
    /// Of an archive's files, what had to be kept in a temporary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_bytes: Option<u64>,
    hot_bytes: u64,
    hot_compressed_bytes: u64,
    /// Only for a medium that is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<Placed>,
    disk_digest: String,
    image_digest: String,
    /// Only of profiles that were recorded on another disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fitted: Vec<Fitted>,
}

/// Builds an image.
pub(crate) fn run(args: &Build, quiet: bool) -> anyhow::Result<()> {
    let name = SourceName::parse(&args.source);
    check_there(&name)?;
    if let Some(path) = name.path() {
        refuse_mounted(path, args.mounted)?;
    }
    let heads = read_profile_heads(&args.profiles)?;
    let tree = args.taken_as == Some(TakenAs::Tree);
    // Before there are other threads.
    let files = match &name {
        SourceName::Path(path) if tree && !path.is_dir() => {
            let needed = [path.clone(), args.output.clone()];
            DiskFiles::mount(path, args.partition.as_deref(), &needed)?
        }
        _ => None,
    };
    let name = files.as_ref().map_or(name, |files| SourceName::Path(files.path().to_owned()));
    let bar = Bar::new(quiet);
    let (like, base) = (open_alone(args.like.as_ref(), "--like")?, open_alone(args.base.as_ref(), "--base")?);
    let window_bytes = like.as_ref().map_or(args.window.0, |like| like.window_bytes());
    let base_is_like = base.clone().filter(|base| base.window_bytes() == window_bytes);
    let options = SourceOptions {
        free_bytes: args.free.0,
        output: Some(args.output.clone()),
        raw: args.raw,
        follow_backing: args.follow_backing,
        of_disk: files.is_some(),
        tree,
        platform: args.platform.clone(),
        layers: args.layers,
        keep_in: Some(folder_of(&args.output)),
        unpack_limit_bytes: args.unpack_limit.0,
        like: like.clone().or(base_is_like),
        first_files: first_files(args.order.as_ref())?,
        ..SourceOptions::default()
    };
    let source = name.open(&options, &bar)?;
    if name.path().is_some_and(Path::is_file) {
        refuse_mounted_files(args.mounted)?;
    }
    let source = match &args.partition {
        Some(word) if files.is_none() => source.partition(&name.shown(), word)?,
        _ => source,
    };
    if let Some(like) = like.filter(|_| !source.is_like_earlier()) {
        bail!(
            "{}: this cannot be laid out like its disk: --like takes an image that `build` made of a directory, an \
             archive or a container's image, for another of these that is not much larger; build without it",
            like.name()
        );
    }
    refuse_flags_in_vain(args, source.kind(), &name.shown())?;
    refuse_no_disk(&source, &name.shown(), args.raw || args.partition.is_some())?;
    if !quiet {
        say_of_source(&source, &name.shown(), &args.output);
    }
    warn_of_journal(&source, &name.shown())?;
    check_fit(&args.profiles, &heads, source.bytes(), args.use_of.min_match)?;
    let profiles = read_profiles(&args.profiles)?;
    let mut build = BuildOptions { window_bytes, ..BuildOptions::default() };
    (build.codec, build.level) = (args.codec.codec, args.codec.level);
    build.threads = args.threads.unwrap_or(build.threads);
    let show = |progress: Progress| progress::of_image(&bar, progress);
    if let Some(base) = base {
        build.base = Some(Arc::new(BaseBlocks::read(&base, build.threads, &show)?));
    }
    let (report, hot) = if source.is_like_earlier() && profiles.is_empty() {
        hs_build::build_like(&source, &args.output, &build, &show)?
    } else if profiles.is_empty() {
        (hs_build::build(&source, &args.output, &build, &show)?, None)
    } else {
        let (cold, hot, fitted) = build_and_optimize(&source, args, &build, profiles, &show)?;
        drop(bar);
        sign_output(hot.image_digest, &args.output, args.signed.sign.as_deref())?;
        let placed = Placed::new(args.use_of.medium, &hot);
        return print(&args.output, args.json, &cold, Some((&hot, placed)), fitted, source.kept_bytes());
    };
    drop(bar);
    let digest = hot.map_or(report.image_digest, |hot| hot.image_digest);
    sign_output(digest, &args.output, args.signed.sign.as_deref())?;
    let hot = hot.as_ref().map(|hot| (hot, None));
    print(&args.output, args.json, &report, hot, Vec::new(), source.kept_bytes())
}

/// Refuses flags that mean nothing for such a source.
fn refuse_flags_in_vain(args: &Build, kind: SourceKind, shown: &Path) -> anyhow::Result<()> {
    let is_container = kind == SourceKind::Container;
    let is_packed = is_container || kind == SourceKind::Archive;
    let is_tree = is_packed || kind == SourceKind::Directory;
    let of_tree = "a directory, an archive or a container's image; a disk stays as it is";
    let flags = [
        ("--order", args.order.is_some() && !is_tree, of_tree),
        ("--free", args.free.0 > 0 && !is_tree, of_tree),
        ("--platform", args.platform.is_some() && !is_container, "a container's image"),
        ("--layers", args.layers.is_some() && !is_container, "a container's image"),
        (
            "--unpack-limit",
            args.unpack_limit.0 != UNPACK_LIMIT_BYTES && !is_packed,
            "an archive or a container's image",
        ),
        ("--follow-backing", args.follow_backing && kind != SourceKind::Qcow2, "a qcow2 file"),
    ];
    match flags.iter().find(|(_, is_in_vain, _)| *is_in_vain) {
        Some((flag, _, of)) => bail!("{}: {flag} is for {of}", shown.display()),
        None => Ok(()),
    }
}

/// The files that the start in a profile read, in the order of their first reads.
fn first_files(profile: Option<&PathBuf>) -> anyhow::Result<Vec<String>> {
    let Some(path) = profile else { return Ok(Vec::new()) };
    let profiles = read_profiles(std::slice::from_ref(path))?;
    let files = profiles.iter().flat_map(hs_trace::Profile::files_in_first_access);
    let files: Vec<String> = files.map(str::to_owned).collect();
    if files.is_empty() {
        bail!(
            "{}: it names no files, so --order has none to lay first; record the start anew",
            path.display()
        );
    }
    Ok(files)
}

/// An image that a flag names.
fn named(image: &ImageLocation) -> ImageSource {
    ImageSource { image: image.clone(), remote: RemoteOptions::default() }
}

/// The same, opened: one that can be read without a base, for which there is no flag.
fn open_alone(image: Option<&ImageLocation>, flag: &str) -> anyhow::Result<Option<Arc<Image>>> {
    let Some(image) = image else { return Ok(None) };
    let image = open_image(named(image))?;
    if image.superblock().base.is_some() {
        bail!(
            "{}: {flag} takes an image that stands alone, and some of this one's blocks lie on another disk (it \
             was built with --base): give that other image, or build this one again without --base",
            image.name()
        );
    }
    Ok(Some(Arc::new(image)))
}

/// The image of `build` followed by `optimize`, by way of a file that has no name.
fn build_and_optimize(
    source: &Source,
    args: &Build,
    build: &BuildOptions,
    mut profiles: Vec<hs_trace::Profile>,
    show: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<(BuildReport, OptimizeReport, Vec<Fitted>)> {
    let (cold_file, cold) = hs_build::build_unnamed(source, &args.output, build, show)?;
    let mut image = ImageSource::from(cold_file.path());
    if let Some(base) = &args.base {
        image = image.with_base(&named(base));
    }
    let image = open_image(image)?;
    let shown = args.output.display().to_string();
    let fitted = fit_as(&image, &shown, &args.profiles, &mut profiles, args.use_of.min_match, true)?;
    let mut options = OptimizeOptions { threads: threads(args.threads), ..OptimizeOptions::default() };
    options.layout.combine = args.use_of.combine();
    options.place = HotPlacement::FastestOn(args.use_of.medium);
    let hot = hs_build::optimize(&image, Some(cold_file.path()), &profiles, &args.output, &options, show)?;
    Ok((cold, hot, fitted))
}

fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked.unwrap_or(OptimizeOptions::default().threads)
}

/// Prints the result.
pub(crate) fn print(
    image: &Path,
    as_json: bool,
    cold: &BuildReport,
    hot: Option<(&OptimizeReport, Option<Placed>)>,
    fitted: Vec<Fitted>,
    kept_bytes: u64,
) -> anyhow::Result<()> {
    let (hot, placement) = hot.map_or((None, None), |(hot, placed)| (Some(hot), placed));
    let built = Built {
        image: image.display().to_string(),
        disk_bytes: cold.exact_bytes,
        image_bytes: hot.map_or(cold.image_bytes, |hot| hot.image_bytes),
        chunks: cold.chunks,
        zero_windows: cold.zero_windows,
        shared_windows: cold.shared_windows,
        composed_windows: (cold.composed_windows > 0).then_some(cold.composed_windows),
        kept_bytes: (kept_bytes > 0).then_some(kept_bytes),
        hot_bytes: hot.map_or(0, |hot| hot.hot_bytes),
        hot_compressed_bytes: hot.map_or(0, |hot| hot.hot_compressed_bytes),
        placement,
        disk_digest: cold.disk_digest.to_string(),
        image_digest: hot.map_or(cold.image_digest, |hot| hot.image_digest).to_string(),
        fitted,
    };
    if as_json {
        return show::json(&built);
    }
    use hs_units::ByteSize;
    show::line(format_args!(
        "{}: {} of disk in {} ({} chunks, {} zero and {} shared windows)",
        built.image,
        ByteSize(built.disk_bytes),
        ByteSize(built.image_bytes),
        built.chunks,
        built.zero_windows,
        built.shared_windows
    ));
    if let Some(windows) = built.composed_windows {
        show::line(format_args!("{windows} windows have blocks of the base"));
    }
    if hot.is_some() {
        show::line(format_args!(
            "hot region: {} in {}",
            ByteSize(built.hot_bytes),
            ByteSize(built.hot_compressed_bytes)
        ));
    }
    built.placement.iter().for_each(Placed::print);
    built.fitted.iter().for_each(Fitted::print);
    show::line(built.image_digest);
    Ok(())
}
