//! Guests: whole systems that boot from a disk that headstart serves.
//!
//! - [`uml`], [`qemu`]: how User-mode Linux and QEMU are told what to boot from, and where they write.
//! - [`first_program`]: what sets the guest's read-ahead before it reads its disk, in an initramfs.
//! - [`jail`]: the root in which they run, and the user that they run as.
//! - [`preload`], [`xstate`]: what User-mode Linux needs on processors with more registers than it knows of.
//! - [`uml_trial`], [`qemu_trial`]: whether guests run here.
//! - [`kvm`]: whether QEMU's guests run on the processor itself here.
//! - [`console`]: what a guest's console says about how far it has come; no I/O.
//! - [`Guest`]: one that runs, in a PID namespace that ends with this process.

pub mod console;
mod elf;
mod error;
pub mod first_program;
mod guest;
mod initramfs;
pub mod jail;
pub mod kvm;
mod libraries;
pub mod preload;
pub mod qemu;
pub mod qemu_trial;
pub mod uml;
pub mod uml_trial;
pub mod xstate;

pub use error::GuestError;
pub use guest::{Guest, Launch};
