//! What tests of front ends are given: an image of a disk, and a medium that answers when a test says so.
//!
//! The tests of this crate need more than one front end: `conformance` runs one suite over all of them,
//! `page_use` compares what programs do with a served disk with what the kernel reports of it.

#![forbid(unsafe_code)]

mod gates;
mod sample;

pub use gates::{Gates, OpenAtEnd};
pub use sample::{Sample, WINDOW};
