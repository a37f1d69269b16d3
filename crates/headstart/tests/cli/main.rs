//! The built program, as people and scripts use it.

mod bad_sectors;
mod boots;
mod demo;
mod formats;
mod images;
mod install;
mod mount8;
mod mounts;
mod nbd;
mod nbd_reconnect;
mod nbd_tls;
mod qemu_boots;
mod qemu_kernels;
mod rootless;
mod scene;
mod service;
mod starts;
mod usage;
