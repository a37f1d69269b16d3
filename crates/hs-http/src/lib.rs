//! Images, as files, over HTTP: [`HttpServer`].
//!
//! It is an ordinary web server of a few files: `hyper` speaks HTTP/1.1 and 2, `rustls` TLS, and `headers`
//! understands ranges and conditions. What remains is which client gets what, and when:
//!
//! - `answer.rs` decides, without I/O: `GET` and `HEAD` of files that were named when the server began.
//!   Nothing else exists: no request leads to a path of this machine, and none can change anything.
//! - `hidden.rs` decides, without I/O: whether a request may see a server that is for one user.
//! - `body.rs` brings the bytes, a piece at a time, when the client has taken the last one: a client that
//!   does
//!   not read holds no thread.
//! - `room.rs` bounds the bytes that all answers together hold.
//! - `pacer.rs` decides which client is sent the next piece, where the server is told the rate of its link.
//! - `buffers.rs` bounds what is on its way to each client, where the server is not told.
//! - `listener.rs` has sockets of both kinds.
//! - `connection.rs` takes connections, within limits, and `activity.rs` ends those that do nothing.
//! - `server.rs` starts, responds, counts, and ends gracefully.

#![forbid(unsafe_code)]

mod activity;
mod answer;
mod body;
mod buffers;
mod connection;
mod hidden;
mod listener;
mod pacer;
mod room;
mod server;

pub use answer::{HttpFile, HttpPage};
pub use hidden::Hidden;
pub use pacer::Rates;
pub use server::{Access, AccessLog, HttpServeOptions, HttpServer, HttpStats, HttpTls, Sent};
