//! The demo: the whole story on this machine, in two parts: a program starts (`start`), and a system boots
//! (`boot`). docs/DEMO.md says what is compared with what.
//!
//! The contenders are commands as a user types them; the command line reads their words ([`Commands`]).

mod boot;
mod boot_root;
mod cache;
mod disks;
mod facts;
mod guest;
mod interrupt;
mod limit;
mod machine;
mod outcome;
mod output;
mod ratio;
mod root;
mod roots;
mod run_file;
mod start;
mod steps;
mod story_result;
mod tools;
mod turns;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_start::boot::BootSpec;
use hs_start::start::Start;
use hs_trace::Profile;
use hs_units::ByteSize;

use self::cache::Cache;
use self::disks::Files;
use self::facts::Facts;
use self::guest::Guest;
use self::interrupt::Interrupt;
use self::machine::Machine;
use self::outcome::Outcome;
use self::root::Root;
use self::story_result::StoryResult;
use self::tools::Tool;
use self::turns::Rounds;
use hs_output::show::{self, Bar};
use hs_service::signals::Ends;

/// Runs of each kind when no number is given.
const REPEATS: u16 = 3;
/// When the first story, and both stories, must be told at the latest. Not used when a number of runs is
/// given.
const FIRST_WITHIN: Duration = Duration::from_secs(290);
const BOTH_WITHIN: Duration = Duration::from_secs(470);

/// Bytes that the root that boots needs while it is made.
const NEEDED_FOR_BOOT_ROOT: u64 = 500_000_000;

/// What a story needs of this machine.
struct Needs {
    files: &'static Files,
    tools: &'static [Tool],
    /// Programs of which one is enough, the better ones first.
    any_of: &'static [Tool],
    /// Bytes that it needs at most, from nothing: its root, its raw disk and once more while that is made,
    /// and its compressed files.
    from_nothing_bytes: u64,
    /// When its root is there.
    with_root_bytes: u64,
    /// When only what depends on the profile is made again.
    with_all_bytes: u64,
}

const START: Needs = Needs {
    files: &disks::START,
    tools: &[tools::MKSQUASHFS, tools::MKFS],
    any_of: &[],
    from_nothing_bytes: 2_200_000_000,
    with_root_bytes: 1_700_000_000,
    with_all_bytes: 400_000_000,
};
const BOOT: Needs = Needs {
    files: &disks::BOOT,
    tools: &[tools::MKFS],
    // Which of them runs a guest here is found out by trying.
    any_of: &[tools::UML, tools::QEMU],
    from_nothing_bytes: 1_300_000_000,
    with_root_bytes: 1_000_000_000,
    with_all_bytes: 200_000_000,
};

/// What is told, and how.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Whether a program starts.
    pub has_start: bool,
    /// Whether a system boots.
    pub has_boot: bool,
    /// Folder for the figures.
    pub out: Option<PathBuf>,
    /// Folder that keeps roots and images.
    pub cache: Option<PathBuf>,
    /// The medium from which the program starts.
    pub medium: Medium,
    /// The medium from which the system boots.
    pub boot_medium: Medium,
    /// Runs of each kind; as time allows when `None`.
    pub repeats: Option<u16>,
    /// Print demo.json instead of the tables.
    pub json: bool,
    /// Only make the root that boots.
    pub boot_root: bool,
    /// Reads the words of contenders.
    pub commands: Commands,
}

/// What reads the words of a command, without the program's name.
#[derive(Clone, Copy, Debug)]
pub struct Commands {
    /// The start that `headstart run` would make.
    pub run: fn(&[OsString]) -> anyhow::Result<Start>,
    /// Records a start as `headstart profile` does, without showing its output.
    pub profile: fn(&[OsString]) -> anyhow::Result<Profile>,
    /// The boot that `headstart boot` would make.
    pub boot: fn(&[OsString]) -> anyhow::Result<BootSpec>,
    /// Records a boot as `headstart boot --record` does.
    pub record_boot: fn(&[OsString]) -> anyhow::Result<Profile>,
}

/// Runs it.
///
/// # Errors
/// Without root, without a tool or the space, or when a story cannot be told.
pub fn run(args: &Demo, quiet: bool) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the demo needs root, to make a Debian root and to mount disks: run it with sudo");
    }
    let began = Instant::now();
    // Before there is any other thread, which would not have them blocked.
    let ends = Ends::block().context("block signals")?;
    hs_linux::rootenv::enter_private_mounts()?;
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

/// The stories that succeeded, and why the other one failed.
#[derive(Default)]
struct Stories {
    start: Option<StoryResult<start::Outcome>>,
    boot: Option<StoryResult<boot::Outcome>>,
    failed: Vec<anyhow::Error>,
}

fn tell(args: &Demo, cache: &Cache, quiet: bool, began: Instant) -> anyhow::Result<()> {
    let needs = [args.has_start.then_some(&START), args.has_boot.then_some(&BOOT)];
    let needs: Vec<&Needs> = needs.into_iter().flatten().collect();
    check(cache, &needs)?;
    if let Some(out) = &args.out {
        output::prepare(out)?;
    }
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        repeats: args.repeats.unwrap_or(REPEATS) as usize,
    };
    let rounds =
        |within| Rounds { most: facts.repeats, until: args.repeats.is_none().then(|| began + within) };
    let bar = Bar::new(quiet);
    // Tried before anything slow begins; its result matters only to the second story.
    let guest = args.has_boot.then(|| Guest::choose(cache, &bar));
    let roots: Vec<&'static Root> = needs.iter().map(|needs| needs.files.root).collect();
    let mut stamps = roots::make(cache, &roots, &bar).into_iter();
    let roots_s = began.elapsed().as_secs_f64();
    let mut stamp = || stamps.next().context("a root without a stamp")?;
    let mut stories = Stories::default();
    let keep = |stories: &Stories, text: &str| {
        if !args.json {
            bar.print(text);
        }
        let Some(out) = &args.out else { return Ok(()) };
        let outcome = stories.outcome(&facts, roots_s, began);
        output::keep(out, &outcome, stories.start.as_ref(), stories.boot.as_ref())
    };
    if args.has_start {
        let told =
            stamp().and_then(|stamp| start::tell(args, &facts, cache, &stamp, rounds(FIRST_WITHIN), &bar));
        let text = stories.start_is(told);
        text.map_or(Ok(()), |text| keep(&stories, &text))?;
    }
    if let Some(guest) = guest {
        let told = stamp()
            .and_then(|stamp| boot::tell(args, &facts, cache, &stamp, rounds(BOTH_WITHIN), &bar, &guest?));
        let text = stories.boot_is(told);
        text.map_or(Ok(()), |text| keep(&stories, &text))?;
    }
    drop(bar);
    if args.json && stories.has_any() {
        show::json(&stories.outcome(&facts, roots_s, began))?;
    }
    let hint = hint(&stories, cache);
    stories.end()?;
    if !args.json && !quiet {
        hs_output::note!("{:.0} s in all; {hint}", began.elapsed().as_secs_f64());
    }
    Ok(())
}

impl Stories {
    /// Takes the first story; gives its text.
    fn start_is(&mut self, told: anyhow::Result<StoryResult<start::Outcome>>) -> Option<String> {
        self.start = self.told(told, "the first story (a program starts) cannot be told");
        self.start.as_ref().map(|told| told.text.clone())
    }

    /// Takes the second story; gives its text.
    fn boot_is(&mut self, told: anyhow::Result<StoryResult<boot::Outcome>>) -> Option<String> {
        self.boot = self.told(told, "the second story (a system boots) cannot be told");
        self.boot.as_ref().map(|told| told.text.clone())
    }

    /// One story's failure costs the other nothing.
    fn told<T>(&mut self, told: anyhow::Result<T>, otherwise: &'static str) -> Option<T> {
        told.map_err(|error| self.failed.push(error.context(otherwise))).ok()
    }

    fn outcome<'a>(&'a self, facts: &'a Facts, roots_s: f64, began: Instant) -> Outcome<'a> {
        let demo_s = began.elapsed().as_secs_f64();
        Outcome::new(facts, self.start.as_ref(), self.boot.as_ref(), roots_s, demo_s)
    }

    fn has_any(&self) -> bool {
        self.start.is_some() || self.boot.is_some()
    }

    /// Fails when one could not be told.
    fn end(self) -> anyhow::Result<()> {
        let mut failed = self.failed.into_iter();
        let Some(first) = failed.next() else { return Ok(()) };
        match failed.next() {
            None => Err(first),
            Some(second) => bail!("{first:#}; {second:#}"),
        }
    }
}

/// What a person can do next.
fn hint(stories: &Stories, cache: &Cache) -> String {
    let path = |files: &Files| cache.path(files.fast).display().to_string();
    let tries = [
        stories.start.as_ref().map(|_| format!("headstart run {} -- python3", path(&disks::START))),
        stories.boot.as_ref().map(|_| format!("headstart boot {}", path(&disks::BOOT))),
    ];
    let tries: Vec<String> = tries.into_iter().flatten().collect();
    format!("the images are kept, try: {}", tries.join(", or: "))
}

/// Fails before anything slow begins when this machine lacks a tool or the space.
fn check(cache: &Cache, needs: &[&Needs]) -> anyhow::Result<()> {
    let mut tools: Vec<Tool> = Vec::new();
    let mut bytes = 0;
    for story in needs {
        let has_root = story.files.root.is_kept(cache);
        let root_tools: &[Tool] = if has_root { &[] } else { &[tools::MMDEBSTRAP, tools::UNSHARE] };
        let missing = tools::missing_of(story.any_of);
        for tool in root_tools.iter().chain(story.tools).chain(missing) {
            if !tools.contains(tool) {
                tools.push(*tool);
            }
        }
        bytes += match cache.stamp(story.files.root.name).filter(|_| has_root) {
            None => story.from_nothing_bytes,
            Some(stamp) if cache.has(story.files.raw, &disks::stamp(story.files, &stamp)?) => {
                story.with_all_bytes
            }
            Some(_) => story.with_root_bytes,
        };
    }
    tools::check(&tools)?;
    check_space(cache, bytes)
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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

/// The folder that is used when none is given.
fn default_dir() -> PathBuf {
    match std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from) {
        Some(folder) if folder.is_absolute() => folder.join("headstart"),
        // The user is root.
        _ => PathBuf::from("/var/cache/headstart"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_that_fails_costs_the_other_nothing() {
        let mut stories = Stories::default();
        assert_eq!(stories.start_is(Err(anyhow::anyhow!("no squashfs"))), None);
        let text = stories.boot_is(Ok(boot::tests::told())).expect("told");
        assert!(text.contains("Debian with systemd") && stories.has_any());
        let error = format!("{:#}", stories.end().unwrap_err());
        assert!(error.contains("the first story") && error.contains("no squashfs"), "{error}");
        assert!(!error.contains("second story"), "{error}");
        assert!(Stories::default().end().is_ok());
    }
}
