//! A file that gets its name only when it is complete.

use std::fs::{File, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hs_format::limits::PACK_HEADER_BYTES;
use hs_units::ByteRange;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

use crate::BuildError;

/// A file beside `path` that replaces it, or vanishes. Where the file system can, it has no name until
/// then (`O_TMPFILE`), so that not even a killed process leaves anything behind; elsewhere it is a hidden
/// `.headstart-*.part`.
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    /// The name that it has meanwhile.
    name: Option<TempPath>,
    at: u64,
    /// Bytes of the file before those that are counted here.
    lead_bytes: u64,
    /// What is counted and does not lie in the file.
    skipped: ByteRange,
}

/// Who may read a file.
#[derive(Clone, Copy)]
pub(crate) enum Readers<'a> {
    /// As the umask says.
    Usual,
    /// As of a copy by `cp`: those who may read this file too, of which it is made.
    Of(&'a Path),
    /// Its owner alone.
    Owner,
}

impl<'a> Readers<'a> {
    /// Of what is made of this file, if it is one.
    pub(crate) fn of(source: Option<&'a Path>) -> Self {
        source.map_or(Self::Usual, Self::Of)
    }

    /// The permissions of a new file before the umask takes its bits away.
    fn mode(self) -> u32 {
        match self {
            Self::Usual => NEW_FILE_MODE,
            Self::Of(source) => {
                let found = std::fs::metadata(source).map(|found| found.permissions().mode());
                (found.unwrap_or(NEW_FILE_MODE) & NEW_FILE_MODE) | OWNER_MODE
            }
            Self::Owner => OWNER_MODE,
        }
    }

    /// The permissions of a file that replaces one with these.
    const fn mode_instead_of(self, replaced: u32) -> u32 {
        match self {
            Self::Usual | Self::Of(_) => replaced & 0o777,
            Self::Owner => OWNER_MODE,
        }
    }
}

impl Output {
    /// The file of a pack, which has a header before what is written. See [`Output::skip`].
    pub(crate) fn create_pack(path: &Path, readers: Readers<'_>) -> Result<Self, BuildError> {
        let mut output = Self::create(path, readers)?;
        output.lead_bytes = PACK_HEADER_BYTES as u64;
        output.seek(0)?;
        Ok(output)
    }

    pub(crate) fn create(path: &Path, readers: Readers<'_>) -> Result<Self, BuildError> {
        refuse_special(path)?;
        refuse_read(path)?;
        let mode = readers.mode();
        let (file, name) = match unnamed(folder(path), mode) {
            Ok(file) => (file, None),
            // What file systems without O_TMPFILE and kernels before it say.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let (file, name) =
                    named(path, mode).map_err(BuildError::io(path, "create a file beside it"))?.into_parts();
                (file, Some(name))
            }
            Err(error) => return Err(BuildError::io(path, "create a file beside it")(error.into())),
        };
        // What is replaced keeps its permissions: a private image stays one.
        if let Ok(replaced) = std::fs::metadata(path) {
            let permissions = Permissions::from_mode(readers.mode_instead_of(replaced.permissions().mode()));
            file.set_permissions(permissions).map_err(BuildError::io(path, "set permissions of"))?;
        }
        let skipped = ByteRange::default();
        Ok(Self { path: path.to_owned(), file, name, at: 0, lead_bytes: 0, skipped })
    }

    /// Where the next bytes go.
    pub(crate) const fn position(&self) -> u64 {
        self.at
    }

    /// The name that the file will get.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        self.file.write_all(bytes).map_err(BuildError::io(&self.path, "write"))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Writes `bytes` at `offset`, wherever the current position is. What is never written reads as zeros.
    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BuildError> {
        self.file.write_all_at(bytes, offset).map_err(BuildError::io(&self.path, "write"))
    }

    /// Makes the file so long: what was not written up to there is a hole.
    pub(crate) fn set_len(&mut self, bytes: u64) -> Result<(), BuildError> {
        self.file.set_len(bytes).map_err(BuildError::io(&self.path, "set its length"))
    }

    pub(crate) fn seek(&mut self, offset: u64) -> Result<(), BuildError> {
        let before = if offset >= self.skipped.end() { self.skipped.len } else { 0 };
        let place = SeekFrom::Start(self.lead_bytes + offset - before);
        self.file.seek(place).map_err(BuildError::io(&self.path, "seek"))?;
        self.at = offset;
        Ok(())
    }

    /// Passes over bytes that do not lie in this file. There is one such place.
    pub(crate) fn skip(&mut self, bytes: u64) {
        if self.skipped.len == 0 {
            self.skipped.offset = self.at;
        }
        assert_eq!(self.skipped.end(), self.at, "one place is passed over");
        self.skipped.len += bytes;
        self.at += bytes;
    }

    /// What was passed over.
    pub(crate) const fn skipped(&self) -> ByteRange {
        self.skipped
    }

    /// Copies `len` bytes of `from` to the current position, without passing them through this
    /// process where the file systems allow it.
    pub(crate) fn copy_from(&mut self, from: &File, offset: u64, len: u64) -> Result<(), BuildError> {
        let mut cursor = from;
        cursor.seek(SeekFrom::Start(offset)).map_err(BuildError::io(&self.path, "seek"))?;
        let mut limited = io::Read::take(from, len);
        let copied = io::copy(&mut limited, &mut self.file)
            .map_err(BuildError::io(&self.path, "copy the cold region"))?;
        if copied != len {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(BuildError::io(&self.path, "copy the cold region")(short));
        }
        self.at += len;
        Ok(())
    }

    /// The file as it is, never to be seen by another process.
    pub(crate) fn into_unnamed(self) -> UnnamedFile {
        let path = match &self.name {
            Some(name) => name.to_path_buf(),
            None => PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())),
        };
        UnnamedFile { path, _file: self.file, _name: self.name }
    }

    /// Makes the file durable and gives it its name.
    pub(crate) fn finish(self) -> Result<(), BuildError> {
        let Self { path, file, name, .. } = self;
        file.sync_all().map_err(BuildError::io(&path, "write to disk"))?;
        let name = match name {
            Some(name) => name,
            None => match give_name(&file, &path) {
                Ok(()) => return Ok(()),
                // Linking never replaces a file, renaming does.
                Err(Errno::EXIST) => {
                    link_hidden(&file, &path).map_err(BuildError::io(&path, "give it a name"))?
                }
                Err(error) => return Err(BuildError::io(&path, "give it its name")(error.into())),
            },
        };
        name.persist(&path).map_err(|error| BuildError::io(&path, "rename")(error.error))
    }
}

/// A file for this process alone, which leaves nothing behind, however that ends; where the file system has
/// no files without a name, it is a hidden one, which a killed process leaves.
pub struct UnnamedFile {
    path: PathBuf,
    _file: File,
    _name: Option<TempPath>,
}

impl UnnamedFile {
    /// How this process opens it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The permissions of any program's output before the umask takes its bits away, and those of the owner.
const NEW_FILE_MODE: u32 = 0o666;
const OWNER_MODE: u32 = 0o600;

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A device, pipe or directory would be replaced by the rename: `-o /dev/null` must not cost the
/// machine its null device.
///
/// A dash would be standard output to other programs; an image is not written from its beginning to its end.
fn refuse_special(path: &Path) -> Result<(), BuildError> {
    if path == Path::new("-") {
        let kind = "standard output (./- is a file of that name)";
        return Err(BuildError::NotAFile { path: path.to_owned(), kind });
    }
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let kind = match metadata.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        _ => "a pipe or a socket",
    };
    Err(BuildError::NotAFile { path: path.to_owned(), kind })
}

/// A file that this process has open, be it a backing file that a source names, is read: to replace it would
/// take from others what they read too.
fn refuse_read(path: &Path) -> Result<(), BuildError> {
    let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let Some(own) = identity(path) else { return Ok(()) };
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    if open.map(|entry| entry.path()).any(|open| identity(&open) == Some(own)) {
        return Err(BuildError::IsRead { path: path.to_owned() });
    }
    Ok(())
}

fn unnamed(folder: &Path, mode: u32) -> Result<File, Errno> {
    // Without /proc the file could not be given its name in the end.
    if !Path::new("/proc/self/fd").is_dir() {
        return Err(Errno::OPNOTSUPP);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)).map(File::from)
}

fn named(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    hidden().permissions(Permissions::from_mode(mode)).tempfile_in(folder(path))
}

fn hidden() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".headstart-").suffix(".part");
    builder
}

/// As open(2) tells to do it without privileges.
fn give_name(file: &File, path: &Path) -> Result<(), Errno> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, link, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Gives the file a hidden name beside `path`.
fn link_hidden(file: &File, path: &Path) -> io::Result<TempPath> {
    let made = hidden().make_in(folder(path), |name| give_name(file, name).map_err(io::Error::from))?;
    Ok(made.into_temp_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("listed");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// Both ways to a file: with no name meanwhile, and with a hidden one.
    fn outputs(path: &Path) -> [Output; 2] {
        let (file, name) = named(path, NEW_FILE_MODE).expect("created").into_parts();
        let skipped = ByteRange::default();
        let hidden = Output { path: path.to_owned(), file, name: Some(name), at: 0, lead_bytes: 0, skipped };
        [Output::create(path, Readers::Usual).expect("created"), hidden]
    }

    #[test]
    fn the_name_comes_with_the_last_byte_and_replaces_what_had_it() {
        for which in 0..2 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("out");
            for content in ["first", "second"] {
                let mut output = outputs(&path).into_iter().nth(which).expect("two ways");
                output.write(content.as_bytes()).expect("written");
                output.finish().expect("named");
                assert_eq!(std::fs::read_to_string(&path).expect("read"), content);
                assert_eq!(names(folder.path()), ["out"]);
            }
            let mode = std::fs::metadata(&path).expect("metadata").permissions().mode();
            assert_eq!(mode & 0o400, 0o400, "{mode:o}");
            assert_eq!(mode & 0o111, 0, "{mode:o}");
        }
    }

    /// A process has one umask, so the test is run once more, by a shell that has set another.
    #[test]
    fn permissions_follow_the_umask() {
        const TEST: &str = "output::tests::permissions_follow_the_umask";
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:")).expect("a umask");
        let umask = u32::from_str_radix(umask.trim(), 8).expect("octal");
        let folder = tempfile::tempdir().expect("a folder");
        for (number, output) in outputs(&folder.path().join("out")).into_iter().enumerate() {
            output.finish().expect("named");
            let mode = std::fs::metadata(folder.path().join("out")).expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o666 & !umask, "way {number}, umask {umask:o}");
        }
        if umask != 0o027 {
            let program = std::env::current_exe().expect("this test");
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "umask 027; exec \"$0\" --exact \"$1\""]).arg(program).arg(TEST);
            let ran = shell.output().expect("started");
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        }
    }

    #[test]
    fn what_is_made_of_a_private_file_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let source = path("source");
        std::fs::write(&source, "secret").expect("written");
        let mode = |name: &str, readers: Readers<'_>| {
            Output::create(&path(name), readers).expect("created").finish().expect("named");
            std::fs::metadata(path(name)).expect("metadata").permissions().mode() & 0o7777
        };
        for (number, source_mode) in [0o600, 0o400, 0o200].into_iter().enumerate() {
            std::fs::set_permissions(&source, Permissions::from_mode(source_mode)).expect("changed");
            assert_eq!(mode(&format!("copy-{number}"), Readers::Of(&source)), 0o600);
        }
        // Also where the file that is replaced was not.
        std::fs::write(path("old"), "old").expect("written");
        std::fs::set_permissions(path("old"), Permissions::from_mode(0o644)).expect("changed");
        assert_eq!([mode("old", Readers::Owner), mode("new", Readers::Owner)], [0o600; 2]);
        assert_eq!(Readers::Of(&path("missing")).mode(), Readers::Usual.mode());
    }

    #[test]
    fn what_is_replaced_keeps_its_permissions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        for mode in [0o600, 0o640] {
            std::fs::write(&path, "old").expect("written");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
            Output::create(&path, Readers::Usual).expect("created").finish().expect("named");
            let found = std::fs::metadata(&path).expect("metadata").permissions().mode();
            assert_eq!(found & 0o7777, mode);
        }
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let outputs = outputs(&folder.path().join("out"));
        assert!(
            names(folder.path()).iter().all(|name| name.starts_with(".headstart-")),
            "the way without O_TMPFILE"
        );
        drop(outputs);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn an_unnamed_file_is_read_by_its_path_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        for mut output in outputs(&folder.path().join("out")) {
            output.write(b"content").expect("written");
            let unnamed = output.into_unnamed();
            assert_eq!(std::fs::read(unnamed.path()).expect("read"), b"content");
        }
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn what_is_open_is_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("base"), folder.path().join("link"));
        std::fs::write(&path, "read by others too").expect("written");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let open = File::open(&path).expect("opened");
        for path in [&path, &link] {
            let refused = Output::create(path, Readers::Usual).err().expect("refused");
            assert!(matches!(refused, BuildError::IsRead { .. }), "{refused}");
        }
        drop(open);
        Output::create(&path, Readers::Usual).expect("closed");
    }

    #[test]
    fn devices_and_folders_are_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path(), Path::new("/dev/null"), Path::new("/dev/full"), Path::new("-")] {
            let refused = Output::create(path, Readers::Usual).err().expect("refused");
            assert!(matches!(refused, BuildError::NotAFile { .. }), "{refused}");
        }
    }
}
