//! Every command and flag, defined once: help, man pages and completions come from here.

pub(crate) mod accelerate;
mod access;
pub(crate) mod background_fill;
mod boot;
mod build;
pub(crate) mod cache;
mod codec;
mod commit;
pub(crate) mod contain;
mod containers;
mod demo;
pub(crate) mod disk_cache;
mod emulation;
mod export;
mod fill;
pub(crate) mod groups;
mod guest_network;
mod http;
pub(crate) mod image;
mod insecure;
mod inspect;
mod install;
mod iso;
mod keep;
mod lab;
mod learn;
mod live_page;
mod mount;
mod optimize;
pub(crate) mod overlay;
mod pack;
mod plain;
mod prefetch;
mod prefetch_rate;
mod push;
mod qemu;
pub(crate) mod relocate;
mod report;
mod resume;
mod seconds;
mod serve;
mod serving;
pub(crate) mod signing;
pub(crate) mod snapshotter;
mod start;
mod tls;
mod top;
mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::boot::Boot;
pub(crate) use self::build::{Build, Import, TakenAs};
pub(crate) use self::commit::Commit;
pub(crate) use self::containers::{Bundle, Convert};
pub(crate) use self::demo::{Demo, Story};
pub(crate) use self::emulation::MediumParser;
pub(crate) use self::export::{DiskFormat, Export};
pub(crate) use self::fill::{Attach, Detach, Hydrate};
pub(crate) use self::inspect::{Inspect, Verify};
pub(crate) use self::install::Install;
pub(crate) use self::iso::Iso;
pub(crate) use self::lab::{Lab, LabDisk};
pub(crate) use self::mount::Mount;
pub(crate) use self::optimize::Optimize;
pub(crate) use self::pack::Pack;
pub(crate) use self::prefetch::PrefetchLimits;
pub(crate) use self::push::Push;
pub(crate) use self::report::Report;
pub(crate) use self::resume::Resume;
pub(crate) use self::serve::Serve;
pub(crate) use self::start::{Profile, Run, StartFlags};
pub(crate) use self::tls::{TlsFlags, TlsMode};
pub(crate) use self::top::Top;

/// Make Linux systems start fast from compressed, verified, read-only block images.
///
/// headstart records which blocks a program or system reads while it starts, stores a second copy of them in
/// that order, and prefetches them from disk or network on the next start.
#[derive(Debug, Parser)]
#[command(name = "headstart", version, max_term_width = 100, help_template = groups::TEMPLATE)]
pub(crate) struct Cli {
    /// Print errors only: no progress, no notes.
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub quiet: bool,
    /// Print more. Twice prints every detail.
    #[arg(short, long, global = true, help_heading = GLOBAL, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The heading of the flags that every command has.
const GLOBAL: &str = "Global options";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build an image from a directory, a disk, a tar archive or a container's image.
    Build(Build),
    /// Build an image from a cloop file or a raw disk.
    Import(Import),
    /// Write the disk of an image as a raw, cloop or qcow2 file.
    Export(Export),
    /// Record which blocks a command reads while it starts.
    Profile(Profile),
    /// Add a hot region, ordered by profiles, to an image.
    ///
    /// The hot region is a second copy of the blocks that the recorded starts read, in that order. The rest
    /// of the image does not change.
    #[command(alias = "optimise")]
    Optimize(Optimize),
    /// Make a pack: the hot region of a disk that stays as it is, raw or qcow2, here or on a server.
    ///
    /// run, mount, boot, serve and profile take PACK as an image. What is packed comes from it, all else from
    /// DISK, which they look for beside it, or at --base. docs/PACKS.md has the whole story.
    Pack(Pack),
    /// Make an image of an image and what was written over it (--keep).
    ///
    /// What did not change is copied as it is stored, and the hot region keeps its order. The new image with
    /// an empty OVERLAY is the disk of the old one with this one. OVERLAY must not be in use, but with
    /// --snapshot.
    Commit(Commit),
    /// Make a bootable disc or stick whose root is an image.
    ///
    /// Kernel and initramfs come from the system in the image; headstart-live in the initramfs mounts the
    /// root (headstart-live --help). The medium starts on BIOS and UEFI, as far as their boot loaders are
    /// installed here. docs/LIVE.md has the words of the kernel's command line, and recipes.
    Iso(Iso),
    /// Install a system on a disk, with an image as its root, or update it.
    ///
    /// The disk starts on BIOS and UEFI, as far as their boot loaders are installed here. It has room for
    /// two systems: an update goes beside the running one, is tried once, and is kept when it has come up.
    /// What the system writes is kept in a file beside the image. Without --root and --update this shows
    /// what is on the disk. docs/INSTALL.md has the whole story.
    Install(Install),
    /// Mount an image as DIR/disk.img, and its file system with --fs.
    Mount(Mount),
    /// Serve images over NBD, vhost-user or ublk (as disks) or HTTP (as files).
    ///
    /// Each image is an export, named after its file without .hsi, or NAME with NAME=IMAGE, and read-only
    /// without --keep. The first one is also the default export. SIGINT or SIGTERM ends the server when
    /// requests in flight are answered.
    Serve(Serve),
    /// Show an image's disk as a raw file that fills itself when it is read.
    ///
    /// FILE is sparse, on ext4, XFS or btrfs. The kernel asks headstart before each read (Linux 6.14), which
    /// fills the range first. The rest is filled in the background, and a complete file is a normal file.
    /// Programs that look for holes, such as cp and qemu-img, see zeros until then: run `headstart fill`
    /// first.
    Attach(Attach),
    /// Complete a file that fills itself.
    #[command(name = "fill", alias = "hydrate")]
    Hydrate(Hydrate),
    /// End the filling of a file.
    Detach(Detach),
    /// Show the state of mounted and served images.
    Status(Status),
    /// Show the activity of all servers, updated continuously.
    Top(Top),
    /// Show starts and experiments as one HTML page, or export their requests.
    ///
    /// Several inputs are compared on shared axes. An image among them shows what is hot, and names files.
    /// docs/REPORT.md describes the page and the formats.
    Report(Report),
    /// Manage the disk cache of remote images.
    Cache(disk_cache::DiskCache),
    /// Show, check and compact files of changes (--keep); snapshots.
    ///
    /// To check, compact or revert a file, it must not be in use. docs/KEEP.md tells what such files are.
    Overlay(overlay::Overlay),
    /// Read ahead what the last boots of this installed system used.
    ///
    /// The disk stays as it is, and no image is involved. docs/ACCELERATE.md has the whole story.
    Accelerate(accelerate::Accelerate),
    /// Upload an image to a registry or object storage.
    ///
    /// An image that is already there is not sent again, and an interrupted upload is resumed. oci+http:// is
    /// a registry without TLS. Logins are those of docker and podman; for s3, gs and az those of the
    /// environment (AWS_…, GOOGLE_…, AZURE_…) and ~/.aws.
    Push(Push),
    /// Let containerd start containers from lazily mounted images.
    ///
    /// A proxy plugin of containerd (its snapshots v1). An image that has a headstart image is mounted, and
    /// none of its layers is fetched; any other image is unpacked as by containerd's own overlayfs
    /// snapshotter. docs/CONTAINERD.md has the configuration.
    Snapshotter(snapshotter::Snapshotter),
    /// Make an image of a container's image, which lies beside it in its registry.
    ///
    /// The image refers to the original manifest, which stays as it is, with its signatures. run, mount,
    /// boot, profile and bundle take the original's name then, and read from this image what they need.
    /// Recorded starts that `headstart push PROFILE REF` has sent there become its hot region.
    Convert(Convert),
    /// Make a bundle for runc and other OCI runtimes, with an image as its root.
    ///
    /// DIR gets config.json, made of the command that the image says, and rootfs, a mount of the image's
    /// root. What is written there is kept until --remove. The container has a network of its own, which is
    /// empty.
    Bundle(Bundle),
    /// Create a key pair for signing.
    Keygen(signing::Keygen),
    /// Sign an image, or publish it to a channel.
    Sign(signing::Sign),
    /// Run a command in an image's root file system.
    ///
    /// Writes go to a temporary layer. The command is contained as in a container engine: a container's
    /// capabilities, its own host name and shared memory, a short environment (--env), only the devices null,
    /// zero, full, random, urandom, tty and ptmx, and read-only kernel settings. It shares the host's
    /// network. --privileged turns containment off.
    Run(Run),
    /// Boot a guest from an image or a raw disk.
    ///
    /// The guest runs as a user of its own, without capabilities or network, in a root file system with only
    /// what it needs. Its writes go to memory (--scratch) and are discarded. An image that was built from a
    /// directory needs free space (`build --free 64M`), or the guest finds its disk full.
    Boot(Boot),
    /// Let a guest go on from a snapshot that `boot` has saved.
    ///
    /// Pages of the guest's memory come when they are first touched, or ahead of that where a recorded resume
    /// says so. It goes on with the disk that it was booted from; what it writes is discarded.
    Resume(Resume),
    /// Show the contents of an image or a profile.
    Inspect(Inspect),
    /// Check every byte of an image.
    Verify(Verify),
    /// Emulated media, predictions and experiments.
    #[command(subcommand)]
    Lab(Lab),
    /// Check what this machine can do and how to add what is missing.
    Doctor(Doctor),
    /// Show the gain on this machine: a program start and a boot, before and after.
    Demo(Demo),
    /// Print a shell completion script.
    Completions(Completions),
    /// Write man pages and shell completions into a directory.
    #[command(hide = true)]
    Docs(Docs),
}

/// Flags of `headstart status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Only this image, or the one at this directory.
    #[arg(value_name = "DIR|IMAGE")]
    pub of: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// Flags of `headstart docs`.
#[derive(Debug, Args)]
pub(crate) struct Docs {
    /// The directory.
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
}
