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
mod recorder;
mod runtime_config;

use std::time::{Duration, SystemTime};

use hs_remote::http::Timeouts;
use hs_trust::date::Date;

/// A server sends nothing while it receives a piece, which takes long on a slow link.
const PATIENT: Timeouts = Timeouts { connect: Duration::from_secs(10), stall: Duration::from_secs(300) };

/// When something was made, as RFC 3339 has it, so exact that two are told apart which are made one after the
/// other.
fn created_at(time: SystemTime) -> String {
    let nanos = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let date = Date::at(time).to_string();
    format!("{}.{nanos:09}Z", date.trim_end_matches('Z'))
}
