//! `headstart lab`: one file a command.

pub(crate) mod disk;
pub(crate) mod experiments;
pub(crate) mod media;
