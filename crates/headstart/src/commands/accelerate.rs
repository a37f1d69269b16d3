//! `headstart accelerate`

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, bail};
use hs_accelerate::{Ending, EndingStep, PageList, StopReason};
use hs_early::{
    Before, KeptList, LastBoot, Recording, Root, SinceOn, Started, Switch, Waited, Warming, Watch,
};
use hs_linux::ends::Ends;
use hs_output::show;
use hs_units::{BLOCK_BYTES, ByteSize};
use serde::Serialize;

use crate::cli::accelerate::{Accelerate, AccelerateAction};

const UNIT: &str = "headstart-accelerate.service";
/// How often what asks for pages looks whether it was switched off.
const LOOK: Duration = Duration::from_millis(50);

/// What is known of a file system's starts.
#[derive(Serialize)]
struct Status {
    on: bool,
    running: bool,
    root: PathBuf,
    file_system: String,
    list: PathBuf,
    /// Starts that were recorded.
    starts: u32,
    files: usize,
    pages: u64,
    bytes: u64,
    /// Pieces of the disk in which the pages lie.
    seeks: u64,
    scattered: bool,
    /// Why the list cannot be used.
    problem: Option<String>,
    last_boot: Option<LastBoot>,
    on_battery: Option<bool>,
    /// The processors' time that a recording took, without what was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorder_s: Option<f64>,
}

/// Does what was asked for; gives the exit code.
pub(crate) fn run(args: &Accelerate, quiet: bool) -> anyhow::Result<i32> {
    match &args.action {
        AccelerateAction::On { no_initramfs } => on(*no_initramfs, quiet)?,
        AccelerateAction::Off => off(quiet)?,
        AccelerateAction::Status { root, list } => {
            let status = status(root, list.as_deref())?;
            if args.json { show::json(&status)? } else { say(&status) }
        }
        AccelerateAction::Record { root, list, command } => {
            return record(root, list.as_deref(), command, args.json, quiet);
        }
        AccelerateAction::Now(flags) => return super::relocate::run(flags, args.json, quiet),
        AccelerateAction::Warm { root, list } => warm(root, list.as_deref(), args.json, quiet)?,
    }
    Ok(0)
}

fn on(no_initramfs: bool, quiet: bool) -> anyhow::Result<()> {
    let root = Root::open(Path::new("/"))?;
    // Says now what would keep boots from being recorded.
    drop(Recording::start(&root)?);
    let switch = Switch::of(&root.path);
    switch.on()?;
    tool("systemctl", &["enable", UNIT]).context("enable the service (is headstart installed?)")?;
    let makers: [(&str, &[&str]); 2] = [("update-initramfs", &["-u"]), ("dracut", &["--force"])];
    let made = makers.iter().filter(|_| !no_initramfs).find(|(maker, _)| is_installed(maker));
    if let Some((maker, arguments)) = made {
        if !quiet {
            show::line(format_args!("making the initramfs anew: {maker} {}", arguments.join(" ")));
        }
        tool(maker, arguments).context("make the initramfs anew; or leave it out with --no-initramfs")?;
    }
    if !switch.is_on() {
        // What it did not find yet goes too.
        off(true)?;
        bail!("it was switched off meanwhile (headstart accelerate off), and is off");
    }
    if !quiet {
        show::line("on: the next boot is recorded, those after it are read ahead");
    }
    Ok(())
}

fn off(quiet: bool) -> anyhow::Result<()> {
    let switch = Switch::of(Path::new("/"));
    switch.off()?;
    if is_installed("systemctl") {
        // It is not there where headstart was removed.
        let _ = tool("systemctl", &["disable", UNIT]);
    }
    if !quiet {
        show::line("off: nothing is recorded or read ahead, and what was recorded is removed");
    }
    Ok(())
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |folder: PathBuf| folder.join(program).is_file();
    let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).any(is_there)
}

fn tool(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {} failed: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}

pub(super) fn list_of(root: &Root, named: Option<&Path>) -> KeptList {
    named.map_or_else(|| KeptList::of(root), |path| KeptList { path: path.to_owned() })
}

/// The list of a start that was recorded.
pub(super) fn recorded(root: &Root, named: Option<&Path>) -> anyhow::Result<PageList> {
    let kept = list_of(root, named);
    kept.read(root)?.with_context(|| {
        format!(
            "{} is not there: record a start first (headstart accelerate record; of boots, headstart accelerate on \
             and a restart)",
            kept.path.display()
        )
    })
}

fn status(path: &Path, named: Option<&Path>) -> anyhow::Result<Status> {
    let root = Root::open(path)?;
    let kept = list_of(&root, named);
    let (list, problem) = match kept.read(&root) {
        Ok(list) => (list, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let switch = Switch::of(&root.path);
    let list = list.unwrap_or_else(|| PageList::empty(root.identity));
    let scatter = list.scatter();
    Ok(Status {
        on: switch.is_on(),
        running: hs_early::at_work().is_some(),
        file_system: root.name(),
        root: root.path.clone(),
        list: kept.path,
        starts: list.starts,
        files: list.files.len(),
        pages: list.pages(),
        bytes: list.pages() * BLOCK_BYTES,
        seeks: scatter.seeks,
        scattered: scatter.is_scattered(),
        problem,
        last_boot: LastBoot::read(&switch),
        on_battery: hs_early::is_on_battery(),
        recorder_s: None,
    })
}

fn say(status: &Status) {
    let switch = if status.on { "on" } else { "off" };
    let now = if status.running { ", at work just now" } else { "" };
    show::line(format_args!("accelerate: {switch}{now}; {} ({})", status.root.display(), status.file_system));
    if let Some(problem) = &status.problem {
        show::line(format_args!("list: {problem}"));
    } else if status.starts == 0 {
        show::line("list: nothing is recorded yet");
    } else {
        let lies = if status.scattered { "scattered" } else { "together" };
        show::line(format_args!(
            "list: {} of {} files, from {} starts; it lies {lies}, in {} places",
            ByteSize(status.bytes),
            status.files,
            status.starts,
            status.seeks
        ));
    }
    if let Some(last) = &status.last_boot {
        if let Some(asked) = &last.asked {
            let stopped =
                asked.stopped.as_ref().map(|why| format!("; ended early: {why}")).unwrap_or_default();
            let used = last.used_pages.map(|pages| format!(", {} of it used", ByteSize(pages * BLOCK_BYTES)));
            show::line(format_args!(
                "last boot: {} in {:.1} s{}, from a device with {}{stopped}",
                ByteSize(asked.pages * BLOCK_BYTES),
                asked.seconds,
                used.unwrap_or_default(),
                asked.device
            ));
        }
        if let Some(problem) = &last.problem {
            show::line(format_args!("last boot: {problem}"));
        }
    }
    if status.on_battery == Some(true) {
        show::line("power: battery");
    }
}

fn record(
    path: &Path,
    named: Option<&Path>,
    command: &[std::ffi::OsString],
    json: bool,
    quiet: bool,
) -> anyhow::Result<i32> {
    // Before there are other threads.
    let ends = Ends::block().context("wait for signals")?;
    let root = Root::open(path)?;
    let kept = list_of(&root, named);
    let mut list = kept.begin(&root, named.is_some())?;
    // A list that was named is the user's own.
    let since_on = named.is_none().then(|| SinceOn::of(&root.path));
    let is_off = || since_on.as_ref().is_some_and(SinceOn::is_switched_off);
    let recording = Recording::start(&root)?;
    let mut started = Started::new(command, ends)?;
    let status = follow(&recording, &mut started, is_off)?;
    if is_off() {
        drop(recording);
        log::warn!("it was switched off meanwhile (headstart accelerate off): nothing is kept");
        return exit_code(status, started);
    }
    let taken = recording.merge_into(&root, &mut list, Before::Anything)?;
    drop(recording);
    kept.write(&list)?;
    if json {
        show::json(&Status { recorder_s: Some(hs_early::own_processor_s()), ..self::status(path, named)? })?;
    } else if !quiet {
        show::line(format_args!(
            "recorded: {} of {} files in {}",
            ByteSize(list.pages() * BLOCK_BYTES),
            list.files.len(),
            kept.path.display()
        ));
    }
    if taken.came == 0 || taken.came < taken.there {
        log::warn!(
            "{} came from the disk: what else the command reads was in memory already, and was not seen. What was \
             recorded before stays. Record it after a restart, or after `echo 3 >/proc/sys/vm/drop_caches`",
            ByteSize(taken.came * BLOCK_BYTES)
        );
    }
    exit_code(status, started)
}

/// Waits for the end of a command that has not `ended` yet.
fn exit_code(ended: Option<ExitStatus>, mut started: Started) -> anyhow::Result<i32> {
    let status = match ended {
        Some(status) => status,
        None => started.wait_for_end().context("wait for the command")?,
    };
    // As shells say it of a command that a signal has ended.
    Ok(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1))
}

/// Follows a start until its command is idle or has ended, a signal comes, or all is off; gives how it has
/// ended.
fn follow(
    recording: &Recording,
    started: &mut Started,
    is_off: impl Fn() -> bool,
) -> anyhow::Result<Option<ExitStatus>> {
    let mut watch = Watch::start(recording);
    let mut ending = Ending::default();
    loop {
        match started.wait(Some(Duration::from_secs(1))).context("wait for the command")? {
            Waited::Ended(status) => return Ok(Some(status)),
            Waited::Told => return Ok(None),
            Waited::NothingYet => {}
        }
        // No login is waited for.
        if is_off() || ending.second(watch.second(recording, true)) == EndingStep::End {
            return Ok(None);
        }
    }
}

fn warm(path: &Path, named: Option<&Path>, json: bool, quiet: bool) -> anyhow::Result<()> {
    let root = Arc::new(Root::open(path)?);
    let list = recorded(&root, named)?;
    // A list that was named is the user's own.
    let own = named.is_none().then(|| list_of(&root, None).path);
    let warming = Warming::new(root, Arc::new(list));
    let warmed = std::thread::scope(|scope| {
        let (over, ended) = mpsc::channel::<()>();
        let warming = &warming;
        scope.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                // `off` removes it.
                if own.as_ref().is_some_and(|list| !list.exists()) {
                    warming.stop(Some(StopReason::SwitchedOff));
                }
            }
        });
        let warmed = warming.run(None);
        drop(over);
        warmed
    });
    if json {
        return show::json(&warmed);
    }
    if !quiet {
        let missing = match warmed.missing_files {
            0 => String::new(),
            count => format!("; {count} files are not there any more"),
        };
        let stopped = warmed.stopped.as_ref().map(|why| format!("; ended early: {why}")).unwrap_or_default();
        show::line(format_args!(
            "{} in {} requests, {:.2} s, from a device with {}{missing}{stopped}",
            ByteSize(warmed.pages * BLOCK_BYTES),
            warmed.requests,
            warmed.seconds,
            warmed.device
        ));
    }
    Ok(())
}
