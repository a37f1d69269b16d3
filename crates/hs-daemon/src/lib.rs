//! The processes behind `headstart mount`, `serve` and `attach`: servers that run until they are told to end.
//!
//! - [`mount`]: shows a disk as a file, and mounts its file system.
//! - [`serve`]: NBD exports, block devices, images as files over HTTP, and the memory of guests.
//! - [`attach`]: fills a file, with a guard and a standby.
//! - [`fill_cache`]: brings a whole image into the disk cache.

pub mod attach;
mod background_fill;
pub mod fill_cache;
mod fronts;
mod keep;
mod live_page;
pub mod mount;
mod mounted;
mod named_image;
mod recording;
pub mod serve;
mod serve_block_device;
pub mod serve_guests;
mod serve_http;
mod serve_memory;

pub use background_fill::Fill;
pub use recording::{RecordTo, Recording};

/// Supervision and metrics of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Run without a supervisor.
    pub unsupervised: bool,
    /// The address for Prometheus.
    pub metrics: Option<String>,
    /// The socket to the supervisor, for the server that it starts.
    pub supervisor_fd: Option<i32>,
    /// The socket to another process that keeps what the supervisor keeps.
    pub keeper_fd: Option<i32>,
    /// The pipe with what opens the image, for the first server.
    pub opening_fd: Option<i32>,
}

impl ServerOptions {
    /// Whether this process is to be the supervisor.
    const fn starts_supervisor(&self) -> bool {
        !self.unsupervised && self.supervisor_fd.is_none()
    }
}
