//! `headstart-live`: the program in the initramfs of a machine that boots from an image.

// `eprintln!` panics when standard error has no reader; `hs_output::note!` does not.
#![warn(clippy::print_stderr)]
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use hs_live::root::Outcome;
use hs_live::{BASE, keeper, root, server, udev_rules, words};
use hs_output::log_output;
use hs_service::own_arguments;
use hs_start::guest_processes::{PROCESSES_ITEM, watch_this_machine};
use hs_start::recording_line::RECORD_ITEM;

const HELP: &str = "\
The root of a machine that boots from a headstart image. Scripts of the initramfs call it.

Usage: headstart-live root NEW_ROOT    mount the root that /proc/cmdline names at NEW_ROOT
       headstart-live asked            exit code 0 when /proc/cmdline has root=headstart:…; before udev runs
       headstart-live --version

Words of the kernel's command line (docs/LIVE.md):
  root=headstart:PLACE       LABEL=NAME, UUID=…, /dev/…, or an address (https://…, oci://…), with #hs1-DIGEST
                             or #key=KEY behind it
  headstart.image=PATH       the image in the medium's file system [/headstart/root.hsi]
  headstart.overlay=PLACE    where writes are kept: memory, LABEL=NAME, UUID=…, /dev/… [memory]
  headstart.keep=PATH        writes are kept in this file beside the image, and the root is its file system
  headstart.slot=SLOT        the system is in this slot of an installed disk, a or b, which is noted on the
  headstart.boot=PLACE       boot partition when the system has come up
  headstart.budget=SIZE      memory for the server [an eighth of free memory]
  headstart.prefetch=WHERE   warm, push, hold or off [warm]
  headstart.min-date=DATE    refuse signatures that are older
  headstart.wait=SECONDS     how long the medium may take to appear, or the server to answer [60]
  headstart.read-timeout=SECONDS   a read from a server that has waited this long fails [600]
  headstart.insecure         accept an image from the network without name or signature
  headstart.record=PLACE     record what the start reads, in headstart-boot.hsp on this device, or for the
                             program at the other end of a serial line (/dev/ttyS1)
  headstart.record-for=SECONDS   for so long [60]
  headstart.record-read-ahead    with what the kernel reads ahead
  headstart.ignore-journal   do not replay the journal of a root that was not unmounted before it was copied
  headstart.verify           check every byte of the image, and do not start from it

Exit codes: 0 mounted, 1 failed, 3 the image was checked and is right.
";
/// The exit code of a check that found nothing wrong.
const VERIFIED: u8 = 3;
/// "Critical", as the kernel counts: shown on every console also when it is told to be quiet.
const KERNEL_LEVEL: &str = "<2>";

/// What the driver qemu_fw_cfg shows of a virtual machine's configuration.
const FIRMWARE_ITEMS: &str = "/sys/firmware/qemu_fw_cfg/by_name";

fn main() -> ExitCode {
    hs_linux::allocate_kindly();
    hs_linux::use_small_pages();
    let arguments = own_arguments::of_this_process();
    let _ = rustix::thread::set_name(c"headstart-live");
    log_output::start(false, 0);
    run(&arguments).unwrap_or_else(|error| {
        hs_output::note!("headstart-live: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let command = arguments.first().and_then(|first| first.to_str()).unwrap_or("--help");
    match (command, &arguments[1.min(arguments.len())..]) {
        (server::COMMAND, _) => {
            let code = server::run(arguments).inspect_err(tell_all_consoles)?;
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        (keeper::COMMAND, [command_line, digest]) => {
            keeper::run(&command_line.to_string_lossy(), &digest.to_string_lossy())
        }
        ("root", [new_root]) => {
            tell_processes_where_asked();
            let outcome = root::mount(Path::new(BASE), Path::new(new_root), &command_line()?);
            outcome.inspect_err(tell_all_consoles).map(|outcome| match outcome {
                Outcome::Mounted => ExitCode::SUCCESS,
                Outcome::Verified => ExitCode::from(VERIFIED),
            })
        }
        ("asked", []) => Ok(asked(&command_line()?)),
        ("--help" | "-h" | "help", _) => {
            hs_output::show::line(HELP.trim_end());
            Ok(ExitCode::SUCCESS)
        }
        ("--version" | "-V", _) => {
            hs_output::show::line(format_args!("headstart-live {}", env!("CARGO_PKG_VERSION")));
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("not understood; headstart-live --help lists what is"),
    }
}

/// Whether the root is ours. Where it is on a medium, udev, which runs next, is not to read that.
fn asked(command_line: &str) -> ExitCode {
    let words = command_line.split_ascii_whitespace();
    let place = words.filter_map(|word| word.strip_prefix("root=headstart:")).next_back();
    match place {
        Some(place) => {
            // systemd asks again when it reads its units again.
            if !place.contains("://") && !Path::new(BASE).exists() {
                udev_rules::examine_nothing();
            }
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}

/// The kernel's command line. The program that runs a virtual machine may ask for a recording besides.
fn command_line() -> anyhow::Result<String> {
    let line = std::fs::read_to_string("/proc/cmdline").context("read /proc/cmdline")?;
    let asked = std::fs::read_to_string(format!("{FIRMWARE_ITEMS}/{RECORD_ITEM}/raw"));
    Ok(asked.map_or(line.clone(), |item| words::with_recording(&line, &item)))
}

/// The program that runs a virtual machine may want to see its processes. A start does not fail by that.
fn tell_processes_where_asked() {
    let Ok(item) = std::fs::read_to_string(format!("{FIRMWARE_ITEMS}/{PROCESSES_ITEM}/raw")) else { return };
    let told = match words::serial_line(&item) {
        Some(line) => watch_this_machine(line),
        None => Err(std::io::ErrorKind::InvalidInput.into()),
    };
    if let Err(error) = told {
        log::warn!("this machine is asked to tell of its processes on {:?}: {error}", item.trim());
    }
}

/// Standard error leads to one console only; the kernel writes to all.
fn tell_all_consoles(error: &anyhow::Error) {
    let line = format!("{KERNEL_LEVEL}headstart: {error:#}\n");
    if let Err(error) = std::fs::write("/dev/kmsg", line) {
        log::debug!("/dev/kmsg: {error}");
    }
}
