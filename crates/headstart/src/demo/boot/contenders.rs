//! The contenders of the second story: disks from which the system boots, each time with a fresh server,
//! mount and guest.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Parser;
use hs_device::Medium;
use hs_image::{BuildOptions, Codec};
use serde::Serialize;

use crate::cli::{self, Cli};
use crate::commands;
use crate::demo::guest::Guest;
use crate::demo::turns::Tally;
use hs_start::boot::{self, BootSpec};
use hs_start::summary::Summary;

/// Seconds a repeat after which the raw disk is not booted from again: no ratio depends on it.
const RAW_PATIENCE_S: f64 = 8.0;
/// So long a recorded boot goes on after ready, since in another boot some of that may come before it.
const RECORD_GRACE: &str = "4";

/// The places of the contenders, in the order in which they are timed and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Raw,
    CloopLike,
    Unoptimised,
    Optimised,
    Warm,
}

impl Place {
    const ALL: [Self; 5] = [Self::Raw, Self::CloopLike, Self::Unoptimised, Self::Optimised, Self::Warm];

    /// Its name in files and JSON, its name for people, and how long it may take.
    pub(super) const fn names(self) -> (&'static str, &'static str, f64) {
        match self {
            Self::Raw => ("raw", "raw ext4", RAW_PATIENCE_S),
            Self::CloopLike => ("cloop_like", "cloop-like", f64::INFINITY),
            Self::Unoptimised => ("unoptimised", "headstart", f64::INFINITY),
            Self::Optimised => ("optimised", "headstart, optimised", f64::INFINITY),
            Self::Warm => ("warm", "all in memory", f64::INFINITY),
        }
    }

    /// A row for the boots of this contender.
    pub(super) fn tally(self) -> Tally {
        let (key, label, patience_s) = self.names();
        Tally::new(key, label, patience_s)
    }
}

/// The key of the contender at `place`.
pub(super) fn key(place: usize) -> &'static str {
    Place::ALL[place].names().0
}

/// How the image is made that stands for cloop: our reader, cloop's parameters.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::demo) struct CloopLike {
    codec: &'static str,
    pub(super) level: i32,
    pub(super) window_bytes: u64,
}

impl CloopLike {
    /// What `create_compressed_fs` made at its best.
    pub(super) const PARAMETERS: Self = Self { codec: "zlib", level: 9, window_bytes: 64 << 10 };

    /// The same for `hs_image::build`.
    pub(super) fn options(self) -> BuildOptions {
        let Self { level, window_bytes, .. } = self;
        BuildOptions { codec: Codec::Zlib, level, window_bytes, ..BuildOptions::default() }
    }
}

/// Where everything lies.
pub(super) struct Disks<'a> {
    pub(super) raw: &'a Path,
    pub(super) cloop_like: &'a Path,
    pub(super) unoptimised: &'a Path,
    pub(super) optimised: &'a Path,
}

/// All of them, at their [`Place`]s.
pub(super) fn contenders(
    disks: &Disks<'_>,
    medium: Medium,
    guest: &Guest,
) -> anyhow::Result<(Vec<BootSpec>, Vec<Tally>)> {
    let contender = |place: Place| {
        let spec = commands::boot::spec(&boot_command(place, disks, medium, guest)?, None)?;
        anyhow::Ok((spec, place.tally()))
    };
    Place::ALL.into_iter().map(contender).collect()
}

/// Boots with the contender at `place`; its console is kept in `console`.
pub(super) fn boot(place: usize, spec: &BootSpec, console: Option<PathBuf>) -> anyhow::Result<Summary> {
    let (_, label, _) = Place::ALL[place].names();
    let spec = BootSpec { console, ..spec.clone() };
    let booted = boot::boot(&spec).with_context(|| format!("boot from {label}"))?;
    Ok(booted.summary)
}

/// The boot that `headstart boot` would make.
fn boot_command(place: Place, disks: &Disks<'_>, medium: Medium, guest: &Guest) -> anyhow::Result<cli::Boot> {
    let medium = medium.to_string();
    let on_medium = ["--emulate", &medium];
    match place {
        Place::Raw => parse(disks.raw, &on_medium, guest),
        Place::CloopLike => parse(disks.cloop_like, &[on_medium[0], on_medium[1], "--no-prefetch"], guest),
        Place::Unoptimised => parse(disks.unoptimised, &on_medium, guest),
        Place::Optimised => parse(disks.optimised, &on_medium, guest),
        Place::Warm => parse(disks.raw, &["--warm"], guest),
    }
}

/// Words of `headstart boot` for the recorded boot, from memory.
pub(super) fn record_command(image: &Path, output: &Path, guest: &Guest) -> anyhow::Result<cli::Boot> {
    let output = output.to_str().context("the cache folder's name is not text")?;
    parse(image, &["--record", output, "--run-after-ready", RECORD_GRACE], guest)
}

fn parse(disk: &Path, flags: &[&str], guest: &Guest) -> anyhow::Result<cli::Boot> {
    let mut words: Vec<OsString> = vec!["headstart".into(), "boot".into(), disk.into()];
    // All contenders boot the same guest. Less read-ahead would help those whose reads are known, and slow
    // the others.
    words.extend(["--guest-read-ahead", "kernel"].map(OsString::from));
    words.extend(guest.flags().into_iter().map(OsString::from));
    words.extend(flags.iter().map(OsString::from));
    match Cli::try_parse_from(words).context("headstart boot")?.command {
        cli::Command::Boot(args) => Ok(args),
        _ => bail!("headstart boot is another command"),
    }
}

#[cfg(test)]
mod tests {
    use hs_start::boot::VmmName;

    use super::*;

    #[test]
    fn contenders_stand_at_their_places() {
        for (place, expected) in Place::ALL.iter().enumerate() {
            assert_eq!(*expected as usize, place);
        }
        assert_eq!([0, 1, 2, 3, 4].map(key), ["raw", "cloop_like", "unoptimised", "optimised", "warm"]);
        let path = |name: &'static str| Path::new(name);
        let disks = Disks {
            raw: path("raw"),
            cloop_like: path("cloop"),
            unoptimised: path("plain"),
            optimised: path("fast"),
        };
        let command = |place| boot_command(place, &disks, Medium::Cd24xCav, &Guest::Uml).unwrap();
        let seen = Place::ALL.map(|place| {
            let args = command(place);
            (args.disk.display().to_string(), args.emulation.medium, args.no_prefetch, args.warm)
        });
        let cd = Medium::Cd24xCav;
        let expected = [
            ("raw", cd, false, false),
            ("cloop", cd, true, false),
            ("plain", cd, false, false),
            ("fast", cd, false, false),
            ("raw", Medium::None, false, true),
        ];
        assert_eq!(seen, expected.map(|(disk, medium, off, warm)| (disk.to_owned(), medium, off, warm)));
    }

    #[test]
    fn the_boot_is_recorded_from_memory() {
        let args = record_command(Path::new("a b.hsi"), Path::new("p q.hsp"), &Guest::Uml).unwrap();
        assert_eq!((args.disk.file(), args.emulation.medium), (Some(Path::new("a b.hsi")), Medium::None));
        assert_eq!(args.record.as_deref(), Some(Path::new("p q.hsp")));
        assert_eq!(args.grace, std::time::Duration::from_secs(4));
        assert_eq!(args.vmm_choice().vmm, VmmName::Uml);
    }

    #[test]
    fn where_user_mode_linux_runs_nothing_qemu_boots_the_same_disks() {
        let guest = Guest::Qemu { kernel: "/a kernel".into() };
        let args = record_command(Path::new("boot.hsi"), Path::new("boot.hsp"), &guest).unwrap();
        assert_eq!(
            (args.vmm_choice().vmm, args.kernel.as_deref()),
            (VmmName::Qemu, Some(Path::new("/a kernel")))
        );
        assert!(args.ready_timeout > std::time::Duration::from_secs(300));
        assert!(guest.label().ends_with("in QEMU"));
    }

    #[test]
    fn what_stands_for_cloop_has_its_parameters() {
        let options = CloopLike::PARAMETERS.options();
        assert_eq!((options.codec, options.level, options.window_bytes), (Codec::Zlib, 9, 65_536));
    }
}
