//! A sparse file that fills itself: the kernel sends an event before a program reads it (fanotify's
//! pre-content events, Linux 6.14), and the blocks are put into the file first. docs/SELF-FILLING.md.
//!
//! ```text
//! reader ─► kernel ── event: bytes a..b? ──► events thread ── filled? ──yes──► allowed
//!             ▲                                   │ no
//!             │                                   ▼
//!             └──────── allowed ◄── FillFile ◄── ServedDisk (verified)
//!                                   ▲      ▲
//!                     prefetch (Deliver)   hydration, while no read waits
//! ```
//!
//! The file is written through a descriptor that causes no events, and a block is written once: under a lock,
//! which also knows what is filled. What is filled comes to the disk first and then to the sidecar.

mod attachment;
mod blocks;
mod demand;
mod error;
pub mod event;
mod fill_file;
mod group;
mod guard;
mod hydrate;
mod ledger;
mod marker;
mod session;
mod sidecar;
mod uncovered;
mod uses;
mod withheld;

pub use attachment::{Attachment, Handover, OpenedFile, Subject, look_at, probe};
pub use error::FillError;
pub use fill_file::FillProgress;
pub use group::{Access, EventMessage, Group, Question};
pub use guard::{Denied, Left, Survivors, deny_events, limit_descriptors};
pub use marker::Marker;
pub use session::{FillOptions, FillStats, SelfFilling};
pub use sidecar::{FileTime, Header, SidecarError, sidecar_path};
