//! Models of media: a request goes in, the time of its service comes out.
//!
//! A [`Device`] is told *when* a request reaches the medium and answers *when* its bytes arrive. It
//! has no clock and does no I/O: the same model runs under the lab's virtual clock and under the
//! emulate layer of `hs-store`, which really sleeps. A [`Medium`] is the written name of a model,
//! such as `flat-10ms-25mbs`, and makes fresh devices of it.
//!
//! One model a file: [`flat`](Flat) is a latency and a rate, nothing else. `cd` and `hdd` are the figures of
//! two drives, over one `drive` (head and buffer) on two surfaces, `spiral` and `zones`; docs/MEDIA.md names
//! their sources. `news` are the disks of a workstation of 1986 to 1991, which also write, on surfaces of
//! `tracks`; docs/PAPERS.md names theirs. `optical` are CD drives by their control of the rotation,
//! [`EmmcSpec`] is flash whose service time depends on the address step, `cloud_volume` a disk whose blocks
//! are far away until they are touched. [`SsdSpec`], [`LinkSpec`] and [`DiskSpec`] are models whose figures
//! are given: by a preset, or by a file of a person's own ([`Model::from_toml`]).

#![forbid(unsafe_code)]

mod cd;
mod cloud_volume;
mod drive;
mod emmc;
mod flat;
mod hdd;
mod link;
mod medium;
mod model;
mod model_file;
mod news;
mod optical;
mod presets;
mod quantity;
mod seek;
mod service;
mod shared_link;
mod spiral;
mod ssd;
mod stream;
mod surface;
mod tracks;
mod turning;
mod zones;

pub use emmc::EmmcSpec;
pub use flat::{Flat, FlatSpec};
pub use link::LinkSpec;
pub use medium::{Medium, MediumError};
pub use model::{Model, ModelKind, ModelName};
pub use model_file::{ModelFileError, ModelFileFault, write as write_model_file};
pub use news::NewsDisk;
pub use optical::{OpticalDrive, Rotation};
pub use presets::{PRESETS, Preset};
pub use quantity::{Quantity, QuantityFault};
pub use service::Service;
pub use shared_link::{Flow, FlowKey, LinkEvent, SharedLink};
pub use ssd::{SsdRates, SsdSpec};
pub use stream::Stream;
pub use turning::DiskSpec;

use hs_units::{ByteRange, Nanos};

/// A medium that serves requests in time.
///
/// `now` is on the caller's clock and must not go backwards between calls on one device. A device
/// promises a [`Service`] when the request is submitted and never revises it: what is queued
/// behind an abandoned request keeps the time that it was told.
pub trait Device: Send {
    /// Hands `request` to the medium at `now` and learns when it will be served.
    ///
    /// A request of no bytes is still a request: it costs its latency.
    fn submit(&mut self, now: Nanos, request: ByteRange) -> Service;

    /// Tells that the caller stopped taking the bytes of `service` at `now`. What [`Service`] says
    /// arrived by then has been delivered. The link is free again from `now` on, unless other
    /// requests are already queued behind this one; those keep their times.
    fn abandon(&mut self, now: Nanos, service: Service);
}

/// A medium that can also be written to.
pub trait WritableDevice: Device {
    /// Hands a write to the medium at `now` and learns when the medium will have it. `first_byte` is when it
    /// begins to be written.
    fn write(&mut self, now: Nanos, request: ByteRange) -> Service;
}
