//! Files that fill themselves: whether the kernel asks before a file is read.

use hs_fill::{FillError, probe};

use crate::{Check, CheckState};

pub(crate) const NAME: &str = "fanotify pre-content events";
const NEEDED_FOR: &str = "attach: a file that fills itself before it is read";

pub(crate) fn checks() -> Vec<Check> {
    vec![judge(probe(&std::env::temp_dir()))]
}

fn judge(outcome: Result<(), FillError>) -> Check {
    match outcome {
        Ok(()) => Check::ok(NAME, "work (tried)", NEEDED_FOR),
        // The kernel knows them, and says that this file system does not.
        Err(FillError::FileSystem { .. }) => {
            Check::ok(NAME, "in this kernel; not on the file system of temporary files", NEEDED_FOR)
        }
        Err(FillError::NeedsRoot) => Check::ok(NAME, "not for users", NEEDED_FOR)
            .but(CheckState::Missing, "run as root (`sudo headstart doctor` tries it)"),
        Err(error @ FillError::KernelLacksEvents { .. }) => {
            Check::ok(NAME, format!("failed: {error}"), NEEDED_FOR)
                .but(CheckState::Missing, "with Linux 6.14 or newer; until then, use mount, serve or export")
        }
        Err(error) => Check::ok(NAME, format!("not tried: {error}"), NEEDED_FOR)
            .but(CheckState::Degraded, "set TMPDIR to a folder on ext4, XFS or btrfs to have it tried"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_them_is_said_to_lack_them() {
        let source = std::io::Error::from_raw_os_error(libc::EINVAL);
        let check = judge(Err(FillError::KernelLacksEvents { source }));
        assert_eq!(check.state, CheckState::Missing);
        assert!(check.advice.contains("6.14"));
        let check = judge(Err(FillError::NeedsRoot));
        assert!(check.state == CheckState::Missing && check.advice.contains("root"), "{check:?}");
        assert_eq!(judge(Err(FillError::FileSystem { path: "/tmp".into(), kind: 1 })).state, CheckState::Ok);
    }
}
