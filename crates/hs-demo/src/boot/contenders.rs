//! The contenders of the second story: disks from which the system boots, each time with a fresh server,
//! mount and guest.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_build::BuildOptions;
use hs_device::Medium;
use hs_image::Codec;
use serde::Serialize;

use crate::cache::Cache;
use crate::contender::Contender;
use crate::disks::BOOT as FILES;
use crate::guest::Guest;
use crate::turns::Tally;
use hs_start::boot::{self, BootSpec};
use hs_start::summary::Summary;
use hs_start::trace::{Traced, Tracer};

/// Seconds a repeat after which the raw disk is not booted from again: no ratio depends on it.
const RAW_PATIENCE_S: f64 = 8.0;
/// So long a recorded boot goes on after ready, since in another boot some of that may come before it.
const RECORD_GRACE: &str = "4";

/// The places of the contenders, in the order in which they are timed and shown.
pub(super) const CLOOP_LIKE: usize = 1;
pub(super) const UNOPTIMIZED: usize = 2;
pub(super) const OPTIMIZED: usize = 3;
pub(super) const WARM: usize = 4;

/// The disks, at their places.
pub(super) const CONTENDERS: [Contender; 5] = [
    Contender { patience_s: RAW_PATIENCE_S, ..of("raw", "raw ext4", FILES.raw) },
    Contender { flags: &["--no-prefetch"], ..of("cloop_like", "cloop-like", CloopLike::FILE) },
    of("unoptimized", "headstart", FILES.plain),
    of("optimized", "headstart, optimized", FILES.fast),
    Contender { flags: &["--warm"], is_on_medium: false, ..of("warm", "all in memory", FILES.raw) },
];

const fn of(key: &'static str, label: &'static str, file: &'static str) -> Contender {
    Contender { key, label, file, flags: &[], is_on_medium: true, patience_s: f64::INFINITY }
}

/// How the image is made that stands for cloop: our reader, cloop's parameters.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CloopLike {
    codec: &'static str,
    pub(super) level: i32,
    pub(super) window_bytes: u64,
}

impl CloopLike {
    /// Its name in the cache.
    pub(super) const FILE: &str = "boot-cloop-like.hsi";
    /// What `create_compressed_fs` made at its best.
    pub(super) const PARAMETERS: Self = Self { codec: "zlib", level: 9, window_bytes: 64 << 10 };

    /// The same for `hs_build::build`.
    pub(super) fn options(self) -> BuildOptions {
        let Self { level, window_bytes, .. } = self;
        BuildOptions { codec: Codec::Zlib, level, window_bytes, ..BuildOptions::default() }
    }
}

/// The boots of all of them, and their tallies.
pub(super) fn contenders(
    cache: &Cache,
    medium: Medium,
    guest: &Guest,
    read: fn(&[OsString]) -> anyhow::Result<BootSpec>,
) -> anyhow::Result<(Vec<BootSpec>, Vec<Tally>)> {
    let boot_of = |contender: &Contender| {
        let words = boot_words(contender, &cache.path(contender.file), medium, guest);
        anyhow::Ok((read(&words).context("headstart boot")?, contender.tally()))
    };
    CONTENDERS.iter().map(boot_of).collect()
}

/// Boots the contender at `place`; its console is kept in a file, and in another the trace of the two that
/// are compared.
pub(super) fn boot(
    place: usize,
    spec: &BootSpec,
    console: Option<PathBuf>,
    trace: Option<PathBuf>,
) -> anyhow::Result<Summary> {
    let tracer = trace.filter(|_| [UNOPTIMIZED, OPTIMIZED].contains(&place)).map(|file| Tracer::new(&file));
    let watch = tracer.as_ref().map(Tracer::watch);
    let spec = BootSpec { console, watch, ..spec.clone() };
    let booted = boot::boot(&spec).with_context(|| format!("boot from {}", CONTENDERS[place].label))?;
    if let Some(tracer) = tracer {
        tracer.write(&Traced::of_boot(&spec)?.booted(&booted), booted.medium.as_ref())?;
    }
    Ok(booted.summary)
}

fn boot_words(contender: &Contender, disk: &Path, medium: Medium, guest: &Guest) -> Vec<OsString> {
    let medium = medium.to_string();
    let on_medium = if contender.is_on_medium { &["--emulate", &medium][..] } else { &[] };
    words(disk, &[on_medium, contender.flags].concat(), guest)
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
        let keys = CONTENDERS.map(|contender| contender.key);
        assert_eq!(keys, ["raw", "cloop_like", "unoptimized", "optimized", "warm"]);
        let flags = |place: usize| {
            boot_words(&CONTENDERS[place], Path::new("disk"), Medium::Cd24xCav, &Guest::Uml).split_off(6)
        };
        let on_cd = ["--emulate", "cd-24x-cav"];
        assert_eq!(
            (flags(0), flags(OPTIMIZED)),
            (on_cd.map(Into::into).into(), on_cd.map(Into::into).into())
        );
        assert_eq!(flags(CLOOP_LIKE), ["--emulate", "cd-24x-cav", "--no-prefetch"]);
        assert_eq!(flags(WARM), ["--warm"]);
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
