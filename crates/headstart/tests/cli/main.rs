//! The built program, as people and scripts use it.

mod helpers;
mod images;
mod install;
mod mounts;
mod rootless;
mod scene;
mod service;
mod starts;
mod usage;
