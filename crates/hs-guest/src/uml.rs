//! The command line of User-mode Linux.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hs_units::ByteSize;

use crate::jail::JailEntry;
use crate::root_device::root_device;
use crate::{GuestError, Input, Launch, first_program, preload};

/// The program's name in Debian.
pub const PROGRAM: &str = "linux.uml";

/// The line of a kernel's configuration that is needed for an initramfs. The kernel's file holds each line as
/// a string of its own, for `--showconfig`.
const INITRAMFS_OPTION: &[u8] = b"\0CONFIG_BLK_DEV_INITRD=y\n\0";
/// A kernel with its symbols has no more bytes.
const MOST_KERNEL_BYTES: u64 = 1 << 30;

/// Bits of a copy-on-write file's bitmap lie before its data, one for each sector of 512 bytes.
const BLOCKS_A_BITMAP_BYTE: u64 = 8 * 512;
/// Header, rounding, and the first things that any system writes.
const SCRATCH_SLACK_BYTES: u64 = 1 << 20;

/// A guest to be started.
#[derive(Clone, Debug)]
pub struct Uml {
    /// The program.
    pub kernel: PathBuf,
    /// The disk that it boots from.
    pub disk: PathBuf,
    /// The number of the partition with its root; the root is the whole disk when not given.
    pub partition: Option<u32>,
    /// It writes to the disk itself.
    pub keeps: bool,
    /// An empty folder for what it writes to the disk, and for its control socket.
    pub scratch: PathBuf,
    /// An empty folder on a tmpfs that holds the guest's memory and may be executed from.
    pub memory_folder: PathBuf,
    /// The guest's memory.
    pub memory: ByteSize,
    /// Its first program, when it is not the usual one.
    pub init: Option<String>,
    /// The initramfs that its kernel begins with, before there is a disk.
    pub initramfs: Option<PathBuf>,
    /// Its first program tells of its processes on the first serial line.
    pub is_watched: bool,
    /// Further words for its kernel's command line.
    pub append: Vec<String>,
}

impl Uml {
    /// The command that starts it.
    ///
    /// The words about consoles: `con0` reads from nowhere and writes to descriptor 1. No other console opens
    /// a terminal window, as it would by default. The disk is a copy-on-write pair, so that the guest may
    /// write while the disk does not change, unless it is one that keeps what is written.
    ///
    /// User-mode Linux counts the gap before its heap as memory
    /// (`Adding … bytes to physical memory to account for exec-shield gap`), and its table of pages covers
    /// that too. With randomised addresses, that takes up to 16 MiB of the guest's memory, a different amount
    /// each time.
    ///
    /// # Errors
    /// [`GuestError::Path`] when a path contains a character that the command line uses as a separator.
    pub fn launch(&self) -> Result<Launch, GuestError> {
        Ok(self.launch_of(self.command()?, Some(JailEntry::Disk(self.disk.clone()))))
    }

    /// A trial of the program: the same without a disk.
    ///
    /// # Errors
    /// As for [`Uml::launch`].
    pub(crate) fn trial(&self) -> Result<Launch, GuestError> {
        Ok(self.launch_of(self.machine(None)?, None))
    }

    fn launch_of(&self, command: Vec<OsString>, disk: Option<JailEntry>) -> Launch {
        let mut jail_entries = vec![
            JailEntry::Program(self.kernel.clone()),
            JailEntry::Own(self.scratch.clone()),
            JailEntry::Own(self.memory_folder.clone()),
        ];
        jail_entries.extend(disk);
        Launch {
            command,
            environment: self.environment(),
            fixed_addresses: true,
            preloads: preload::for_uml(),
            jail_entries,
            groups: Vec::new(),
            place: self.scratch.clone(),
            input: if self.is_watched { Input::Watch } else { Input::None },
            small_pages: false,
            has_network: false,
        }
    }

    fn command(&self) -> Result<Vec<OsString>, GuestError> {
        if self.keeps {
            // Its driver answers a flush without a sync (seen with Linux 6.1): so each write is synchronous.
            return self.machine(Some(word("ubd0s=", &self.disk)?));
        }
        let mut disk = word("ubd0=", &self.scratch.join("written"))?;
        disk.push(",");
        disk.push(word("", &self.disk)?);
        self.machine(Some(disk))
    }

    fn machine(&self, disk: Option<OsString>) -> Result<Vec<OsString>, GuestError> {
        let mut folder = word("uml_dir=", &self.scratch)?;
        folder.push("/");
        let mut command = vec![
            self.kernel.clone().into_os_string(),
            format!("mem={}M", self.memory.0.div_ceil(1 << 20)).into(),
        ];
        command.extend(disk);
        command.extend([folder, "umid=guest".into()]);
        command.push(format!("root={}", root_device(first_program::UML_DISK, self.partition)).into());
        let words = "rw con0=null,fd:1 con=null ssl=null console=tty0 systemd.show_status=1";
        command.extend(words.split(' ').map(OsString::from));
        if self.is_watched {
            command.push("ssl0=null,fd:0".into());
        }
        command
            .extend(self.initramfs.iter().map(|file| word("initrd=", file)).collect::<Result<Vec<_>, _>>()?);
        command.extend(self.init.iter().map(|init| format!("init={init}").into()));
        command.extend(self.append.iter().map(OsString::from));
        Ok(command)
    }

    /// Its environment: User-mode Linux keeps the guest's memory in a file in `TMPDIR`.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        vec![
            ("TMPDIR".into(), self.memory_folder.clone().into()),
            ("HOME".into(), self.scratch.clone().into()),
            ("PATH".into(), path),
        ]
    }
}

/// The least scratch with which a guest can begin, for a disk of `disk_bytes`.
#[must_use]
pub const fn least_scratch_bytes(disk_bytes: u64) -> u64 {
    disk_bytes / BLOCKS_A_BITMAP_BYTE + SCRATCH_SLACK_BYTES
}

/// Finds the kernel: the one that was named, or [`PROGRAM`] in the folders of `path`.
///
/// # Errors
/// When it is not there, saying which package has it.
pub fn find_kernel(named: Option<&Path>, path: &OsStr) -> Result<PathBuf, GuestError> {
    if let Some(kernel) = named {
        let missing = || GuestError::KernelMissing { path: kernel.to_owned() };
        return match kernel.canonicalize() {
            Ok(found) if found.is_file() => Ok(found),
            _ => Err(missing()),
        };
    }
    std::env::split_paths(path)
        .map(|folder| folder.join(PROGRAM))
        .find(|candidate| candidate.is_file())
        .ok_or(GuestError::UmlMissing)
}

/// Whether this kernel supports an initramfs, by the configuration in its file. The kernel is not run.
#[must_use]
pub fn takes_initramfs(kernel: &Path) -> bool {
    // Opened so that a pipe of that name would not hold us.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(kernel);
    let file = opened.ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
    file.is_some_and(|file| holds(file.take(MOST_KERNEL_BYTES), INITRAMFS_OPTION).unwrap_or(false))
}

/// Whether a file has these bytes anywhere.
fn holds(file: impl Read, wanted: &[u8]) -> io::Result<bool> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut file = BufReader::with_capacity(PIECE_BYTES, file);
    let mut seen = Vec::with_capacity(PIECE_BYTES + wanted.len());
    loop {
        let bytes = file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut seen)?;
        if seen.windows(wanted.len()).any(|found| found == wanted) {
            return Ok(true);
        }
        if bytes == 0 {
            return Ok(false);
        }
        // What may be the beginning of it stays.
        seen.drain(..seen.len().saturating_sub(wanted.len() - 1));
    }
}

fn word(key: &str, path: &Path) -> Result<OsString, GuestError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b',' || *byte == b':') {
        return Err(GuestError::Path { path: path.to_owned() });
    }
    let mut word = OsString::from(key);
    word.push(path);
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uml() -> Uml {
        Uml {
            kernel: "/usr/bin/linux.uml".into(),
            disk: "/mnt/disk/disk.img".into(),
            partition: None,
            keeps: false,
            scratch: "/mnt/scratch".into(),
            memory_folder: "/mnt/memory".into(),
            memory: ByteSize(256 << 20),
            init: Some("/bin/sh".to_owned()),
            initramfs: Some("/mnt/scratch/initramfs".into()),
            is_watched: false,
            append: vec!["quiet".to_owned()],
        }
    }

    #[test]
    fn the_disk_is_a_pair_and_the_user_has_the_last_word() {
        let command = uml().command().unwrap();
        assert!(command.contains(&"ubd0=/mnt/scratch/written,/mnt/disk/disk.img".into()));
        assert!(
            command.contains(&"mem=256M".into()) && command.contains(&"initrd=/mnt/scratch/initramfs".into())
        );
        assert_eq!(command[command.len() - 2..], ["init=/bin/sh", "quiet"]);
    }

    #[test]
    fn a_disk_that_keeps_what_is_written_is_written_at_once() {
        let command = Uml { keeps: true, ..uml() }.command().unwrap();
        assert!(command.contains(&"ubd0s=/mnt/disk/disk.img".into()), "{command:?}");
        assert!(command.contains(&"root=/dev/ubda".into()), "{command:?}");
    }

    #[test]
    fn the_root_may_be_a_partition() {
        let command = Uml { partition: Some(2), ..uml() }.command().unwrap();
        assert!(command.contains(&"root=/dev/ubda2".into()), "{command:?}");
    }

    #[test]
    fn a_trial_has_no_disk() {
        let launch = Uml { initramfs: None, ..uml() }.trial().unwrap();
        assert!(launch.command.iter().all(|word| !word.to_string_lossy().contains("ubd0=")), "{launch:?}");
    }

    #[test]
    fn paths_that_would_be_read_otherwise_are_refused() {
        let guest = Uml { disk: "/mnt/a,b".into(), ..uml() };
        assert!(matches!(guest.command(), Err(GuestError::Path { .. })));
    }

    /// The file is read, and no more: one that would note that it ran, and never end, is asked nothing.
    #[test]
    fn a_kernel_is_not_run_for_its_configuration() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (kernel, ran) = (folder.path().join("kernel"), folder.path().join("ran"));
        let script = |config: &str| {
            let script = format!(
                "#!/bin/sh\necho ran >{}\necho CONFIG_BLK_DEV_INITRD=y\nexit\n{config}",
                ran.display()
            );
            std::fs::write(&kernel, script).unwrap();
            std::fs::set_permissions(&kernel, std::fs::Permissions::from_mode(0o755)).unwrap();
            takes_initramfs(&kernel)
        };
        assert!(script("\0CONFIG_A=y\n\0CONFIG_BLK_DEV_INITRD=y\n\0CONFIG_B=y\n\0"));
        assert!(!script("\0CONFIG_A=y\n\0# CONFIG_BLK_DEV_INITRD is not set\n\0"));
        assert!(!ran.exists(), "it ran");
        assert!(!takes_initramfs(folder.path()) && !takes_initramfs(&ran));
    }

    #[test]
    fn what_lies_between_two_pieces_is_found() {
        for before in (1 << 20) - 5..(1 << 20) + 5 {
            let file = [vec![b'x'; before], b"wanted".to_vec(), vec![b'y'; 9]].concat();
            assert!(holds(&file[..], b"wanted").unwrap(), "{before}");
            assert!(!holds(&file[..before + 5], b"wanted").unwrap(), "{before}");
        }
    }

    #[test]
    fn a_missing_kernel_names_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let error = find_kernel(None, folder.path().as_os_str()).unwrap_err().to_string();
        assert!(error.contains("install the package user-mode-linux"), "{error}");
        let error = find_kernel(Some(&folder.path().join("vmlinux")), OsStr::new("")).unwrap_err();
        assert!(matches!(error, GuestError::KernelMissing { .. }));
        std::fs::write(folder.path().join(PROGRAM), "").unwrap();
        assert!(find_kernel(None, folder.path().as_os_str()).is_ok());
    }
}
