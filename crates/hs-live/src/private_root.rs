//! The server's own root: a folder in memory below `/run`, with devices, `/proc`, the libraries of the
//! program and what names of servers need. Its mounts stay when the real root takes over, so that
//! a server that dies can be started again there.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::mount::{MountFlags, UnmountFlags, unmount};

/// Where the image's disk is shown, seen from inside.
pub const DISK: &str = "/disk";
/// Where the file system in it is mounted.
pub const FS: &str = "/fs";
/// Where the medium with the image is mounted.
pub const MEDIUM: &str = "/medium";
/// Where a medium is mounted to look for the image.
pub const PROBE: &str = "/probe";
/// Where the file system for a recording is mounted.
pub const RECORD: &str = "/record";
/// Where `headstart status` looks for servers, inside and outside.
const RUN: &str = "run/headstart";
/// Folders that are links where `/usr` is merged.
const MERGED: [&str; 5] = ["bin", "sbin", "lib", "lib64", "lib32"];
/// Where a loader may lie by the name that programs have for it.
const LOADERS: [&str; 2] = ["/lib64", "/lib"];
/// What names of servers and certificates need.
const NETWORK_FILES: [&str; 5] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
];

/// Makes it at `base`, anew where there was one.
///
/// # Errors
/// When something cannot be mounted or copied; the text says what.
pub fn make(base: &Path) -> anyhow::Result<()> {
    let folder = |name: &str| make_folder(&base.join(name));
    make_folder(base)?;
    // A start that failed has left one. Below another mount it could not be made a root.
    while unmount(base, UnmountFlags::DETACH).is_ok() {}
    mount("tmpfs", base, MountFlags::NODEV, "mode=0755,size=64m")?;
    for name in ["proc", "sys", "dev", "tmp", "run", "disk", "fs", "medium", "probe", "overlay", "record"] {
        folder(name)?;
    }
    mount("proc", &base.join("proc"), MountFlags::NOSUID, "")?;
    mount("sysfs", &base.join("sys"), MountFlags::NOSUID, "")?;
    mount("devtmpfs", &base.join("dev"), MountFlags::NOSUID, "mode=0755")?;
    let servers = Path::new("/").join(RUN);
    make_folder(&servers)?;
    std::fs::set_permissions(&servers, std::fs::Permissions::from_mode(0o700))
        .with_context(|| format!("close {} to others", servers.display()))?;
    folder(RUN)?;
    rustix::mount::mount_bind(&servers, base.join(RUN)).context("show the server's state to the system")?;
    copy_libraries(base)?;
    copy_network_files(base)
}

/// Copies the files by which names of servers and certificates are found.
///
/// # Errors
/// When one that exists cannot be copied.
pub fn copy_network_files(base: &Path) -> anyhow::Result<()> {
    NETWORK_FILES.iter().map(Path::new).filter(|file| file.exists()).try_for_each(|file| copy(base, file))
}

/// Copies everything that is loaded into this process, but not the program itself: it is started again by its
/// descriptor.
fn copy_libraries(base: &Path) -> anyhow::Result<()> {
    for name in MERGED {
        if let Ok(target) = std::fs::read_link(Path::new("/").join(name)) {
            let relative = target.strip_prefix("/").unwrap_or(&target);
            make_folder(&base.join(relative))?;
            std::os::unix::fs::symlink(relative, base.join(name)).with_context(|| format!("link /{name}"))?;
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").context("find the libraries")?;
    let mut files = loaded(&maps);
    for folder in LOADERS {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        files.extend(entries.map(|entry| entry.path()).filter(|path| is_loader(path)));
    }
    files.iter().try_for_each(|file| copy(base, file))
}

fn is_loader(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    (name.starts_with("ld-linux") || name.starts_with("ld-musl")) && name.contains(".so")
}

/// The libraries in a table of mappings: proc_pid_maps(5).
fn loaded(maps: &str) -> BTreeSet<PathBuf> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    paths.filter(|path| path.contains(".so")).map(PathBuf::from).collect()
}

fn copy(base: &Path, file: &Path) -> anyhow::Result<()> {
    let to = base.join(file.strip_prefix("/").unwrap_or(file));
    if let Some(parent) = to.parent() {
        make_folder(parent)?;
    }
    std::fs::copy(file, &to).map(drop).with_context(|| format!("copy {}", file.display()))
}

fn make_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))
}

fn mount(kind: &str, target: &Path, flags: MountFlags, data: &str) -> anyhow::Result<()> {
    let data = std::ffi::CString::new(data).ok();
    rustix::mount::mount(kind, target, kind, flags, data.as_deref())
        .with_context(|| format!("mount {kind} at {}", target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_among_the_mappings() {
        let maps = "55d0c0000000-55d0c0003000 r-xp 00001000 00:02 12   /usr/bin/headstart-live\n\
                    7f0000000000-7f0000001000 r--p 00000000 00:02 14   /usr/lib/x86_64-linux-gnu/libc.so.6\n\
                    7f0000001000-7f0000002000 r-xp 00000000 00:02 14   /usr/lib/x86_64-linux-gnu/libc.so.6\n\
                    7f0000003000-7f0000004000 rw-p 00000000 00:00 0    [heap]\n";
        assert_eq!(loaded(maps), BTreeSet::from(["/usr/lib/x86_64-linux-gnu/libc.so.6".into()]));
    }

    #[test]
    fn libraries_of_this_process_lie_where_its_loader_looks() {
        let base = tempfile::tempdir().expect("a folder");
        copy_libraries(base.path()).expect("copied");
        let libc = loaded(&std::fs::read_to_string("/proc/self/maps").expect("maps"));
        for library in &libc {
            let copy = base.path().join(library.strip_prefix("/").expect("absolute"));
            assert!(copy.metadata().is_ok_and(|file| file.len() > 0), "{}", copy.display());
        }
        assert!(!libc.is_empty());
    }
}
