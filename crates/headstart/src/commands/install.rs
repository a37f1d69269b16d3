//! `headstart install`

use anyhow::Context;
use hs_iso::install::{self, DiskReport, InstallSpec, UpdateSpec};
use hs_iso::{InitrdKind, SystemSpec};
use hs_output::show;
use hs_service::signals::Ends;
use hs_start::image::ImageSource;
use hs_start::location::ImageLocation;
use hs_units::ByteSize;

use crate::cli::Install;

/// Installs or updates a system on a disk, or shows what is there.
pub(crate) fn run(args: &Install, quiet: bool) -> anyhow::Result<()> {
    hs_linux::rootenv::enter_private_mounts()?;
    let signals = || Ends::block().context("wait for signals");
    let report = match (&args.root, &args.update) {
        (Some(root), _) => install::install(&fresh(args, root), quiet, signals()?)?,
        (None, Some(image)) => {
            let without_writes = args.without_writes;
            let spec = UpdateSpec { disk: args.disk.clone(), system: system(args, image), without_writes };
            install::update(&spec, quiet, signals()?)?
        }
        (None, None) => install::look(&args.disk)?,
    };
    if args.json {
        return show::json(&report);
    }
    print(&report);
    Ok(())
}

fn fresh(args: &Install, root: &ImageLocation) -> InstallSpec {
    InstallSpec {
        disk: args.disk.clone(),
        system: system(args, root),
        size: args.size,
        free: args.free,
        append: args.append.clone(),
        timeout_s: args.timeout,
        force: args.force,
    }
}

fn system(args: &Install, image: &ImageLocation) -> SystemSpec {
    SystemSpec {
        source: ImageSource { image: image.clone(), remote: args.remote.value() },
        kernel: args.kernel.clone().zip(args.initrd.clone()),
        live: args.live.clone(),
        initrd_kind: InitrdKind {
            generator: args.initramfs.map(Into::into),
            has_network: false,
            is_quick: args.update.is_some(),
        },
    }
}

fn print(report: &DiskReport) {
    for slot in &report.slots {
        let is_next = report.next.as_deref() == Some(&slot.slot);
        let state = match (is_next, report.good == slot.slot) {
            (true, _) => "is tried at the next start",
            (false, true) if report.next.is_none() => "is started",
            (false, true) => "is started again if that fails",
            (false, false) => "is in the boot menu",
        };
        let (image, writes) = (ByteSize(slot.image_bytes), ByteSize(slot.writes_bytes));
        show::line(format_args!("slot {} {state}: image {image}, written {writes}", slot.slot));
        show::line(format_args!("  {}", slot.image_digest));
    }
    if let Some(loaders) = report.loaders {
        let firmware = match (loaders.bios, loaders.uefi) {
            (true, true) => "BIOS and UEFI",
            (true, false) => "BIOS only",
            (false, _) => "UEFI only",
        };
        let secure = if loaders.secure_boot { ", also with Secure Boot" } else { "" };
        show::line(format_args!("{} starts on {firmware}{secure}", report.disk));
    }
    show::line(format_args!("{} of the data partition are free", ByteSize(report.free_bytes)));
}
