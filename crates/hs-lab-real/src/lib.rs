//! The laboratory on real files, devices and images. What is pure of it is in `hs-lab`.
//!
//! - [`calibrate`]: probes a device, and fits a model.
//! - [`replay`], [`trace`]: requests to a device, given and observed.
//! - [`predict`]: the time of a start, from an image and its profile.
//! - [`experiments`], [`media`]: experiments of `hs-lab`, also on this machine's own kernel.

pub mod calibrate;
pub mod experiments;
mod machine;
pub mod media;
pub mod predict;
mod program;
mod real_file;
pub mod replay;
mod residency;
pub mod trace;
