//! Images for the registries and the runtimes of containers.
//!
//! - [`convert`]: an image of headstart's, made of a container's image, that lies beside it in its registry
//!   and refers to it. The original stays as it is.
//! - [`profiles`]: recorded starts that lie there too.
//! - [`annotate`]: a copy of the original's manifest that tells containerd of the conversion.
//! - [`bundle`]: a folder for an OCI runtime, whose root is mounted from an image.

#![forbid(unsafe_code)]

pub mod annotate;
pub mod bundle;
pub mod convert;
pub mod profiles;
mod runtime_config;

use std::time::Duration;

use hs_remote::http::Timeouts;

/// A server sends nothing while it receives a piece, which takes long on a slow link.
const PATIENT: Timeouts = Timeouts { connect: Duration::from_secs(10), stall: Duration::from_secs(300) };
