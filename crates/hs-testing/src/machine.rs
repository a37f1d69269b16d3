//! What a test needs from the machine.

use std::path::Path;
use std::process::Command;

/// True when this process is root, and the machine has all that is needed: programs by their names, devices
/// by their paths. Otherwise the test is skipped, as with [`skip`](crate::skip).
///
/// # Panics
/// In continuous integration, when something is missing.
#[must_use]
pub fn machine_has(needed: &[&str]) -> bool {
    let is_missing = |name: &&&str| match name.starts_with('/') {
        true => !Path::new(name).exists(),
        false => {
            let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
            !found.is_ok_and(|output| output.status.success())
        }
    };
    let lack = if !rustix::process::geteuid().is_root() {
        "mounting needs root".to_owned()
    } else if let Some(name) = needed.iter().find(is_missing) {
        format!("{name} is missing")
    } else {
        return true;
    };
    crate::skip(lack);
    false
}
