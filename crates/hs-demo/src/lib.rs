//! The demo: the whole story on this machine, in three parts: a program starts (`start`), a system boots
//! (`boot`), and a saved guest goes on (`resume`). docs/DEMO.md says what is compared with what.
//!
//! The contenders are commands as a user types them; the command line reads their words ([`Commands`]).

mod boot;
mod boot_root;
mod cache;
mod contender;
mod disks;
mod facts;
mod guest;
mod interrupt;
mod limit;
mod machine;
mod outcome;
mod output;
mod ratio;
mod resume;
mod root;
mod roots;
mod run_file;
mod start;
mod steps;
mod story;
mod table;
mod tools;
mod turns;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_resume::record::Recorded;
use hs_resume::resume::ResumeSpec;
use hs_start::boot::BootSpec;
use hs_start::start::Start;
use hs_trace::Profile;
use hs_units::ByteSize;

use self::cache::Cache;
use self::facts::Facts;
use self::guest::Guest;
use self::interrupt::Interrupt;
use self::machine::Machine;
use self::outcome::Outcome;
use self::root::Root;
use self::story::{Story, StoryResult, Telling};
use self::tools::Tool;
use self::turns::Rounds;
use hs_output::show::{self, Bar};
use hs_service::signals::Ends;

/// Runs of each kind when no number is given.
const REPEATS: u16 = 3;
/// Bytes that the root that boots needs while it is made.
const NEEDED_FOR_BOOT_ROOT: u64 = 500_000_000;

/// What is told, and how.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Whether a program starts.
    pub has_start: bool,
    /// Whether a system boots.
    pub has_boot: bool,
    /// Whether a saved guest goes on.
    pub has_resume: bool,
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
    /// The resume that `headstart resume` would make.
    pub resume: fn(&[OsString]) -> anyhow::Result<ResumeSpec>,
    /// Records a resume as `headstart resume --record` does.
    pub record_resume: fn(&[OsString]) -> anyhow::Result<Recorded>,
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

/// The stories that were told, and why others were not.
#[derive(Default)]
struct ToldStories {
    stories: Vec<StoryResult>,
    failed: Vec<anyhow::Error>,
}

fn tell(args: &Demo, cache: &Cache, quiet: bool, began: Instant) -> anyhow::Result<()> {
    let told =
        [(args.has_start, &story::START), (args.has_boot, &story::BOOT), (args.has_resume, &story::RESUME)];
    let stories = told.map(|(is_told, story)| is_told.then_some(story));
    let stories: Vec<&'static Story> = stories.into_iter().flatten().collect();
    check(cache, &stories)?;
    if let Some(out) = &args.out {
        output::prepare(out)?;
    }
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        repeats: args.repeats.unwrap_or(REPEATS) as usize,
    };
    let bar = Bar::new(quiet);
    // Tried before anything slow begins; its result matters only to the second story.
    let guest = args.has_boot.then(|| Guest::choose(cache, &bar));
    let roots: Vec<&'static Root> = stories.iter().map(|story| story.files.root).collect();
    let stamps = roots::make(cache, &roots, &bar);
    let roots_s = began.elapsed().as_secs_f64();
    let mut told = ToldStories::default();
    for (story, stamp) in stories.into_iter().zip(stamps) {
        let until = args.repeats.is_none().then(|| began + story.within);
        let rounds = Rounds { most: facts.repeats, until };
        let result = stamp.and_then(|root_stamp| {
            let (facts, bar, guest) = (&facts, &bar, guest.as_ref());
            (story.tell)(&Telling { args, facts, cache, root_stamp: &root_stamp, rounds, bar, guest })
        });
        let Some(text) = told.take(story, result) else { continue };
        if !args.json {
            bar.print(text);
        }
        if let Some(out) = &args.out {
            output::keep(out, &told.outcome(&facts, roots_s, began), &told.stories)?;
        }
    }
    drop(bar);
    if args.json && !told.stories.is_empty() {
        show::json(&told.outcome(&facts, roots_s, began))?;
    }
    let hint = told.hint(cache);
    told.end()?;
    if !args.json && !quiet {
        hs_output::note!("{:.0} s in all; {hint}", began.elapsed().as_secs_f64());
    }
    Ok(())
}

impl ToldStories {
    /// Takes the result of a story; gives its text. One story's failure costs the others nothing.
    fn take(&mut self, story: &Story, result: anyhow::Result<StoryResult>) -> Option<String> {
        match result {
            Ok(result) => {
                let text = result.text.clone();
                self.stories.push(result);
                Some(text)
            }
            Err(error) => {
                self.failed.push(error.context(format!("{} cannot be told", story.about)));
                None
            }
        }
    }

    fn outcome<'a>(&'a self, facts: &'a Facts, roots_s: f64, began: Instant) -> Outcome<'a> {
        Outcome::new(facts, &self.stories, roots_s, began.elapsed().as_secs_f64())
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

    /// What a person can do next.
    fn hint(&self, cache: &Cache) -> String {
        let try_one = |result: &StoryResult| {
            let [before, behind] = result.story.hint;
            format!("{before} {}{behind}", cache.path(result.story.files.fast).display())
        };
        let tries: Vec<String> = self.stories.iter().map(try_one).collect();
        format!("the images are kept, try: {}", tries.join(", or: "))
    }
}

/// Fails before anything slow begins when this machine lacks a tool or the space.
fn check(cache: &Cache, stories: &[&'static Story]) -> anyhow::Result<()> {
    let mut tools: Vec<Tool> = Vec::new();
    let mut bytes = 0;
    for story in stories {
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
        let mut told = ToldStories::default();
        assert_eq!(told.take(&story::START, Err(anyhow::anyhow!("no squashfs"))), None);
        let text = told.take(&story::BOOT, Ok(boot::tests::told())).expect("told");
        assert!(text.contains("Debian with systemd") && told.stories.len() == 1);
        let error = format!("{:#}", told.end().unwrap_err());
        assert!(error.contains("the first story") && error.contains("no squashfs"), "{error}");
        assert!(!error.contains("second story"), "{error}");
        assert!(ToldStories::default().end().is_ok());
    }
}
