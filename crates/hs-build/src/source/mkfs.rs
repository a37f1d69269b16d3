//! Runs `mkfs.ext4 -d` so that its output depends on nothing but the tree.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::SourceError;
use super::sizing::{Geometry, INODE_BYTES};

/// The time that the file system says it was made at, 1980-01-01, as in ZIP files without a date. mke2fs
/// takes 0 for "not set".
const EPOCH_SECONDS: u32 = 315_532_800;

/// Features by name, so that neither the local `/etc/mke2fs.conf` nor newer defaults count. No journal and no
/// room to grow the descriptor table: the disk is read-only.
const FEATURES: &str = "none,sparse_super,large_file,filetype,dir_index,ext_attr,extent,huge_file,flex_bg,\
                        metadata_csum,64bit,dir_nlink,extra_isize";

/// Takes the place of `/etc/mke2fs.conf`.
const CONFIGURATION: &[u8] = b"[defaults]\n\
    \tenable_periodic_fsck = 0\n\
    \tdefault_mntopts = acl,user_xattr\n\
    [fs_types]\n\
    \text4 = {\n\t\tinode_size = 256\n\t}\n\
    \tdefault = {\n\t\tinode_size = 256\n\t}\n";

/// Variables by which a caller's environment could change the output.
const VARIABLE_PREFIXES: [&str; 3] = ["MKE2FS_", "E2FSPROGS_", "SOURCE_DATE_EPOCH"];

/// Where Debian puts it; not in an ordinary user's `PATH`.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// How often progress is looked at.
const PROGRESS_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The most of standard error that is kept.
const STDERR_LIMIT: usize = 16 << 10;

/// What to make.
pub(super) struct Mkfs<'a> {
    /// An absolute path.
    pub(super) tree: &'a Path,
    pub(super) geometry: Geometry,
    pub(super) uuid: [u8; 16],
    pub(super) label: Option<&'a str>,
}

impl Mkfs<'_> {
    /// Makes the file system in `scratch`, which has its size already and reads as zeros. `tick` is called
    /// now and then.
    pub(super) fn run(&self, tool: &Path, scratch: &File, tick: &mut dyn FnMut()) -> Result<(), SourceError> {
        let configuration = configuration_file().map_err(tool_error)?;
        // The child opens the files through this process, for they have no names.
        let open_path = |file: &dyn AsRawFd| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let mut command = Command::new(tool);
        for (name, _) in std::env::vars_os() {
            if VARIABLE_PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
                command.env_remove(name);
            }
        }
        let uuid = uuid_text(self.uuid);
        command
            .env("LC_ALL", "C")
            .env("E2FSPROGS_FAKE_TIME", EPOCH_SECONDS.to_string())
            .env("MKE2FS_CONFIG", open_path(&configuration))
            .args(["-F", "-q", "-t", "ext4", "-T", "default", "-b", "4096", "-m", "0", "-O", FEATURES])
            .args(["-I", &INODE_BYTES.to_string(), "-N", &self.geometry.inodes.to_string()])
            .args(["-U", &uuid, "-L", self.label.unwrap_or_default()])
            .arg("-E")
            .arg(format!("hash_seed={uuid},lazy_itable_init=0,nodiscard,root_owner=0:0"))
            .arg("-d")
            .arg(self.tree)
            .arg(open_path(scratch))
            .arg(self.geometry.blocks.to_string())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(tool_error)?;
        let stderr = match child.stderr.take() {
            Some(pipe) => drain(pipe, tick),
            None => Ok(String::new()),
        };
        // Wait before looking at the pipe's error, so that no child is left behind.
        let status = child.wait().map_err(tool_error)?;
        let stderr = stderr.map_err(tool_error)?;
        if !status.success() {
            return Err(SourceError::MkfsFailed { status: status.to_string(), stderr });
        }
        if !stderr.trim().is_empty() {
            log::warn!("mkfs.ext4: {}", stderr.trim());
        }
        Ok(())
    }
}

/// A failed system call around the tool, told as the tool's failure.
fn tool_error(error: io::Error) -> SourceError {
    SourceError::MkfsFailed { status: "not run to its end".to_owned(), stderr: error.to_string() }
}

/// Reads the pipe to its end, which comes when the child ends; keeps the last [`STDERR_LIMIT`] bytes. Calls
/// `tick` at least once.
fn drain(mut pipe: ChildStderr, tick: &mut dyn FnMut()) -> io::Result<String> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    tick();
    loop {
        let ready = rustix::event::poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&PROGRESS_INTERVAL));
        match ready {
            Ok(0) | Err(rustix::io::Errno::INTR) => tick(),
            Ok(_) => match pipe.read(&mut buffer) {
                Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
                Ok(len) => {
                    text.extend_from_slice(&buffer[..len]);
                    text.drain(..text.len().saturating_sub(STDERR_LIMIT));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error.into()),
        }
    }
}

/// The configuration as an unnamed file in memory.
fn configuration_file() -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("mke2fs.conf", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(CONFIGURATION)?;
    Ok(file)
}

/// Where `mkfs.ext4` is.
///
/// # Errors
/// [`SourceError::MissingTool`].
pub(super) fn find_tool() -> Result<PathBuf, SourceError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(&path, "mkfs.ext4").ok_or(SourceError::MissingTool { tool: "mkfs.ext4", package: "e2fsprogs" })
}

fn find_in(path: &OsStr, tool: &str) -> Option<PathBuf> {
    let system: Vec<OsString> = SYSTEM_DIRECTORIES.iter().map(OsString::from).collect();
    std::env::split_paths(path)
        .chain(system.into_iter().map(PathBuf::from))
        .map(|directory| directory.join(tool))
        .find(|candidate| candidate.is_file())
}

/// The usual text of a UUID.
fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_as_usual() {
        let uuid = std::array::from_fn(|index| index as u8 * 0x11);
        assert_eq!(uuid_text(uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_tool_outside_path_is_found_in_the_system_directories_or_not_at_all() {
        assert!(find_in(OsStr::new(""), "no-such-tool-anywhere").is_none());
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("tool"), "").unwrap();
        assert_eq!(find_in(directory.path().as_os_str(), "tool"), Some(directory.path().join("tool")));
    }
}
