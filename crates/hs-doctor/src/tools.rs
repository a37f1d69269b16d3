//! Programs that headstart runs, and the Debian packages they come from.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hs_iso::Lack;
use hs_output::report_page::{self, HOW_TO_BUILD};

use crate::namespaces::User;
use crate::{Check, CheckState};

/// Names of checks.
pub(crate) const ISO: &str = "tools of iso";
pub(crate) const PAGE: &str = "report page";
pub(crate) const CONTAINERD: &str = "containerd";

struct Tool {
    program: &'static str,
    package: &'static str,
    /// What makes it say its version.
    version_flag: &'static str,
    needed_for: &'static str,
    main_path: MainPath,
}

/// Whose main path a tool is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MainPath {
    /// Root has the kernel's own way.
    WithoutRoot,
    Nobody,
}

const TOOLS: &[Tool] = &[
    Tool {
        program: "fuse2fs",
        package: "fuse2fs",
        version_flag: "-V",
        needed_for: "run, profile without root: mounts the ext4 in an image",
        main_path: MainPath::WithoutRoot,
    },
    Tool {
        program: "fusermount3",
        package: "fuse3",
        version_flag: "--version",
        needed_for: "mount without root: mounts FUSE",
        main_path: MainPath::Nobody,
    },
    Tool {
        program: "mmdebstrap",
        package: "mmdebstrap",
        version_flag: "--version",
        needed_for: "demo: makes the Debian roots that it starts from and boots",
        main_path: MainPath::Nobody,
    },
    Tool {
        program: CONTAINERD,
        package: "containerd",
        version_flag: "--version",
        needed_for: "snapshotter: starts containers before their images are there",
        main_path: MainPath::Nobody,
    },
    Tool {
        program: "mksquashfs",
        package: "squashfs-tools",
        version_flag: "-version",
        needed_for: "demo: makes the squashfs that it compares with",
        main_path: MainPath::Nobody,
    },
];

pub(crate) fn checks(user: User) -> Vec<Check> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // A user's PATH often lacks these.
    folders.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    let mut checks: Vec<Check> = TOOLS.iter().map(|tool| judge(tool, &folders, user.is_root())).collect();
    checks.push(judge_iso(Lack::here()));
    checks.push(judge_page(report_page::built()));
    checks
}

fn judge_iso(lack: Option<Lack>) -> Check {
    let needed_for = "iso: makes the file system, the boot loaders and the medium";
    match lack {
        None => Check::ok(ISO, "all found", needed_for),
        Some(Lack { names, packages }) => Check::ok(ISO, format!("not found: {names}"), needed_for)
            .but(CheckState::Missing, format!("apt install {packages}")),
    }
}

fn judge_page(found: io::Result<Option<PathBuf>>) -> Check {
    let needed_for = "report, --ui, demo: the page that shows starts";
    match found {
        Ok(Some(file)) => Check::ok(PAGE, file.display().to_string(), needed_for),
        Ok(None) => Check::ok(PAGE, "not built", needed_for).but(CheckState::Missing, HOW_TO_BUILD),
        Err(error) => Check::ok(PAGE, format!("not looked for: {error}"), needed_for)
            .but(CheckState::Missing, "mount /proc: it says where this program lies"),
    }
}

fn judge(tool: &Tool, folders: &[PathBuf], is_root: bool) -> Check {
    let needed = match tool.main_path {
        MainPath::WithoutRoot => !is_root,
        MainPath::Nobody => false,
    };
    match find(tool.program, folders) {
        Some(program) => Check::ok(tool.program, version(&program, tool.version_flag), tool.needed_for),
        None => Check::ok(tool.program, "not found", tool.needed_for)
            .but(CheckState::Missing, format!("apt install {}", tool.package)),
    }
    .on_main_path(needed)
}

fn find(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The version that a program says, or its path if it says none. What e2fsprogs say of themselves goes to
/// standard error, and of their libraries to standard output.
pub(crate) fn version(program: &Path, flag: &str) -> String {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output();
    let said = output.map(|output| [output.stderr, output.stdout].concat()).unwrap_or_default();
    version_in(&String::from_utf8_lossy(&said)).unwrap_or_else(|| program.display().to_string())
}

/// The first word that begins with a digit and has a point in it, such as the `1.47.0` of
/// `mke2fs 1.47.0 (5-Feb-2023)`.
fn version_in(text: &str) -> Option<String> {
    text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ','))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_the_programs_say() {
        for (text, version) in [
            ("mke2fs 1.47.0 (5-Feb-2023)\n\tUsing EXT2FS Library version 1.47.0\n", Some("1.47.0")),
            ("mksquashfs version 4.5.1 (2022/03/17)\n", Some("4.5.1")),
            ("fusermount3 version: 3.14.0\n", Some("3.14.0")),
            ("mmdebstrap 1.3.5\n", Some("1.3.5")),
            ("unknown option -V\n", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version);
        }
    }

    #[test]
    fn a_missing_tool_names_its_package_and_only_some_are_on_the_main_path() {
        let nowhere = [PathBuf::from("/nonexistent")];
        let fuse2fs = TOOLS.iter().find(|tool| tool.program == "fuse2fs").unwrap();
        let missing = judge(fuse2fs, &nowhere, false);
        assert_eq!((missing.state, missing.advice.as_str()), (CheckState::Missing, "apt install fuse2fs"));
        assert!(missing.main_path);
        assert!(!judge(fuse2fs, &nowhere, true).main_path);
    }
}
