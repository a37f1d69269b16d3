//! The initramfs with `headstart-live` in it, made by the system's own tools.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::system::System;

/// The program in a system.
const LIVE: &str = "/usr/lib/headstart/headstart-live";
/// Its name.
const LIVE_NAME: &str = "headstart-live";
/// Where the initramfs is made in the system.
const MADE: &str = "/tmp/headstart-initrd";

/// A file that goes into a system: path, bytes, mode.
type Shipped = (&'static str, &'static [u8], u32);

/// The hook of initramfs-tools, as in the package.
const INITRAMFS_TOOLS: [Shipped; 3] = [
    (
        "/usr/share/initramfs-tools/hooks/headstart",
        include_bytes!("../../../dist/initramfs-tools/hooks/headstart"),
        0o755,
    ),
    (
        "/usr/share/initramfs-tools/scripts/init-top/headstart",
        include_bytes!("../../../dist/initramfs-tools/scripts/init-top/headstart"),
        0o755,
    ),
    (
        "/usr/share/initramfs-tools/scripts/headstart",
        include_bytes!("../../../dist/initramfs-tools/scripts/headstart"),
        0o644,
    ),
];

/// A hook that runs after those of all packages, and leaves out drivers.
const LAST_HOOK: &str = "/etc/initramfs-tools/hooks/headstart-drivers";
/// Drivers that a start does not need: udev loads those of graphics from the root.
/// The core of graphics stays: drivers of keyboards use it.
const UNNEEDED: &str = "drivers/block/drbd drivers/gpu/drm/*/ drivers/infiniband drivers/nvme/target \
    drivers/target fs/9p fs/afs fs/btrfs fs/ceph fs/f2fs fs/gfs2 fs/jfs fs/ocfs2 fs/reiserfs fs/smb fs/xfs \
    net/9p net/ceph";
/// Their firmware, which is copied along.
const UNNEEDED_FIRMWARE: &str = "amdgpu i915 nvidia radeon xe";
/// Those that a start from a medium does not need.
const UNNEEDED_NETWORK: &str = "drivers/net fs/lockd fs/nfs fs/nfs_common net/sunrpc";

/// The module of dracut, as in the package.
const DRACUT: [Shipped; 6] = [
    dracut("module-setup.sh", include_bytes!("../../../dist/dracut/90headstart/module-setup.sh")),
    dracut("parse-headstart.sh", include_bytes!("../../../dist/dracut/90headstart/parse-headstart.sh")),
    dracut("start-headstart.sh", include_bytes!("../../../dist/dracut/90headstart/start-headstart.sh")),
    dracut("mount-headstart.sh", include_bytes!("../../../dist/dracut/90headstart/mount-headstart.sh")),
    dracut("mount.headstart", include_bytes!("../../../dist/dracut/90headstart/mount.headstart")),
    dracut("headstart-generator", include_bytes!("../../../dist/dracut/90headstart/headstart-generator")),
];
/// The quicker of the compressors to unpack.
const ZSTD: &str = "/usr/bin/zstd";
/// initramfs-tools takes the level from its configuration.
const INITRAMFS_TOOLS_COMPRESSION: &str = "/etc/initramfs-tools/conf.d/headstart";
/// What dracut leaves out where no root comes from the network: parts of its own, some of which Debian's
/// dracut-network asks for, and drivers.
const UNNEEDED_MODULES: &str = "network network-legacy network-manager ifcfg nfs iscsi fcoe nbd cifs";
const UNNEEDED_DRIVERS: &str = "btrfs ceph cifs f2fs nfs nfsv4 sunrpc xfs";
/// Its network, which some distributions have in a package of its own.
const DRACUT_NETWORK: &str = "/usr/lib/dracut/modules.d/40network/module-setup.sh";
/// Its network by dhclient. Where it can be had, it is better than systemd-networkd, which dracut would take
/// in Debian 12: that needs the bus, and notes no name servers.
const DRACUT_LEGACY: &str = "/usr/lib/dracut/modules.d/35network-legacy/module-setup.sh";
const DHCLIENT: &str = "/usr/sbin/dhclient";
/// Where dracut looks for it.
const DRACUT_MODULE: &str = "/usr/lib/dracut/modules.d/90headstart";

/// A file of the module.
const fn dracut(name: &'static str, bytes: &'static [u8]) -> Shipped {
    (name, bytes, 0o755)
}

/// What makes an initramfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// initramfs-tools, of Debian and Ubuntu.
    InitramfsTools,
    /// dracut, of Fedora, SUSE and others.
    Dracut,
}

impl Generator {
    const fn program(self) -> &'static str {
        match self {
            Self::InitramfsTools => "mkinitramfs",
            Self::Dracut => "dracut",
        }
    }

    /// The one that the system has.
    fn of(system: &System) -> Option<Self> {
        [Self::InitramfsTools, Self::Dracut].into_iter().find(|generator| generator.is_in(system))
    }

    fn is_in(self, system: &System) -> bool {
        ["/usr/sbin", "/usr/bin"].iter().any(|folder| system.has(&format!("{folder}/{}", self.program())))
    }
}

/// Which initramfs is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct InitrdKind {
    /// What makes it; what the system has when `None`.
    pub generator: Option<Generator>,
    /// With what a root at an address needs. Without, it is smaller.
    pub has_network: bool,
    /// Compressed in a 25th of the time and a sixth larger, for a machine that makes its own. Dracut has one
    /// level.
    pub is_quick: bool,
}

/// Makes the initramfs for this kernel; `live` is the program on this machine. It is written to `output`.
pub(crate) fn make(
    system: &System,
    version: &str,
    live: &Path,
    kind: &InitrdKind,
    output: &Path,
) -> anyhow::Result<()> {
    let program = std::fs::read(live).with_context(|| format!("read {}", live.display()))?;
    system.write(LIVE, &program, 0o755)?;
    system.run(&[LIVE, "--version"]).context(
        "headstart-live of this machine does not run in that system: where its C library is older, install the \
         package headstart there, or build it on a system as old",
    )?;
    let generator = match kind.generator {
        Some(asked) if asked.is_in(system) => asked,
        Some(asked) => bail!("the system has no {}: install it there", asked.program()),
        None => Generator::of(system).context(
            "the system has neither initramfs-tools nor dracut: install one there, or give --kernel and --initrd",
        )?,
    };
    let configuration = system.read_text(&format!("/boot/config-{version}"));
    let has_zstd = system.has(ZSTD) && configuration.lines().any(|line| line == "CONFIG_RD_ZSTD=y");
    let mut command: Vec<&str>;
    let (folder, files): (String, &[Shipped]) = match generator {
        Generator::InitramfsTools => {
            command = vec!["mkinitramfs", "-o", MADE, version];
            if has_zstd {
                let level = if kind.is_quick { 9 } else { 19 };
                let text = format!("COMPRESS=zstd\nCOMPRESSLEVEL={level}\n");
                system.write(INITRAMFS_TOOLS_COMPRESSION, text.as_bytes(), 0o644)?;
            }
            system.write(LAST_HOOK, last_hook(kind.has_network).as_bytes(), 0o755)?;
            (String::new(), &INITRAMFS_TOOLS)
        }
        Generator::Dracut => {
            command = vec!["dracut", "--force", "--no-hostonly", "--add", "headstart", "--kver", version];
            if has_zstd {
                command.push("--zstd");
            }
            if kind.has_network {
                if !system.has(DRACUT_NETWORK) {
                    bail!("dracut has no network in the system: install dracut-network there");
                }
                command.extend(["--add", "network"]);
                if system.has(DHCLIENT) && system.has(DRACUT_LEGACY) {
                    command.extend(["--add", "network-legacy"]);
                }
            } else {
                command.extend(["--omit", UNNEEDED_MODULES, "--omit-drivers", UNNEEDED_DRIVERS]);
            }
            command.push(MADE);
            (format!("{DRACUT_MODULE}/"), &DRACUT)
        }
    };
    for (path, bytes, mode) in files {
        system.write(&format!("{folder}{path}"), bytes, *mode)?;
    }
    let said = system.run(&command)?;
    log::info!("{}", said.trim_end());
    system.copy_out(MADE, output)
}

/// The hook's text.
fn last_hook(has_network: bool) -> String {
    let network = if has_network { "" } else { UNNEEDED_NETWORK };
    format!(
        "#!/bin/sh\n[ \"$1\" != prereqs ] || exit 0\n\
         for root in \"${{DESTDIR:?}}\" \"$DESTDIR/usr\"; do\n  \
         cd \"$root/lib/modules/$version/kernel\" && rm -rf {UNNEEDED} {network}\n  \
         cd \"$root/lib/firmware\" && rm -rf {UNNEEDED_FIRMWARE}\ndone 2>/dev/null\nexit 0\n"
    )
}

/// Where `headstart-live` lies on this machine: beside a program that was built, or where it is installed,
/// which does not depend on where the program is.
pub(crate) fn live_program() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("find this program")?;
    let places = candidates(&program);
    places.iter().find(|place| place.is_file()).cloned().with_context(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!("headstart-live is missing: looked for {}; `make install` brings it", places.join(" and "))
    })
}

fn candidates(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    // Tests run from a folder below the one with the programs.
    let built = [Some(folder), folder.parent()].into_iter().flatten().map(|folder| folder.join(LIVE_NAME));
    built.chain([LIVE.into()]).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_program_is_installed_or_built() {
        let installed = candidates(Path::new("/usr/local/bin/headstart"));
        assert!(installed.contains(&"/usr/lib/headstart/headstart-live".into()), "{installed:?}");
        let built = candidates(Path::new("/src/target/debug/deps/test"));
        assert!(built.contains(&"/src/target/debug/headstart-live".into()), "{built:?}");
    }

    #[test]
    fn shipped_files_are_scripts() {
        for (path, bytes, _) in INITRAMFS_TOOLS.iter().chain(&DRACUT) {
            assert!(bytes.starts_with(b"#"), "{path}");
        }
    }

    /// Calls dracut's scripts with a `/run` and consoles of their own, and with a program that ends with this
    /// code. Gives what the script printed, and the program's starts.
    fn calls(code: u8, script: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("made a program");
        };
        let bytes = |name| DRACUT.iter().find(|(path, _, _)| *path == name).expect("shipped").1;
        file("mount.headstart", bytes("mount.headstart"));
        file("start-headstart.sh", bytes("start-headstart.sh"));
        let counts = format!("#!/bin/sh\necho start >>\"${{0%/*}}/starts\"\nsleep 0.2\nexit {code}\n");
        file("headstart-live", counts.as_bytes());
        file("modprobe", b"#!/bin/sh\n");
        let script = format!(
            "for folder in /run /dev; do mount -t tmpfs none $folder; done; : >/dev/null\n\
             root=headstart:LABEL=A NEWROOT=/sysroot\n{script}\nwait; cat $0/starts"
        );
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-c", &script]).arg(folder.path()).env("PATH", path);
        let output = shell.output().expect("unshare starts");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn dracut_mounts_the_root_once_in_any_order() {
        if !hs_testing::machine_has(&["unshare"]) {
            return;
        }
        let (hook, mount) = (". $0/start-headstart.sh", "mount.headstart headstart /sysroot; echo $?");
        assert_eq!(calls(0, &format!("{hook}\n{mount}")), "0\nstart\n");
        assert_eq!(calls(0, &format!("{mount} &\nsleep 0.1\n{hook}")), "0\nstart\n");
        assert_eq!(calls(0, &format!("{mount}\n{hook}\n{mount}")), "0\n0\nstart\n");
        // What failed is tried again by the next mount.
        assert_eq!(calls(1, &format!("{hook}\n{mount}\n{mount}")), "32\n32\nstart\nstart\n");
    }
}
