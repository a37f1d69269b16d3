//! The processes behind a file that fills itself: the server fills it, the guard guards it, and a standby
//! waits.
//!
//! ```text
//! headstart attach ──► guard: holds the fanotify group, answers no event while the server lives
//!                        │ starts, with the group, the file and its sidecar as descriptors
//!                        ▼
//!                      server: asked, fills, answers; ends when the file is complete
//!                      standby: waits until both have died, and is the guard then
//! ```
//!
//! When the server dies, the guard answers the events that the server had not noted with an error and starts
//! another server. While there is none, the guard answers every event with an error.

mod control;
mod guard;
mod guarded;
mod process;
mod report;
mod server;
mod standby;

pub(crate) use control::{Request, ask};
pub(crate) use guard::guard;
pub(crate) use process::Descriptors;
pub(crate) use server::serve;
pub(crate) use standby::stand_by;
