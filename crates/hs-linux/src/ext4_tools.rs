//! An ext4 that is to be written to, made ready for that by the programs of e2fsprogs.
//!
//! Without a journal an ext4 that was cut off may be anything until it is repaired. The kernel mounts it all
//! the same, so it is repaired, and given a journal, before.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SUPERBLOCK: u64 = 1024;
const MAGIC: u64 = SUPERBLOCK + 0x38;
const EXT_MAGIC: u16 = 0xef53;
const STATE: u64 = SUPERBLOCK + 0x3a;
const IS_CLEAN: u16 = 1;
const HAS_ERRORS: u16 = 2;
const COMPATIBLE: u64 = SUPERBLOCK + 0x5c;
const HAS_JOURNAL: u16 = 4;
/// e2fsck has repaired what there was.
const REPAIRED: i32 = 1;

/// Repairs and completes the ext4 that begins where this device does. What cannot be done is a warning: the
/// kernel has the last word.
pub(crate) fn make_ready(device: &Path) {
    let Ok(Some((state, compatible))) = look(device) else { return };
    let has_journal = compatible & HAS_JOURNAL != 0;
    // The kernel replays a journal.
    if state & HAS_ERRORS != 0 || (state & IS_CLEAN == 0 && !has_journal) {
        match run("e2fsck", &["-p"], device) {
            Ok(0 | REPAIRED) => log::info!("{}: its ext4 was repaired", device.display()),
            Ok(code) => log::warn!(
                "e2fsck could not repair its ext4 by itself (exit code {code}): run e2fsck on the disk.img of \
                 `headstart mount IMAGE DIR --keep FILE`, or on that partition of it (losetup --partscan)"
            ),
            Err(error) => log::warn!("its ext4 was not unmounted and is not checked: e2fsck: {error}"),
        }
    }
    if !has_journal {
        match run("tune2fs", &["-O", "has_journal"], device) {
            Ok(0) => log::info!("{}: its ext4 has a journal now", device.display()),
            Ok(_) => log::warn!(
                "its ext4 has no journal and no room for one: after a crash it has to be repaired, and files may be \
                 lost; build the image with --free SIZE"
            ),
            Err(error) => log::warn!(
                "its ext4 has no journal, so that after a crash it has to be repaired: tune2fs, which adds one: {error} \
                 (package e2fsprogs)"
            ),
        }
    }
}

/// State and compatible features, where there is an ext4.
fn look(device: &Path) -> io::Result<Option<(u16, u16)>> {
    let file = File::open(device)?;
    let number = |offset| {
        let mut bytes = [0; 2];
        file.read_exact_at(&mut bytes, offset).map(|()| u16::from_le_bytes(bytes))
    };
    if number(MAGIC)? != EXT_MAGIC {
        return Ok(None);
    }
    Ok(Some((number(STATE)?, number(COMPATIBLE)?)))
}

fn run(program: &str, arguments: &[&str], device: &Path) -> io::Result<i32> {
    let output = Command::new(program).args(arguments).arg(device).stdin(Stdio::null()).output()?;
    log::debug!("{program}: {}", String::from_utf8_lossy(&output.stdout).trim());
    Ok(output.status.code().unwrap_or(-1))
}
