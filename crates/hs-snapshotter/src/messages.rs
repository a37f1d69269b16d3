//! Messages of containerd's snapshots service, as its `api/services/snapshots/v1/snapshots.proto` and
//! `api/types/mount.proto` number their fields (containerd, Apache-2.0), and three of protobuf's own types.

use std::collections::HashMap;

/// `PrepareSnapshotRequest` and `ViewSnapshotRequest`, which are the same.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PrepareRequest {
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(string, tag = "3")]
    pub parent: String,
    #[prost(map = "string, string", tag = "4")]
    pub labels: HashMap<String, String>,
}

/// `StatSnapshotRequest`, and all others that have a key alone.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyRequest {
    #[prost(string, tag = "2")]
    pub key: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CommitRequest {
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub key: String,
    #[prost(map = "string, string", tag = "4")]
    pub labels: HashMap<String, String>,
    /// Asks for the capability `rebase`, which is not offered.
    #[prost(string, tag = "5")]
    pub parent: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UpdateRequest {
    #[prost(message, optional, tag = "2")]
    pub info: Option<Info>,
    #[prost(message, optional, tag = "3")]
    pub update_mask: Option<FieldMask>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListRequest {
    #[prost(string, repeated, tag = "2")]
    pub filters: Vec<String>,
}

/// The answer to Prepare, View and Mounts.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MountsAnswer {
    #[prost(message, repeated, tag = "1")]
    pub mounts: Vec<Mount>,
}

/// `containerd.types.Mount`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mount {
    /// The file system's type, or `bind`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// What is mounted.
    #[prost(string, tag = "2")]
    pub source: String,
    /// Options of mount(8).
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

/// The answer to Stat and Update.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InfoAnswer {
    #[prost(message, optional, tag = "1")]
    pub info: Option<Info>,
}

/// One message of the answer to List.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListAnswer {
    #[prost(message, repeated, tag = "1")]
    pub info: Vec<Info>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UsageAnswer {
    #[prost(int64, tag = "1")]
    pub size: i64,
    #[prost(int64, tag = "2")]
    pub inodes: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Info {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub parent: String,
    #[prost(enumeration = "InfoKind", tag = "3")]
    pub kind: i32,
    #[prost(message, optional, tag = "4")]
    pub created_at: Option<Timestamp>,
    #[prost(message, optional, tag = "5")]
    pub updated_at: Option<Timestamp>,
    #[prost(map = "string, string", tag = "6")]
    pub labels: HashMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum InfoKind {
    Unknown = 0,
    View = 1,
    Active = 2,
    Committed = 3,
}

/// `google.protobuf.Empty`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Empty {}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `google.protobuf.FieldMask`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FieldMask {
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
}
