//! The contenders of the first story: disks from which the program starts, each time with a fresh loop device
//! and mount.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_serve::MountFsOptions;
use serde::Serialize;

use super::squashfs;
use crate::cache::Cache;
use crate::contender::Contender;
use crate::disks::START as FILES;
use crate::root::{COMMAND, READY};
use crate::run_file::run_file;
use crate::story::START as STORY;
use crate::turns::{Rounds, Tally, take_turns};
use hs_start::start::{self, CommandOutput, Disk, Start};
use hs_start::summary::Summary;
use hs_start::trace::{Traced, Tracer};

/// Seconds a repeat after which a contender is not started again.
const PATIENCE_S: f64 = 6.0;

/// The places of the contenders, in the order in which they are timed and shown.
pub(super) const SQUASHFS_SORTED: usize = 1;
pub(super) const SQUASHFS: usize = 2;
pub(super) const HEADSTART: usize = 3;
pub(super) const OPTIMIZED: usize = 4;
pub(super) const NATIVE: usize = 5;

/// The disks, at their places.
const CONTENDERS: [Contender; 6] = [
    of("raw-ext4", "raw ext4", FILES.raw, FOREIGN),
    of("squashfs-sorted", "squashfs, sorted", squashfs::SORTED, FOREIGN),
    of("squashfs", "squashfs", squashfs::PLAIN, FOREIGN),
    of("headstart", "headstart", FILES.plain, &[]),
    of("headstart-optimized", "headstart, optimized", FILES.fast, &[]),
    Contender { is_on_medium: false, ..of("native-warm", "warm native", FILES.root.name, FOREIGN) },
];

/// The words for a disk that is no image.
const FOREIGN: &[&str] = &["--raw"];

const fn of(
    key: &'static str,
    label: &'static str,
    file: &'static str,
    flags: &'static [&'static str],
) -> Contender {
    Contender { key, label, file, flags, is_on_medium: true, patience_s: PATIENCE_S }
}

/// What came out for one contender.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Result {
    pub(super) contender: &'static str,
    pub(super) label: &'static str,
    /// Whether its loop device read the disk with direct I/O; `None` without one.
    pub(super) direct_io: Option<bool>,
    /// Start → ready of every start, in seconds.
    pub(super) all_ready_s: Vec<f64>,
    /// The median start.
    #[serde(flatten)]
    pub(super) summary: Summary,
}

impl Result {
    /// Start → ready of the median start, in seconds.
    pub(super) fn ready_s(&self) -> f64 {
        self.summary.ready_s.unwrap_or_default()
    }
}

/// The starts of all of them, and their tallies.
pub(super) fn contenders(
    cache: &Cache,
    medium: Medium,
    run: fn(&[OsString]) -> anyhow::Result<Start>,
) -> anyhow::Result<(Vec<Start>, Vec<Tally>)> {
    let start_of = |(place, contender): (usize, &Contender)| {
        let path = cache.path(contender.file);
        let medium = if contender.is_on_medium { medium } else { Medium::None };
        let mut spec = run(&run_words(&path, medium, contender.flags)).context("headstart run")?;
        if !contender.flags.is_empty() {
            // As the kernel mounts them by itself.
            spec.mount = MountFsOptions { warm: false, inode_readahead_blocks: None, ..spec.mount };
        }
        if place == NATIVE {
            spec.disk = Disk::Directory { path };
        }
        // Ended when it is ready.
        anyhow::Ok((
            Start { grace: Some(Duration::ZERO), output: CommandOutput::Nowhere, ..spec },
            contender.tally(),
        ))
    };
    CONTENDERS.iter().enumerate().map(start_of).collect()
}

/// Words of `headstart profile` for the demo's start, recorded from memory.
pub(super) fn profile_words(image: &Path, output: &Path) -> Vec<OsString> {
    with_command(vec!["profile".into(), image.into(), "--output".into(), output.into(), "--ready".into()])
}

/// Words of `headstart run` for the demo's start.
fn run_words(path: &Path, medium: Medium, flags: &[&str]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["run".into(), path.into()];
    words.extend(flags.iter().map(OsString::from));
    words.extend(["--emulate".into(), medium.to_string().into(), "--ready".into()]);
    with_command(words)
}

fn with_command(mut words: Vec<OsString>) -> Vec<OsString> {
    words.extend([READY.into(), "--".into()]);
    words.extend(COMMAND.map(Into::into));
    words
}

/// Starts all contenders in turns, the slow ones less often. `show` gets messages about the progress. Traces
/// of the starts from images are kept below `out`.
pub(super) fn time(
    starts: &mut [Start],
    tallies: &mut [Tally],
    rounds: Rounds,
    out: Option<&Path>,
    show: &dyn Fn(String),
) -> anyhow::Result<Vec<Result>> {
    // The native start must be warm from its first timed run on.
    show("warming up the native start".to_owned());
    once(NATIVE, &starts[NATIVE])?;
    show("finding the better loop device for foreign disks".to_owned());
    let direct_io = is_better_with_direct_io(SQUASHFS_SORTED, &starts[SQUASHFS_SORTED])?;
    for start in starts.iter_mut().filter(|start| matches!(start.disk, Disk::Foreign { .. })) {
        start.mount.direct_io = direct_io;
    }
    take_turns(tallies, rounds, show, &mut |place, number| {
        let spec = &starts[place];
        let out = out.filter(|_| matches!(spec.disk, Disk::Image { .. }));
        let Some(out) = out else { return once(place, spec) };
        // Processes are not looked at: that would take time of the start.
        let tracer = Tracer::new(&run_file(out, STORY.prefix, CONTENDERS[place].key, number, "csv"));
        let spec = Start { watch: Some(tracer.watch()), ..spec.clone() };
        let summary = once(place, &spec)?;
        tracer.write(&Traced::of_start(&spec)?.started(&summary), None)?;
        Ok(summary)
    })?;
    Ok(starts.iter().zip(tallies).map(|(start, tally)| result(start, tally)).collect())
}

fn once(place: usize, spec: &Start) -> anyhow::Result<Summary> {
    let label = CONTENDERS[place].label;
    let started = start::start(spec).with_context(|| format!("start from {label}"))?;
    if started.ready.is_none() {
        let code = started.exit.map_or(0, hs_linux::rootenv::Exit::code);
        bail!("the start from {label} ended with exit code {code} without being ready");
    }
    Ok(started.summary)
}

/// Starts with and without direct I/O; true when direct I/O was quicker.
fn is_better_with_direct_io(place: usize, spec: &Start) -> anyhow::Result<bool> {
    let with = |direct_io| {
        let mount = MountFsOptions { direct_io, ..spec.mount.clone() };
        once(place, &Start { mount, ..spec.clone() })
    };
    let (direct, cached) = (with(true)?, with(false)?);
    Ok(direct.ready_s <= cached.ready_s)
}

fn result(spec: &Start, tally: &Tally) -> Result {
    let has_loop = !matches!(spec.disk, Disk::Directory { .. });
    Result {
        contender: tally.key,
        label: tally.label,
        direct_io: has_loop.then_some(spec.mount.direct_io),
        all_ready_s: tally.all_ready_s(),
        summary: tally.median().cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use hs_serve::ServeConfig;
    use hs_start::environment::Containment;
    use hs_start::medium::Damage;
    use hs_units::ByteSize;

    use super::*;

    /// Stands for the command line.
    fn read(words: &[OsString]) -> anyhow::Result<Start> {
        let path = words[1].as_os_str();
        let disk = match words.contains(&"--raw".into()) {
            true => Disk::Foreign { path: path.into() },
            false => Disk::Image {
                image: Box::new(Path::new(path).into()),
                config: Box::new(ServeConfig::default()),
            },
        };
        Ok(Start {
            disk,
            medium: Medium::parse(
                words.iter().skip_while(|word| *word != "--emulate").nth(1).unwrap().to_str().unwrap(),
            )?,
            damage: Damage::default(),
            mount: MountFsOptions::default(),
            command: Vec::new(),
            entrypoint: None,
            contain: Containment::default(),
            scratch: ByteSize(0),
            keep: None,
            status: None,
            ready: None,
            ready_timeout: Duration::ZERO,
            grace: None,
            tell: false,
            output: CommandOutput::Stdout,
            watch: None,
            observe: false,
            processes: None,
            learned: None,
        })
    }

    #[test]
    fn contenders_stand_at_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let (all, tallies) = contenders(&cache, Medium::Cd24xCav, read).unwrap();
        let key = |place: usize| tallies[place].key;
        assert_eq!([0, SQUASHFS_SORTED, SQUASHFS].map(key), ["raw-ext4", "squashfs-sorted", "squashfs"]);
        assert_eq!([HEADSTART, OPTIMIZED].map(key), ["headstart", "headstart-optimized"]);
        assert_eq!(key(NATIVE), "native-warm");
        assert!(matches!(&all[0].disk, Disk::Foreign { path } if path.ends_with("root.raw")));
        assert!(matches!(all[OPTIMIZED].disk, Disk::Image { .. }));
        assert!(matches!(all[NATIVE].disk, Disk::Directory { .. }));
        assert_eq!((all[NATIVE].medium, all[SQUASHFS].medium), (Medium::None, Medium::Cd24xCav));
        assert!(all.iter().all(|start| start.grace == Some(Duration::ZERO)));
    }

    #[test]
    fn the_profile_is_recorded_from_memory() {
        let words = profile_words(Path::new("a b.hsi"), Path::new("p.hsp"));
        assert_eq!(words[..5], ["profile", "a b.hsi", "--output", "p.hsp", "--ready"].map(OsString::from));
        assert!(!words.contains(&"--emulate".into()));
        assert!(words.ends_with(&COMMAND.map(OsString::from)));
    }
}
