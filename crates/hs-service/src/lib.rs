//! Life as a service: what a server tells the system, how careful it is with itself, and how it ends.
//!
//! - [`supervisor`], [`handover`], [`backoff`]: another process keeps descriptors and restarts a server that
//!   dies; [`keeper`]: a third one keeps them too, and restarts a supervisor that dies with its server.
//! - [`background`], [`own_arguments`]: this program, started again.
//! - [`run_folder`], [`status`], [`queue_status`], [`metrics`], [`notify`]: what a server tells others.
//! - [`careful`], [`confinement`], [`memory`]: what a server may do and use.
//! - [`ending`], [`signals`]: a process always ends, also when it waits for a store.
//! - [`workdir`]: a folder for mounts that no other process sees.

pub mod background;
pub mod backoff;
pub mod careful;
pub mod confinement;
pub mod ending;
pub mod handover;
pub mod keeper;
pub mod memory;
pub mod metrics;
pub mod notify;
pub mod own_arguments;
pub mod questions;
pub mod queue_status;
pub mod run_folder;
mod seccomp;
pub mod status;
pub mod supervisor;
pub mod workdir;

pub use hs_linux::ends as signals;
