//! The second story: a system boots.
//!
//! ```text
//! root (mmdebstrap) ─► raw ext4 ─┬► image ─► recorded boot ─► optimized image
//!                                └► cloop-like image
//! ```
//!
//! Then the same system boots from each as a guest, cold, on one emulated medium, and from memory, which is
//! the limit.

mod contenders;
mod delivery;
mod outcome;
mod paper;
mod table;

use std::path::Path;

use anyhow::bail;
use hs_trace::Profile;

use self::delivery::Delivery;
use self::outcome::Outcome;
use super::Demo;
use super::cache::Cache;
use super::disks::{self, BOOT as FILES};
use super::guest::Guest;
use super::outcome::Common;
use super::run_file::run_file;
use super::steps::Steps;
use super::story::{BOOT as STORY, StoryResult, Telling};
use super::turns::{settle, take_turns};
use hs_output::show::Bar;
use hs_output::whole_file::write_whole;
use hs_start::open::open_image;

/// Tells it.
pub(super) fn tell(telling: &Telling<'_>) -> anyhow::Result<StoryResult> {
    let Telling { args, facts, cache, root_stamp, rounds, bar, guest } = *telling;
    let guest = match guest {
        Some(Ok(guest)) => guest,
        Some(Err(error)) => bail!("{error:#}"),
        None => bail!("nothing runs a guest"),
    };
    let mut steps = Steps::begin();
    let make_disks = || make_disks(cache, root_stamp, bar);
    let (profile, optimize_s) =
        disks::make_all(cache, &FILES, make_disks, || record(args, cache, bar, guest), &mut steps, bar)?;
    let medium = args.boot_medium;
    let (specs, mut tallies) = contenders::contenders(cache, medium, guest, args.commands.boot)?;
    let out = args.out.as_deref();
    settle(&cache.path(""))?;
    take_turns(&mut tallies, rounds, &|doing| bar.spin(doing), &mut |place, number| {
        let file = |kind| {
            out.map(|out| run_file(out, STORY.prefix, contenders::CONTENDERS[place].key, number, kind))
        };
        contenders::boot(place, &specs[place], file("console"), file("csv"))
    })?;
    steps.end("timing_s");
    let delivery = delivery(&cache.path(FILES.fast), medium)?;
    let (limit, ratios, contenders) = outcome::judge(&tallies, medium, delivery);
    let limit = limit.with_critical_path(&cache.path(FILES.fast), &profile, medium)?;
    let outcome = Outcome {
        common: Common::new(medium, limit, optimize_s, steps.into_seconds()),
        guest: guest.label(),
        ready: hs_guest::console::READY,
        cloop_like: contenders::CloopLike::PARAMETERS,
        delivery,
        ratios,
        contenders,
        paper: paper::KITAGAWA_2005,
    };
    let text = table::render(facts, &outcome, &tallies);
    let outcome = serde_json::to_value(outcome)?;
    Ok(StoryResult { story: &STORY, outcome, tallies, profile, text })
}

/// Raw disk and images, none of which depends on a recorded boot.
fn make_disks(cache: &Cache, root_stamp: &str, bar: &Bar) -> anyhow::Result<()> {
    let stamp = disks::stamp(&FILES, root_stamp)?;
    if !cache.has(FILES.raw, &stamp) {
        disks::make_raw(cache, &FILES, &stamp, bar)?;
    }
    disks::make_image(cache, &FILES, FILES.plain, &stamp, &disks::plain_options(), bar)?;
    disks::make_image(
        cache,
        &FILES,
        contenders::CloopLike::FILE,
        &stamp,
        &contenders::CloopLike::PARAMETERS.options(),
        bar,
    )
}

/// Records a boot from memory.
fn record(args: &Demo, cache: &Cache, bar: &Bar, guest: &Guest) -> anyhow::Result<Profile> {
    bar.spin("recording a boot");
    let image = cache.path(FILES.plain);
    disks::read_into_cache(&image)?;
    let draft = cache.draft(STORY.profile);
    let profile = (args.commands.record_boot)(&contenders::record_words(&image, &draft, guest))?;
    write_whole(&draft, &profile.encode()?)?;
    cache.keep(STORY.profile, &profile.disk_digest.to_string())?;
    Ok(profile)
}

/// How the medium delivers the hot region of the image at `path`.
fn delivery(path: &Path, medium: hs_device::Medium) -> anyhow::Result<Option<Delivery>> {
    let image = open_image(path)?;
    let segments = image.superblock().hot.iter().map(|segment| segment.range());
    let image_bytes = std::fs::metadata(path)?.len();
    Ok(Delivery::new(medium, image_bytes, segments)?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The story with made-up boots.
    pub(crate) fn told() -> StoryResult {
        let (outcome, tallies) = outcome::tests::outcome("cd-24x-cav", 3);
        let text = table::render(&crate::facts::tests::facts(3), &outcome, &tallies);
        let outcome = serde_json::to_value(outcome).unwrap();
        StoryResult { story: &STORY, outcome, tallies, profile: outcome::tests::profile(), text }
    }
}
