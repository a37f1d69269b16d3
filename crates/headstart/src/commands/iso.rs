//! `headstart iso`

use hs_iso::{InitrdKind, IsoSpec};
use hs_output::show;
use hs_units::ByteSize;

use crate::cli::Iso;

/// Makes a bootable medium.
pub(crate) fn run(args: &Iso, quiet: bool) -> anyhow::Result<()> {
    hs_linux::rootenv::enter_private_mounts()?;
    let spec = IsoSpec {
        source: args.source.value(),
        output: args.output.clone(),
        label: args.label.clone(),
        append: args.append.clone(),
        kernel: args.kernel.clone().zip(args.initrd.clone()),
        live: args.live.clone(),
        initrd_kind: InitrdKind { generator: args.initramfs.map(Into::into), has_network: args.network },
        timeout_s: args.timeout,
        disc_bytes: args.disc.map(|size| size.0),
    };
    let made = hs_iso::make(&spec, quiet)?;
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
    show::line(&made.image_digest);
    Ok(())
}
