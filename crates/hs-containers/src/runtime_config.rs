//! `config.json` of a bundle: OCI runtime specification 1.0, with what `runc spec` writes as its defaults.

use std::ffi::OsString;

use hs_start::own_command::OwnCommand;
use serde_json::{Value, json};

/// Capabilities of the command: those that `headstart run` leaves.
const CAPABILITIES: [&str; 11] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_SETFCAP",
    "CAP_SYS_CHROOT",
    "CAP_NET_BIND_SERVICE",
];
/// Where programs are looked for, unless the image says.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Files of the kernel that no container sees, and those that it only reads.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
    "/proc/scsi",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The configuration of a bundle whose root is the folder `rootfs`.
pub(crate) fn of_command(command: &OwnCommand, hostname: &str, terminal: bool) -> Value {
    let user = command.user.clone().unwrap_or_default();
    let folder = command.folder.as_ref().map_or("/".into(), |folder| folder.to_string_lossy());
    let words: Vec<_> = command.words.iter().map(|word| word.to_string_lossy()).collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": terminal,
            "user": { "uid": user.uid, "gid": user.gid, "additionalGids": user.groups },
            "args": words,
            "env": environment(command),
            "cwd": folder,
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES
            },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024 }],
            "noNewPrivileges": true
        },
        "root": { "path": "rootfs", "readonly": false },
        "hostname": hostname,
        "mounts": mounts(),
        "linux": {
            "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }
            ],
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY
        }
    })
}

fn environment(command: &OwnCommand) -> Vec<String> {
    let has = |key: &str| command.variables.iter().any(|(known, _)| known == key);
    let written = |(key, value): &(OsString, OsString)| {
        format!("{}={}", key.to_string_lossy(), value.to_string_lossy())
    };
    let usual = [("PATH", PATH), ("TERM", "TERM=xterm")];
    let mut all: Vec<String> =
        usual.iter().filter(|(key, _)| !has(key)).map(|(_, text)| (*text).to_owned()).collect();
    all.extend(command.variables.iter().map(written));
    if let Some(home) = command.home.as_ref().filter(|_| !has("HOME")) {
        all.push(format!("HOME={}", home.to_string_lossy()));
    }
    all
}

fn mounts() -> Value {
    let mount = |destination: &str, kind: &str, source: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": source, "options": options });
    let closed = ["nosuid", "noexec", "nodev"];
    json!([
        mount("/proc", "proc", "proc", &[]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
        ),
        mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("/dev/mqueue", "mqueue", "mqueue", &closed),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_own_environment_comes_before_defaults() {
        let text = |text: &str| OsString::from(text);
        let command = OwnCommand {
            words: vec![text("app")],
            variables: vec![(text("PATH"), text("/opt/bin")), (text("A"), text("b"))],
            home: Some(text("/srv")),
            ..OwnCommand::default()
        };
        let config = of_command(&command, "name", false);
        assert_eq!(config["process"]["env"], json!(["TERM=xterm", "PATH=/opt/bin", "A=b", "HOME=/srv"]));
        assert_eq!((&config["process"]["args"], &config["process"]["cwd"]), (&json!(["app"]), &json!("/")));
        assert_eq!(config["process"]["user"]["uid"], 0);
    }
}
