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
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from(self.of_root).join(name));
        }
        let folder =
            |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let (variable, below_home) = self.of_user;
        let of_user = folder(variable).or_else(|| Some(folder("HOME")?.join(below_home)))?;
        Some(of_user.join("headstart").join(name))
    }
}
