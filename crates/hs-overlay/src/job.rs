//! What is to be done with the file.

/// One step of a job.
#[derive(Clone, PartialEq, Eq)]
pub enum Step {
    /// Write these bytes.
    Write {
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// All that was written is on the medium when this ends (`fdatasync`).
    Sync,
    /// Space for this range is taken, so that writing it later cannot fail for want of it (`fallocate`).
    Allocate {
        /// Where.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The range becomes a hole. This may fail, or not be done.
    Punch {
        /// Where.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Reads of the file that began before have ended: what they read may be written again.
    Quiesce,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Write { offset, bytes } => write!(f, "write {} bytes at {offset}", bytes.len()),
            Self::Sync => write!(f, "sync"),
            Self::Allocate { offset, len } => write!(f, "allocate {len} bytes at {offset}"),
            Self::Punch { offset, len } => write!(f, "punch {len} bytes at {offset}"),
            Self::Quiesce => write!(f, "quiesce"),
        }
    }
}

/// Steps that are done in this order. The first that fails ends the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The steps.
    pub steps: Vec<Step>,
}

/// The kind of the step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedStep {
    /// [`Step::Write`] or [`Step::Allocate`].
    Write,
    /// [`Step::Sync`].
    Sync,
}

/// How a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Where.
    pub step: FailedStep,
    /// There is no space left, or no more is allowed.
    pub no_space: bool,
}
