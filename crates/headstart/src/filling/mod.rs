//! The processes behind a file that fills itself: one fills, one guards, one stands by.
//!
//! ```text
//! headstart attach ──► guard: holds the fanotify group, answers nobody while the server lives
//!                        │ starts, with the group, the file and its sidecar as descriptors
//!                        ▼
//!                      server: asked, fills, answers; ends when the file is complete
//!                      standby: waits until both have died, and is the guard then
//! ```
//!
//! When the server dies, the guard gives an error to those whom it has not answered, starts another, and while there
//! is none gives an error to everybody who asks.

mod control;
mod guard;
mod guarded;
mod process;
mod server;
mod standby;

pub(crate) use control::{Request, ask};
pub(crate) use guard::guard;
pub(crate) use process::Descriptors;
pub(crate) use server::serve;
pub(crate) use standby::stand_by;
