//! A machine that QEMU runs: its console is read, and typed at.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A translated machine on a busy host takes minutes for what takes seconds.
const PATIENCE: Duration = Duration::from_secs(400);

/// A Debian on QEMU's "max" takes the translator longer.
const PROCESSOR: &str = "qemu64,+rdrand";

/// Words of each command line.
pub(crate) const CONSOLE: &str = "console=ttyS0 panic=1 no_timer_check";

/// On the command line: the initramfs stops when the root is mounted, and gives a shell. What comes behind
/// it takes longer than all before.
pub(crate) const BEFORE_THE_SWITCH: &str = "break=bottom panic=";

/// On the command line: the first process of the root is a shell, where nothing is asked of systemd.
pub(crate) const SHELL_AS_INIT: &str = "init=/bin/sh";

/// On the command line: an initramfs whose root cannot be mounted gives a shell.
pub(crate) const SHELL_ON_FAILURE: &str = "panic=";

/// What the console has said.
#[derive(Default)]
struct Said {
    text: String,
    has_ended: bool,
}

/// The machine. Dropped, it is ended.
pub(crate) struct Machine {
    qemu: Child,
    keys: ChildStdin,
    said: Arc<(Mutex<Said>, Condvar)>,
    /// What of it was waited for already.
    at: usize,
}

impl Machine {
    /// Starts a machine with these devices; the first serial port is its console.
    pub(crate) fn start<S: AsRef<OsStr>>(memory: &str, arguments: impl IntoIterator<Item = S>) -> Self {
        Self::start_by(Command::new("qemu-system-x86_64"), memory, arguments)
    }

    /// The same by this command.
    pub(crate) fn start_by<S: AsRef<OsStr>>(
        mut qemu: Command,
        memory: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut qemu = qemu
            .args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-accel", "tcg"])
            // A place for a second processor, as `boot` has: QEMU before 8.1 may lose requests without one.
            .args(["-cpu", PROCESSOR, "-smp", "1,maxcpus=2", "-m", memory])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("QEMU starts");
        let keys = qemu.stdin.take().expect("piped");
        let mut console = qemu.stdout.take().expect("piped");
        let said = Arc::new((Mutex::new(Said::default()), Condvar::new()));
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                let read = console.read(&mut bytes).unwrap_or(0);
                let mut said = heard.0.lock().expect("not poisoned");
                said.text.push_str(&String::from_utf8_lossy(&bytes[..read]).replace('\r', ""));
                said.has_ended = read == 0;
                heard.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        Self { qemu, keys, said, at: 0 }
    }

    /// Waits until the console has said one of these; gives what it said until now since the last wait.
    pub(crate) fn wait_for_any(&mut self, words: &[&str]) -> String {
        let until = Instant::now() + PATIENCE;
        let mut said = self.said.0.lock().expect("not poisoned");
        loop {
            let new = &said.text[self.at..];
            if words.iter().any(|word| new.contains(word)) {
                let new = new.to_owned();
                self.at = said.text.len();
                return new;
            }
            assert!(!said.has_ended, "the machine ended without {words:?}: {}", said.text);
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {words:?} in {}", said.text);
            said = self.said.1.wait_timeout(said, left).expect("not poisoned").0;
        }
    }

    /// Waits until the console has said this.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        self.wait_for_any(&[words])
    }

    /// Types a line.
    pub(crate) fn type_line(&mut self, line: &str) {
        self.keys.write_all(format!("{line}\n").as_bytes()).expect("typed");
    }

    /// Logs in as root, who has no password, to a shell that shows no prompt.
    pub(crate) fn log_in(&mut self) -> String {
        let said = self.wait_for("login: ");
        self.type_line("root");
        self.wait_for("# ");
        // A shell that does not edit lines.
        self.type_line("exec sh");
        self.type_line("stty -echo; PS1=; dmesg -n 1");
        self.ran("true");
        self.ran("true");
        said
    }

    /// Goes on in the shell of the initramfs that [`BEFORE_THE_SWITCH`] gives, with the root mounted at
    /// /root, or [`SHELL_ON_FAILURE`].
    pub(crate) fn in_the_initramfs(&mut self) -> String {
        self.in_a_shell_after("(initramfs) ")
    }

    /// Goes on in the shell that [`SHELL_AS_INIT`] gives.
    pub(crate) fn in_the_root(&mut self) -> String {
        self.in_a_shell_after("job control turned off")
    }

    fn in_a_shell_after(&mut self, words: &str) -> String {
        let said = self.wait_for(words);
        self.type_line("stty -echo; PS1=; dmesg -n 1");
        self.ran("true");
        self.ran("true");
        said
    }

    /// In the shell of the initramfs: gives the kernel another command line, for all that reads it from now
    /// on.
    pub(crate) fn change_command_line(&mut self, words: &str) {
        let binds = "grep -q /proc/cmdline /proc/mounts || mount -o bind /run/line /proc/cmdline";
        self.ran(&format!("echo '{CONSOLE} {words}' >/run/line; {binds}"));
    }

    /// In the shell of the initramfs: what is said where the root is mounted by this command line, and the
    /// exit code.
    pub(crate) fn mounted_by(&mut self, words: &str) -> String {
        self.change_command_line(words);
        self.ran("headstart-live root /root; echo exit code $?")
    }

    /// In the shell: takes a disk of virtio out of the machine.
    pub(crate) fn take_out(&mut self, disk: &str) {
        self.ran(&format!(
            "readlink -f /sys/block/{disk}/device >/run/{disk}; echo $(basename $(cat /run/{disk})) \
             >/sys/bus/virtio/drivers/virtio_blk/unbind"
        ));
    }

    /// In the shell: puts a disk back that was taken out by this name; it may get another.
    pub(crate) fn put_back(&mut self, disk: &str) {
        self.ran(&format!("echo $(basename $(cat /run/{disk})) >/sys/bus/virtio/drivers/virtio_blk/bind"));
    }

    /// Runs a command in the shell; gives what it printed.
    pub(crate) fn ran(&mut self, command: &str) -> String {
        // The mark is not in the line that is typed, which may be shown.
        self.type_line(&format!("{command}; echo =$?=E''ND"));
        let said = self.wait_for("=END\n");
        let at = said.trim_end_matches("=END\n").rfind('=').unwrap_or(said.len());
        // The kernel says this on each console when the guest had no processor for a while.
        let is_pause = |line: &&str| line.contains("watchdog: BUG: soft lockup");
        said[..at].split_inclusive('\n').filter(|line| !is_pause(line)).collect()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait_for_end(mut self) -> String {
        assert!(self.qemu.wait().expect("waited for").success());
        let said = self.said.0.lock().expect("not poisoned");
        said.text[self.at..].to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
