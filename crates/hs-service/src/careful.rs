//! A server that holds a root is careful with itself (docs/SERVICE.md): its code stays in memory, it is
//! not the kernel's choice when memory runs out, and it does not lie on what it serves.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::mm::MlockFlags;

/// What the out-of-memory killer adds to this process: nearly never chosen, but not beyond all others.
const OOM_SCORE: i32 = -900;

/// What every server does as soon as it serves: it stays in memory, and is not what is killed when that is
/// short.
pub fn take_care() {
    survive_low_memory();
    match stay_in_memory() {
        Ok(bytes) => {
            log::info!(
                "what is used of {} of program and libraries stays in memory",
                hs_units::ByteSize(bytes)
            );
        }
        Err(error) => log::info!("program and libraries may leave memory (ulimit -l): {error}"),
    }
}

/// For a server in the background whose disk is unmounted: what is left to do, such as writing what was
/// fetched into the cache on disk, is done behind those who still serve or are served.
pub fn stand_back() {
    /// As nice(1) counts: a tenth of what others have, so that it ends soon on a busy machine as well.
    const NICE: i32 = 10;
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        log::debug!("as much of the processor as before: {error}");
    }
}

/// Keeps in memory what is used of the program and its libraries, from its first use on.
///
/// Pages of files are what can be lost: the kernel drops them at any time and reads them again from where
/// they lie, while readers wait for this process. What no server ever runs, half of the program (it builds
/// images and boots guests too), is not brought into memory for that. Anonymous memory only ever goes to swap
/// space, which no image holds; it is left alone, and so nothing of the prefetch's budget is pinned. Gives
/// the bytes of which what is used stays.
///
/// # Errors
/// When the table of mappings cannot be read, or the limit of locked memory (`ulimit -l`) is reached.
fn stay_in_memory() -> std::io::Result<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut locked = 0;
    for (start, length) in maps.lines().filter_map(readable_file_mapping) {
        // SAFETY: this changes no memory, only whether it may be dropped; the kernel refuses what is not
        // mapped.
        unsafe { rustix::mm::mlock_with(start as *mut core::ffi::c_void, length, MlockFlags::ONFAULT) }?;
        locked += length as u64;
    }
    Ok(locked)
}

/// Memory of this process that cannot leave: of what is locked, what has been used (proc_pid_smaps(5)).
pub fn locked_bytes() -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    Some(locked_kib(&maps) * 1024)
}

/// KiB in memory of mappings with the flag "lo"; a mapping's flags come after its sizes.
fn locked_kib(maps: &str) -> u64 {
    let (mut locked, mut resident) = (0, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            resident = size.trim().trim_end_matches(" kB").parse().unwrap_or(0);
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && flags.split_ascii_whitespace().any(|flag| flag == "lo")
        {
            locked += resident;
        }
    }
    locked
}

/// Start and length of a mapping of a file that can be read: proc_pid_maps(5).
fn readable_file_mapping(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let readable = fields.next()?.starts_with('r');
    let inode = fields.nth(2)?;
    (readable && inode != "0").then(|| Some((start, end.checked_sub(start)?)))?
}

/// Makes this process an unlikely choice of the out-of-memory killer; only root may. What it has started
/// before keeps its own score. A lower score that was set before stays.
pub fn survive_low_memory() {
    const FILE: &str = "/proc/self/oom_score_adj";
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let now = std::fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if now.is_some_and(|now| now > OOM_SCORE)
        && let Err(error) = std::fs::write(FILE, OOM_SCORE.to_string())
    {
        log::info!("{FILE}: {error}: this server is as likely to be killed for memory as any process");
    }
}

/// Refuses to cover with a mount what the server needs when it is started again: its program, the
/// image, and its run folder.
pub fn refuse_to_cover_itself(
    image: Option<&Path>,
    run_folder: Option<&Path>,
    targets: &[&Path],
) -> anyhow::Result<()> {
    let program = std::fs::read_link("/proc/self/exe").context("find this program")?;
    let image = image
        .map(|image| image.canonicalize().with_context(|| format!("open {}", image.display())))
        .transpose()?;
    for target in targets {
        // One that cannot be resolved is refused with a better reason by the mount itself.
        let Ok(target) = target.canonicalize() else { continue };
        let own = [
            ("the image", image.as_deref()),
            ("this program", Some(&program)),
            ("the run folder", run_folder),
        ];
        if let Some((what, path)) = covered(&target, &own) {
            bail!(
                "{what} {} lies in {}, which the mount would cover: a server must not lie on the root that \
                 it serves; choose another directory, or move it",
                path.display(),
                target.display()
            );
        }
    }
    Ok(())
}

/// The first of these that lies in `target`. What is mounted *on* is a directory, so an equal path of
/// a file cannot be meant.
fn covered<'a>(target: &Path, own: &[(&'static str, Option<&'a Path>)]) -> Option<(&'static str, &'a Path)> {
    own.iter()
        .filter_map(|(what, path)| Some((*what, (*path)?)))
        .find(|(_, path)| path.starts_with(target) && *path != target)
}

/// The path without links, also of a mount whose server is dead, which answers no question about itself.
pub fn resolve(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (absolute.parent().and_then(|parent| parent.canonicalize().ok()), absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_files_are_found_and_others_are_not() {
        let line = "55d0c0000000-55d0c0003000 r-xp 00001000 08:01 1234   /usr/bin/headstart";
        assert_eq!(readable_file_mapping(line), Some((0x55d0_c000_0000, 0x3000)));
        for other in [
            "55d0c0000000-55d0c0003000 ---p 00001000 08:01 1234   /usr/bin/headstart",
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0      [heap]",
            "7f0000000000-7f0000001000 rw-p 00000000 00:00 0",
            "7f0000001000-7f0000000000 r--p 00000000 08:01 1234   /x",
            "nonsense",
            "",
        ] {
            assert_eq!(readable_file_mapping(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_locked_is_counted_as_far_as_it_is_in_memory() {
        let maps = "55d0c0000000-55d0c0003000 r-xp 00001000 08:01 1234   /usr/bin/headstart\n\
                    Size:                 12 kB\nRss:                   8 kB\nVmFlags: rd ex mr mw me lo \n\
                    7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n\
                    Rss:                   4 kB\nVmFlags: rd wr mr mw me ac \n\
                    7f1000000000-7f1000001000 r--p 00000000 08:01 1234   /usr/lib/libc.so.6\n\
                    Rss:                   4 kB\nLocked:                2 kB\nVmFlags: rd mr mw me lo";
        assert_eq!(locked_kib(maps), 12);
        assert_eq!(locked_kib("Rss: 4 kB\nnonsense"), 0);
    }

    #[test]
    fn what_the_mount_would_cover_is_found() {
        let image = Path::new("/srv/images/a.hsi");
        let own = [("the image", Some(image)), ("the run folder", None)];
        assert_eq!(covered(Path::new("/srv"), &own), Some(("the image", image)));
        assert_eq!(covered(Path::new("/srv/images"), &own), Some(("the image", image)));
        assert_eq!(covered(Path::new("/srv/image"), &own), None);
        assert_eq!(covered(Path::new("/mnt"), &own), None);
    }
}
