//! The third story: a saved guest goes on.
//!
//! ```text
//! root (mmdebstrap, with a kernel) ─► disk ─► boot ─► snapshot ─► recorded resumes ─► both optimized
//! ```
//!
//! Then the same Debian boots from memory, which is the limit of any boot, and goes on from memory and from
//! each of three media.

mod outcome;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_build::OptimizeOptions;
use hs_output::show::Bar;
use hs_output::whole_file::write_whole;
use hs_resume::record::Recorded;
use hs_start::boot;
use hs_start::image::ImageSource;
use hs_start::open::open_image;
use hs_start::progress;
use hs_start::summary::Summary;
use hs_trace::Profile;

use self::outcome::{MEDIA, Outcome};
use super::cache::Cache;
use super::contender::Contender;
use super::disks::{self, RESUME as FILES};
use super::run_file::run_file;
use super::steps::Steps;
use super::story::{RESUME as STORY, StoryResult, Telling};
use super::turns::{Tally, settle, take_turns};

/// The snapshot as it was saved, and laid out: their names in the cache.
const SAVED: &str = "resume.hsi";
const SAVED_FAST: &str = "resume-fast.hsi";
/// Resumes that are recorded and merged: no two touch quite the same pages.
const RECORDINGS: usize = 3;
/// Boots by QEMU's translator take from a quarter of a minute to a minute.
const PATIENCE: [&str; 2] = ["--ready-timeout", "600"];
/// When the guest is saved.
const LOGIN: &str = "login: $";
/// How long it goes on before it is saved: at the prompt systemd still has work to do, which each resume
/// would do again.
const SETTLE_S: &str = "15";
/// Ready is the right answer to a command; its echo is another.
const ASK: [&str; 6] = ["--type", "root", "--type", "echo answer $((6*7))", "--ready", "^answer 42"];
/// The place of the boot and of the resume from memory; those from media follow.
const BOOT: usize = 0;
const WARM: usize = 1;

/// Tells it.
pub(super) fn tell(telling: &Telling<'_>) -> anyhow::Result<StoryResult> {
    let Telling { args, facts, cache, root_stamp, rounds, bar, .. } = *telling;
    let mut steps = Steps::begin();
    let stamp = disks::stamp(&FILES, root_stamp)?;
    if !cache.has(FILES.raw, &stamp) {
        disks::make_raw(cache, &FILES, &stamp, bar)?;
    }
    disks::make_image(cache, &FILES, FILES.plain, &stamp, &disks::plain_options(), bar)?;
    steps.end("disks_s");
    save(telling, &stamp)?;
    steps.end("save_s");
    let recorded = record(telling)?;
    steps.end("record_s");
    optimize(cache, SAVED, SAVED_FAST, recorded.iter().map(|one| &one.snapshot), bar)?;
    optimize(cache, FILES.plain, FILES.fast, recorded.iter().map(|one| &one.disk), bar)?;
    steps.end("optimize_s");
    let contenders = contenders();
    let mut tallies: Vec<Tally> = contenders.iter().map(Contender::tally).collect();
    settle(&cache.path(""))?;
    let out = args.out.as_deref();
    take_turns(&mut tallies, rounds, &|doing| bar.spin(doing), &mut |place, number| {
        let key = contenders[place].key;
        run(telling, place, out.map(|out| run_file(out, STORY.prefix, key, number, "console")))
    })?;
    steps.end("timing_s");
    let packed_bytes = hot_bytes(&cache.path(SAVED_FAST))? + hot_bytes(&cache.path(FILES.fast))?;
    let snapshot_bytes = std::fs::metadata(cache.path(SAVED_FAST)).context("look at the snapshot")?.len();
    let outcome = Outcome::judge(&tallies, packed_bytes, snapshot_bytes, steps.into_seconds())?;
    let text = outcome.render(facts, &tallies);
    let outcome = serde_json::to_value(outcome)?;
    let profile = recorded.into_iter().next().context("nothing was recorded")?.snapshot;
    Ok(StoryResult { story: &STORY, outcome, tallies, profile, text })
}

/// The contenders at their places.
fn contenders() -> Vec<Contender> {
    let of = |key, label, file, flags, is_on_medium| Contender {
        key,
        label,
        file,
        flags,
        is_on_medium,
        patience_s: f64::INFINITY,
    };
    let mut all = vec![
        of("boot_warm", "booted, all in memory", FILES.raw, &["--warm"][..], false),
        of("warm", "resumed, all in memory", SAVED_FAST, &["--warm"], false),
    ];
    all.extend(MEDIA.iter().map(|medium| of(medium.key, medium.label, SAVED_FAST, &[], true)));
    all
}

/// Saves the guest behind its login prompt, unless that is kept.
fn save(telling: &Telling<'_>, disk_stamp: &str) -> anyhow::Result<()> {
    let Telling { args, cache, bar, .. } = *telling;
    let stamp = format!("saved {SETTLE_S} s after {LOGIN}\n{disk_stamp}");
    if cache.has(SAVED, &stamp) {
        return Ok(());
    }
    bar.spin("booting a Debian, to save it at its login prompt");
    let mut words = boot_words(&cache.path(FILES.plain));
    words.extend(["--run-after-ready".into(), SETTLE_S.into()]);
    words.extend(["--snapshot-out".into(), cache.draft(SAVED).into()]);
    boot::boot(&(args.commands.boot)(&words)?).context("boot the guest that is to be saved")?;
    cache.keep(SAVED, &stamp)
}

/// Records resumes from memory.
fn record(telling: &Telling<'_>) -> anyhow::Result<Vec<Recorded>> {
    let Telling { args, cache, bar, .. } = *telling;
    let (saved, disk) = (cache.path(SAVED), cache.path(FILES.plain));
    for file in [&saved, &disk] {
        disks::read_into_cache(file)?;
    }
    let recorded: Vec<Recorded> = (1..=RECORDINGS)
        .map(|number| {
            bar.spin(format!("recording resume {number} of {RECORDINGS}"));
            (args.commands.record_resume)(&resume_words(&saved, &disk, &[])).context("record a resume")
        })
        .collect::<anyhow::Result<_>>()?;
    if let Some(first) = recorded.first() {
        write_whole(&cache.draft(STORY.profile), &first.snapshot.encode()?)?;
        cache.keep(STORY.profile, &first.snapshot.disk_digest.to_string())?;
    }
    Ok(recorded)
}

/// Adds the hot region that all of these ask for.
fn optimize<'a>(
    cache: &Cache,
    plain: &str,
    fast: &str,
    profiles: impl Iterator<Item = &'a Profile>,
    bar: &Bar,
) -> anyhow::Result<()> {
    let path = cache.path(plain);
    // The snapshot is not whole without the disk.
    let image = ImageSource::from(&path).with_base(&cache.path(FILES.plain).into());
    let profiles: Vec<Profile> = profiles.cloned().collect();
    let options = OptimizeOptions::default();
    let show = |progress| progress::of_image(bar, progress);
    let report =
        hs_build::optimize(&open_image(image)?, Some(&path), &profiles, &cache.draft(fast), &options, &show)?;
    cache.keep(fast, &report.image_digest.to_string())
}

/// One boot or resume.
fn run(telling: &Telling<'_>, place: usize, console: Option<PathBuf>) -> anyhow::Result<Summary> {
    let Telling { args, cache, .. } = *telling;
    if place == BOOT {
        let mut words = boot_words(&cache.path(FILES.raw));
        words.push("--warm".into());
        let spec = boot::BootSpec { console, ..(args.commands.boot)(&words)? };
        return Ok(boot::boot(&spec).context("boot from memory")?.summary);
    }
    let flags = match place {
        WARM => vec!["--warm"],
        place => vec!["--emulate", MEDIA[place - WARM - 1].name],
    };
    let words = resume_words(&cache.path(SAVED_FAST), &cache.path(FILES.fast), &flags);
    let spec = hs_resume::resume::ResumeSpec { console, ..(args.commands.resume)(&words)? };
    Ok(hs_resume::resume::resume(&spec).context("resume the guest")?.summary)
}

/// Stored bytes of an image's hot region.
fn hot_bytes(path: &Path) -> anyhow::Result<u64> {
    Ok(open_image(path)?.superblock().hot.iter().map(|segment| segment.range().len).sum())
}

/// Words of `headstart boot`.
fn boot_words(disk: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["boot".into(), disk.into()];
    words.extend(["--vmm", "qemu", "--ready", LOGIN].map(OsString::from));
    words.extend(PATIENCE.map(OsString::from));
    words
}

/// Words of `headstart resume`.
fn resume_words(snapshot: &Path, disk: &Path, flags: &[&str]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["resume".into(), snapshot.into(), "--disk".into(), disk.into()];
    words.extend(ASK.iter().chain(&PATIENCE).chain(flags).map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_stand_at_their_places() {
        let keys: Vec<&str> = contenders().iter().map(|contender| contender.key).collect();
        assert_eq!(keys, ["boot_warm", "warm", "flat", "cd", "lan"]);
        for medium in &MEDIA {
            assert!(hs_device::Medium::parse(medium.name).is_ok(), "{}", medium.name);
        }
    }

    #[test]
    fn words_are_those_of_the_command_line() {
        let words = resume_words(Path::new("a b.hsi"), Path::new("d.hsi"), &["--warm"]);
        assert_eq!(words[..4], ["resume", "a b.hsi", "--disk", "d.hsi"].map(OsString::from));
        assert_eq!(words.last(), Some(&OsString::from("--warm")));
        assert!(boot_words(Path::new("d")).contains(&OsString::from(LOGIN)));
    }
}
