//! The root of a machine that boots from an image.
//!
//! The program `headstart-live` lies in the initramfs. It finds the image that the kernel's command line
//! names, shows its disk by FUSE, mounts the file system in it, and puts an overlay for writes above that:
//!
//! ```text
//! kernel command line ─► words ─► medium ─► /run/initramfs/headstart/medium (a disc, a stick, a disk)
//!                                              │ or an address
//!                        server, in a root of its own, /run/initramfs/headstart
//!                                              │ disk/disk.img (FUSE) ─► loop ─► fs (ext4)
//!                        overlay of fs and a tmpfs, or a persistent file system ─► the new root
//! ```
//!
//! On a disk that `headstart install` has made, the server keeps writes in a file beside the image, and the
//! new root is `fs` itself.
//!
//! A keeper beside the server mounts a medium again that was pulled out and put back; the server's store then
//! opens its image again. It also notes that the system in a slot of an installed disk has come up.
//!
//! The server has a root and mounts of its own, which stay when the initramfs gives way to the real root: its
//! program, libraries, devices and mounts.

#![forbid(unsafe_code)]

pub mod boot_state;
pub mod came_up;
pub mod device;
pub mod keeper;
pub mod overlay;
pub mod private_root;
mod reading;
pub mod root;
pub mod server;
pub mod udev_rules;
pub mod verify;
pub mod words;

/// Where everything of the program lies. systemd leaves mounts below `/run/initramfs` alone at shutdown.
pub const BASE: &str = "/run/initramfs/headstart";
