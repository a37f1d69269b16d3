//! Guests: whole systems that boot from a disk that headstart serves.
//!
//! - [`uml`], [`qemu`]: the command lines of User-mode Linux and QEMU.
//! - [`first_program`]: a program in an initramfs: sets the guest's read-ahead, and watches its processes.
//! - [`jail`]: the root in which they run, and the user that they run as.
//! - [`preload`], [`xstate`]: what User-mode Linux needs on processors with more registers than it supports.
//! - [`uml_trial`], [`qemu_trial`]: whether guests run on this machine.
//! - [`resumable`], [`monitor`]: guests of QEMU that are saved and go on later.
//! - [`network`]: the network card of a guest of QEMU, and what it reaches.
//! - [`kvm`]: whether QEMU's guests run under KVM on this machine.
//! - [`console`]: what a guest's console shows about its progress; no I/O.
//! - [`Guest`]: a running guest, in a PID namespace that ends with this process.

pub mod agent;
pub mod console;
mod elf;
mod error;
pub mod first_program;
mod guest;
mod initramfs;
pub mod jail;
pub mod kvm;
mod libraries;
pub mod line_socket;
pub mod monitor;
pub mod network;
pub mod preload;
pub mod qemu;
pub mod qemu_trial;
pub mod resumable;
mod root_device;
pub mod uml;
pub mod uml_trial;
pub mod xstate;

pub use error::GuestError;
pub use guest::{Guest, Input, Launch};
