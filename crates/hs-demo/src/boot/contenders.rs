//! The contenders of the second story: disks from which the system boots, each time with a fresh server,
//! mount and guest.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_build::BuildOptions;
use hs_device::Medium;
use hs_image::Codec;
use serde::Serialize;

use crate::guest::Guest;
use crate::turns::Tally;
use hs_start::boot::{self, BootSpec};
use hs_start::summary::Summary;

/// Seconds a repeat after which the raw disk is not booted from again: no ratio depends on it.
const RAW_PATIENCE_S: f64 = 8.0;
/// So long a recorded boot goes on after ready, since in another boot some of that may come before it.
const RECORD_GRACE: &str = "4";

/// The places of the contenders, in the order in which they are timed and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContenderName {
    Raw,
    CloopLike,
    Unoptimised,
    Optimised,
    Warm,
}

impl ContenderName {
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
    ContenderName::ALL[place].names().0
}

/// How the image is made that stands for cloop: our reader, cloop's parameters.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CloopLike {
    codec: &'static str,
    pub(super) level: i32,
    pub(super) window_bytes: u64,
}

impl CloopLike {
    /// What `create_compressed_fs` made at its best.
    pub(super) const PARAMETERS: Self = Self { codec: "zlib", level: 9, window_bytes: 64 << 10 };

    /// The same for `hs_build::build`.
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

/// All of them, at their [`ContenderName`]s.
pub(super) fn contenders(
    disks: &Disks<'_>,
    medium: Medium,
    guest: &Guest,
    boot: fn(&[OsString]) -> anyhow::Result<BootSpec>,
) -> anyhow::Result<(Vec<BootSpec>, Vec<Tally>)> {
    let contender = |place: ContenderName| {
        let spec = boot(&boot_words(place, disks, medium, guest)).context("headstart boot")?;
        anyhow::Ok((spec, place.tally()))
    };
    ContenderName::ALL.into_iter().map(contender).collect()
}

/// Boots with the contender at `place`; its console is kept in `console`.
pub(super) fn boot(place: usize, spec: &BootSpec, console: Option<PathBuf>) -> anyhow::Result<Summary> {
    let (_, label, _) = ContenderName::ALL[place].names();
    let spec = BootSpec { console, ..spec.clone() };
    let booted = boot::boot(&spec).with_context(|| format!("boot from {label}"))?;
    Ok(booted.summary)
}

/// The boot that `headstart boot` would make.
fn boot_words(place: ContenderName, disks: &Disks<'_>, medium: Medium, guest: &Guest) -> Vec<OsString> {
    let medium = medium.to_string();
    let on_medium = ["--emulate", &medium];
    match place {
        ContenderName::Raw => words(disks.raw, &on_medium, guest),
        ContenderName::CloopLike => {
            words(disks.cloop_like, &[on_medium[0], on_medium[1], "--no-prefetch"], guest)
        }
        ContenderName::Unoptimised => words(disks.unoptimised, &on_medium, guest),
        ContenderName::Optimised => words(disks.optimised, &on_medium, guest),
        ContenderName::Warm => words(disks.raw, &["--warm"], guest),
    }
}

/// Words of `headstart boot` for the recorded boot, from memory.
pub(super) fn record_words(image: &Path, output: &Path, guest: &Guest) -> Vec<OsString> {
    let mut all = words(image, &["--run-after-ready", RECORD_GRACE], guest);
    all.extend(["--record".into(), output.into()]);
    all
}

fn words(disk: &Path, flags: &[&str], guest: &Guest) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["boot".into(), disk.into()];
    // All contenders boot the same guest. Less read-ahead would help those whose reads are known, and slow
    // the others.
    words.extend(["--guest-read-ahead", "kernel"].map(OsString::from));
    words.extend(guest.flags().into_iter().map(OsString::from));
    words.extend(flags.iter().map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_stand_at_their_places() {
        for (place, expected) in ContenderName::ALL.iter().enumerate() {
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
        let flags = |place| boot_words(place, &disks, Medium::Cd24xCav, &Guest::Uml).split_off(6);
        let on_cd = ["--emulate", "cd-24x-cav"].map(OsString::from).to_vec();
        let with = |flag: &str| [on_cd.clone(), vec![flag.into()]].concat();
        assert_eq!(flags(ContenderName::Raw), on_cd);
        assert_eq!(flags(ContenderName::CloopLike), with("--no-prefetch"));
        assert_eq!(flags(ContenderName::Optimised), on_cd);
        assert_eq!(flags(ContenderName::Warm), ["--warm"]);
    }

    #[test]
    fn the_boot_is_recorded_from_memory() {
        let words = record_words(Path::new("a b.hsi"), Path::new("p q.hsp"), &Guest::Uml);
        assert_eq!(words[..2], ["boot", "a b.hsi"].map(OsString::from));
        assert_eq!(words[4..6], ["--vmm", "uml"].map(OsString::from));
        assert_eq!(words[6..], ["--run-after-ready", "4", "--record", "p q.hsp"].map(OsString::from));
    }

    #[test]
    fn where_user_mode_linux_runs_nothing_qemu_boots_the_same_disks() {
        let guest = Guest::Qemu { kernel: "/a kernel".into() };
        let words = record_words(Path::new("boot.hsi"), Path::new("boot.hsp"), &guest);
        assert!(words.windows(2).any(|two| two == ["--vmm", "qemu"]));
        assert!(words.windows(2).any(|two| two == ["--kernel", "/a kernel"]));
        assert!(guest.label().ends_with("in QEMU"));
    }

    #[test]
    fn what_stands_for_cloop_has_its_parameters() {
        let options = CloopLike::PARAMETERS.options();
        assert_eq!((options.codec, options.level, options.window_bytes), (Codec::Zlib, 9, 65_536));
    }
}
