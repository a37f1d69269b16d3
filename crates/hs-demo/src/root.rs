//! The systems that the demo starts from: a small Debian with Python and two large libraries, and one that
//! boots.

use std::ffi::OsString;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use super::cache::{self, Cache};
use super::tools::{self, MMDEBSTRAP, UNSHARE};
use hs_output::show::Bar;

/// The root's name in the cache.
pub(super) const NAME: &str = "root";
/// The command that is started in it.
pub(super) const COMMAND: [&str; 3] = ["python3", "-c", "import pandas, sympy; print(\"ready\", flush=True)"];
/// The line of its output that shows that it is ready.
pub(super) const READY: &str = "^ready";

/// A Debian root that is made once and kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    /// Its name in the cache.
    pub(super) name: &'static str,
    /// Packages beside the smallest Debian.
    packages: &'static str,
    /// A file that every complete one has.
    proof: &'static str,
    /// A command that changes it, with its folder as `$1`.
    hook: Option<&'static str>,
}

/// The root whose program is started.
pub(super) const PROGRAM: Root =
    Root { name: NAME, packages: "python3-pandas,python3-sympy", proof: "usr/bin/python3", hook: None };
/// The root that boots, with systemd, as a guest.
pub(super) const BOOT: Root = Root {
    name: "boot-root",
    packages: "systemd,systemd-sysv,udev,dbus",
    proof: "usr/lib/systemd/systemd",
    hook: None,
};
/// The root whose guest is saved: it boots its own kernel, and root logs in without a password.
pub(super) const RESUME: Root = Root {
    name: "resume-root",
    packages: "systemd,systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools",
    proof: "usr/lib/systemd/systemd",
    hook: Some("chroot \"$1\" passwd -q -d root"),
};

/// The package with the kernel that QEMU boots.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// The Debian that hosts of another distribution get.
const DEFAULT_SUITE: &str = "bookworm";
/// Where that comes from; a Debian host uses what mmdebstrap takes for it.
const MIRROR: &str = "http://deb.debian.org/debian";
/// The keys that mmdebstrap checks it with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// What dpkg leaves out, which no start reads, and that it need not flush every file of a root that is
/// thrown away when it is not complete.
const DPKG_OPTIONS: [&str; 6] = [
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/info/*",
];
/// Parts of apt's messages when a mirror cannot be reached.
const NETWORK_SIGNS: [&str; 7] = [
    "Could not resolve",
    "Temporary failure resolving",
    "Could not connect",
    "Unable to connect",
    "Network is unreachable",
    "Connection timed out",
    "Failed to fetch",
];

/// The Debian to install, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Suite {
    name: String,
    mirror: Option<&'static str>,
}

impl Suite {
    /// The host's own Debian, or the default on another distribution, as `os_release` says.
    fn of_host(os_release: &str) -> Self {
        let field = |key: &str| {
            let value = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
            Some(value.trim_matches('"').to_owned())
        };
        match (field("ID").as_deref(), field("VERSION_CODENAME")) {
            (Some("debian"), Some(name)) if !name.is_empty() => Self { name, mirror: None },
            _ => Self { name: DEFAULT_SUITE.to_owned(), mirror: Some(MIRROR) },
        }
    }

    fn host() -> Self {
        Self::of_host(&std::fs::read_to_string("/etc/os-release").unwrap_or_default())
    }

    /// The text that says how a root is made; a change makes it again.
    fn recipe(&self, root: &Root) -> String {
        let hook = root.hook.map(|hook| format!(" {hook}")).unwrap_or_default();
        format!("debian {} minbase {} {}{hook}\n", self.name, root.packages, DPKG_OPTIONS.join(" "))
    }
}

/// The command as a person would type it.
pub(super) fn command_line() -> String {
    let [program, flag, script] = COMMAND;
    format!("{program} {flag} '{script}'")
}

impl Root {
    /// Whether it is in `cache`, made as it would be made now.
    pub(super) fn is_kept(&self, cache: &Cache) -> bool {
        self.is_kept_in(cache.dir())
    }

    /// As [`Root::is_kept`], for a cache that is not held. A kept root is replaced only when it would be made
    /// differently now.
    pub(super) fn is_kept_in(&self, dir: &Path) -> bool {
        let recipe = Suite::host().recipe(self);
        // Not followed: a link in the root is meant for the root.
        dir.join(self.name).join(self.proof).symlink_metadata().is_ok()
            && cache::stamp_in(dir, self.name).is_some_and(|stamp| stamp.starts_with(&recipe))
    }

    /// Makes it if it is not kept; gives its stamp, which no two roots share.
    pub(super) fn make(&self, cache: &Cache, bar: &Bar) -> anyhow::Result<String> {
        if self.is_kept(cache)
            && let Some(stamp) = cache.stamp(self.name)
        {
            return Ok(stamp);
        }
        let suite = Suite::host();
        if suite.mirror.is_some() && !Path::new(KEYRING).exists() {
            bail!("the demo's root is a Debian, whose keys are not here: apt install debian-archive-keyring");
        }
        bar.spin(format!("making a Debian {} root with {}", suite.name, self.packages));
        let draft = cache.draft(self.name);
        let mut words = arguments(&suite, "minbase", self.packages, &draft);
        // Options come before the release.
        words.splice(1..1, self.hook.map(|hook| format!("--customize-hook={hook}").into()));
        debootstrap(&words, &mut |step| {
            bar.spin(format!("making a Debian {} root: {step}", suite.name));
        })?;
        let proof = draft.join(self.proof);
        proof.symlink_metadata().with_context(|| format!("mmdebstrap left no {}", proof.display()))?;
        let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = format!("{}made at {}\n", suite.recipe(self), made.as_nanos());
        cache.keep(self.name, &stamp)?;
        Ok(stamp)
    }
}

/// The stamp of the kernel that QEMU boots.
pub(super) fn kernel_stamp() -> String {
    format!("debian {} extract {KERNEL_PACKAGE}\n", Suite::host().name)
}

/// Makes the kernel that QEMU boots, as `name` in the cache: Debian's for clouds has drivers for NVMe and
/// ext4, so it needs no initial RAM disk. Its package is unpacked in a folder of its own, and installed
/// nowhere.
pub(super) fn make_kernel(cache: &Cache, name: &str, bar: &Bar) -> anyhow::Result<()> {
    let suite = Suite::host();
    let unpacked = cache.draft("kernel-root");
    debootstrap(&arguments(&suite, "extract", KERNEL_PACKAGE, &unpacked), &mut |step| {
        bar.spin(format!("fetching a kernel of Debian {}: {step}", suite.name));
    })?;
    let folder = unpacked.join("boot");
    let context = || format!("look for a kernel in {}", folder.display());
    let entries = std::fs::read_dir(&folder).with_context(context)?.flatten();
    let is_kernel = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("vmlinuz-");
    let kernel = entries.into_iter().find(is_kernel).with_context(|| format!("{KERNEL_PACKAGE} has none"))?;
    let draft = cache.draft(name);
    std::fs::copy(kernel.path(), &draft).with_context(|| format!("write {}", draft.display()))?;
    cache::remove(&unpacked).with_context(|| format!("remove {}", unpacked.display()))?;
    cache.keep(name, &kernel_stamp())
}

/// Runs mmdebstrap; each step is shown to `on_step`.
fn debootstrap(arguments: &[OsString], on_step: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    let mut command = UNSHARE.command();
    // In namespaces of its own: its mounts are not to be seen in the folder that may have to be
    // removed, and whatever it started ends with it. It is the first process there.
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--"]).args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    tools::run(MMDEBSTRAP.program, command, &mut |line| {
        if let Some(step) = line.strip_prefix("I: ") {
            on_step(step);
        }
    })
    .map_err(explain)
}

/// mmdebstrap empties apt's lists and caches in the root itself.
fn arguments(suite: &Suite, variant: &str, packages: &str, target: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![
        MMDEBSTRAP.program.into(),
        "--mode=root".into(),
        "--format=directory".into(),
        format!("--variant={variant}").into(),
        format!("--include={packages}").into(),
    ];
    arguments.extend(DPKG_OPTIONS.map(|option| format!("--dpkgopt={option}").into()));
    arguments.push(suite.name.clone().into());
    arguments.push(target.into());
    arguments.extend(suite.mirror.map(Into::into));
    arguments
}

fn explain(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    if NETWORK_SIGNS.iter().any(|sign| text.contains(sign)) {
        return error.context(
            "no Debian mirror could be reached, from which the first demo makes its root: \
             check the network, or set http_proxy",
        );
    }
    if text.contains("No space left") {
        return error.context("the cache folder is full: free some space, or give --cache on another disk");
    }
    error.context("the Debian root could not be made")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debian_host_gets_its_own_release_and_others_the_default() {
        let debian = Suite::of_host("PRETTY_NAME=\"Debian\"\nVERSION_CODENAME=trixie\nID=debian\n");
        assert_eq!(debian, Suite { name: "trixie".to_owned(), mirror: None });
        let default = Suite { name: DEFAULT_SUITE.to_owned(), mirror: Some(MIRROR) };
        assert_eq!(Suite::of_host("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"), default);
        assert_eq!(Suite::of_host(""), default);
    }

    #[test]
    fn the_mirror_comes_last() {
        let suite = Suite { name: "bookworm".to_owned(), mirror: Some(MIRROR) };
        let arguments = arguments(&suite, "minbase", PROGRAM.packages, Path::new("/c/root"));
        let last: Vec<_> =
            arguments[arguments.len() - 3..].iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(last, ["bookworm", "/c/root", MIRROR]);
        assert!(arguments.contains(&OsString::from("--include=python3-pandas,python3-sympy")));
    }

    #[test]
    fn a_network_failure_is_told_as_one() {
        let error = anyhow::anyhow!("mmdebstrap failed; it said:\nE: Could not resolve 'deb.debian.org'");
        assert!(format!("{:#}", explain(error)).starts_with("no Debian mirror"));
        let error = anyhow::anyhow!("mmdebstrap failed; it said:\nE: other");
        assert!(format!("{:#}", explain(error)).starts_with("the Debian root could not be made"));
    }
}
