//! A command always ends, also when it waits for a store that does not answer.
//!
//! ```text
//! taking down   the store is closed: reads that wait fail          (ServedDisk::close)
//!               file system, loop device and FUSE mount go
//!   after 1 s   the FUSE connection is ended                       (Deadline)
//!   after 3 s   the process is
//! killed        another process ends the FUSE connection           (Guard)
//! ```
//!
//! A thread that waits for a disk which its own process serves cannot be killed. The process keeps its
//! `/dev/fuse` open as long as it has a thread, and no thread answers any more. Only ending the connection
//! helps, and only another process can do that.

mod deadline;
mod early;
mod end_request;
mod guard;
mod interruption;

pub use self::deadline::Deadline;
pub use self::early::EndsEarly;
pub use self::end_request::{EndRequest, was_told};
pub use self::guard::{ARGUMENT as GUARD_ARGUMENT, Guard, guard_main};
pub use self::interruption::Interruption;
