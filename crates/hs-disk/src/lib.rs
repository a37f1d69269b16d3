//! A served disk: an image, the disk engine, and the threads that do what it decides.
//!
//! ```text
//!  front end ── submit ──► DiskState: engine, bytes, jobs  ◄── clock thread: times, memory
//!                            │ one lock  ▲
//!                  fetch or decompress   │ stored or raw bytes
//!                            ▼           │
//!                          worker threads ──► answers
//!                            │
//!                            └─ delivery ──► delivery thread, or the worker that decompressed the chunk
//! ```
//! [`hs_engine::disk`] says what is decided, and in which order calls come. A thread that calls the
//! engine polls it until it waits, under the same lock: what another thread has to do goes into a queue, and
//! one is woken. Answers are sent, and bytes are freed, after the lock. A worker takes its next job under the
//! lock under which it reports the last one. So a hit takes the lock once, and a cold miss at most six
//! times.

#![forbid(unsafe_code)]

mod as_base;
mod bytes;
mod clock;
mod config;
mod deliver;
mod disk;
mod errors;
mod fetching;
mod figures;
mod jobs;
mod map;
mod memory;
mod outcomes;
mod pack_check;
mod prefetching;
mod state;
mod streamed;
mod warmer_place;
mod worker;

pub use config::{CacheSizing, DiskOptions, ONE_READERS_CACHE_BYTES, ReadOptions};
pub use deliver::{Deliver, parts};
pub use disk::{FillPermit, ServedDisk};
pub use figures::{DemandEvent, DiskFigures, FetchEvent, FetchPurpose, ReadLimit, Waiting, Watch};
pub use hs_engine::disk::{Requester, UseVisibility};
pub use pack_check::{ComparisonStage, PackComparison};
pub use streamed::Streamed;
pub use warmer_place::WarmerPlace;
