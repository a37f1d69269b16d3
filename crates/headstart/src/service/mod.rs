//! Life as a service: what a server tells the system, and how careful it is with itself.

pub(crate) mod background;
pub(crate) mod backoff;
pub(crate) mod careful;
pub(crate) mod confinement;
pub(crate) mod handover;
pub(crate) mod metrics;
pub(crate) mod notify;
pub(crate) mod pinned;
pub(crate) mod queue_status;
pub(crate) mod run_folder;
mod seccomp;
pub(crate) mod server_files;
pub(crate) mod status;
pub(crate) mod supervisor;
