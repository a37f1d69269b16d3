//! The program's own folders: root's, or a user's by the XDG Base Directory Specification.

use std::path::PathBuf;

/// Folders of one kind.
pub struct OwnFolders {
    of_root: &'static str,
    /// The variable that names the users' folder, and where that is below their home when it does not.
    of_user: (&'static str, &'static str),
}

impl OwnFolders {
    /// For files that can be made again.
    pub const CACHE: Self = Self { of_root: "/var/cache/headstart", of_user: ("XDG_CACHE_HOME", ".cache") };
    /// What cannot, but is no one's work.
    pub const STATE: Self =
        Self { of_root: "/var/lib/headstart", of_user: ("XDG_STATE_HOME", ".local/state") };

    /// The folder `name` among them; none when this user has no home.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        if rustix::process::geteuid().is_root() && !plays_root() {
            return Some(PathBuf::from(self.of_root).join(name));
        }
        let folder =
            |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let (variable, below_home) = self.of_user;
        let of_user = folder(variable).or_else(|| Some(folder("HOME")?.join(below_home)))?;
        Some(of_user.join("headstart").join(name))
    }
}

/// Whether this process is called root in a user namespace that a user has entered alone, as `headstart run`
/// does: root's folders are not this user's to write in.
fn plays_root() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_one_user(&map))
}

/// The root of a container has other users too, and folders of its own.
fn maps_one_user(uid_map: &str) -> bool {
    let fields: Vec<&str> = uid_map.split_ascii_whitespace().collect();
    matches!(fields[..], ["0", outside, "1"] if outside != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_alone_in_a_namespace_is_not_its_root() {
        assert!(maps_one_user("         0       1000          1\n"));
        for roots in ["0 0 4294967295\n", "0 0 1\n", "0 100000 65536\n", "0 1000 1\n1 100000 65536\n", ""] {
            assert!(!maps_one_user(roots), "{roots}");
        }
    }
}
