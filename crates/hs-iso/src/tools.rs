//! Foreign programs that make parts of a medium.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

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

impl Tool {
    /// A command of it, with its arguments.
    pub(crate) fn run<S: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = S>) -> anyhow::Result<()> {
        let mut command = Command::new(self.name);
        command.args(arguments).stdin(Stdio::null());
        let output = match command.output() {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!("{} is missing: install the package {}", self.name, self.package)
            }
            Err(error) => return Err(error).context(format!("start {}", self.name)),
        };
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(MOST_LINES)..].join("\n");
        bail!("{} failed ({}):\n{last}", self.name, output.status)
    }

    /// Fails when it is not installed, before long work begins.
    pub(crate) fn check(self) -> anyhow::Result<()> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        match found.map(|folder| folder.join(self.name)).any(|program| program.is_file()) {
            true => Ok(()),
            false => bail!("{} is missing: install the package {}", self.name, self.package),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_fails_is_named() {
        let missing = Tool { name: "no-such-program-anywhere", package: "some-package" };
        for error in [missing.check().expect_err("missing"), missing.run([""]).expect_err("missing")] {
            assert!(error.to_string().contains("install the package some-package"), "{error}");
        }
        let failing = Tool { name: "sh", package: "dash" };
        failing.check().expect("sh is there");
        let error = failing.run(["-c", "echo why >&2; exit 3"]).expect_err("it fails").to_string();
        assert!(error.contains("sh failed") && error.contains("why"), "{error}");
    }
}
