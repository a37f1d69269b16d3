//! What `headstart mount --json` prints.

use hs_fuse::ServedImage;
use hs_serve::MountedFs;
use serde_json::{Value, json};

use hs_service::metrics::MetricsSocket;
use hs_service::run_folder::StatusSocket;
use hs_service::status::Status;

/// The object for a mount that is ready. What `headstart status --json` has as well has the same key here. A
/// path that is not UTF-8 is shown with replacement characters.
pub(super) fn report(
    status: &Status,
    served: &ServedImage,
    mounted: Option<&MountedFs>,
    socket: Option<&StatusSocket>,
    metrics: Option<&MetricsSocket>,
    ui: Option<&str>,
) -> Value {
    let device = mounted.and_then(MountedFs::device);
    json!({
        "image": status.image,
        "disk_digest": served.disk().image().disk_digest().to_string(),
        "image_digest": served.disk().image().image_digest().to_string(),
        "dir": status.dir,
        "disk": status.dir.join("disk.img"),
        "fs": status.fs,
        "file_system": mounted.map(|mounted| mounted.file_system().name()),
        "device": device.map(|device| device.path().to_string_lossy()),
        "prefetch": status.prefetch.mode,
        "medium": status.medium,
        "pid": status.pid,
        "supervisor": status.supervisor,
        "status_socket": socket.map(|socket| socket.path().to_string_lossy()),
        "metrics": metrics.map(MetricsSocket::url),
        "ui": ui,
        "log": status.log,
    })
}
