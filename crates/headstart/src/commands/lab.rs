//! `headstart lab`: one file a command.

pub(crate) mod calibrate;
mod direct;
pub(crate) mod disk;
pub(crate) mod experiments;
pub(crate) mod media;
pub(crate) mod predict;
pub(crate) mod replay;
pub(crate) mod trace;
