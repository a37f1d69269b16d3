//! Has containerd collect garbage once more.
//!
//! containerd removes snapshots when it collects garbage. A snapshotter that does not answer then, or whose
//! answer is cut off, has missed it: containerd logs a warning, and looks at this snapshotter's snapshots
//! again only after another one was removed. (Its connection waits for up to three seconds before it is made
//! again.) So a snapshotter that starts has containerd look at them, by a snapshot that is made and removed.
//! What goes is for containerd to say, which alone knows what is in use.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::grpc_client::{Client, Refused};
use crate::messages::Empty;

/// The first pause before containerd is asked again, which doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often it is asked: for eight minutes.
const TRIES: u32 = 22;
/// Names of what is made for it begin so.
const NAME: &str = "headstart-collect";
/// A namespace for it where there is none.
const NAMESPACE: &str = "default";
/// The type of a plugin that is a snapshotter.
const SNAPSHOTTER: &str = "io.containerd.snapshotter.v1";
/// Codes of gRPC.
const NOT_FOUND: u32 = 5;
const ALREADY_EXISTS: u32 = 6;

/// Has the containerd at the socket `containerd` collect what the snapshotter at `socket` has missed, as soon
/// as both hear one another. Where there is none, nothing was missed.
pub(crate) fn collect(containerd: &Path, socket: &Path) {
    let mut pause = FIRST_PAUSE;
    for _ in 0..TRIES {
        match collect_once(containerd, socket) {
            Ok(true) => return log::info!("containerd has collected what this snapshotter may have missed"),
            Ok(false) => return log::info!("the containerd at {} does not use it", containerd.display()),
            Err(error) => log::debug!("containerd does not collect yet: {error:#}"),
        }
        std::thread::sleep(pause);
        pause = LONGEST_PAUSE.min(2 * pause);
    }
    log::warn!(
        "the containerd at {} did not answer: what it removed while there was no snapshotter stays until it \
         removes something else",
        containerd.display()
    );
}

/// Whether it has collected; false where no plugin of it is at `socket`.
fn collect_once(containerd: &Path, socket: &Path) -> anyhow::Result<bool> {
    let mut client = Client::connect(containerd)?;
    let plugins: Plugins = client.call(
        "/containerd.services.introspection.v1.Introspection/Plugins",
        NAMESPACE,
        &PluginsRequest::default(),
    )?;
    let Some(plugin) = plugins.of_socket(socket) else { return Ok(false) };
    let namespaces: Namespaces =
        client.call("/containerd.services.namespaces.v1.Namespaces/List", NAMESPACE, &Empty {})?;
    let namespace = namespaces.namespaces.into_iter().next().map_or(NAMESPACE.to_owned(), |found| found.name);
    let key = format!("{NAME}-{plugin}");
    let snapshot = SnapshotRequest { snapshotter: plugin, key: key.clone(), ..SnapshotRequest::default() };
    let snapshots = |method| format!("/containerd.services.snapshots.v1.Snapshots/{method}");
    // What a try before this one has begun is there, or was collected.
    let made = client.call::<Empty>(&snapshots("Prepare"), &namespace, &snapshot);
    unless(made, ALREADY_EXISTS).context("make a snapshot")?;
    let removed = client.call::<Empty>(&snapshots("Remove"), &namespace, &snapshot);
    unless(removed, NOT_FOUND).context("remove a snapshot")?;
    // The end of a lease is what a client can wait for.
    let leases = |method| format!("/containerd.services.leases.v1.Leases/{method}");
    let lease = LeaseRequest { id: key.clone(), labels: HashMap::new() };
    unless(client.call::<Empty>(&leases("Create"), &namespace, &lease), ALREADY_EXISTS).context("lease")?;
    client.call::<Empty>(&leases("Delete"), &namespace, &EndRequest { id: key, is_sync: true })?;
    Ok(true)
}

/// A refusal with this code is as good.
fn unless(called: anyhow::Result<Empty>, code: u32) -> anyhow::Result<()> {
    match called {
        Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == code) => Ok(()),
        called => called.map(drop),
    }
}

/// Of messages of containerd's services, by the numbers of its `api/services/*/v1/*.proto` (containerd,
/// Apache-2.0), the fields that are used here.
#[derive(Clone, PartialEq, prost::Message)]
struct PluginsRequest {
    #[prost(string, repeated, tag = "1")]
    filters: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Plugins {
    #[prost(message, repeated, tag = "1")]
    plugins: Vec<Plugin>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Plugin {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(map = "string, string", tag = "5")]
    exports: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Namespaces {
    #[prost(message, repeated, tag = "1")]
    namespaces: Vec<Namespace>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Namespace {
    #[prost(string, tag = "1")]
    name: String,
}

/// `PrepareSnapshotRequest`, and as far as it goes `RemoveSnapshotRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct SnapshotRequest {
    #[prost(string, tag = "1")]
    snapshotter: String,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(string, tag = "3")]
    parent: String,
}

/// `CreateRequest` of leases.
#[derive(Clone, PartialEq, prost::Message)]
struct LeaseRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(map = "string, string", tag = "3")]
    labels: HashMap<String, String>,
}

/// `DeleteRequest` of leases.
#[derive(Clone, PartialEq, prost::Message)]
struct EndRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(bool, tag = "2")]
    is_sync: bool,
}

impl Plugins {
    /// The name of the snapshotter whose socket this is.
    fn of_socket(&self, socket: &Path) -> Option<String> {
        let is_it = |plugin: &&Plugin| {
            let address = plugin.exports.get("address").map(|address| address.trim_start_matches("unix://"));
            let same = |address: &str| Path::new(address).canonicalize().is_ok_and(|path| path == socket);
            plugin.kind == SNAPSHOTTER && address.is_some_and(same)
        };
        self.plugins.iter().find(is_it).map(|plugin| plugin.id.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshotter_is_found_by_its_socket() {
        let place = tempfile::tempdir().expect("a folder");
        let socket = place.path().canonicalize().expect("a path").join("s.sock");
        std::fs::write(&socket, "").expect("written");
        let plugin = |kind: &str, id: &str, address: &str| Plugin {
            kind: kind.to_owned(),
            id: id.to_owned(),
            exports: HashMap::from([("address".to_owned(), address.to_owned())]),
        };
        let path = socket.to_str().expect("text");
        let other = plugin("io.containerd.content.v1", "content", path);
        let mut plugins = Plugins { plugins: vec![other, plugin(SNAPSHOTTER, "native", "/none")] };
        assert_eq!(plugins.of_socket(&socket), None);
        plugins.plugins.push(plugin(SNAPSHOTTER, "lazy", &format!("unix://{path}")));
        assert_eq!(plugins.of_socket(&socket), Some("lazy".to_owned()));
    }
}
