//! The first story: a program starts.
//!
//! ```text
//! root (mmdebstrap) ─► raw ext4 ─► image ─► recorded start ─► optimized image
//!                   └► squashfs                   └► squashfs sorted by first access
//! ```
//!
//! Then the same program is started from each, cold, on one emulated medium, and the times are put
//! beside the limit that no start can beat.

mod contenders;
mod outcome;
mod packing;
mod squashfs;
mod table;

use hs_trace::Profile;

use self::outcome::Outcome;
use super::Demo;
use super::cache::Cache;
use super::disks::{self, START as FILES};
use super::outcome::Common;
use super::root;
use super::steps::Steps;
use super::story::{START as STORY, StoryResult, Telling};
use super::turns::settle;
use hs_output::show::Bar;
use hs_output::whole_file::write_whole;

/// Tells it.
pub(super) fn tell(telling: &Telling<'_>) -> anyhow::Result<StoryResult> {
    let Telling { args, facts, cache, root_stamp, rounds, bar, .. } = *telling;
    let mut steps = Steps::begin();
    let make_disks = || make_disks(cache, root_stamp, bar);
    let (profile, optimize_s) =
        disks::make_all(cache, &FILES, make_disks, || record(args, cache, bar), &mut steps, bar)?;
    let packing_bytes = make_sorted(cache, root_stamp, &profile, bar, &mut steps)?;
    let (mut contenders, mut tallies) = contenders::contenders(cache, args.medium, args.commands.run)?;
    settle(&cache.path(""))?;
    let out = args.out.as_deref();
    let runs = contenders::time(&mut contenders, &mut tallies, rounds, out, &|doing| bar.spin(doing))?;
    steps.end("timing_s");
    let (limit, ratios) = outcome::judge(&runs, args.medium, packing_bytes);
    let limit = limit.with_critical_path(&cache.path(FILES.fast), &profile, args.medium)?;
    let outcome = Outcome {
        common: Common::new(args.medium, limit, optimize_s, steps.into_seconds()),
        command: root::command_line(),
        ratios,
        packing_bytes,
        runs,
    };
    let text = table::render(facts, &outcome);
    let outcome = serde_json::to_value(outcome)?;
    Ok(StoryResult { story: &STORY, outcome, tallies, profile, text })
}

/// Everything that does not depend on a recorded start: raw disk, image, squashfs.
fn make_disks(cache: &Cache, root_stamp: &str, bar: &Bar) -> anyhow::Result<()> {
    let (disk_stamp, squashfs_stamp) = (disks::stamp(&FILES, root_stamp)?, squashfs::stamp(root_stamp));
    std::thread::scope(|scope| {
        let squashfs = scope.spawn(|| {
            if cache.has(squashfs::PLAIN, &squashfs_stamp) {
                return Ok(());
            }
            squashfs::make(cache, squashfs::PLAIN, &squashfs_stamp, None)
        });
        let image = || -> anyhow::Result<()> {
            if !cache.has(FILES.raw, &disk_stamp) {
                disks::make_raw(cache, &FILES, &disk_stamp, bar)?;
            }
            disks::make_image(cache, &FILES, FILES.plain, &disk_stamp, &disks::plain_options(), bar)
        };
        let image = image();
        if !squashfs.is_finished() {
            bar.spin("making a squashfs to compare with");
        }
        image.and(super::join(squashfs))
    })
}

/// Records the start from memory.
fn record(args: &Demo, cache: &Cache, bar: &Bar) -> anyhow::Result<Profile> {
    bar.spin("recording a start");
    let image = cache.path(FILES.plain);
    disks::read_into_cache(&image)?;
    let draft = cache.draft(STORY.profile);
    let profile = (args.commands.profile)(&contenders::profile_words(&image, &draft))?;
    write_whole(&draft, &profile.encode()?)?;
    cache.keep(STORY.profile, &profile.disk_digest.to_string())?;
    Ok(profile)
}

/// The sorted squashfs, and the packing that the hot region is compared with, whose bytes it gives.
fn make_sorted(
    cache: &Cache,
    root_stamp: &str,
    profile: &Profile,
    bar: &Bar,
    steps: &mut Steps,
) -> anyhow::Result<u64> {
    let sorted_stamp = squashfs::sorted_stamp(root_stamp);
    if !cache.has(squashfs::SORTED, &sorted_stamp) {
        bar.spin("making a squashfs sorted by first access");
        squashfs::make(cache, squashfs::SORTED, &sorted_stamp, Some(profile))?;
    }
    steps.end("squashfs_sorted_s");
    bar.spin("packing the recorded blocks independently, to compare");
    let packing_bytes = packing::packed_bytes(&cache.path(FILES.plain), profile)?;
    steps.end("packing_s");
    Ok(packing_bytes)
}
