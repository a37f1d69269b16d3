//! A filter with which containerd looks for snapshots: what is accepted is applied, and finds the same twice.

use hs_snapshotter::filter::Filter;
use hs_snapshotter::snapshots::{Content, Kind, Labels, Snapshot, Usage};

/// Whether it is a filter; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(filter) = Filter::parse(text) else { return false };
    let labels = [("containerd.io/snapshot.ref", "sha256:ab"), ("plain", "a,b")];
    let labels: Labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let snapshot = |parent: Option<&str>| Snapshot {
        id: 1,
        parent: parent.map(str::to_owned),
        kind: Kind::Committed,
        content: Content::Files,
        created_ns: 0,
        updated_ns: 0,
        labels: labels.clone(),
        usage: Usage::default(),
    };
    let again = Filter::parse(text).expect("it was one before");
    for parent in [None, Some("k8s.io/1/sha256:cd")] {
        let snapshot = snapshot(parent);
        assert_eq!(filter.matches("n", &snapshot), again.matches("n", &snapshot));
    }
    true
}
