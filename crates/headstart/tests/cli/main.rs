//! The built program, as people and scripts use it.

mod bad_sectors;
mod boots;
mod demo;
mod filling;
#[path = "../../../hs-serve/tests/support/filling.rs"]
mod filling_folder;
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
