//! `headstart demo`: the whole story on this machine.
//!
//! ```text
//! root (mmdebstrap) ─► raw ext4 ─► image ─► recorded start ─► optimized image
//!                   └► squashfs                   └► squashfs sorted by first access
//! ```
//!
//! Then the same program is started from each, cold, on one emulated medium, and the times are put
//! beside the limit that no start can beat.

mod boot_root;
mod cache;
mod contenders;
mod disks;
mod interrupt;
mod machine;
mod outcome;
mod packing;
mod root;
mod squashfs;
mod table;
mod tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use hs_image::OptimizeOptions;
use hs_trace::Profile;
use hs_units::ByteSize;

use self::cache::Cache;
use self::contenders::{Contender, Disks};
use self::interrupt::Interrupt;
use self::machine::Machine;
use self::outcome::Outcome;
use crate::cli::Demo;
use crate::commands::{self, write_whole};
use crate::show::{self, Bar};
use crate::signals::Ends;

/// squashfs's default zstd level, used for the image as well, so that sizes compare.
const LEVEL: i32 = 15;
/// The recorded start's name in the cache and in the output folder.
const PROFILE: &str = "start.hsp";

/// Bytes that the root that boots needs while it is made.
const NEEDED_FOR_BOOT_ROOT: u64 = 500_000_000;
/// Bytes that a demo needs at most, from nothing: root 0.5 GB, raw disk 0.5 GB and once more while it is
/// made, five compressed files of 0.15 GB.
const NEEDED_FROM_NOTHING: u64 = 2_200_000_000;
/// When the root is there.
const NEEDED_WITH_ROOT: u64 = 1_700_000_000;
/// When only the profile's files are made again.
const NEEDED_WITH_ALL: u64 = 400_000_000;

/// Runs it.
pub(crate) fn run(args: &Demo, quiet: bool) -> anyhow::Result<()> {
    if args.repeats == 0 {
        bail!("--repeats 0 leaves nothing to show: use 1 or more");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("the demo needs root, to make a Debian root and to mount disks: run it with sudo");
    }
    let began = Instant::now();
    // Before there is any other thread, which would not have them blocked.
    let ends = Ends::block().context("block signals")?;
    hs_serve::rootenv::enter_private_mounts()?;
    let dir = args.cache.clone().unwrap_or_else(default_dir);
    if args.boot_root && boot_root::is_kept_in(&dir) {
        boot_root::show(&dir);
        return Ok(());
    }
    let cache = Cache::open(&dir)?;
    let interrupt = Interrupt::watch(ends, cache.unfinished())?;
    let told = if args.boot_root { boot_root::make(&cache, quiet) } else { tell(args, &cache, quiet, began) };
    interrupt.finish();
    told
}

fn tell(args: &Demo, cache: &Cache, quiet: bool, began: Instant) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out.join("runs")).with_context(|| format!("create {}", out.display()))?;
    }
    let bar = Bar::new(quiet);
    let mut steps = Steps { seconds: BTreeMap::new(), ended: began };
    let stamps = make_disks(cache, &bar, &mut steps)?;
    let profile = record(cache, &bar)?;
    steps.end("record_s");
    let packing_bytes = optimize(cache, &stamps, &profile, &bar, &mut steps)?;
    let path = |name| cache.path(name);
    let mut contenders = contenders::contenders(
        &Disks {
            root: &path(root::NAME),
            raw: &path(disks::RAW),
            squashfs: &path(squashfs::PLAIN),
            squashfs_sorted: &path(squashfs::SORTED),
            image: &path(disks::PLAIN),
            optimized: &path(disks::FAST),
        },
        args.medium,
    )?;
    let runs = contenders::time(&mut contenders, args.repeats, &|doing| bar.spin(doing))?;
    steps.end("timing_s");
    drop(bar);
    let (limit, ratios) = outcome::judge(&runs, args.medium, packing_bytes);
    let outcome = Outcome {
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        medium: args.medium.to_string(),
        command: root::command_line(),
        repeats: args.repeats,
        level: LEVEL,
        window_bytes: hs_image::BuildOptions::default().window_bytes,
        hot_level: OptimizeOptions::default().level,
        limit,
        ratios,
        packing_bytes,
        optimize_s: steps.seconds.get("optimize_s").copied().unwrap_or_default(),
        cold_region_unchanged: true,
        runs,
        steps: steps.seconds,
        demo_s: began.elapsed().as_secs_f64(),
    };
    let text = table::render(&outcome);
    if let Some(out) = &args.out {
        keep(out, &outcome, &contenders, &profile, &text)?;
    }
    if args.json {
        return show::json(&outcome);
    }
    show::line(text.trim_end());
    if !quiet {
        let fast = cache.path(disks::FAST);
        eprintln!(
            "{:.0} s in all; the images are kept, try: headstart run {} -- python3",
            outcome.demo_s,
            fast.display()
        );
    }
    Ok(())
}

/// How long each step took, in seconds.
struct Steps {
    seconds: BTreeMap<&'static str, f64>,
    ended: Instant,
}

impl Steps {
    /// The step `name`, which began when the last one ended, has ended.
    fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.seconds.insert(name, (now - self.ended).as_secs_f64());
        self.ended = now;
    }
}

/// From what the disks are made.
struct Stamps {
    root: String,
}

/// Everything that does not depend on a recorded start: root, raw disk, image, squashfs.
fn make_disks(cache: &Cache, bar: &Bar, steps: &mut Steps) -> anyhow::Result<Stamps> {
    let has_root = root::PROGRAM.is_kept(cache);
    let needed_tools: &[tools::Tool] = if has_root {
        &[tools::MKSQUASHFS, tools::MKFS]
    } else {
        &[tools::MMDEBSTRAP, tools::UNSHARE, tools::MKSQUASHFS, tools::MKFS]
    };
    tools::check(needed_tools)?;
    check_space(cache, if has_root { NEEDED_WITH_ALL } else { NEEDED_FROM_NOTHING })?;
    let root_stamp = root::PROGRAM.make(cache, bar)?;
    steps.end("root_s");
    let (disk_stamp, squashfs_stamp) = (disks::stamp(&root_stamp)?, squashfs::stamp(&root_stamp));
    let has_raw = cache.has(disks::RAW, &disk_stamp);
    if !has_raw {
        check_space(cache, NEEDED_WITH_ROOT)?;
    }
    std::thread::scope(|scope| {
        let squashfs = scope.spawn(|| {
            if cache.has(squashfs::PLAIN, &squashfs_stamp) {
                return Ok(());
            }
            squashfs::make(cache, squashfs::PLAIN, &squashfs_stamp, None)
        });
        let image = || -> anyhow::Result<()> {
            if !has_raw {
                disks::make_raw(cache, &disk_stamp, bar)?;
            }
            if !has_raw || !cache.has(disks::PLAIN, &disk_stamp) {
                disks::make_image(cache, &disk_stamp, bar)?;
            }
            Ok(())
        };
        let image = image();
        if !squashfs.is_finished() {
            bar.spin("making a squashfs to compare with");
        }
        image.and(join(squashfs))
    })?;
    steps.end("disks_s");
    Ok(Stamps { root: root_stamp })
}

/// Records the start from memory.
fn record(cache: &Cache, bar: &Bar) -> anyhow::Result<Profile> {
    bar.spin("recording a start");
    let image = cache.path(disks::PLAIN);
    disks::read_into_cache(&image)?;
    let draft = cache.draft(PROFILE);
    let args = contenders::profile_command(&image, &draft)?;
    let (profile, _) = commands::profile::record(&args, false)?;
    write_whole(&draft, &profile.encode()?)?;
    cache.keep(PROFILE, &profile.disk_digest.to_string())?;
    Ok(profile)
}

/// Everything that depends on the recorded start: optimized image, sorted squashfs, and the packing that
/// the hot region is compared with, whose bytes it gives.
fn optimize(
    cache: &Cache,
    stamps: &Stamps,
    profile: &Profile,
    bar: &Bar,
    steps: &mut Steps,
) -> anyhow::Result<u64> {
    disks::optimize(cache, profile, bar)?;
    steps.end("optimize_s");
    disks::check_cold_is_unchanged(cache)?;
    let sorted_stamp = squashfs::sorted_stamp(&stamps.root);
    if !cache.has(squashfs::SORTED, &sorted_stamp) {
        bar.spin("making a squashfs sorted by first access");
        squashfs::make(cache, squashfs::SORTED, &sorted_stamp, Some(profile))?;
    }
    steps.end("squashfs_sorted_s");
    bar.spin("packing the recorded blocks independently, to compare");
    let packing_bytes = packing::packed_bytes(&cache.path(disks::PLAIN), profile)?;
    steps.end("packing_s");
    Ok(packing_bytes)
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Keeps the figures, every start's summary, the profile and the table.
fn keep(
    out: &Path,
    outcome: &Outcome,
    contenders: &[Contender],
    profile: &Profile,
    table: &str,
) -> anyhow::Result<()> {
    write_whole(&out.join("demo.json"), pretty(outcome)?.as_bytes())?;
    for contender in contenders {
        let path = |number| out.join(format!("runs/{}-{number}.json", contender.key));
        for (index, run) in contender.runs.iter().enumerate() {
            write_whole(&path(index + 1), pretty(run)?.as_bytes())?;
        }
        // Of an earlier demo with more repeats.
        let mut number = contender.runs.len() + 1;
        while std::fs::remove_file(path(number)).is_ok() {
            number += 1;
        }
    }
    write_whole(&out.join(PROFILE), &profile.encode()?)?;
    write_whole(&out.join("table.txt"), table.as_bytes())
}

fn pretty(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn check_space(cache: &Cache, needed_bytes: u64) -> anyhow::Result<()> {
    let free_bytes = cache.free_bytes()?;
    if free_bytes >= needed_bytes {
        return Ok(());
    }
    bail!(
        "{} has {} free, and the demo needs {}: free some space, or give --cache on another disk",
        cache.dir().display(),
        ByteSize(free_bytes),
        ByteSize(needed_bytes)
    )
}

/// Where things are kept when nobody says.
fn default_dir() -> PathBuf {
    match std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => folder.join("headstart"),
        // Who runs this is root.
        _ => PathBuf::from("/var/cache/headstart"),
    }
}
