//! A first program for guests. It sets the read-ahead of the guest's kernel and mounts the disk as the root,
//! it watches the guest's processes, and it executes the usual first program.
//!
//! Linux has no kernel parameter for the read-ahead of a block device, and the user's disk has no program in
//! it that would set it before anything is read, or that would tell which processes run. So the guest gets an
//! initramfs with this program: a static ELF file of a few thousand bytes, built with this crate
//! (`first_program.c`), and its settings.
//!
//! Where the disk brings an initramfs of its own, the program is put before it, and goes on to that one's
//! `/init`. The kernel passes it every word of its command line that is not one of the kernel's own
//! (Documentation/admin-guide/kernel-parameters.rst), and it passes all of that on.
//!
//! Where a machine starts from a medium, its initramfs starts the program, only to watch
//! ([`watch_this_machine`]).

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::initramfs::{self, Entry};
use crate::root_device::root_device;

/// Built by this crate's build script; empty for processors without User-mode Linux.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/first_program"));

/// Where it lies in front of another initramfs: the value of the kernel's word `rdinit`.
pub(crate) const RDINIT: &str = "/headstart/init";
/// The message when there is no disk whose read-ahead it could set. It appears from a process of the guest,
/// so the guest has run.
pub(crate) const NO_DISK: &str = "headstart: the read-ahead of /dev/ubda cannot be set";

/// Its folder, in the root of the file system.
const FOLDER: &str = "/headstart";

/// The programs that the kernel tries when its command line names none.
const USUAL: [&str; 4] = ["/sbin/init", "/etc/init", "/bin/init", "/bin/sh"];
/// The disk of a guest of User-mode Linux.
pub(crate) const UML_DISK: &str = "/dev/ubda";
/// The bytes of settings that the program reads.
const MOST_SETTINGS_BYTES: usize = 8191;

/// The root that it mounts, of a guest of User-mode Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestRoot {
    /// How far the guest's kernel reads ahead on its disk, where that is to be set.
    pub read_ahead_kib: Option<u32>,
    /// The file system in the disk, as `mount(2)` calls it.
    pub file_system: &'static str,
    /// The number of the partition that it is; the whole disk when not given.
    pub partition: Option<u32>,
    /// The program that it executes, when that is not the usual one.
    pub init: Option<String>,
}

/// The settings of a guest's first program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstProgram {
    /// The root that it mounts. Without it, the initramfs behind its own goes on.
    pub root: Option<GuestRoot>,
    /// The number of the serial line on which it tells of the guest's processes, if it is to.
    pub watch: Option<u32>,
}

impl FirstProgram {
    /// An initramfs (uncompressed) with it, whose length is a multiple of four bytes.
    ///
    /// # Panics
    /// When its settings are too long.
    #[must_use]
    pub fn initramfs(&self) -> Vec<u8> {
        let settings = self.settings();
        assert!(settings.len() <= MOST_SETTINGS_BYTES, "{} bytes of settings", settings.len());
        let program = if self.root.is_some() { "init" } else { RDINIT.trim_start_matches('/') };
        initramfs::archive(&[
            Entry::Folder("dev"),
            Entry::Folder("root"),
            Entry::Folder("sys"),
            Entry::Folder("headstart"),
            Entry::File("headstart/settings", settings.as_bytes()),
            Entry::Program(program, PROGRAM),
        ])
    }

    /// Lines of a name and a value, as the program reads them. A value that has several lines ends at its
    /// first: what follows would be settings of their own.
    fn settings(&self) -> String {
        let mut lines = Vec::new();
        let programs = match &self.root {
            None => vec!["/init"],
            Some(GuestRoot { init: Some(init), .. }) => vec![init.lines().next().unwrap_or_default()],
            Some(_) => USUAL.to_vec(),
        };
        lines.push(format!("failed headstart: cannot start {}", programs.join(" or ")));
        lines.extend(programs.iter().map(|program| format!("program {program}")));
        if let Some(root) = &self.root {
            lines.push(format!("disk {}", root_device(UML_DISK, root.partition)));
            lines.push(format!("file-system {}", root.file_system));
            lines.extend(root.read_ahead_kib.map(|kib| format!("read-ahead {}", u64::from(kib) * 2)));
        }
        lines.extend(self.watch.map(watch_setting));
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

/// The setting that has it tell of processes on this serial line. Minor numbers of serial lines begin at 64
/// (Documentation/admin-guide/devices.txt).
fn watch_setting(line: u32) -> String {
    format!("watch {}", 64 + line)
}

/// In an initramfs: begins to tell of this machine's processes on that serial line. What tells lives on when
/// the initramfs is left.
///
/// # Errors
/// Where there is no such program for this processor, or it cannot be started.
pub fn watch_this_machine(line: u32) -> io::Result<()> {
    if !is_possible() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (folder, program) = (Path::new(FOLDER), Path::new(RDINIT));
    fs::create_dir_all(folder)?;
    fs::write(folder.join("settings"), watch_setting(line) + "\n")?;
    fs::write(program, PROGRAM)?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o700))?;
    let ran = Command::new(program).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if ran.success() { Ok(()) } else { Err(io::Error::other(ran.to_string())) }
}

/// Whether there is one for this machine, on which User-mode Linux would run it.
#[must_use]
pub fn is_possible() -> bool {
    !PROGRAM.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(init: Option<&str>) -> Option<GuestRoot> {
        let init = init.map(str::to_owned);
        Some(GuestRoot { read_ahead_kib: Some(32), file_system: "ext4", partition: None, init })
    }

    #[test]
    fn its_settings_are_lines() {
        let program = FirstProgram { root: root(Some("/bin/x\nwatch 1")), watch: Some(0) };
        assert_eq!(
            program.settings(),
            "failed headstart: cannot start /bin/x\nprogram /bin/x\ndisk /dev/ubda\nfile-system \
             ext4\nread-ahead 64\nwatch 64\n"
        );
        let usual = FirstProgram { root: root(None), watch: None }.settings();
        assert!(usual.contains("program /sbin/init\nprogram /etc/init\n") && !usual.contains("watch"));
        let behind = FirstProgram { root: None, watch: Some(1) }.settings();
        assert!(behind.contains("program /init\nwatch 65\n"), "{behind}");
    }

    #[test]
    fn it_says_what_its_trial_looks_for() {
        let code = String::from_utf8_lossy(PROGRAM).into_owned();
        assert!(!is_possible() || code.contains(NO_DISK));
        let archive = FirstProgram { root: None, watch: None }.initramfs();
        assert!(archive.len().is_multiple_of(4));
    }
}
