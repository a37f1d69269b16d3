//! The built program, as people and scripts use it.

mod addresses;
mod background_fill;
mod bad_sectors;
mod boots;
mod cache;
mod channels;
mod demo;
mod filling;
#[path = "../../../hs-serve/tests/support/filling.rs"]
mod filling_folder;
mod formats;
mod images;
mod install;
mod lab;
mod mount8;
mod mounts;
mod nbd;
mod nbd_reconnect;
mod nbd_tls;
mod prefetch_rate;
mod qemu_boots;
mod qemu_kernels;
mod registry;
mod remote;
mod rootless;
mod s3;
mod scaling;
mod scene;
mod serve_http;
mod service;
mod starts;
mod supervised;
mod under_systemd;
mod usage;
mod web;
