//! One file a command.

pub(crate) mod attach;
pub(crate) mod boot;
pub(crate) mod build;
pub(crate) mod commit;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod disk_cache;
pub(crate) mod docs;
pub(crate) mod export;
pub(crate) mod hydrate;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod iso;
pub(crate) mod lab;
pub(crate) mod mount;
pub(crate) mod optimize;
pub(crate) mod overlay;
pub(crate) mod profile;
pub(crate) mod push;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sign;
mod source;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod verify;
