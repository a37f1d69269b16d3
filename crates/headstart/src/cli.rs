//! Every command and flag, defined once: help, man pages and completions come from here.

pub(crate) mod cache;
pub(crate) mod disk_cache;
mod fill;
mod http;
pub(crate) mod image;
mod lab;
mod prefetch_rate;
mod push;
mod qemu;
mod serving;
pub(crate) mod signing;
mod tls;
mod top;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use hs_device::Medium;
use hs_engine::PrefetchRate;
use hs_image::Codec;
use hs_serve::nbd::NbdAddress;
use hs_units::ByteSize;

use self::cache::CacheFlags;
use self::image::{ImageArg, RemoteFlags};
use crate::medium::{Damage, MediumParser};

pub(crate) use self::fill::{Attach, Detach, Hydrate};
pub(crate) use self::http::HttpFlags;
pub(crate) use self::lab::{
    Compared, Lab, LabCalibrate, LabDisk, LabList, LabMedia, LabPredict, LabReplay, LabRun, LabTrace, Layout,
    Which,
};
pub(crate) use self::push::Push;
pub(crate) use self::qemu::{Accel, QemuFlags};
pub(crate) use self::serving::Serving;
pub(crate) use self::tls::{TlsFlags, TlsMode};
pub(crate) use self::top::Top;

/// Make Linux systems start fast from compressed, verified, read-only block images.
///
/// headstart records what a start really reads, stores those blocks once more in that order, and
/// streams them in before they are asked for. Build an image, record one start, optimise:
///
///   headstart build ROOT -o root.hsi
///   headstart profile root.hsi -o start.hsp -- python3 -c 'import pandas'
///   headstart optimize root.hsi --profile start.hsp -o fast.hsi
///   headstart run fast.hsi -- python3 -c 'import pandas'
#[derive(Debug, Parser)]
#[command(name = "headstart", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Say less: no progress, no notes.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more; twice for every detail.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Store a disk or a directory as an image.
    Build(Build),
    /// Store the disk in a cloop file, or a raw disk, as an image.
    Import(Import),
    /// Write the disk of an image as a raw disk, a cloop or a qcow2 file.
    Export(Export),
    /// Record what a command's start reads from an image.
    Profile(Profile),
    /// Add a hot region, ordered by profiles, to an image; nothing else in it changes.
    #[command(alias = "optimise")]
    Optimize(Optimize),
    /// Show an image's disk as DIR/disk.img, and its file system with --fs.
    Mount(Mount),
    /// Serve the disks of images to NBD clients (QEMU, nbdcopy, nbdfuse, the kernel), or images as files over HTTP.
    ///
    /// Every image is an export, read-only, under its file's name without .hsi, or under NAME with NAME=IMAGE; the first
    /// also answers to the empty name. SIGINT or SIGTERM ends it when what was asked for is answered.
    Serve(Serve),
    /// Show an image's disk as a raw file on ext4, XFS or btrfs that fills itself before it is read.
    ///
    /// FILE is sparse. The kernel asks before anybody reads it (Linux 6.14), and what is read is filled first; the rest
    /// follows in the background. When FILE is complete, it is a file like any other. Programs that look for holes,
    /// such as cp and qemu-img, see zeros until then: `headstart hydrate` first.
    Attach(Attach),
    /// Complete a file that fills itself.
    Hydrate(Hydrate),
    /// End the filling of a file.
    Detach(Detach),
    /// Say how every image that is served now does: prefetch, reads, memory, errors.
    Status(Status),
    /// Show what every server does now, again and again, as top does for processes.
    Top(Top),
    /// What was fetched of images that lie elsewhere, and is kept on disk.
    Cache(disk_cache::DiskCache),
    /// Send an image to a registry, or to a store of objects.
    ///
    /// What is there already is not sent again. oci+http:// is for a registry without TLS; logins are those of docker and
    /// podman, and for s3, gs and az those of the environment (AWS_…, GOOGLE_…, AZURE_…) and ~/.aws.
    Push(Push),
    /// Make a pair of keys with which images are signed.
    Keygen(signing::Keygen),
    /// Vouch for an image, or for the image that a channel is now.
    Sign(signing::Sign),
    /// Run a command in an image's root, with a throw-away layer for what it writes.
    ///
    /// Ends with the command's exit code (128 and the signal's number when a signal ended it), with 127 when
    /// the image has no such command, 126 when it cannot be run, and with 1 when something else failed.
    Run(Run),
    /// Boot a guest from the system in an image or a raw disk.
    ///
    /// What the guest writes goes to memory (--scratch) and is thrown away; the disk stays as it is. An image of a
    /// directory needs some free space (`build --free 64M`), or the guest's services find their disk full.
    Boot(Boot),
    /// Say what an image or a profile holds.
    Inspect(Inspect),
    /// Check every byte of an image, alone or against the disk that it was built from.
    Verify(Verify),
    /// Emulated media and experiments.
    #[command(subcommand)]
    Lab(Lab),
    /// Say what this machine can do, what is missing, and what to do about it.
    Doctor(Doctor),
    /// The whole story on this machine, with before/after tables: a program starts, a system boots.
    Demo(Demo),
    /// Write man pages and shell completions into a folder.
    #[command(hide = true)]
    Docs(Docs),
}

/// How profiles are used.
#[derive(Debug, Args)]
pub(crate) struct ProfileUse {
    /// The profiles are of different starts: what they share comes first, then what each has alone.
    #[arg(long, requires = "profiles")]
    pub variants: bool,
    /// A profile of another disk is used for what this one has of it, but not with less than so many per
    /// cent of its blocks.
    #[arg(long, requires = "profiles", value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(..=100))]
    pub min_match: u8,
    /// The medium that the image will lie on: the hot region goes where this delivers it soonest.
    #[arg(long, requires = "profiles", value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
}

/// Flags of `headstart build`.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// A raw disk image, a block device, or a directory (which becomes an ext4 file system).
    pub source: PathBuf,
    /// The image to write; it appears when it is complete.
    #[arg(short, long, value_name = "IMAGE")]
    pub output: PathBuf,
    /// Also add a hot region for the start that this profile recorded, as `optimize` would.
    #[arg(short, long = "profile", value_name = "P")]
    pub profiles: Vec<PathBuf>,
    #[command(flatten)]
    pub use_of: ProfileUse,
    /// Codec and level of the cold region: `zstd:LEVEL` (1 to 22), `lz4:LEVEL` (0 to 12), `zlib:LEVEL`
    /// (1 to 9) or `store`.
    #[arg(long, default_value = "zstd:19", value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Bytes of a cold window: what one read of one block costs against how well it compresses.
    #[arg(long, default_value = "128K")]
    pub window: ByteSize,
    /// Free space in a file system made from a directory.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub free: ByteSize,
    /// Where the scratch file of a directory goes; beside the output when not given.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Threads that compress; one for each core when not given.
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    #[command(flatten)]
    pub signed: signing::SignOutput,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A cloop file of version 2 or 3, or a raw disk image.
    pub file: PathBuf,
    /// The image to write; it appears when it is complete.
    #[arg(short, long, value_name = "IMAGE")]
    pub output: PathBuf,
    /// Codec and level, as for `build`.
    #[arg(long, default_value = "zstd:19", value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Bytes of a cold window, as for `build`.
    #[arg(long, default_value = "128K")]
    pub window: ByteSize,
    /// Threads that compress; one for each core when not given.
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What `headstart export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskFormat {
    /// The disk, byte for byte, with holes where it is zero.
    Raw,
    /// cloop version 2: blocks of 64 KiB by zlib; the disk is filled up to a whole block.
    Cloop,
    /// qcow2 version 3, for QEMU.
    Qcow2,
}

/// Flags of `headstart export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub image: ImageArg,
    /// The file to write; it appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Its format.
    #[arg(long, value_enum)]
    pub format: DiskFormat,
    /// Compress the clusters of a qcow2 file, with zstd; QEMU reads them from version 5.1 on.
    #[arg(long)]
    pub compress: bool,
    /// Threads that decompress and compress; one for each core when not given.
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A codec and its level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodecLevel {
    /// The codec.
    pub codec: Codec,
    /// Its level.
    pub level: i32,
}

fn parse_codec(text: &str) -> Result<CodecLevel, String> {
    let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
    let (codec, usual, levels) = match name {
        "store" if level.is_none() => (Codec::Store, 0, 0..=0),
        "zstd" => (Codec::Zstd, 19, 1..=22),
        // 0 is LZ4's fast compressor, 9 the usual level of its high one.
        "lz4" => (Codec::Lz4, 9, 0..=12),
        "zlib" => (Codec::Zlib, 9, 1..=9),
        _ => {
            return Err(format!("'{text}' is not a codec: use zstd:LEVEL, lz4:LEVEL, zlib:LEVEL or store"));
        }
    };
    let level = match level {
        None => usual,
        Some(level) => match level.parse() {
            Ok(level) if levels.contains(&level) => level,
            _ => {
                let (low, high) = levels.into_inner();
                return Err(format!("'{level}' is not a {name} level: use {low} to {high}"));
            }
        },
    };
    Ok(CodecLevel { codec, level })
}

/// The medium and the caches of a start.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartFlags {
    /// Read the image from an emulated medium; `none` is the real one, and `flat-<N>ms-<M>mbs[-serial]` makes others.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Ready when a line of the command's output matches; when not given, when the command ends.
    #[arg(long, value_name = "REGEX")]
    pub ready: Option<regex::Regex>,
    /// Give up when the command is not ready after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    pub ready_timeout: f64,
    /// Kernel read-ahead on the mounted file system, in KiB; 128 when not given.
    #[arg(long, value_name = "KIB")]
    pub read_ahead: Option<u32>,
    /// Honour set-user-id programs and device nodes in the image.
    #[arg(long)]
    pub trusted: bool,
}

impl StartFlags {
    /// Kernel read-ahead, in KiB.
    pub(crate) fn read_ahead_kib(&self) -> u32 {
        self.read_ahead.unwrap_or(128)
    }
}

/// Flags of `headstart profile`.
#[derive(Debug, Args)]
pub(crate) struct Profile {
    #[command(flatten)]
    pub image: ImageArg,
    /// The profile to write.
    #[arg(short, long, value_name = "P")]
    pub output: PathBuf,
    /// The medium and when the command counts as ready.
    #[command(flatten)]
    pub start: StartFlags,
    /// Go on recording for so many seconds after ready, then end the command.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub grace: f64,
    /// Record with the kernel's read-ahead on, neighbours included. Off, exactly what is used is recorded.
    #[arg(long)]
    pub keep_read_ahead: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The command, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Flags of `headstart optimize`.
#[derive(Debug, Args)]
pub(crate) struct Optimize {
    #[command(flatten)]
    pub image: ImageArg,
    /// A recorded start; several recordings of one start are merged into one order.
    #[arg(short, long = "profile", value_name = "P", required = true)]
    pub profiles: Vec<PathBuf>,
    #[command(flatten)]
    pub use_of: ProfileUse,
    /// The image to write.
    #[arg(short, long, value_name = "IMAGE2")]
    pub output: PathBuf,
    /// Codec and level of the hot region, as for `build`.
    #[arg(long, default_value = "zstd:19", value_parser = parse_codec)]
    pub codec: CodecLevel,
    /// Bytes of the first hot chunk, which should come soon.
    #[arg(long, default_value = "32K", hide_short_help = true)]
    pub first_chunk: ByteSize,
    /// Bytes of the largest hot chunks, which should compress well.
    #[arg(long, default_value = "256K", hide_short_help = true)]
    pub max_chunk: ByteSize,
    #[command(flatten)]
    pub signed: signing::SignOutput,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Where prefetched blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrefetchMode {
    /// Nothing is prefetched.
    Off,
    /// Into the caches of the mounted file system, page by page as recorded.
    Warm,
    /// They wait in this process's memory until the kernel asks for them.
    Hold,
    /// Into the page cache of disk.img.
    Push,
}

/// What a reader does who needs a hot block that has not come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LateMode {
    /// What costs less: the time until the stream comes to it, or a seek there and back.
    ByCost,
    /// Always wait for the stream.
    Join,
    /// Always fetch it out of turn.
    Fetch,
}

/// Limits and rules of the prefetch.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PrefetchLimits {
    /// Memory for prefetched blocks that wait for their readers.
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub budget: ByteSize,
    /// What a reader does who needs a hot block that has not come yet; for experiments.
    #[arg(long, value_enum, value_name = "HOW", default_value = "by-cost", hide_short_help = true)]
    pub late: LateMode,
    /// How fast: full, auto (so that everything comes a second before the recorded start needs it, and others have the
    /// rest), or so many bytes a second.
    #[arg(long, value_name = "full|auto|SIZE", default_value = "full", value_parser = prefetch_rate::parse, hide_short_help = true)]
    pub prefetch_rate: PrefetchRate,
}

/// How prefetch behaves.
#[derive(Clone, Debug, Args)]
pub(crate) struct PrefetchFlags {
    /// Where prefetched blocks go.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub prefetch: Option<PrefetchMode>,
    #[command(flatten)]
    pub limits: PrefetchLimits,
}

/// Flags of `headstart mount`.
#[derive(Debug, Args)]
pub(crate) struct Mount {
    #[command(flatten)]
    pub image: ImageArg,
    /// An empty directory, in which disk.img appears.
    pub dir: PathBuf,
    /// Also mount the file system in the disk here (loop device, read-only, nosuid, nodev).
    #[arg(long, value_name = "DIR2")]
    pub fs: Option<PathBuf>,
    /// Stay in the foreground; `umount`, Ctrl-C or SIGTERM ends it.
    #[arg(short, long)]
    pub foreground: bool,
    /// How prefetch behaves; the default is warm with --fs and push without.
    #[command(flatten)]
    pub prefetch: PrefetchFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// Read the image from an emulated medium.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Honour set-user-id programs and device nodes in the image.
    #[arg(long)]
    pub trusted: bool,
    /// First clear away what a server that died has left at DIR and DIR2.
    #[arg(long)]
    pub clear_dead: bool,
    #[arg(long, hide = true)]
    pub(crate) ready_fd: Option<i32>,
    #[command(flatten)]
    pub serving: Serving,
}

/// Flags of `headstart serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// An image, or NAME=IMAGE; a path whose first part has a `=` in it begins with `./`.
    #[arg(required = true, value_name = "[NAME=]IMAGE")]
    pub images: Vec<OsString>,
    #[command(flatten)]
    pub remote: RemoteFlags,
    /// Listen for NBD clients here: HOST:PORT (10809 when no port is given, 0 for any that is free; an IPv6 address in
    /// brackets) or unix:PATH. It can be given several times.
    #[arg(long, required_unless_present = "http", value_name = "ADDRESS")]
    pub nbd: Vec<NbdAddress>,
    #[command(flatten)]
    pub http: HttpFlags,
    #[command(flatten)]
    pub tls: TlsFlags,
    /// Read the images from an emulated medium, each from one of its own.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Prefetch nothing.
    #[arg(long)]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    #[command(flatten)]
    pub serving: Serving,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// Print a summary as one JSON object at the end.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Only of this image, or at this directory.
    #[arg(value_name = "DIR|IMAGE")]
    pub of: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub image: ImageArg,
    /// The medium and when the command counts as ready.
    #[command(flatten)]
    pub start: StartFlags,
    /// How prefetch behaves; the default is warm, and push without root.
    #[command(flatten)]
    pub prefetch: PrefetchFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// The image is a plain disk of some other system (raw ext4, squashfs, erofs): mount it as it is.
    #[arg(long)]
    pub foreign: bool,
    /// Observe, by kernel tracing, which prefetched bytes were used, late or unused.
    #[arg(long)]
    pub observe: bool,
    /// Write the run summary as one JSON object to FILE, or to standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "/dev/stderr")]
    pub json: Option<PathBuf>,
    /// The command, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What runs the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Vmm {
    /// User-mode Linux, from the package user-mode-linux.
    Uml,
    /// QEMU, from the package qemu-system-x86: a whole machine with kernels of the usual kind, which reads the disk over NBD.
    Qemu,
}

/// Flags of `headstart boot`.
#[derive(Debug, Args)]
#[command(mut_arg("image", |arg| arg.value_name("DISK").help("An image, as a file or an address, or a raw disk of one file system without partitions")))]
pub(crate) struct Boot {
    #[command(flatten)]
    pub disk: ImageArg,
    /// What runs the guest.
    #[arg(long, value_enum, value_name = "VMM", default_value = "uml")]
    pub vmm: Vmm,
    /// Read the disk from an emulated medium, such as flat-10ms-25mbs-serial; `none` is the real one.
    #[arg(long, value_name = "M", default_value = "none", value_parser = MediumParser)]
    pub medium: Medium,
    #[command(flatten)]
    pub damage: Damage,
    /// Bring the whole disk into the page cache before the clock starts: the limit for any medium.
    #[arg(long, conflicts_with_all = ["medium", "bad_sectors", "record"])]
    pub warm: bool,
    /// Ready when a line of the console matches, without its colours.
    ///
    /// Beware of lines that come after the login prompts: systemd says nothing more once a getty runs on a
    /// virtual console, which might be the one that it writes to. A pattern for multi-user.target alone
    /// then waits for ever, and which of the two comes first is chance.
    #[arg(long, value_name = "REGEX", default_value = hs_guest::console::READY)]
    pub ready: regex::Regex,
    /// Give up when the guest is not ready after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    pub ready_timeout: std::time::Duration,
    /// Let the guest go on for so many seconds after ready, then end it.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    pub grace: std::time::Duration,
    /// The guest's memory.
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub memory: ByteSize,
    /// Memory for what the guest writes to its disk, which is thrown away.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub scratch: ByteSize,
    /// The guest's kernel. When not given, User-mode Linux is `linux.uml` from PATH, and QEMU boots the kernel in the
    /// disk's own /boot, with the initrd beside it.
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    #[command(flatten)]
    pub qemu: QemuFlags,
    /// The guest's first program, instead of the usual init.
    #[arg(long, value_name = "PROGRAM")]
    pub init: Option<String>,
    /// A further word for the kernel's command line; it can be given several times.
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub append: Vec<String>,
    /// Keep what the console said in FILE; of a failed boot it is kept in any case.
    #[arg(long, value_name = "FILE")]
    pub console: Option<PathBuf>,
    /// Record the boot from the kernel's first read until the end of the grace time; nothing is prefetched then.
    #[arg(long, value_name = "P")]
    pub record: Option<PathBuf>,
    /// Prefetch nothing.
    #[arg(long)]
    pub no_prefetch: bool,
    #[command(flatten)]
    pub limits: PrefetchLimits,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// Print the run summary as one JSON object.
    #[arg(long)]
    pub json: bool,
}

fn parse_seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("'{text}' is not a number of seconds"))
}

/// Flags of `headstart inspect`.
#[derive(Debug, Args)]
#[command(mut_arg("image", |arg| arg.value_name("FILE").help("An image, as a file or an address, or a profile")))]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub file: ImageArg,
    /// Print a profile's reads as comma-separated values.
    #[arg(long)]
    pub csv: bool,
    /// Print one JSON object.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
}

/// Flags of `headstart verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub image: ImageArg,
    /// Also compare every block with this raw disk.
    #[arg(long, value_name = "RAW")]
    pub against: Option<PathBuf>,
    /// Also check that the owner of this public key (its text, or a .pub file) has signed the image.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The signature; IMAGE.minisig when not given.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub signature: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Which part of the demo is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Story {
    /// A program starts: raw ext4, squashfs, headstart, and everything in memory.
    Start,
    /// A Debian with systemd boots as a guest: raw ext4, a cloop-like image, headstart, and everything in memory.
    Boot,
    /// One after the other.
    Both,
}

impl Story {
    /// Whether a program starts in it.
    pub(crate) fn has_start(self) -> bool {
        self != Self::Boot
    }

    /// Whether a system boots in it.
    pub(crate) fn has_boot(self) -> bool {
        self != Self::Start
    }
}

/// Flags of `headstart demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Which part is told.
    #[arg(long, value_enum, value_name = "STORY", default_value = "both")]
    pub story: Story,
    /// Keep the figures (demo.json), the tables, the profiles, and each run's summary and console (runs/) here.
    ///
    /// In demo.json, `start` holds the first story, `boot` the second, and `runs` the run summary of the median boot of
    /// each contender: `raw`, `cloop_like`, `unoptimised`, `optimised`, `warm`.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where the roots and the images are kept for the next time.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// The emulated medium from which the program starts.
    #[arg(long, value_name = "M", default_value = "flat-10ms-25mbs", value_parser = MediumParser)]
    pub medium: Medium,
    /// The emulated medium from which the system boots.
    #[arg(long, value_name = "M", default_value = "cd-24x-cav", value_parser = MediumParser)]
    pub boot_medium: Medium,
    /// Runs of each kind, in turns; the tables show their medians. Slow ones are repeated less often. When not given: 3, but
    /// fewer where the first story would take more than 5 minutes, or both more than 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub repeats: Option<u16>,
    /// Print one JSON object, as in demo.json, instead of the tables.
    #[arg(long)]
    pub json: bool,
    /// Only make the Debian root that boots, unless it is kept, and print where it is.
    #[arg(long, hide = true)]
    pub boot_root: bool,
}

/// Flags of `headstart docs`.
#[derive(Debug, Args)]
pub(crate) struct Docs {
    /// The folder.
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn codecs_parse() {
        assert!(matches!(parse_codec("zstd:3"), Ok(CodecLevel { codec: Codec::Zstd, level: 3 })));
        assert!(parse_codec("store").is_ok() && parse_codec("zstd").is_ok());
        assert!(matches!(parse_codec("lz4"), Ok(CodecLevel { codec: Codec::Lz4, level: 9 })));
        assert!(matches!(parse_codec("lz4:0"), Ok(CodecLevel { codec: Codec::Lz4, level: 0 })));
        assert!(matches!(parse_codec("zlib:9"), Ok(CodecLevel { codec: Codec::Zlib, level: 9 })));
        for wrong in
            ["zstd:0", "zstd:23", "store:1", "lzma", "", "lz4:13", "lz4:-1", "zlib:0", "zlib:10", "zlib:"]
        {
            assert!(parse_codec(wrong).is_err(), "{wrong}");
        }
    }
}
