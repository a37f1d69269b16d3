//! `headstart snapshotter`: a containerd proxy plugin, which mounts images lazily.
//!
//! ```text
//! containerd ── gRPC, unix socket ──► server ──► Snapshotter ──► Snapshots (no I/O): names, parents, kinds
//!                                                  │  └──► a folder for each snapshot: fs, work
//!                                                  └──► Mounts: `headstart mount`, one for each image
//! ```
//!
//! - [`snapshots`], [`filter`]: which snapshots there are, and what may become of them; no I/O.
//! - `records`: the file that has them.
//! - [`table`]: which image has which layers, as `headstart snapshotter add` was told.
//! - `mounts`, `mounted_image`, `program`: the lazily mounted trees.
//! - `unmounting`: what is to be unmounted, until it is gone.
//! - `waiting`: how long a call waits.
//! - [`Snapshotter`]: what containerd asks for.
//! - `messages`, `grpc`, [`server`]: how it asks.
//! - `collecting`, `grpc_client`: what containerd is asked when a snapshotter starts.

#![forbid(unsafe_code)]

pub mod artifact;
mod collecting;
pub mod filter;
mod grpc;
mod grpc_client;
mod messages;
mod mounted_image;
mod mounts;
mod overlay;
mod program;
mod records;
pub mod server;
pub mod snapshots;
mod snapshotter;
pub mod table;
mod unmounting;
mod waiting;

pub use snapshotter::Snapshotter;
pub use waiting::Call;
