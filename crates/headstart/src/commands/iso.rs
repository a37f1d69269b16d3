//! `headstart iso`

use anyhow::Context;
use hs_iso::{Disc, InitrdKind, IsoSpec, SystemSpec};
use hs_output::show;
use hs_service::signals::Ends;
use hs_units::ByteSize;

use crate::cli::Iso;

/// Makes a bootable medium.
pub(crate) fn run(args: &Iso, quiet: bool) -> anyhow::Result<()> {
    let signals = Ends::block().context("wait for signals")?;
    hs_linux::rootenv::enter_private_mounts()?;
    let spec = IsoSpec {
        system: SystemSpec {
            source: args.source.value(),
            kernel: args.kernel.clone().zip(args.initrd.clone()),
            live: args.live.clone(),
            initrd_kind: InitrdKind {
                generator: args.initramfs.map(Into::into),
                has_network: args.network,
                is_quick: false,
            },
        },
        output: args.output.clone(),
        label: args.label.clone(),
        append: args.append.clone(),
        timeout_s: args.timeout,
        disc: args.disc.map(|size| Disc { bytes: size.0, drive: args.drive }),
    };
    let made = hs_iso::make(&spec, quiet, signals)?;
    if args.json {
        return show::json(&made);
    }
    let firmware = match (made.bios, made.uefi, made.secure_boot) {
        (true, true, true) => "BIOS and UEFI, also with Secure Boot",
        (true, true, false) => "BIOS and UEFI",
        (true, false, _) => "BIOS only",
        (false, _, true) => "UEFI only, also with Secure Boot",
        (false, _, false) => "UEFI only",
    };
    show::line(format_args!(
        "{}: {} (image {}, initramfs {}); starts on {firmware}",
        made.iso,
        ByteSize(made.iso_bytes),
        ByteSize(made.image_bytes),
        ByteSize(made.initrd_bytes)
    ));
    if let Some(place) = &made.disc {
        let (edge, other, by) = match place.is_outer {
            true => ("outer", "inner", (place.outer_s, place.inner_s)),
            false => ("inner", "outer", (place.inner_s, place.outer_s)),
        };
        show::line(format_args!(
            "what a start reads lies at the {edge} edge of the disc: {} takes {:.1} s for it, {:.1} s at the {other} one",
            place.drive, by.0, by.1
        ));
    }
    show::line(&made.image_digest);
    Ok(())
}
