//! Guests that are saved when they are ready, and go on from there later, on this or another machine.
//!
//! A snapshot is the disk of an image like any other: it is recorded, laid out by first touch, served, signed
//! and verified like one.
//!
//! ```text
//! byte 0                                                                            last block
//! ├── memory, zeros are holes ──┼── state of devices ──┼── overlay (qcow2) ──┼── description ──┤
//! ```
//!
//! The memory comes first because QEMU 7.2 maps a file from its beginning only.
//!
//! - [`description`]: what a snapshot says of itself, and what it must be resumed with.
//! - [`overlay`]: what the part with the guest's writes may not name.
//! - [`save`]: makes one from a guest that has stopped.
//! - [`resume`]: lets a guest go on from one.
//! - [`record`]: records which pages that touches.
//! - `keep`: what it writes to its disk lasts.

#![forbid(unsafe_code)]

pub mod description;
mod error;
mod faults;
mod keep;
mod memory;
pub mod overlay;
pub mod record;
pub mod resume;
pub mod save;

pub use error::ResumeError;
