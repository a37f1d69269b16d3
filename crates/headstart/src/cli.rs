//! Every command and flag, defined once: help, man pages and completions come from here.

mod access;
pub(crate) mod background_fill;
mod boot;
mod build;
pub(crate) mod cache;
mod codec;
pub(crate) mod contain;
mod demo;
pub(crate) mod disk_cache;
mod export;
mod fill;
mod guest_read_ahead;
mod http;
pub(crate) mod image;
mod insecure;
mod inspect;
mod lab;
mod mount;
mod optimize;
mod prefetch;
mod prefetch_rate;
mod push;
mod qemu;
mod seconds;
mod serve;
mod serving;
pub(crate) mod signing;
mod start;
mod tls;
mod top;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::boot::{Boot, Vmm};
pub(crate) use self::build::{Build, Import};
pub(crate) use self::contain::ContainFlags;
pub(crate) use self::demo::{Demo, Story};
pub(crate) use self::export::{DiskFormat, Export};
pub(crate) use self::fill::{Attach, Detach, Hydrate};
pub(crate) use self::guest_read_ahead::GuestReadAhead;
pub(crate) use self::inspect::{Inspect, Verify};
pub(crate) use self::lab::{
    Compared, Lab, LabCalibrate, LabDisk, LabList, LabMedia, LabPredict, LabReplay, LabRun, LabTrace, Layout,
    Which,
};
pub(crate) use self::mount::Mount;
pub(crate) use self::optimize::{Optimize, ProfileUse};
pub(crate) use self::prefetch::{LateMode, PrefetchLimits, PrefetchMode, Switch};
pub(crate) use self::push::Push;
pub(crate) use self::qemu::Accel;
pub(crate) use self::serve::Serve;
pub(crate) use self::start::{Profile, Run, StartFlags};
pub(crate) use self::tls::{TlsFlags, TlsMode};
pub(crate) use self::top::Top;

/// Make Linux systems start fast from compressed, verified, read-only block images.
///
/// headstart records what a start really reads, stores those blocks once more in that order, and
/// streams them in before they are asked for. Build an image, record one start, optimise, start from that.
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
    /// The command gets no more of this machine than in a container: a container's capabilities, a host's
    /// name and shared memory of its own, a short environment (--env), no devices but null, zero, full,
    /// random, urandom, tty and ptmx, and settings of the kernel that it cannot write. The network is this
    /// machine's. --privileged withholds nothing.
    ///
    /// Ends with the command's exit code (128 and the signal's number when a signal ended it), with 127 when
    /// the image has no such command, 126 when it cannot be run, and with 1 when something else failed.
    Run(Run),
    /// Boot a guest from the system in an image or a raw disk.
    ///
    /// What runs the guest is a user of its own, without capabilities or network, in a root that holds
    /// nothing but what it needs: a guest that breaks out of it finds no files of this machine.
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
    /// Print a script with which a shell completes this program's arguments.
    Completions(Completions),
    /// Write man pages and shell completions into a folder.
    #[command(hide = true)]
    Docs(Docs),
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

/// Flags of `headstart doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON object.
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
}
