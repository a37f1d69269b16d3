//! Bootable media, and installed disks ([`install`]), whose root is a headstart image.
//!
//! ```text
//! directory or image ─► root (mounted, with an overlay) ─► kernel, initrd with `headstart-live`
//!                   └─► image                                   │
//!                         └──────── tree ◄──────────────────────┤
//!                                    │                     boot loaders: GRUB for BIOS and UEFI
//!                                    ▼ xorriso, files in the order in which they are read
//!                              hybrid ISO: disc and USB stick
//! ```

#![forbid(unsafe_code)]

mod boot_loader;
mod disc;
mod drafts;
mod initrd;
pub mod install;
mod iso;
mod medium;
mod parts;
mod system;
mod tools;

pub use disc::{Disc, DiscPlace};
pub use initrd::{Generator, InitrdKind};
pub use iso::{IsoSpec, Made, make};
pub use parts::SystemSpec;
pub use tools::Lack;
