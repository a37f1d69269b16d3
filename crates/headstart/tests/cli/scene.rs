//! The environment of the tests, and their requirements of the machine.

use std::fs;
use std::io::{BufRead, BufReader, Seek};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use hs_units::Prng;
use rustix::process::{Pid, Signal, kill_process};

/// How long something may take that has been asked for and must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The program with these arguments.
pub(crate) fn headstart<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(arguments).stdin(Stdio::null());
    if std::env::var_os("SHORT_AREAS").is_some() {
        command.env("LD_PRELOAD", crate::short_areas::object());
    }
    // Shells have what they start in the background ignore SIGINT, the harness perhaps among it.
    static HEEDED: std::sync::Once = std::sync::Once::new();
    // SAFETY: nothing here handles SIGINT; what is started inherits the default.
    HEEDED.call_once(|| unsafe {
        libc::signal(libc::SIGINT, libc::SIG_DFL);
    });
    command
}

/// How a run of the program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `headstart mount`, which leaves a server behind.
pub(crate) fn mount(scene: &Scene, arguments: &[&str]) -> Ran {
    leaving(scene, ["mount"].iter().chain(arguments))
}

/// Runs a command that leaves processes behind: what they inherit must not be a pipe that the test reads to
/// its end.
pub(crate) fn leaving<S: AsRef<std::ffi::OsStr>>(
    scene: &Scene,
    arguments: impl IntoIterator<Item = S>,
) -> Ran {
    let said = scene.path("said");
    let stderr = fs::File::create(&said).expect("a file");
    let mut printed = tempfile::tempfile().expect("a file");
    let stdout = printed.try_clone().expect("the same file");
    let status = headstart(arguments).stdout(stdout).stderr(stderr).status().expect("the program starts");
    printed.rewind().expect("to its beginning");
    let stdout = std::io::read_to_string(printed).expect("read");
    Ran { code: status.code(), stdout, stderr: fs::read_to_string(&said).expect("read") }
}

/// Runs the program to its end.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let ran: Ran = headstart(&arguments).output().expect("the program starts").into();
    // A program that was started speaks for itself.
    if arguments.iter().all(|word| word.as_ref() != "--") {
        crate::units::check_sizes(&ran);
    }
    ran
}

impl Ran {
    /// It must have ended well.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// It must have failed with this code, having said all of this.
    pub(crate) fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no '{word}' in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A folder for one test.
pub(crate) struct Scene(tempfile::TempDir);

impl Scene {
    pub(crate) fn new() -> Self {
        mount_apart();
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn folder(&self, name: &str) -> String {
        fs::create_dir(self.path(name)).expect("a folder");
        self.arg(name)
    }

    /// A raw disk of so many blocks that compress a little.
    pub(crate) fn raw(&self, name: &str, blocks: usize, seed: u64) -> Vec<u8> {
        let mut disk = vec![0; blocks * 4096];
        disk.chunks_mut(4096).enumerate().for_each(|(block, bytes)| {
            Prng::new(seed ^ (block as u64) << 8).fill(&mut bytes[..2048]);
        });
        fs::write(self.path(name), &disk).expect("written");
        disk
    }

    /// An image of a raw disk.
    pub(crate) fn image(&self, name: &str, blocks: usize, seed: u64) -> Vec<u8> {
        let disk = self.raw("disk.raw", blocks, seed);
        run(["build", "--raw", &self.arg("disk.raw"), "-o", &self.arg(name), "--codec", "zstd:1"]).ok();
        disk
    }

    /// An image of the tiny root.
    pub(crate) fn root(&self, name: &str) -> String {
        fs::copy(tiny_root(), self.path(name)).expect("copied");
        self.arg(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("listed");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Lines of this machine's table of mounts that have to do with this folder.
    pub(crate) fn mounts(&self) -> Vec<String> {
        let folder = self.0.path().display().to_string();
        // Another test's mount may have a name that is no text.
        let table = fs::read("/proc/thread-self/mountinfo").expect("mounts");
        String::from_utf8_lossy(&table)
            .lines()
            .filter(|line| line.contains(&folder))
            .map(str::to_owned)
            .collect()
    }

    /// Processes with an argument in this folder.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let folder = self.0.path().display().to_string();
        let entries = fs::read_dir("/proc").expect("processes").flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        numbers
            .filter(|number| {
                let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(&folder)
            })
            .collect()
    }

    /// No mount and no process of this folder is left, or will be in a moment.
    pub(crate) fn wait_until_clean(&self) {
        wait_until("everything of the test is gone", || {
            self.mounts().is_empty() && self.processes().is_empty()
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Processes that a failed test has left must not keep the folder.
        for number in self.processes() {
            if let Some(pid) = Pid::from_raw(number.cast_signed()) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        for line in self.mounts().iter().rev() {
            if let Some(target) = line.split(' ').nth(4) {
                let _ = rustix::mount::unmount(target, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}

/// Waits for a condition that no descriptor signals.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not after {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A copy of a mount in the namespace of another test's process would keep its server: each test has a
/// namespace of its own, in which others mount nothing.
fn mount_apart() {
    thread_local!(static IS_APART: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    if !rustix::process::geteuid().is_root() || IS_APART.replace(true) {
        return;
    }
    // SAFETY: CLONE_NEWNS changes this thread's view of mounts only; no descriptor or memory is affected.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0 {
        hs_testing::keep_mounts_apart();
    }
}

/// What this program makes once for all tests, as [`hs_testing::made_once`] does.
pub(crate) fn made_once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_headstart"));
    hs_testing::made_once(Path::new(env!("CARGO_TARGET_TMPDIR")), name, &[program], make)
}

/// An image of a root with busybox in it.
fn tiny_root() -> PathBuf {
    made_once("tiny-root", |image| {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        for name in ["bin", "dev", "proc", "sys", "tmp", "etc"] {
            fs::create_dir_all(root.join(name)).expect("a folder");
        }
        fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
        for name in ["sh", "cat", "echo", "kill", "sleep", "true", "md5sum"] {
            symlink("busybox", root.join("bin").join(name)).expect("a link");
        }
        fs::write(root.join("etc/motd"), "hello from the image\n").expect("written");
        let arguments = ["build".into(), root.into_os_string(), "-o".into(), image.into()];
        run(arguments.into_iter().chain(["--codec".into(), "zstd:1".into()])).ok();
    })
}

/// Another program's run, which must end well.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> Ran {
    Ran::from(Command::new(name).args(arguments).output().expect("the program starts")).ok()
}

/// Writes a program, such as a script that stands for another.
pub(crate) fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// True when this machine allows mounts, and has all of `files`. Otherwise the test is skipped and says so;
/// where CI runs it, it fails.
pub(crate) fn machine_has(files: &[&str]) -> bool {
    let lack = if !rustix::process::geteuid().is_root() {
        "mounting needs root".to_owned()
    } else if let Some(file) = ["/dev/fuse"].iter().chain(files).find(|file| !Path::new(file).exists()) {
        format!("{file} is missing (scripts/setup.sh installs what the tests need)")
    } else {
        return true;
    };
    hs_testing::skip(lack);
    false
}

/// True when all of these programs are on PATH; otherwise as [`machine_has`].
pub(crate) fn has_tools(names: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let Some(lack) = names.iter().find(|name| !has(name)) else { return true };
    hs_testing::skip(format!("{lack} is missing"));
    false
}

/// What a start in the tiny root needs.
pub(crate) const START: &[&str] = &["/bin/busybox", "/dev/loop-control"];

/// The program while it runs.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Running {
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::start_command(headstart(arguments))
    }

    pub(crate) fn start_command(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of standard error.
    pub(crate) fn said(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("standard error");
        line
    }

    /// The next line of standard output.
    pub(crate) fn printed(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("standard output");
        line
    }

    /// The object that standard output has next.
    pub(crate) fn printed_json(&mut self) -> serde_json::Value {
        let mut text = String::new();
        while !text.ends_with("}\n") || text.ends_with("  }\n") {
            let line = self.printed();
            assert!(!line.is_empty(), "standard output has ended: {text}");
            text += &line;
        }
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Reads no more of standard output, as `head` does.
    pub(crate) fn hang_up(self) -> ExitStatus {
        let Self { mut child, stdout, .. } = self;
        drop(stdout);
        child.wait().expect("ended")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("signalled");
    }

    /// Waits for the end; returns the exit status, and the output that was not read yet.
    pub(crate) fn end(mut self) -> (ExitStatus, String, String) {
        let (mut printed, mut said) = (String::new(), String::new());
        std::io::Read::read_to_string(&mut self.stdout, &mut printed).expect("standard output");
        std::io::Read::read_to_string(&mut self.stderr, &mut said).expect("standard error");
        (self.child.wait().expect("ended"), printed, said)
    }
}
