//! Foreign programs that make parts of a medium.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};
use hs_linux::ends::let_signals_through;

use crate::boot_loader;

/// How much of what a program that failed has said is shown.
const MOST_LINES: usize = 12;

/// A program, and the package of Debian that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

pub(crate) const XORRISO: Tool = Tool { name: "xorriso", package: "xorriso" };
pub(crate) const GRUB: Tool = Tool { name: "grub-mkimage", package: "grub-common" };
pub(crate) const MKFS_FAT: Tool = Tool { name: "mkfs.vfat", package: "dosfstools" };
pub(crate) const MCOPY: Tool = Tool { name: "mcopy", package: "mtools" };
pub(crate) const MMD: Tool = Tool { name: "mmd", package: "mtools" };
const BOOT_LOADER: Tool = Tool { name: "a boot loader", package: "grub-pc-bin grub-efi-amd64-bin" };

/// What divides a disk.
pub(crate) const SFDISK: Tool = Tool { name: "sfdisk", package: "fdisk" };
/// What makes the disk of an image from a directory, and a partition for images.
pub(crate) const MKFS_EXT4: Tool = Tool { name: "mkfs.ext4", package: "e2fsprogs" };

/// What this machine lacks to make a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Names of programs, for a person.
    pub names: String,
    /// The packages that have them, as words for apt.
    pub packages: String,
}

impl Lack {
    /// What is missing of the tools that every medium is made with.
    #[must_use]
    pub fn here() -> Option<Self> {
        Self::of(&[XORRISO, GRUB, MKFS_FAT, MCOPY, MMD], boot_loader::is_there())
    }

    fn of(tools: &[Tool], has_boot_loader: bool) -> Option<Self> {
        let mut missing: Vec<Tool> = tools.iter().copied().filter(|tool| tool.find().is_none()).collect();
        missing.extend((!has_boot_loader).then_some(BOOT_LOADER));
        let names: Vec<&str> = missing.iter().map(|tool| tool.name).collect();
        let mut packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
        packages.dedup();
        let lack = Self { names: names.join(", "), packages: packages.join(" ") };
        (!missing.is_empty()).then_some(lack)
    }
}

/// Fails when tools are missing, and names them all.
pub(crate) fn check(is_from_directory: bool) -> anyhow::Result<()> {
    let disk = if is_from_directory { Lack::of(&[MKFS_EXT4], true) } else { None };
    let lacks: Vec<Lack> = disk.into_iter().chain(Lack::here()).collect();
    if lacks.is_empty() {
        return Ok(());
    }
    let joined = |part: fn(&Lack) -> &str, by: &str| lacks.iter().map(part).collect::<Vec<_>>().join(by);
    let (names, packages) = (joined(|lack| &lack.names, ", "), joined(|lack| &lack.packages, " "));
    bail!("a medium needs {names}, not found here: apt install {packages}")
}

/// The same for a disk.
pub(crate) fn check_disk() -> anyhow::Result<()> {
    match Lack::of(&[SFDISK, MKFS_EXT4, MKFS_FAT, MCOPY, MMD, GRUB], boot_loader::is_there()) {
        Some(Lack { names, packages }) => {
            bail!("a disk needs {names}, not found here: apt install {packages}")
        }
        None => Ok(()),
    }
}

impl Tool {
    /// A command of it, with its arguments.
    pub(crate) fn run<S: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = S>) -> anyhow::Result<()> {
        let program = self.find().unwrap_or_else(|| self.name.into());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        self.judge(let_signals_through(&mut command).output())
    }

    /// The same for one that reads `input`.
    pub(crate) fn run_with<S: AsRef<OsStr>>(
        self,
        arguments: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> anyhow::Result<()> {
        let program = self.find().unwrap_or_else(|| self.name.into());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = let_signals_through(&mut command).spawn().and_then(|mut child| {
            // A program that has ended already says why.
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input));
            child.wait_with_output()
        });
        self.judge(output)
    }

    fn judge(self, output: std::io::Result<Output>) -> anyhow::Result<()> {
        let output = output.with_context(|| format!("start {}", self.name))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(MOST_LINES)..].join("\n");
        bail!("{} failed ({}):\n{last}", self.name, output.status)
    }

    /// Where it is installed; a user's PATH often lacks the folders where mkfs lies.
    fn find(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        folders.map(|folder| folder.join(self.name)).find(|program| program.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_fails_is_named() {
        let missing = Tool { name: "no-such-program-anywhere", package: "some-package" };
        let other = Tool { name: "no-such-other", ..missing };
        let failing = Tool { name: "sh", package: "dash" };
        let lack = Lack::of(&[missing, failing, other], false).expect("some are missing");
        assert_eq!(lack.names, "no-such-program-anywhere, no-such-other, a boot loader");
        assert_eq!(lack.packages, "some-package grub-pc-bin grub-efi-amd64-bin");
        assert_eq!(Lack::of(&[failing], true), None);
        assert!(missing.run([""]).expect_err("missing").to_string().contains(missing.name));
        let error = failing.run(["-c", "echo why >&2; exit 3"]).expect_err("it fails").to_string();
        assert!(error.contains("sh failed") && error.contains("why"), "{error}");
    }
}
