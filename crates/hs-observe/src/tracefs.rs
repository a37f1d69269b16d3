//! A trace instance of our own: no other program sees or changes its buffers, events and filters.
//!
//! See the kernel's Documentation/trace/ftrace.rst, section "Instances".

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::NotObserved;

const USUAL_PLACE: &str = "/sys/kernel/tracing";
const NAME: &str = "headstart";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The instance's directory. Dropping it takes it away; files in it must be closed before.
#[derive(Debug)]
pub(super) struct Instance {
    directory: PathBuf,
    /// A mount of tracefs that has no place in the tree and goes with its descriptor.
    _mount: Option<OwnedFd>,
}

impl Instance {
    /// Makes an instance that records nothing yet.
    pub(super) fn new() -> Result<Self, NotObserved> {
        let (root, mount) = root()?;
        let instances = root.join("instances");
        remove_abandoned(&instances);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = instances.join(format!("{NAME}-{}-{number}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| failed("make", &directory, &error))?;
        let instance = Self { directory, _mount: mount };
        instance.write("tracing_on", "0")?;
        Ok(instance)
    }

    /// Sets a control file.
    pub(super) fn write(&self, file: &str, value: &str) -> Result<(), NotObserved> {
        let path = self.directory.join(file);
        fs::write(&path, value).map_err(|error| failed(&format!("write {value:?} to"), &path, &error))
    }

    /// Reads a control file.
    pub(super) fn read(&self, file: &str) -> Result<String, NotObserved> {
        let path = self.directory.join(file);
        read_control_file(&path).map_err(|error| failed("read", &path, &error))
    }

    /// Whether this kernel has the event, as in `filemap/mm_filemap_fault`.
    pub(super) fn has_event(&self, event: &str) -> bool {
        self.directory.join("events").join(event).join("format").exists()
    }

    /// The binary streams, one for each CPU, that do not wait.
    pub(super) fn streams(&self) -> Result<Vec<File>, NotObserved> {
        self.cpus()?
            .into_iter()
            .map(|cpu| {
                let path = cpu.join("trace_pipe_raw");
                let open = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
                open.map_err(|error| failed("open", &path, &error))
            })
            .collect()
    }

    /// The events of all CPUs as text, in a stream that does not wait.
    pub(super) fn text(&self) -> Result<File, NotObserved> {
        let path = self.directory.join("trace_pipe");
        let open = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        open.map_err(|error| failed("open", &path, &error))
    }

    /// How many events the kernel had no room for.
    pub(super) fn lost_events(&self) -> Result<u64, NotObserved> {
        let mut lost = 0;
        for cpu in self.cpus()? {
            let path = cpu.join("stats");
            let text = read_control_file(&path).map_err(|error| failed("read", &path, &error))?;
            lost += lost_in(&text);
        }
        Ok(lost)
    }

    fn cpus(&self) -> Result<Vec<PathBuf>, NotObserved> {
        let path = self.directory.join("per_cpu");
        let entries = fs::read_dir(&path).map_err(|error| failed("read", &path, &error))?;
        entries.map(|entry| Ok(entry.map_err(|error| failed("read", &path, &error))?.path())).collect()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.directory) {
            log::error!("cannot remove the trace instance {}: {error}", self.directory.display());
        }
    }
}

/// Reads with a buffer that is large enough for the whole file: some of these files (`events/header_page`)
/// return nothing to a second read.
fn read_control_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut text, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            bytes => text.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// Where tracefs is: in its usual place, or else mounted for us alone.
fn root() -> Result<(PathBuf, Option<OwnedFd>), NotObserved> {
    let usual = Path::new(USUAL_PLACE);
    match fs::read_dir(usual.join("instances")) {
        Ok(_) => return Ok((usual.to_owned(), None)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(needs_root()),
        Err(_) => {}
    }
    let mount = private_mount().map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => needs_root(),
        Errno::NODEV => NotObserved::new("this kernel has no tracefs (CONFIG_TRACING)"),
        errno => NotObserved::new(format!("tracefs cannot be mounted: {errno}")),
    })?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())), Some(mount)))
}

fn private_mount() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn needs_root() -> NotObserved {
    NotObserved::new("reading trace events needs root")
}

/// Removes what a killed server of ours left. The kernel refuses while a process still reads it.
fn remove_abandoned(instances: &Path) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix(NAME)?.strip_prefix('-')?.split_once('-'));
        if let Some((pid, _)) = owner
            && pid.parse::<u32>().is_ok()
            && !Path::new("/proc").join(pid).exists()
            && fs::remove_dir(entry.path()).is_ok()
        {
            log::info!("removed the trace instance of process {pid}, which is gone");
        }
    }
}

fn failed(action: &str, path: &Path, error: &io::Error) -> NotObserved {
    NotObserved::new(format!("cannot {action} {}: {error}", path.display()))
}

/// The lines of `per_cpu/cpuN/stats` that count what was lost.
fn lost_in(stats: &str) -> u64 {
    let counts = stats.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        matches!(name, "overrun" | "commit overrun" | "dropped events")
            .then(|| count.trim().parse::<u64>().ok())?
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_lose_events_counts() {
        let stats = "entries: 192436\noverrun: 20\ncommit overrun: 3\nbytes: 8390108\n\
            oldest event ts:  3074.937641\nnow ts:  3078.782885\ndropped events: 1\nread events: 5\n";
        assert_eq!(lost_in(stats), 24);
        assert_eq!(lost_in(""), 0);
    }

    /// True where trace events can be read; otherwise says so, and fails in CI.
    fn can_trace() -> bool {
        let Err(reason) = root() else { return true };
        hs_testing::skip(reason);
        false
    }

    #[test]
    fn a_full_buffer_is_noticed_and_the_instance_goes() {
        if !can_trace() {
            return;
        }
        let instance = Instance::new().unwrap();
        let directory = instance.directory.clone();
        instance.write("buffer_size_kb", "4").unwrap();
        instance.write("tracing_on", "1").unwrap();
        for number in 0..2000 {
            instance.write("trace_marker", &format!("a line that takes its room, number {number}")).unwrap();
        }
        assert!(instance.lost_events().unwrap() > 0);
        drop(instance);
        assert!(!directory.exists());
    }

    #[test]
    fn an_abandoned_instance_is_removed() {
        if !can_trace() {
            return;
        }
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (root, _mount) = root().unwrap();
        let abandoned = root.join("instances").join(format!("{NAME}-{}-0", child.id()));
        fs::create_dir(&abandoned).unwrap();
        drop(Instance::new().unwrap());
        assert!(!abandoned.exists());
    }

    #[test]
    fn tracefs_can_be_mounted_for_us_alone() {
        if !can_trace() {
            return;
        }
        let mount = private_mount().unwrap();
        let instances = format!("/proc/self/fd/{}/instances", mount.as_raw_fd());
        assert!(fs::read_dir(instances).is_ok());
    }
}
