//! The programs of others that the demo runs.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Where Debian puts some of them; `PATH` may lack these folders.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Lines of a tool's messages that are kept for the error.
const KEPT_LINES: usize = 12;

/// A program and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) program: &'static str,
    pub(super) package: &'static str,
}

/// Makes the Debian root.
pub(super) const MMDEBSTRAP: Tool = Tool { program: "mmdebstrap", package: "mmdebstrap" };
/// Gives it namespaces of its own.
pub(super) const UNSHARE: Tool = Tool { program: "unshare", package: "util-linux" };
/// Makes the squashfs to compare with.
pub(super) const MKSQUASHFS: Tool = Tool { program: "mksquashfs", package: "squashfs-tools" };

/// Boots the guest.
pub(super) const UML: Tool = Tool { program: hs_guest::uml::PROGRAM, package: "user-mode-linux" };

/// Boots it where that does not.
pub(super) const QEMU: Tool = Tool { program: hs_guest::qemu::PROGRAM, package: "qemu-system-x86" };

impl Tool {
    /// A command that runs it, alone in a process group, and that ends with this process.
    pub(super) fn command(self) -> Command {
        let mut command = Command::new(find(self.program, &path()).unwrap_or_else(|| self.program.into()));
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).process_group(0);
        // SAFETY: the closure makes two system calls, both allowed after fork, on memory of its own.
        unsafe {
            command.pre_exec(|| {
                // This process waits for signals by a descriptor and has them blocked; a tool may
                // rely on them, as apt does between its parts.
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                let unblocked = libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                if unblocked != 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        command
    }
}

/// Fails, naming the packages, when one of `tools` is not there.
pub(super) fn check(tools: &[Tool]) -> anyhow::Result<()> {
    let path = path();
    check_with(tools, |program| find(program, &path).is_some())
}

/// Of programs of which one is enough: the one to be installed, if none is there.
pub(super) fn missing_of(any_of: &'static [Tool]) -> Option<&'static Tool> {
    let path = path();
    missing_of_with(any_of, |program| find(program, &path).is_some())
}

fn missing_of_with(any_of: &'static [Tool], is_there: impl Fn(&str) -> bool) -> Option<&'static Tool> {
    if any_of.iter().any(|tool| is_there(tool.program)) { None } else { any_of.first() }
}

fn check_with(tools: &[Tool], is_there: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| !is_there(tool.program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|tool| tool.program).collect();
    let packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    bail!("the demo needs {}, not found here: apt install {}", programs.join(", "), packages.join(" "));
}

/// Runs `command`, which is called `name` in errors, to its end; each line of its messages (standard
/// error) is shown to `on_line`.
pub(super) fn run(name: &str, mut command: Command, on_line: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("run {name}"))?;
    let mut last = VecDeque::new();
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(read) if read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            on_line(&text);
            if last.len() == KEPT_LINES {
                last.pop_front();
            }
            last.push_back(text);
            line.clear();
        }
    }
    let status = child.wait().with_context(|| format!("wait for {name}"))?;
    if !status.success() {
        let said: Vec<_> = last.into();
        bail!("{name} failed ({status}); it said:\n{}", said.join("\n"));
    }
    Ok(())
}

fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tools_are_named_with_their_packages() {
        assert!(check_with(&[UNSHARE, MKSQUASHFS], |_| true).is_ok());
        let error =
            check_with(&[MMDEBSTRAP, UNSHARE, MKSQUASHFS], |program| program == "unshare").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the demo needs mmdebstrap, mksquashfs, not found here: apt install mmdebstrap squashfs-tools"
        );
        assert!(find("no-such-tool-anywhere", OsStr::new("")).is_none());
    }

    #[test]
    fn one_of_two_is_enough() {
        assert_eq!(missing_of_with(&[UML, QEMU], |_| false), Some(&UML));
        assert_eq!(missing_of_with(&[UML, QEMU], |program| program == QEMU.program), None);
        assert_eq!(missing_of_with(&[UML, QEMU], |program| program == UML.program), None);
        assert_eq!(missing_of_with(&[], |_| false), None);
    }

    #[test]
    fn a_failed_tool_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; echo two >&2; exit 3"]);
        let mut seen = Vec::new();
        let error = run("sh", command, &mut |line| seen.push(line.to_owned())).unwrap_err().to_string();
        assert_eq!(seen, ["one", "two"]);
        assert!(error.starts_with("sh failed") && error.ends_with("one\ntwo"), "{error}");
    }
}
