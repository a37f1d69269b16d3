//! The contenders of the first story: disks from which the program starts, each time with a fresh loop device
//! and mount.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_serve::MountFsOptions;
use serde::Serialize;

use crate::root::{COMMAND, READY};
use crate::turns::{Rounds, Tally, take_turns};
use hs_start::start::{self, Disk, Start};
use hs_start::summary::Summary;

/// Seconds a repeat after which a contender is not started again.
const PATIENCE_S: f64 = 6.0;

/// How a contender's disk is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopMode {
    /// As its command says.
    Given,
    /// The better of both ways, as found out with the sorted squashfs: the quickest of them, and compressed
    /// as all but one are.
    Better,
}

/// One way to start the program.
pub(super) struct Contender {
    label: &'static str,
    spec: Start,
    mode: LoopMode,
}

/// The places of the contenders, in the order in which they are timed and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContenderName {
    Raw,
    SquashfsSorted,
    Squashfs,
    Headstart,
    Optimized,
    Native,
}

impl ContenderName {
    const ALL: [Self; 6] =
        [Self::Raw, Self::SquashfsSorted, Self::Squashfs, Self::Headstart, Self::Optimized, Self::Native];
}

/// Where everything lies.
pub(super) struct Disks<'a> {
    pub(super) root: &'a Path,
    pub(super) raw: &'a Path,
    pub(super) squashfs: &'a Path,
    pub(super) squashfs_sorted: &'a Path,
    pub(super) image: &'a Path,
    pub(super) optimized: &'a Path,
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

/// All of them, at their [`ContenderName`]s.
pub(super) fn contenders(
    disks: &Disks<'_>,
    medium: Medium,
    run: fn(&[OsString]) -> anyhow::Result<Start>,
) -> anyhow::Result<(Vec<Contender>, Vec<Tally>)> {
    let run_command = |path: &Path, medium: Medium, flags: &[&str]| {
        let spec = run(&run_words(path, medium, flags)).context("headstart run")?;
        // Ended when it is ready.
        anyhow::Ok(Start { grace: Some(Duration::ZERO), show_output: false, ..spec })
    };
    let image = |path| run_command(path, medium, &[]);
    let foreign = |path| {
        let spec = run_command(path, medium, &["--raw"])?;
        // As the kernel mounts them by itself.
        let mount = MountFsOptions { warm: false, inode_readahead_blocks: None, ..spec.mount };
        anyhow::Ok(Start { mount, ..spec })
    };
    let native = || {
        let disk = Disk::Directory { path: disks.root.to_owned() };
        anyhow::Ok(Start { disk, medium: Medium::None, ..run_command(disks.raw, medium, &["--raw"])? })
    };
    ContenderName::ALL
        .into_iter()
        .map(|place| {
            let (key, label, spec, mode) = match place {
                ContenderName::Raw => ("raw-ext4", "raw ext4", foreign(disks.raw)?, LoopMode::Better),
                ContenderName::SquashfsSorted => {
                    ("squashfs-sorted", "squashfs, sorted", foreign(disks.squashfs_sorted)?, LoopMode::Better)
                }
                ContenderName::Squashfs => {
                    ("squashfs", "squashfs", foreign(disks.squashfs)?, LoopMode::Better)
                }
                ContenderName::Headstart => ("headstart", "headstart", image(disks.image)?, LoopMode::Given),
                ContenderName::Optimized => {
                    ("headstart-optimized", "headstart, optimized", image(disks.optimized)?, LoopMode::Given)
                }
                ContenderName::Native => ("native-warm", "warm native", native()?, LoopMode::Given),
            };
            Ok((Contender { label, spec, mode }, Tally::new(key, label, PATIENCE_S)))
        })
        .collect()
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

/// Starts all contenders in turns, the slow ones less often. `show` gets messages about the progress.
pub(super) fn time(
    contenders: &mut [Contender],
    tallies: &mut [Tally],
    rounds: Rounds,
    show: &dyn Fn(String),
) -> anyhow::Result<Vec<Result>> {
    // The native start must be warm from its first timed run on.
    show("warming up the native start".to_owned());
    contenders[ContenderName::Native as usize].start()?;
    show("finding the better loop device for foreign disks".to_owned());
    let direct_io = contenders[ContenderName::SquashfsSorted as usize].is_better_with_direct_io()?;
    for contender in contenders.iter_mut().filter(|contender| contender.mode == LoopMode::Better) {
        contender.spec.mount.direct_io = direct_io;
    }
    take_turns(tallies, rounds, show, &mut |place, _| contenders[place].start())?;
    Ok(contenders.iter().zip(tallies).map(|(contender, tally)| contender.result(tally)).collect())
}

impl Contender {
    fn start(&self) -> anyhow::Result<Summary> {
        let started = start::start(&self.spec).with_context(|| format!("start from {}", self.label))?;
        if started.ready.is_none() {
            let code = started.exit.map_or(0, hs_linux::rootenv::Exit::code);
            bail!("the start from {} ended with exit code {code} without being ready", self.label);
        }
        Ok(started.summary)
    }

    /// Starts with and without direct I/O; true when direct I/O was quicker.
    fn is_better_with_direct_io(&mut self) -> anyhow::Result<bool> {
        self.spec.mount.direct_io = true;
        let direct = self.start()?;
        self.spec.mount.direct_io = false;
        let cached = self.start()?;
        Ok(direct.ready_s <= cached.ready_s)
    }

    fn result(&self, tally: &Tally) -> Result {
        let has_loop = !matches!(self.spec.disk, Disk::Directory { .. });
        Result {
            contender: tally.key,
            label: tally.label,
            direct_io: has_loop.then_some(self.spec.mount.direct_io),
            all_ready_s: tally.all_ready_s(),
            summary: tally.median().cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hs_serve::ServeConfig;
    use hs_start::environment::Containment;
    use hs_start::medium::Damage;

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
            medium: Medium::None,
            damage: Damage::default(),
            mount: MountFsOptions::default(),
            command: Vec::new(),
            contain: Containment::default(),
            ready: None,
            ready_timeout: Duration::ZERO,
            grace: None,
            tell: false,
            show_output: true,
            watch: None,
            observe: false,
        })
    }

    #[test]
    fn contenders_stand_at_their_places() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let disks = Disks {
            root: path,
            raw: path,
            squashfs: path,
            squashfs_sorted: path,
            image: path,
            optimized: path,
        };
        let (all, tallies) = contenders(&disks, Medium::None, read).unwrap();
        let key = |place: ContenderName| tallies[place as usize].key;
        assert_eq!(key(ContenderName::Raw), "raw-ext4");
        assert_eq!(key(ContenderName::SquashfsSorted), "squashfs-sorted");
        assert_eq!(key(ContenderName::Squashfs), "squashfs");
        assert_eq!(key(ContenderName::Headstart), "headstart");
        assert_eq!(key(ContenderName::Optimized), "headstart-optimized");
        assert_eq!(key(ContenderName::Native), "native-warm");
        assert!(matches!(all[ContenderName::Raw as usize].spec.disk, Disk::Foreign { .. }));
        assert!(matches!(all[ContenderName::Optimized as usize].spec.disk, Disk::Image { .. }));
        assert!(all.iter().all(|contender| contender.spec.grace == Some(Duration::ZERO)));
    }

    #[test]
    fn the_profile_is_recorded_from_memory() {
        let words = profile_words(Path::new("a b.hsi"), Path::new("p.hsp"));
        assert_eq!(words[..5], ["profile", "a b.hsi", "--output", "p.hsp", "--ready"].map(OsString::from));
        assert!(!words.contains(&"--emulate".into()));
        assert!(words.ends_with(&COMMAND.map(OsString::from)));
    }
}
