//! The disk of an image as a block device of this kernel.

use std::os::fd::AsFd;
use std::sync::Arc;

use hs_serve::ServedDisk;
use hs_service::handover::{HandedOver, Supervisor};
use hs_ublk::{Device, DeviceNumber, Held, Shown};

/// The name under which the supervisor keeps the device.
const DEVICE: &str = "ublk";

/// Makes the device, or takes over that of a server that died: before this one gives up its rights.
pub(super) fn make(
    number: Option<DeviceNumber>,
    kept: &mut HandedOver,
    supervisor: &Supervisor,
) -> anyhow::Result<Option<Device>> {
    let Some(number) = number else { return Ok(None) };
    let held = kept.take::<Held>(DEVICE)?;
    let device = match held.and_then(|(held, pipes)| Some((held, pipes.into_iter().next()?))) {
        Some((held, keeper)) => Device::take_over(held, keeper)?,
        None => Device::add(number, supervisor.process().is_some())?,
    };
    let (held, keeper) = device.held();
    supervisor.keep(DEVICE, held, [keeper.as_fd()].into_iter())?;
    Ok(Some(device))
}

/// Shows the disk there.
pub(super) fn show(device: Option<Device>, disk: Option<&Arc<ServedDisk>>) -> anyhow::Result<Option<Shown>> {
    Ok(device.zip(disk).map(|(device, disk)| device.show(disk)).transpose()?)
}
