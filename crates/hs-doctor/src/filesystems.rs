//! Kernel file systems: what is inside an image, and what lies over it.

use std::io;

use crate::kernel;
use crate::namespaces::{User, in_private_mounts};
use crate::trial::{checked, mount};
use crate::{Check, CheckState};

struct FileSystem {
    name: &'static str,
    needed_for: &'static str,
    /// What follows if it is missing.
    if_missing: CheckState,
}

const FILE_SYSTEMS: &[FileSystem] = &[
    FileSystem {
        name: "ext4",
        needed_for: "run, profile, mount --fs: what `build` puts into an image",
        if_missing: CheckState::Missing,
    },
    FileSystem {
        name: "squashfs",
        needed_for: "demo: the system that it compares with",
        if_missing: CheckState::Degraded,
    },
    FileSystem {
        name: "erofs",
        needed_for: "mount --fs on a disk that holds EROFS",
        if_missing: CheckState::Degraded,
    },
];

pub(crate) fn checks(user: User) -> Vec<Check> {
    let registered = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let modules = module_lists();
    let mut checks: Vec<Check> = FILE_SYSTEMS
        .iter()
        .map(|system| {
            // Without root, fuse2fs shows the ext4 in an image, and the kernel's is not asked.
            let needed = user.is_root() && system.if_missing == CheckState::Missing;
            judge(system, &registered, &modules).on_main_path(needed)
        })
        .collect();
    checks.push(judge_overlay(in_private_mounts(user, || mount_overlay(user))).on_main_path(true));
    checks
}

fn judge(system: &FileSystem, registered: &str, modules: &str) -> Check {
    let name = system.name;
    if is_registered(registered, name) {
        Check::ok(name, "in the kernel", system.needed_for)
    } else if modules.contains(&format!("/{name}.ko")) {
        Check::ok(name, "as a module, loaded when it is first mounted", system.needed_for)
    } else {
        let advice = format!("this kernel has no {name}: use the distribution's full kernel");
        Check::ok(name, "not in this kernel", system.needed_for).but(system.if_missing, advice)
    }
}

/// Each line of `/proc/filesystems` is an optional `nodev`, a tab and the name.
fn is_registered(list: &str, name: &str) -> bool {
    list.lines().any(|line| line.split_whitespace().last() == Some(name))
}

/// The modules that could be loaded, and those that are compiled in, one path a line.
fn module_lists() -> String {
    let folder = format!("/lib/modules/{}", kernel::release());
    ["modules.dep", "modules.builtin"]
        .iter()
        .filter_map(|list| std::fs::read_to_string(format!("{folder}/{list}")).ok())
        .collect()
}

fn judge_overlay(outcome: io::Result<()>) -> Check {
    let needed_for = "run, profile: a command's writes go to memory, not to the image";
    match outcome {
        Ok(()) => Check::ok("overlay", "works (tried)", needed_for),
        Err(error) => {
            let advice = match error.raw_os_error() {
                Some(libc::ENODEV) => "modprobe overlay: this kernel has it as a module or not at all",
                _ => "run as root; without root it needs Linux 5.11 and a user namespace",
            };
            Check::ok("overlay", format!("failed: {error}"), needed_for).but(CheckState::Missing, advice)
        }
    }
}

/// Mounts an overlay of three empty folders in the tmpfs of the child's own namespace.
fn mount_overlay(user: User) -> io::Result<()> {
    for folder in [c"/tmp/lower", c"/tmp/upper", c"/tmp/state", c"/tmp/merged"] {
        // SAFETY: the path is a C string.
        checked(unsafe { libc::mkdir(folder.as_ptr(), 0o700) })?;
    }
    // Trusted attributes are root's; elsewhere the overlay must keep its marks in those of the user.
    let options = if user.is_root() {
        c"lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/state"
    } else {
        c"lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/state,userxattr"
    };
    mount(c"overlay", c"/tmp/merged", 0, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_in_the_kernel_or_a_module_or_missing() {
        let ext4 = &FILE_SYSTEMS[0];
        let found = |registered, modules| judge(ext4, registered, modules).state;
        assert_eq!(found("nodev\tsysfs\n\text4\n", ""), CheckState::Ok);
        assert_eq!(
            found("nodev\tsysfs\n", "kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko\n"),
            CheckState::Ok
        );
        assert_eq!(found("nodev\tsysfs\n\text42\n", "kernel/fs/next4/next4.ko\n"), CheckState::Missing);
    }

    #[test]
    fn what_only_the_demo_compares_with_is_not_missing_on_the_main_path() {
        assert_eq!(judge(&FILE_SYSTEMS[1], "", "").state, CheckState::Degraded);
    }
}
