//! An image made of a container's image, which lies beside it in its registry and refers to it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use hs_build::source::{Platform, SourceOptions};
use hs_build::{BuildOptions, OptimizeOptions};
use hs_image::Progress;
use hs_output::show::Bar;
use hs_remote::http::HttpClient;
use hs_remote::registry::{
    Artifact, Attachment, CHAIN_ANNOTATION, CREATED_ANNOTATION, Descriptor, IMAGE_TYPE, INDEX_ANNOTATION,
    LAYERS_ANNOTATION, NAME_ANNOTATION, PLATFORM_ANNOTATION, RECIPE_ANNOTATION, RegistryAddress,
    SOURCE_ANNOTATION, attach, remove,
};
use hs_remote::{Pushed, Pushing};
use hs_service::ending::Interruption;
use hs_service::signals::Ends;
use hs_start::container::ContainerImage;
use hs_start::fit::{check_fit, fit};
use hs_start::open::{open_image, read_profile, read_profile_heads, read_profiles};
use hs_start::progress;
use hs_start::remote::keyring;
use serde::Serialize;
use tempfile::TempDir;

use crate::profiles::{self, Fetched};
pub use crate::recorder::Recorded;
use crate::recorder::Recorder;
use crate::{PATIENT, annotate, created_at};

/// Of a profile's blocks, the least share in per cent that the root must have.
const MIN_MATCH: u8 = 50;
/// What else a conversion depends on that may change with versions of this program.
const RECIPE: &str = "1";

/// What is to be converted, and how.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// The container's image.
    pub address: RegistryAddress,
    /// Its platform; this machine's when not given.
    pub platform: Option<Platform>,
    /// Recorded starts for the hot region, beside those that the registry has.
    pub profiles: Vec<PathBuf>,
    /// Record a start for it too, and push that.
    pub record: Option<Recorded>,
    /// Of the profiles in the registry, those whose command contains one of these words; all without any.
    pub commands: Vec<String>,
    /// How chunks are stored.
    pub build: BuildOptions,
    /// Keep the image in this file too.
    pub output: Option<PathBuf>,
    /// Remove earlier conversions of this image.
    pub replace: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Where a copy of the manifest is to lie that tells containerd of the conversion.
    pub annotate: Option<RegistryAddress>,
    /// The folder where uploads that are under way are noted.
    pub unfinished: Option<PathBuf>,
    /// The most bytes of the unpacked layers.
    pub unpack_limit_bytes: u64,
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct Converted {
    /// The container's image.
    pub source: String,
    /// The digest of its manifest.
    pub source_digest: String,
    /// The name of its root.
    pub chain_id: Option<String>,
    /// Its platform.
    pub platform: String,
    /// The commands of the profiles in the registry that were used, and of the start that was recorded.
    pub recorded: Vec<String>,
    /// Where the conversion lies, by its digest; none where it was only to be said what would be done.
    pub address: Option<String>,
    /// The name of the image.
    pub image: Option<String>,
    /// Bytes of the image, where it was made.
    pub image_bytes: Option<u64>,
    /// Whether the registry had this very conversion.
    pub was_there: bool,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Earlier conversions that the registry has removed.
    pub removed: usize,
    /// Earlier ones that it has kept.
    pub kept: usize,
    /// The copy of the manifest that names the conversion.
    pub annotated: Option<String>,
}

/// Converts an image. `sending` is told how many of how many bytes were sent. `signals` end the process;
/// while the image is sent, after a piece.
///
/// # Errors
/// When it cannot be read or is damaged, when a profile was recorded on something else, or when the registry
/// refuses. Until all of the image is there, nothing refers to the original.
pub fn run(
    conversion: &Conversion,
    quiet: bool,
    signals: Ends,
    sending: &mut (dyn FnMut(u64, u64) + Send),
) -> anyhow::Result<Converted> {
    if let Some(to) = &conversion.annotate {
        annotate::check(&conversion.address, to)?;
    }
    let folder = TempDir::new().context("make a folder for temporary files")?;
    let temporary = folder.path().to_owned();
    let recorder = Arc::<Recorder>::default();
    let recording = Arc::clone(&recorder);
    let interruption = Interruption::watch(signals, move || {
        recording.end();
        drop(fs::remove_dir_all(temporary));
    });
    let interruption = interruption.context("wait for signals")?;
    let mut pushing = |done_bytes, total_bytes| {
        sending(done_bytes, total_bytes);
        if interruption.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut image = ContainerImage::resolve(conversion.address.clone(), conversion.platform.as_ref())?;
    let fetched = profiles::fetch(&image, &conversion.commands, folder.path())?;
    let mut converted = Converted::of(conversion, &image, &fetched);
    let mut profiles = conversion.profiles.clone();
    let mut cold = None;
    if let Some(start) = &conversion.record {
        let (built, profile) = (folder.path().join("cold.hsi"), folder.path().join("start.hsp"));
        make(&mut image, conversion, None, &[], &built, quiet)?;
        recorder.record(&built, &profile, start, quiet)?;
        profiles::push(&profile, &conversion.address, conversion.platform.as_ref(), &mut pushing)?;
        converted.recorded.insert(0, read_profile(&profile)?.command);
        profiles.push(profile);
        cold = Some(built);
    }
    profiles.extend(fetched.iter().map(|one| one.path.clone()));
    let recipe = recipe(conversion, &profiles)?;
    let earlier = image.converted()?;
    let same = earlier.filter(|found| found.manifest.annotations.get(RECIPE_ANNOTATION) == Some(&recipe));
    if let Some(same) = &same {
        (converted.address, converted.was_there) = (Some(same.address.to_string()), true);
        converted.image = Some(same.name.to_string());
    }
    if conversion.dry_run {
        return Ok(converted);
    }
    if same.is_none() || conversion.output.is_some() {
        let unnamed = folder.path().join("image.hsi");
        let output = conversion.output.as_deref().unwrap_or(&unnamed);
        let made = make(&mut image, conversion, cold.as_deref(), &profiles, output, quiet)?;
        (converted.image, converted.image_bytes) = (Some(made.name.clone()), Some(made.bytes));
        if same.is_none() {
            let pushed = send(&image, conversion, output, &made.name, recipe, &mut pushing)?;
            converted.sent_bytes = pushed.sent_bytes;
            let digest = pushed.digest.context("the registry's name for it")?;
            converted.address = Some(image.address.at(&digest)?.to_string());
        }
    }
    let address = converted.address.clone().context("where the conversion lies")?;
    if conversion.replace {
        (converted.removed, converted.kept) = remove_others(&image, &address)?;
    }
    if let Some(to) = &conversion.annotate {
        converted.annotated = Some(annotate::run(&image, &address, to)?);
    }
    Ok(converted)
}

impl Converted {
    fn of(conversion: &Conversion, image: &ContainerImage, fetched: &[Fetched]) -> Self {
        Self {
            source: conversion.address.to_string(),
            source_digest: image.image.digest.clone(),
            chain_id: image.image.chain_id(),
            platform: image.image.platform.to_string(),
            recorded: fetched.iter().map(|one| one.command.clone()).collect(),
            address: None,
            image: None,
            image_bytes: None,
            was_there: false,
            sent_bytes: 0,
            removed: 0,
            kept: 0,
            annotated: None,
        }
    }
}

/// What makes two conversions of one image the same.
fn recipe(conversion: &Conversion, profiles: &[PathBuf]) -> anyhow::Result<String> {
    let BuildOptions { window_bytes, codec, level, .. } = &conversion.build;
    let profiles = profiles::content_names(profiles)?;
    let text = format!("{RECIPE} {codec:?} {level} {window_bytes} {}", profiles.join(" "));
    Ok(hs_format::chunk_digest(text.as_bytes()).to_string())
}

/// An image that was made.
struct Made {
    name: String,
    bytes: u64,
}

/// Makes the image in the file `output`, which appears when it is complete; `cold` is the one without a hot
/// region, if it has been made.
fn make(
    image: &mut ContainerImage,
    conversion: &Conversion,
    cold: Option<&Path>,
    profiles: &[PathBuf],
    output: &Path,
    quiet: bool,
) -> anyhow::Result<Made> {
    let bar = Bar::new(quiet);
    let show = |progress: Progress| progress::of_image(&bar, progress);
    if let Some(cold) = cold {
        return optimize(cold, conversion, profiles, output, &show);
    }
    let heads = read_profile_heads(profiles)?;
    let keep_in = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let options = SourceOptions {
        output: Some(output.to_owned()),
        platform: conversion.platform.clone(),
        keep_in: Some(keep_in.to_owned()),
        unpack_limit_bytes: conversion.unpack_limit_bytes,
        ..SourceOptions::default()
    };
    let source = image.source(&options, &|done| progress::of_source(&bar, done))?;
    check_fit(profiles, &heads, source.bytes(), MIN_MATCH)?;
    if profiles.is_empty() {
        let report = hs_build::build(&source, output, &conversion.build, &show)?;
        return Ok(Made { name: report.image_digest.to_string(), bytes: report.image_bytes });
    }
    let (cold, _) = hs_build::build_unnamed(&source, output, &conversion.build, &show)?;
    optimize(cold.path(), conversion, profiles, output, &show)
}

/// Makes it of one without a hot region.
fn optimize(
    path: &Path,
    conversion: &Conversion,
    profiles: &[PathBuf],
    output: &Path,
    show: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<Made> {
    let cold = open_image(path)?;
    let mut read = read_profiles(profiles)?;
    fit(&cold, profiles, &mut read, MIN_MATCH, true)?;
    let options = OptimizeOptions { threads: conversion.build.threads, ..OptimizeOptions::default() };
    let report = hs_build::optimize(&cold, Some(path), &read, output, &options, show)?;
    Ok(Made { name: report.image_digest.to_string(), bytes: report.image_bytes })
}

/// Sends the image: its bytes, then the manifest that refers to the original, then what lists it.
fn send(
    image: &ContainerImage,
    conversion: &Conversion,
    path: &Path,
    name: &str,
    recipe: String,
    pushing: &mut Pushing<'_>,
) -> anyhow::Result<Pushed> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let index = open_image(path)?.index_needed_first();
    let said = [
        (NAME_ANNOTATION, Some(name.to_owned())),
        (SOURCE_ANNOTATION, Some(image.image.digest.clone())),
        (CHAIN_ANNOTATION, image.image.chain_id()),
        (LAYERS_ANNOTATION, Some(image.image.diff_ids.join(" "))),
        (INDEX_ANNOTATION, index.map(|index| format!("{}+{}", index.offset, index.len))),
        (PLATFORM_ANNOTATION, Some(image.image.platform.to_string())),
        (RECIPE_ANNOTATION, Some(recipe)),
        (CREATED_ANNOTATION, Some(created_at(SystemTime::now()))),
    ];
    let annotations: BTreeMap<_, _> =
        said.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    let subject = image.descriptor();
    // A temporary file has another path each time, by which no upload can be continued.
    let unfinished = conversion.unfinished.as_deref().filter(|_| conversion.output.is_some());
    let artifact = Artifact { file: &file, path, name, unfinished };
    let attachment = Attachment { artifact, artifact_type: IMAGE_TYPE, annotations, subject: &subject };
    Ok(attach(HttpClient::new(PATIENT)?, &image.address, keyring().logins, attachment, pushing)?)
}

/// Has the registry remove the other conversions of this image; how many it has removed, and kept.
fn remove_others(image: &ContainerImage, ours: &str) -> anyhow::Result<(usize, usize)> {
    let (mut removed, mut kept) = (0, 0);
    let others: Vec<Descriptor> = image.referrers(IMAGE_TYPE)?;
    for other in others {
        let address = image.address.at(&other.digest)?;
        if address.to_string() == ours {
            continue;
        }
        match remove(HttpClient::new(PATIENT)?, &address, keyring().logins)? {
            true => removed += 1,
            false => kept += 1,
        }
    }
    if kept > 0 {
        log::warn!(
            "{}: the registry removes nothing, so {kept} earlier images stay; the last one is used",
            image.address
        );
    }
    Ok((removed, kept))
}
