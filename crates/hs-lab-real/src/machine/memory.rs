//! Reading whole files ahead in a control group with little memory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use hs_units::Prng;

use super::emulated::Emulated;
use super::{RealFigure, is_root, skip};

/// What is emulated.
const MEDIUM: &str = "flat-2ms-20mbs-serial";

/// Blocks of 64 KiB, and how many of a dozen the start uses: as in the experiment.
const BLOCK: u64 = 64 << 10;
const FILES: u64 = 64;
const FILE_BLOCKS: u64 = 12;
const USED: u64 = 9;

/// Where control groups of the first version are.
const GROUPS: &str = "/sys/fs/cgroup/memory";

/// Memory in MiB that holds a third of what is used, and all of it.
const MEMORY: [u64; 2] = [12, 256];

/// Seconds in which hardware is probed: the second program has them for itself, and is further ahead then
/// than little memory holds.
const PROBING: u64 = 1;

/// A control group; it goes with its last process.
struct Group(PathBuf);

impl Group {
    fn new(limit_mib: u64) -> anyhow::Result<Self> {
        let path = Path::new(GROUPS).join(format!("headstart-lab-{}-{limit_mib}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        let group = Self(path);
        std::fs::write(group.0.join("memory.limit_in_bytes"), (limit_mib << 20).to_string())
            .with_context(|| format!("limit {}", group.0.display()))?;
        Ok(group)
    }

    /// Starts a shell in the group.
    fn start(&self, script: &str) -> anyhow::Result<Child> {
        let entered = format!("echo $$ >{}/cgroup.procs && {script}", self.0.display());
        let mut shell = Command::new("sh");
        let quiet = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        quiet.args(["-c", &entered]).spawn().context("start sh")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What its processes have read is charged to it, and would keep it.
        let _ = std::fs::write(self.0.join("memory.force_empty"), "0");
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The start: single blocks of files in order, each with a process of its own.
fn start_script(file: &Path, order: &[u64]) -> String {
    let mut script = format!("sleep {PROBING}\n");
    for number in order {
        for used in 0..USED {
            let block = number * FILE_BLOCKS + used * 4 / 3;
            let _ = writeln!(
                script,
                "dd if={} of=/dev/null bs={BLOCK} count=1 skip={block} || exit",
                file.display()
            );
        }
    }
    script
}

/// The second program: every file from its first byte to its last, in the same order.
fn ahead_script(file: &Path, order: &[u64]) -> String {
    let mut script = String::new();
    for number in order {
        let (size, skip) = (BLOCK * FILE_BLOCKS, number);
        let _ =
            writeln!(script, "dd if={} of=/dev/null bs={size} count=1 skip={skip} || exit", file.display());
    }
    script
}

/// Seconds that the start takes after the hardware was probed.
fn measure(seed: u64, limit_mib: u64, ahead: bool) -> anyhow::Result<f64> {
    let emulated = Emulated::new(MEDIUM, FILES * FILE_BLOCKS * BLOCK)?;
    let mut prng = Prng::new(seed);
    let mut order: Vec<u64> = (0..FILES).collect();
    (1..order.len()).rev().for_each(|last| order.swap(last, prng.below(last as u64 + 1) as usize));
    let group = Group::new(limit_mib)?;
    let helper = ahead.then(|| group.start(&ahead_script(emulated.path(), &order))).transpose()?;
    let began = Instant::now();
    let status = group.start(&start_script(emulated.path(), &order))?.wait().context("wait for the start")?;
    let seconds = began.elapsed().as_secs_f64() - PROBING as f64;
    if let Some(mut helper) = helper {
        helper.wait().context("wait for the program that reads ahead")?;
    }
    ensure!(status.success(), "the start failed: {status}");
    Ok(seconds)
}

/// The start with and without reading ahead, with little memory and with much.
pub(super) fn run(seed: u64) -> anyhow::Result<Vec<RealFigure>> {
    if !is_root() {
        return Ok(skip("memory limited by a control group", "only root makes one"));
    }
    if !Path::new(GROUPS).join("memory.limit_in_bytes").exists() {
        return Ok(skip("memory limited by a control group", &format!("there is no {GROUPS}")));
    }
    let mut figures = Vec::new();
    for limit in MEMORY {
        let (without, with) = (measure(seed, limit, false)?, measure(seed, limit, true)?);
        let how = format!("{MEDIUM} in real time, memory limited to {limit} MiB");
        let name = "start with whole files read ahead ÷ without".to_owned();
        figures.push(RealFigure { name, value: with / without, how: how.clone() });
        figures.push(RealFigure { name: "start without reading ahead (s)".to_owned(), value: without, how });
    }
    Ok(figures)
}
