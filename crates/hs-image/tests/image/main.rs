//! Images on disk: what is built, what damage and bad sectors do to it, and what is left when building fails.

mod allocation;
mod cached;
mod damage;
mod determinism;
mod errors_log;
mod outages;
mod sample;
mod truncation;
mod unreadable;
mod verifying;
mod writing;
