//! Opens an image wherever it lies, and starts a program or a guest from it.
//!
//! - [`image`], [`location`]: an image as the user names it, and how it is fetched.
//! - [`channel`], [`remote`], [`medium`], [`on_medium`], [`bad_sectors`]: from there to an open store.
//! - [`open`]: opens images and profiles for commands.
//! - [`pack`]: the image that a pack and its disk make.
//! - [`cache`]: the cache of a served image.
//! - [`start`], [`environment`], `ready_line`: a command in the root of an image.
//! - [`boot`]: a guest that boots from an image.
//! - [`record`], [`fit`]: profiles of both, and on other disks.
//! - [`recording_line`]: how a machine that records its own start gives the profile away.
//! - [`learned`]: profiles that starts keep for the next one.
//! - [`trace`], [`process_log`], [`stage_spans`]: requests, processes and stages of a start, for reports.
//! - [`source`], [`disk_files`], `container`: what images are built from.
//! - `own_command`: how an image of a container starts.
//! - [`progress`]: how far long work has come.
//! - [`summary`]: the figures of both.
//! - [`pinned`], [`server_files`]: what a server of images keeps and opens; [`keep`]: what keeps its writes.

pub mod bad_sectors;
mod base;
pub mod boot;
pub mod cache;
pub mod channel;
pub mod container;
pub mod disk_files;
mod el_torito;
pub mod environment;
pub mod fit;
pub mod guest_processes;
pub mod image;
pub mod iso_files;
pub mod keep;
pub mod learned;
mod limit;
pub mod location;
pub mod medium;
pub mod on_medium;
pub mod open;
pub mod opening_pipe;
pub mod own_command;
pub mod pack;
pub mod pinned;
pub mod process_log;
pub mod progress;
mod ready_line;
pub mod record;
pub mod recording_line;
pub mod remote;
pub mod server_files;
pub mod source;
pub mod stage_spans;
pub mod start;
pub mod summary;
pub mod trace;
