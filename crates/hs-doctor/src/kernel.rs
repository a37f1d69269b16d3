//! The kernel's version, and from which version on it has what headstart uses.

use crate::{Check, CheckState};

/// A version of Linux: major and minor number.
pub(crate) type Version = (u32, u32);

/// Something that only newer kernels have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    pub(crate) since: Version,
    /// What we lose without it.
    pub(crate) without: &'static str,
    /// How `doctor` finds out: by asking the kernel, or from its version.
    pub(crate) found_by: &'static str,
}

/// The oldest kernel of the systems that are supported: Debian 12's.
pub(crate) const OLDEST_SUPPORTED: Version = (6, 1);

/// What depends on the version, oldest first. docs/KERNELS.md shows the same table, and a test
/// compares the two.
pub(crate) const FEATURES: &[Feature] = &[
    Feature {
        name: "loop devices with direct I/O",
        since: (4, 10),
        without: "blocks below a loop device are cached twice",
        found_by: "trying it (root only)",
    },
    Feature {
        name: "FUSE mounts in a user namespace",
        since: (4, 18),
        without: "`run` and `profile` need root",
        found_by: "trying it",
    },
    Feature {
        name: "FUSE requests of up to 1 MiB (`max_pages`)",
        since: (4, 20),
        without: "large reads arrive in requests of 128 KiB",
        found_by: "version",
    },
    Feature {
        name: "loop devices set up in one call (`LOOP_CONFIGURE`)",
        since: (5, 8),
        without: "direct I/O on a loop device cannot be chosen when it is made",
        found_by: "trying it (root only)",
    },
    Feature {
        name: "overlay mounts in a user namespace",
        since: (5, 11),
        without: "`run` and `profile` need root",
        found_by: "trying it",
    },
    Feature {
        name: "`cachestat(2)`",
        since: (6, 5),
        without: "the share of the pushed pages that is still cached is not counted",
        found_by: "calling it",
    },
    Feature {
        name: "`FUSE_NOTIFY_RESEND`",
        since: (6, 9),
        without: "reads that a server had taken when it died fail",
        found_by: "version",
    },
    Feature {
        name: "tracepoints `mm_filemap_get_pages`, `mm_filemap_fault`, `mm_filemap_map_pages`",
        since: (6, 12),
        without: "use of pushed pages is seen through fewer signs, so used and unused bytes are less exact",
        found_by: "looking into tracefs (root only)",
    },
    Feature {
        name: "fanotify pre-content events (`FAN_PRE_ACCESS`)",
        since: (6, 14),
        without: "`attach` does not work",
        found_by: "trying it (root only)",
    },
    Feature {
        name: "large folios in ext4",
        since: (6, 16),
        without: "the page cache of a mounted ext4 works page by page, which costs processor time",
        found_by: "version",
    },
];

pub(crate) fn checks() -> Vec<Check> {
    let release = release();
    let Some(version) = parse(&release) else {
        let check = Check::ok("kernel", release, "everything");
        return vec![check.but(
            CheckState::Degraded,
            "the version cannot be read: docs/KERNELS.md lists what needs which",
        )];
    };
    let mut checks = vec![oldest(&release, version)];
    for feature in FEATURES.iter().filter(|feature| feature.found_by == "version") {
        checks.push(by_version(feature, version));
    }
    checks
}

fn oldest(release: &str, version: Version) -> Check {
    let check = Check::ok("kernel", format!("Linux {release}"), "everything");
    if version >= OLDEST_SUPPORTED {
        return check;
    }
    let (major, minor) = OLDEST_SUPPORTED;
    check.but(
        CheckState::Degraded,
        format!("Linux {major}.{minor} is the oldest that is tested: see docs/KERNELS.md"),
    )
}

fn by_version(feature: &Feature, version: Version) -> Check {
    let (major, minor) = feature.since;
    let name = feature.name.replace('`', "");
    if version >= feature.since {
        return Check::ok(name, format!("in Linux since {major}.{minor}"), feature_use(feature));
    }
    let without = feature.without.replace('`', "");
    Check::ok(name, format!("comes with Linux {major}.{minor}"), feature_use(feature))
        .but(CheckState::Degraded, format!("with Linux {major}.{minor} or newer; until then, {without}"))
}

/// Which command a feature that is judged by version serves.
fn feature_use(feature: &Feature) -> &'static str {
    match feature.since {
        (4, 20) => "mount, run: fewer requests for large reads",
        (6, 9) => "mount, run: a front end that restarts unnoticed",
        _ => "run: cheap sequential reads",
    }
}

/// The kernel's release, such as `6.1.0-18-amd64`.
pub(crate) fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|error| format!("unknown ({error})"), |text| text.trim().to_owned())
}

/// Major and minor number of a release; whatever a distribution appends is left out.
pub(crate) fn parse(release: &str) -> Option<Version> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/KERNELS.md, as it must stand there.
    fn markdown() -> String {
        let mut text = String::from(
            "| What | Linux | Without it | `doctor` finds out by |\n| --- | --- | --- | --- |\n",
        );
        for feature in FEATURES {
            let (major, minor) = feature.since;
            text += &format!(
                "| {} | {major}.{minor} | {} | {} |\n",
                feature.name, feature.without, feature.found_by
            );
        }
        text
    }

    #[test]
    fn the_document_shows_this_table() {
        let document = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/KERNELS.md"));
        assert!(document.contains(&markdown()), "docs/KERNELS.md must contain:\n{}", markdown());
        let (major, minor) = OLDEST_SUPPORTED;
        assert!(document.contains(&format!("**Linux {major}.{minor}**")));
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(FEATURES.is_sorted_by_key(|feature| feature.since));
    }

    #[test]
    fn releases_of_distributions_are_read() {
        for (release, version) in [
            ("6.1.0-18-amd64", Some((6, 1))),
            ("6.8.0-41-generic", Some((6, 8))),
            ("6.18", Some((6, 18))),
            ("6.9-rc1", Some((6, 9))),
            ("unknown (no such file)", None),
            ("6", None),
            ("", None),
        ] {
            assert_eq!(parse(release), version, "{release}");
        }
    }

    #[test]
    fn an_old_kernel_is_limited_and_says_what_is_lost() {
        assert_eq!(oldest("5.10.0", (5, 10)).state, CheckState::Degraded);
        let resend = FEATURES.iter().find(|feature| feature.name.contains("RESEND")).unwrap();
        assert_eq!(by_version(resend, (6, 8)).state, CheckState::Degraded);
        assert_eq!(by_version(resend, (6, 9)).state, CheckState::Ok);
    }
}
