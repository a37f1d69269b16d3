//! What the system says of its memory: MemAvailable, the limits of control groups, and pressure.
//!
//! Sources: proc_meminfo(5); Documentation/admin-guide/cgroup-v2.rst (`memory.max`, `memory.high`,
//! `memory.current`, `memory.stat`) and cgroup-v1/memory.rst (`memory.limit_in_bytes`,
//! `memory.usage_in_bytes`, hierarchical limits); accounting/psi.rst.

use std::fs;
use std::path::{Path, PathBuf};

use hs_units::{MemoryPressure, MemorySample};

/// Memory of this process that is no file's: what is resident less what is shared (proc_pid_statm(5)).
pub fn anonymous_bytes() -> Option<u64> {
    anonymous_pages(&fs::read_to_string("/proc/self/statm").ok()?)
        .map(|pages| pages * rustix::param::page_size() as u64)
}

fn anonymous_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (resident, shared) = (next()?, next()?);
    Some(resident.saturating_sub(shared))
}

/// The files with the kernel's figures of this process's memory. A later move to another control group is not
/// noticed.
#[derive(Clone, Debug)]
pub struct MemoryProbe {
    meminfo: PathBuf,
    /// The control groups from the own one up, whose limits all hold.
    groups: Vec<Group>,
    /// The nearest account of waiting for memory.
    pressure: Vec<PathBuf>,
}

/// One control group with a memory controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl MemoryProbe {
    /// Looks for the files of this process.
    pub fn of_this_process() -> Self {
        Self::below(Path::new("/"))
    }

    /// The files of this process below another root than `/`.
    fn below(root: &Path) -> Self {
        // A mount whose name is not UTF-8 must not hide the control groups.
        let read =
            |path: &str| String::from_utf8_lossy(&fs::read(root.join(path)).unwrap_or_default()).into_owned();
        let groups: Vec<Group> = own_groups(&read("proc/self/cgroup"), &read("proc/self/mountinfo"))
            .into_iter()
            .map(|group| Group {
                folder: root.join(group.folder.strip_prefix("/").unwrap_or(&group.folder)),
                ..group
            })
            .collect();
        let of_groups = groups
            .iter()
            .filter(|group| group.version == Version::V2)
            .map(|group| group.folder.join("memory.pressure"));
        let pressure = of_groups.chain([root.join("proc/pressure/memory")]).collect();
        Self { meminfo: root.join("proc/meminfo"), groups, pressure }
    }

    /// How memory is now; `None` where the kernel does not even tell how much is available.
    pub fn sample(&self) -> Option<MemorySample> {
        let table = fs::read_to_string(&self.meminfo).ok()?;
        let mut sample = MemorySample {
            total_bytes: meminfo_bytes(&table, "MemTotal")?,
            available_bytes: meminfo_bytes(&table, "MemAvailable")?,
            pressure: self.pressure.iter().find_map(|path| pressure(&fs::read_to_string(path).ok()?)),
        };
        for (limit, available) in self.groups.iter().filter_map(Group::limit_and_available) {
            sample.total_bytes = sample.total_bytes.min(limit);
            sample.available_bytes = sample.available_bytes.min(available);
        }
        Some(sample)
    }
}

impl Group {
    /// The limit, where there is one, and how much memory is available within it. That includes the page
    /// cache that the kernel would give up: all that was used once and half of what was used again.
    fn limit_and_available(&self) -> Option<(u64, u64)> {
        let number = |name: &str| fs::read_to_string(self.folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let (limit, usage, inactive, active) = match self.version {
            Version::V1 => (
                number("memory.limit_in_bytes"),
                number("memory.usage_in_bytes")?,
                "total_inactive_file",
                "total_active_file",
            ),
            // `max` is no number: no limit.
            Version::V2 => (
                [number("memory.max"), number("memory.high")].into_iter().flatten().min(),
                number("memory.current")?,
                "inactive_file",
                "active_file",
            ),
        };
        let limit = limit?;
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let counted = |name: &str| {
            let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let given_up = counted(inactive) + counted(active) / 2;
        Some((limit, limit.saturating_sub(usage.saturating_sub(given_up))))
    }
}

/// A line of meminfo, in bytes.
fn meminfo_bytes(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `some avg10=0.00 avg60=…` and `full avg10=…`.
fn pressure(text: &str) -> Option<MemoryPressure> {
    let avg10 = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
    };
    Some(MemoryPressure { some_avg10: avg10("some")?, full_avg10: avg10("full").unwrap_or(0.0) })
}

/// The folders of this process's control groups that account for memory, each followed by those above it,
/// from /proc/self/cgroup (cgroups(7)) and /proc/self/mountinfo.
fn own_groups(cgroup: &str, mountinfo: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let version = match (number, controllers) {
            ("0", "") => Version::V2,
            (_, controllers) if controllers.split(',').any(|name| name == "memory") => Version::V1,
            _ => continue,
        };
        let Some((mount_point, mounted)) = mountinfo.lines().find_map(|line| group_mount(line, version))
        else {
            continue;
        };
        // Another namespace's path, or one outside what is mounted here: the top of the mount is all that can
        // be seen.
        let inside = Path::new(path).strip_prefix(mounted).unwrap_or(Path::new(""));
        let inside = if inside.starts_with("..") { Path::new("") } else { inside };
        for above in inside.ancestors() {
            // Without a slash at the end.
            let folder = if above.as_os_str().is_empty() {
                mount_point.into()
            } else {
                Path::new(mount_point).join(above)
            };
            groups.push(Group { folder, version });
        }
    }
    groups
}

/// Mount point and mounted root of a line of mountinfo (proc_pid_mountinfo(5)), if it shows control groups of
/// this version that account for memory.
fn group_mount(line: &str, version: Version) -> Option<(&str, &str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, mount_point) = (fields.next()?, fields.next()?);
    let mut fields = file_system.split(' ');
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let is_it = match version {
        Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        Version::V2 => kind == "cgroup2",
    };
    is_it.then_some((mount_point, root))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MEMINFO: &str =
        "MemTotal:        1048576 kB\nMemFree:          1024 kB\nMemAvailable:     524288 kB\n";
    const NO_LIMIT: &str = "9223372036854771712\n";

    #[test]
    fn own_memory_is_resident_and_not_of_files() {
        assert_eq!(anonymous_pages("5000 300 120 40 0 700 0\n"), Some(180));
        assert_eq!((anonymous_pages("5000 300"), anonymous_pages("a b c")), (None, None));
        assert!(anonymous_bytes() > Some(0));
    }

    /// A root with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    fn sampled(files: &[(&str, &str)]) -> Option<MemorySample> {
        MemoryProbe::below(root(files).path()).sample()
    }

    #[test]
    fn this_machine_tells_how_its_memory_is() {
        let sample = MemoryProbe::of_this_process().sample().expect("a sample");
        assert!(sample.total_bytes > MIB && sample.available_bytes <= sample.total_bytes, "{sample:?}");
    }

    #[test]
    fn without_groups_and_pressure_the_machine_counts() {
        let sample = MemorySample { total_bytes: 1024 * MIB, available_bytes: 512 * MIB, pressure: None };
        assert_eq!(sampled(&[("proc/meminfo", MEMINFO)]), Some(sample));
        assert_eq!(sampled(&[]), None);
        assert_eq!(sampled(&[("proc/meminfo", "MemTotal: x kB\nMemAvailable: 1\n")]), None);
    }

    #[test]
    fn the_smallest_headroom_up_the_tree_counts_v2() {
        let mountinfo = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let group = "sys/fs/cgroup/a/b";
        let files = [
            ("proc/meminfo".to_owned(), MEMINFO),
            ("proc/self/cgroup".to_owned(), "0::/a/b\n"),
            ("proc/self/mountinfo".to_owned(), mountinfo),
            (format!("{group}/memory.max"), "max\n"),
            (format!("{group}/memory.high"), "209715200\n"),
            (format!("{group}/memory.current"), "104857600\n"),
            (format!("{group}/memory.stat"), "anon 1\ninactive_file 10485760\nactive_file 20971520\n"),
            (
                format!("{group}/memory.pressure"),
                "some avg10=2.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.25 avg60=0 avg300=0 total=1\n",
            ),
            ("sys/fs/cgroup/a/memory.max".to_owned(), "314572800\n"),
            ("sys/fs/cgroup/a/memory.current".to_owned(), "293601280\n"),
            ("proc/pressure/memory".to_owned(), "some avg10=50.00\nfull avg10=50.00\n"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        // 200 − (100 − 10 − 20 / 2) in the group; 300 − 280 in the one above, which is less.
        let sample = sampled(&files).expect("a sample");
        assert_eq!((sample.total_bytes / MIB, sample.available_bytes / MIB), (200, 20));
        let pressure = MemoryPressure { some_avg10: 2.5, full_avg10: 0.25 };
        assert_eq!(sample.pressure, Some(pressure), "the group's own, not the machine's");
        let alone = sampled(&files[..8]).expect("a sample");
        assert_eq!(alone.available_bytes / MIB, 120);
    }

    #[test]
    fn the_smallest_headroom_up_the_tree_counts_v1() {
        // A container whose mount shows only what is below its own group.
        let mountinfo = "35 31 0:32 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                         40 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let top = "sys/fs/cgroup/memory";
        let files = [
            ("proc/meminfo".to_owned(), MEMINFO),
            ("proc/self/cgroup".to_owned(), "9:name=systemd:/\n4:cpu,memory:/box/job\n0::/\n"),
            ("proc/self/mountinfo".to_owned(), mountinfo),
            (format!("{top}/job/memory.limit_in_bytes"), "67108864\n"),
            (format!("{top}/job/memory.usage_in_bytes"), "62914560\n"),
            (
                format!("{top}/job/memory.stat"),
                "inactive_file 0\ntotal_inactive_file 2097152\ntotal_active_file 4194304\n",
            ),
            (format!("{top}/memory.limit_in_bytes"), NO_LIMIT),
            (format!("{top}/memory.usage_in_bytes"), "1\n"),
            ("proc/pressure/memory".to_owned(), "some avg10=1.00 total=1\n"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let sample = sampled(&files).expect("a sample");
        // 64 − (60 − 2 − 4 / 2).
        assert_eq!((sample.total_bytes / MIB, sample.available_bytes / MIB), (64, 8));
        assert_eq!(sample.pressure, Some(MemoryPressure { some_avg10: 1.0, full_avg10: 0.0 }));
    }

    #[test]
    fn groups_that_cannot_be_seen_from_here_leave_the_top_of_the_mount() {
        let mountinfo = "30 23 0:26 /outer /cg rw - cgroup2 cgroup2 rw";
        let folders = |cgroup: &str| -> Vec<PathBuf> {
            own_groups(cgroup, mountinfo).into_iter().map(|group| group.folder).collect()
        };
        assert_eq!(folders("0::/outer/x"), [Path::new("/cg/x"), Path::new("/cg")]);
        assert_eq!(folders("0::/elsewhere"), [Path::new("/cg")]);
        assert_eq!(folders("0::/../.."), [Path::new("/cg")]);
        assert_eq!(folders("3:cpu:/outer/x\nnonsense\n\n:::"), [] as [&Path; 0]);
        assert_eq!(own_groups("0::/a", "nonsense\n1 2 - "), []);
    }
}
