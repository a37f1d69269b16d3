//! Disks of images as block devices of this kernel, `/dev/ublkbN`: read-only.
//!
//! ```text
//! readers ──► kernel ──► queue's thread ──► ServedDisk
//!                 ◄──bytes── whichever thread has them
//!                 ◄──result── queue's thread
//! ```
//!
//! A [`Device`] is made before its server gives up its rights, and shows a disk once that is open. Its
//! [`Keeper`] takes it away when no server and no supervisor is left. docs/UBLK.md says what users get.

#![forbid(unsafe_code)]

mod device;
mod keeper;
mod served_queue;

pub use device::{Device, DeviceNumber, Held, Shown, UblkStats};
pub use keeper::{ARGUMENT as KEEPER_ARGUMENT, Keeper, keeper_main};
