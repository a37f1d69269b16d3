//! The built program, as people and scripts use it.

mod boots;
mod formats;
mod images;
mod install;
mod mount8;
mod mounts;
mod nbd;
mod rootless;
mod scene;
mod service;
mod starts;
mod usage;
