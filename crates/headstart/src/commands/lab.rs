//! `headstart lab`: one file a command.

pub(crate) mod calibrate;
pub(crate) mod disk;
pub(crate) mod experiments;
pub(crate) mod media;
pub(crate) mod predict;
mod program;
mod real_file;
pub(crate) mod replay;
mod residency;
pub(crate) mod trace;
