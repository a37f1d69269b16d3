//! Archives and images to be read, and what they must become.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hs_build::source::{Source, SourceError, SourceOptions};

/// Opens a source with all that is kept in `folder`.
pub(crate) fn open_with(path: &Path, options: SourceOptions) -> Result<Source, SourceError> {
    let keep_in = path.parent().map(Path::to_owned);
    Source::open(path, &SourceOptions { keep_in, ..options }, &|_| {})
}

pub(crate) fn open(path: &Path) -> Result<Source, SourceError> {
    open_with(path, SourceOptions::default())
}

/// The source, which must open.
pub(crate) fn source(path: &Path) -> Source {
    open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Why a source cannot be opened.
pub(crate) fn refused(path: &Path) -> String {
    open(path).err().unwrap_or_else(|| panic!("{} was taken", path.display())).to_string()
}

/// A digest of every byte of the disk.
pub(crate) fn digest(source: &Source) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < source.bytes() {
        let len = (source.bytes() - offset).min(buffer.len() as u64) as usize;
        source.read_at(offset, &mut buffer[..len]).unwrap();
        hasher.update(&buffer[..len]);
        offset += len as u64;
    }
    source.verify_unchanged().unwrap();
    hasher.finalize()
}

/// Writes the disk to a file.
pub(crate) fn write_out(source: &Source, path: &Path) {
    let mut bytes = vec![0; source.bytes() as usize];
    source.read_at(0, &mut bytes).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Fails unless two sources have the same bytes, and shows what is in them.
pub(crate) fn assert_same(one: &Source, other: &Source, what: &str) {
    if digest(one) == digest(other) {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let list = |source: &Source| {
        let disk = work.path().join("disk");
        write_out(source, &disk);
        let mut listed = String::new();
        for folder in ["/", "/usr/lib", "/d", "/opaque"] {
            let command = format!("ls -l {folder}");
            let names = run("debugfs", ["-R".as_ref(), command.as_ref(), disk.as_os_str()]);
            listed += &String::from_utf8_lossy(&names);
        }
        listed
    };
    panic!("{what}:\n{}\n{}", list(one), list(other));
}

/// Runs a program that must end well, and gives what it prints.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Vec<u8> {
    let mut command = Command::new(program);
    let output = command.args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Runs a program that reads from standard input.
pub(crate) fn filter(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    let child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        output.stdout
    })
}

/// Archives `folder` with these arguments.
pub(crate) fn archive(folder: &Path, archive: &Path, arguments: &[&str]) {
    let words = ["-C", folder.to_str().unwrap(), "-cf", archive.to_str().unwrap()];
    run("tar", words.into_iter().chain(arguments.iter().copied()).chain(["."]));
}

/// Unpacks an archive into a new folder, with these further words for tar.
pub(crate) fn unpack(archive: &Path, folder: &Path, further: &[&str]) -> PathBuf {
    fs::create_dir(folder).unwrap();
    let words = ["-C", folder.to_str().unwrap(), "-xpf", archive.to_str().unwrap()];
    let more = ["--xattrs", "--xattrs-include=*", "--numeric-owner"];
    run("tar", words.into_iter().chain(more).chain(further.iter().copied()));
    folder.to_owned()
}

/// Whether a test that needs root can run: a visible skip on a person's machine, a failure in CI.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        hs_testing::skip(format!("{test} needs root"));
    }
    root
}

/// An archive by hand: what no tool makes.
#[derive(Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    /// An entry of this kind; `name` and `target` of up to 100 bytes.
    pub(crate) fn entry(mut self, kind: u8, name: &str, target: &str, content: &[u8]) -> Self {
        self.header(kind, name, target, content.len() as u64, |_| {});
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// An entry whose header is changed before its checksum is made.
    pub(crate) fn changed(
        mut self,
        kind: u8,
        name: &str,
        bytes: u64,
        change: impl FnOnce(&mut [u8]),
    ) -> Self {
        self.header(kind, name, "", bytes, change);
        self
    }

    pub(crate) fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(b'0', name, "", content)
    }

    pub(crate) fn folder(self, name: &str) -> Self {
        self.entry(b'5', name, "", b"")
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, target, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(b'1', name, target, b"")
    }

    /// Records of POSIX for the next entry.
    pub(crate) fn records(self, records: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut len = rest + 1;
            while len != rest + len.to_string().len() {
                len += 1;
            }
            text += &format!("{len} {key}={value}\n");
        }
        self.entry(b'x', "records", "", text.as_bytes())
    }

    /// With the zeros that end an archive.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }

    pub(crate) fn write(self, path: &Path) -> PathBuf {
        fs::write(path, self.bytes()).unwrap();
        path.to_owned()
    }

    /// Without the end.
    pub(crate) fn unended(self) -> Vec<u8> {
        self.0
    }

    fn header(&mut self, kind: u8, name: &str, target: &str, bytes: u64, change: impl FnOnce(&mut [u8])) {
        let mut header = vec![0; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, if kind == b'5' { b"0000755" } else { b"0000644" });
        put(108, b"0000000");
        put(116, b"0000000");
        put(124, format!("{bytes:011o}").as_bytes());
        put(136, b"00000000007");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\0");
        put(263, b"00");
        put(329, b"0000000");
        put(337, b"0000000");
        change(&mut header);
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend(header);
    }
}
