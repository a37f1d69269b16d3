//! Whether User-mode Linux runs guests on this machine.
//!
//! An installed program is not enough: it may be made for processors with fewer registers, or be no User-mode
//! Linux at all. As with [KVM](crate::kvm), only a trial shows it: a guest without a disk, whose first
//! program is [ours](first_program).

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hs_units::ByteSize;
use regex::Regex;

use crate::console::Console;
use crate::first_program::{self, FirstProgram, GuestRoot};
use crate::uml::{Uml, takes_initramfs};
use crate::{Guest, GuestError, xstate};

/// How long a trial may take. It is over within two seconds; a busy machine needs longer.
const TRIAL_PATIENCE: Duration = Duration::from_secs(60);
/// Memory for its guest, of which it touches little. With 32 MiB, a kernel whose addresses are randomised
/// runs out of it.
pub const TRIAL_MEMORY: ByteSize = ByteSize(128 << 20);
/// The message of User-mode Linux when the processor has more registers than it supports.
const TOO_FEW_REGISTERS: &str = "fp regs failed";
/// The message of a kernel without an initramfs that came as far as to look for its disk.
const NO_DISK: &str = "Unable to mount root fs";

/// The program and the folders of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The program.
    pub kernel: PathBuf,
    /// A folder for its files.
    pub scratch: PathBuf,
    /// An empty folder on a tmpfs of [`TRIAL_MEMORY`] and a little more, which may be executed from.
    pub memory_folder: PathBuf,
}

impl Trial {
    /// Proves that guests run, by running one with [what it needs](crate::preload::for_uml).
    ///
    /// # Errors
    /// [`GuestError::UmlUnproven`], which names the reason as far as it is known.
    pub fn prove(&self) -> Result<(), GuestError> {
        if !first_program::is_possible() || !is_elf(&self.kernel) {
            return Err(self.unproven("it is no program of this machine".to_owned()));
        }
        let initramfs = if takes_initramfs(&self.kernel) { Some(self.initramfs()?) } else { None };
        let console = Console::new(pattern(initramfs.is_some()));
        let launch = self.guest(initramfs).trial()?;
        let mut guest = Guest::start(launch, console, std::io::sink())?;
        match guest.wait_ready(Instant::now(), TRIAL_PATIENCE, "its first program", &mut |_| Ok(())) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.unproven(why(&error, &guest.tail()))),
        }
    }

    fn initramfs(&self) -> Result<PathBuf, GuestError> {
        let path = self.scratch.join("trial-initramfs");
        let root = GuestRoot { read_ahead_kib: Some(0), file_system: "ext4", partition: None, init: None };
        let program = FirstProgram { root: Some(root), watch: None };
        // The guest's user reads it, whatever this process's umask is.
        let readable = Permissions::from_mode(0o444);
        let written = std::fs::write(&path, program.initramfs())
            .and_then(|()| std::fs::set_permissions(&path, readable));
        match written {
            Ok(()) => Ok(path),
            Err(error) => Err(self.unproven(format!("{} cannot be written: {error}", path.display()))),
        }
    }

    fn guest(&self, initramfs: Option<PathBuf>) -> Uml {
        Uml {
            kernel: self.kernel.clone(),
            disk: PathBuf::new(),
            partition: None,
            keeps: false,
            scratch: self.scratch.clone(),
            memory_folder: self.memory_folder.clone(),
            memory: TRIAL_MEMORY,
            init: None,
            initramfs,
            is_watched: false,
            append: Vec::new(),
        }
    }

    fn unproven(&self, why: String) -> GuestError {
        GuestError::UmlUnproven { kernel: self.kernel.clone(), why }
    }
}

/// The message of a guest that ran: its first program finds no disk. A kernel without an initramfs has no
/// program to run.
fn pattern(has_initramfs: bool) -> Regex {
    let said = if has_initramfs { first_program::NO_DISK } else { NO_DISK };
    Regex::new(&regex::escape(said)).unwrap_or_else(|error| unreachable!("{error}"))
}

/// The reason why a guest did not run, from its end and its last lines.
pub(crate) fn why(error: &GuestError, tail: &[String]) -> String {
    if let Some(reason) = registers(tail) {
        return reason;
    }
    let error = match error {
        GuestError::NotReady { seconds, .. } => {
            format!("its first program did not run within {seconds:.0} s")
        }
        error => error.to_string(),
    };
    match tail.last() {
        Some(line) => format!("{error}; it said last: {}", line.trim()),
        None => format!("{error}; it said nothing"),
    }
}

/// The reason, if it was the processor's registers.
#[must_use]
pub fn registers(tail: &[String]) -> Option<String> {
    tail.iter().any(|line| line.contains(TOO_FEW_REGISTERS)).then(|| {
        let area = xstate::area().map_or_else(
            |error| format!("which cannot be looked at here ({error})"),
            |area| format!("{}, and this one cannot be helped", area.describe()),
        );
        format!("it could not write the processor's registers: {area}")
    })
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read =
        std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_named() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let error = GuestError::Panic { line: "Attempted to kill init!".to_owned() };
        let registers = lines("Run /init\nuserspace - ptrace set fp regs failed, errno = 14\nKernel panic");
        let said = why(&error, &registers);
        assert!(said.contains("the processor's registers") && said.contains("2696"), "{said}");
        let said = why(&error, &lines("one\ntwo"));
        assert!(said.contains("Attempted to kill init") && said.ends_with("said last: two"), "{said}");
        assert!(why(&error, &[]).ends_with("said nothing"));
    }

    #[test]
    fn what_is_no_program_is_not_started() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("linux.uml");
        std::fs::write(&kernel, "#!/bin/sh\n").unwrap();
        let place = folder.path().to_owned();
        let trial = Trial { kernel, scratch: place.clone(), memory_folder: place };
        let error = trial.prove().unwrap_err().to_string();
        assert!(error.contains("linux.uml") && error.contains("no program of this machine"), "{error}");
    }
}
