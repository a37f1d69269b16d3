//! What init tells: records of three numbers on a pipe, each written in one piece.

use std::io::{self, Read};
use std::os::fd::BorrowedFd;

/// How far the setting up of a root has got; the number that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Step {
    /// Starting this program again as init.
    Exec,
    /// Reading init's specification.
    Spec,
    /// Changing the root.
    Pivot,
    /// Mounting `/proc`.
    Proc,
    /// Masking files of the kernel.
    Masks,
    /// Changing the working directory.
    Cwd,
    /// Giving up privileges.
    Confine,
    /// Starting the command.
    Command,
}

impl Step {
    const ALL: [Self; 8] = [
        Self::Exec,
        Self::Spec,
        Self::Pivot,
        Self::Proc,
        Self::Masks,
        Self::Cwd,
        Self::Confine,
        Self::Command,
    ];

    /// In words.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Exec => "start init",
            Self::Spec => "read init's orders",
            Self::Pivot => "change the root",
            Self::Proc => "mount /proc",
            Self::Masks => "mask files of the kernel",
            Self::Cwd => "enter the working directory",
            Self::Confine => "give up privileges",
            Self::Command => "start the command",
        }
    }
}

/// One message of init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The command runs.
    Started,
    /// It cannot, for an errno.
    Failed(Step, i32),
    /// It ended, with a status as `wait(2)` gives it.
    Ended(i32),
}

/// Length of a record, in bytes: less than `PIPE_BUF`, so it never comes in pieces.
const RECORD_BYTES: usize = 12;

impl Report {
    fn encode(self) -> [u8; RECORD_BYTES] {
        let (kind, step, value) = match self {
            Self::Started => (1, 0, 0),
            Self::Failed(step, errno) => (2, step as u32, errno),
            Self::Ended(status) => (3, 0, status),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&u32::to_ne_bytes(kind));
        bytes[4..8].copy_from_slice(&step.to_ne_bytes());
        bytes[8..].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    fn decode(bytes: [u8; RECORD_BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, value @ ..] = bytes;
        let value = i32::from_ne_bytes(value);
        match u32::from_ne_bytes([a, b, c, d]) {
            1 => Some(Self::Started),
            2 => {
                let step = u32::from_ne_bytes([e, f, g, h]);
                Step::ALL
                    .into_iter()
                    .find(|&known| known as u32 == step)
                    .map(|step| Self::Failed(step, value))
            }
            3 => Some(Self::Ended(value)),
            _ => None,
        }
    }

    /// Sends it. Safe between `fork` and `exec`: it only writes.
    pub(super) fn send(self, pipe: BorrowedFd<'_>) {
        // If the pipe has no reader, no process waits for the report.
        let _ = rustix::io::write(pipe, &self.encode());
    }

    /// Waits for the next one; `None` at the end.
    pub(super) fn receive(pipe: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; RECORD_BYTES];
        match pipe.read_exact(&mut bytes) {
            Ok(()) => Ok(Self::decode(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive() {
        let failures = Step::ALL.map(|step| Report::Failed(step, 2));
        for report in failures.into_iter().chain([Report::Started, Report::Ended(-7)]) {
            assert_eq!(Report::receive(&mut &report.encode()[..]).unwrap(), Some(report));
        }
        assert_eq!(Report::receive(&mut &[9; 12][..]).unwrap(), None);
        assert_eq!(Report::receive(&mut &[1; 11][..]).unwrap(), None);
    }
}
