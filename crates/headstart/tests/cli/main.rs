//! The built program, as people and scripts use it.

mod formats;
mod images;
mod mounts;
mod rootless;
mod scene;
mod starts;
mod usage;
