//! The server of the root: `headstart mount`, in a root of its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use hs_daemon::mount::{self, Mount};
use hs_daemon::{Fill, RecordTo, Recording, ServerOptions};
use hs_device::Medium;
use hs_engine::{LateRule, PrefetchRate};
use hs_serve::{FileAccess, ONE_READERS_CACHE_BYTES};
use hs_start::cache::{CacheChoice, CacheSize};
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::medium::Damage;
use hs_start::start::{PrefetchLimits, PrefetchMode};
use hs_units::ByteSize;

use crate::private_root;
use crate::words::{RecordPlace, Words};

/// The command under which it starts itself.
pub const COMMAND: &str = "mount";
/// The file that a recording is written to.
const PROFILE: &str = "headstart-boot.hsp";
/// A program whose name begins so is not ended when the system shuts down, since its root lies on it:
/// <https://systemd.io/ROOT_STORAGE_DAEMONS/>.
const NAME: &str = "@headstart";
/// The share of a machine's memory that the server may take: a machine of 512 MiB still has room for what it
/// starts.
const BUDGET_SHARE: u64 = 8;
/// What the server needs besides blocks (docs/decisions/053-root-by-fuse.md): its program and libraries,
/// which lie in memory as wholes, what it allocates otherwise, and what the kernel needs for it.
const OWN_BYTES: u64 = 24 << 20;
/// Blocks that it holds at least, however small the budget.
const LEAST_BLOCK_BYTES: u64 = 8 << 20;
/// The share of its blocks for the cache; the rest is for blocks that were prefetched. The kernel keeps what
/// it has read, so the cache holds only parts of chunks, and what came early.
const CACHE_SHARE: u64 = 4;
/// What it needs at least, and more than it ever has use for.
const BUDGET_BOUNDS: (u64, u64) = (32 << 20, 256 << 20);

/// What a server that serves says of itself.
#[derive(Clone, Debug)]
pub struct ServedRoot {
    /// The digest of the disk in the image.
    pub disk_digest: String,
}

/// Starts the server in this process's root, and waits until the file system is mounted.
///
/// # Errors
/// When it does not serve. It has said why on all consoles.
pub fn start(image: &str, command_line: &str) -> anyhow::Result<ServedRoot> {
    let started = inside(&[COMMAND, image, command_line]).stdout(Stdio::piped()).spawn();
    let output = started.context("start the server")?.wait_with_output().context("wait for the server")?;
    if !output.status.success() {
        bail!("the image cannot be served: {}", output.status);
    }
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("understand the server's report")?;
    let disk_digest = report["disk_digest"].as_str().unwrap_or_default().to_owned();
    Ok(ServedRoot { disk_digest })
}

/// This program, to be started again under a name that a shutdown leaves alone.
pub(crate) fn inside(arguments: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).args(arguments).stdin(Stdio::null());
    command
}

/// Flags that this program adds when it starts itself again.
#[derive(Default)]
struct OwnFlags {
    foreground: bool,
    ready_fd: Option<i32>,
    supervisor_fd: Option<i32>,
    words: Vec<String>,
}

impl OwnFlags {
    fn parse(arguments: &[OsString]) -> anyhow::Result<Self> {
        let mut flags = Self::default();
        for argument in arguments {
            let argument = argument.to_str().context("arguments are text")?;
            if argument == "--foreground" {
                flags.foreground = true;
            } else if let Some(fd) = argument.strip_prefix("--ready-fd=") {
                flags.ready_fd = Some(fd.parse().context("--ready-fd")?);
            } else if let Some(fd) = argument.strip_prefix("--supervisor-fd=") {
                flags.supervisor_fd = Some(fd.parse().context("--supervisor-fd")?);
            } else {
                flags.words.push(argument.to_owned());
            }
        }
        Ok(flags)
    }
}

/// The server itself: `arguments` are all of this process, and begin with [`COMMAND`].
///
/// # Errors
/// When it cannot serve.
pub fn run(arguments: &[OsString]) -> anyhow::Result<i32> {
    let flags = OwnFlags::parse(&arguments[1..])?;
    let [image, command_line] = &flags.words[..] else {
        bail!("{COMMAND} needs an image and a command line")
    };
    let words = Words::parse(command_line)?;
    let budget = Budget::of(words.budget.map_or_else(|| usual_budget(memory_bytes()), |budget| budget.0));
    let recording = words.record.as_ref().map(|place| Recording {
        to: match place {
            RecordPlace::Device(_) => {
                let file = Path::new(private_root::RECORD).join(PROFILE);
                RecordTo::File { file, after: words.record_for }
            }
            RecordPlace::Line(path) => RecordTo::Line(path.clone()),
        },
        reads_ahead: words.record_read_ahead,
    });
    let mount = Mount {
        image: ImageSource::parse(image.as_ref(), &remote(&words))?,
        dir: private_root::DISK.into(),
        fs: Some(private_root::FS.into()),
        partition: None,
        ignore_journal: words.ignore_journal,
        keep: words.keep.as_ref().map(|path| format!("{}{path}", private_root::MEDIUM).into()),
        foreground: flags.foreground,
        prefetch: Some(if recording.is_some() { PrefetchMode::Off } else { words.prefetch }),
        limits: limits(budget.prefetch),
        access: FileAccess::default(),
        cache: CacheChoice { size: Some(CacheSize::AtMost(budget.cache)) },
        fill: Fill::Never,
        medium: Medium::None,
        damage: Damage::default(),
        trusted: true,
        record: recording,
        clear_dead: false,
        trace: None,
        ui: None,
        json: true,
        ready_fd: flags.ready_fd,
        serving: ServerOptions {
            unsupervised: false,
            metrics: None,
            supervisor_fd: flags.supervisor_fd,
            keeper_fd: None,
            opening_fd: None,
        },
    };
    mount::run(&mount, arguments, false)
}

/// How an image is fetched that lies elsewhere. Nothing is kept between two starts, so only
/// `headstart.min-date` prevents a rollback.
pub fn remote(words: &Words) -> RemoteOptions {
    RemoteOptions {
        disk_cache: Some("none".into()),
        channel_state: words.min_date.is_none().then(|| "none".into()),
        min_date: words.min_date.clone(),
        refuses_unnamed: !words.insecure,
        open_timeout: Some(words.wait),
        read_timeout: words.read_timeout,
        ..RemoteOptions::default()
    }
}

fn limits(budget: ByteSize) -> PrefetchLimits {
    PrefetchLimits {
        budget,
        background: false,
        late: LateRule::ByCost,
        tripwires: true,
        rate: PrefetchRate::Full,
    }
}

/// What the server may hold of the image, within a budget for all that it needs.
#[derive(Debug, PartialEq, Eq)]
struct Budget {
    prefetch: ByteSize,
    cache: ByteSize,
}

impl Budget {
    fn of(bytes: u64) -> Self {
        let blocks = bytes.saturating_sub(OWN_BYTES).max(LEAST_BLOCK_BYTES);
        let cache = (blocks / CACHE_SHARE).min(ONE_READERS_CACHE_BYTES);
        Self { prefetch: ByteSize(blocks - cache), cache: ByteSize(cache) }
    }
}

fn usual_budget(memory_bytes: u64) -> u64 {
    (memory_bytes / BUDGET_SHARE).clamp(BUDGET_BOUNDS.0, BUDGET_BOUNDS.1)
}

/// The machine's memory, as far as nothing uses it yet.
fn memory_bytes() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_follows_memory_within_bounds() {
        for (memory_mib, budget_mib) in [(0, 32), (128, 32), (512, 64), (1024, 128), (64 << 10, 256)] {
            assert_eq!(usual_budget(memory_mib << 20), budget_mib << 20, "{memory_mib}");
        }
        assert!(memory_bytes() > 0);
    }

    #[test]
    fn the_cache_is_a_part_of_the_budget() {
        for (budget_mib, blocks_mib, cache_mib) in [(0, 8, 2), (32, 8, 2), (64, 40, 10), (1024, 1000, 192)] {
            let Budget { prefetch, cache } = Budget::of(budget_mib << 20);
            assert_eq!((prefetch.0 + cache.0, cache.0), (blocks_mib << 20, cache_mib << 20));
        }
    }

    #[test]
    fn own_flags_and_words_are_told_apart() {
        let arguments =
            ["--supervisor-fd=4", "/medium/x.hsi", "root=headstart:LABEL=A quiet"].map(OsString::from);
        let flags = OwnFlags::parse(&arguments).expect("flags");
        assert_eq!((flags.supervisor_fd, flags.ready_fd, flags.foreground), (Some(4), None, false));
        assert_eq!(flags.words, ["/medium/x.hsi", "root=headstart:LABEL=A quiet"]);
        assert!(OwnFlags::parse(&["--ready-fd=x".into()]).is_err());
    }
}
