//! Images on disk: what is built, what is said of files that are none, and what is left when building fails.

mod allocation;
mod bases;
mod determinism;
mod index;
mod sample;
mod truncation;
mod verifying;
mod writing;
