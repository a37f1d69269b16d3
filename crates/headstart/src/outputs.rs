//! One rule for every file that a command writes, applied before its work begins.
//!
//! - An output that is an input too is refused, also by another name of the same file.
//! - An existing file of another kind is refused without `--force`. One of the same kind is replaced.
//! - A link is followed, as `cp` does. A link to a missing file is refused.

mod content;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use hs_format::FileKind;
use hs_start::channel;
use hs_start::location::{ImageLocation, ImagePlace};
use hs_start::pack;
use hs_start::source::SourceName;
use hs_trust::pointer::SUFFIX;

use self::content::Content;
use crate::cli::DiskFormat;

/// What the file of an argument is.
#[derive(Clone, Copy)]
enum Kind {
    /// Always this.
    Is(Content),
    /// A pack where the image that is read is one, else an image.
    LikeImage,
    /// A disk in the format that the flags or the name say.
    Export,
    /// A report in the format that the flags or the name say.
    Report,
    /// The beginning of the names of two keys.
    Keys,
}

/// Every argument that names a file to be written: its command, its identifier, and what the file is.
const OUTPUTS: &[(&str, &str, Kind)] = &[
    ("accelerate record", "list", Kind::Is(Content::Pages)),
    ("boot", "console", Kind::Is(Content::Console)),
    ("boot", "record", Kind::Is(Content::Profile)),
    ("boot", "snapshot_out", Kind::Is(Content::Image)),
    ("boot", "trace", Kind::Is(Content::Trace)),
    ("build", "output", Kind::Is(Content::Image)),
    ("commit", "output", Kind::Is(Content::Image)),
    ("convert", "output", Kind::Is(Content::Image)),
    ("export", "output", Kind::Export),
    ("import", "output", Kind::Is(Content::Image)),
    ("iso", "output", Kind::Is(Content::Iso)),
    ("keygen", "name", Kind::Keys),
    ("lab calibrate", "output", Kind::Is(Content::Model)),
    ("lab trace", "csv", Kind::Is(Content::Table)),
    ("mount", "trace", Kind::Is(Content::Trace)),
    ("optimize", "output", Kind::LikeImage),
    ("pack", "output", Kind::Is(Content::Pack)),
    ("profile", "output", Kind::Is(Content::Profile)),
    ("report", "output", Kind::Report),
    ("resume", "console", Kind::Is(Content::Console)),
    ("resume", "record", Kind::Is(Content::Profile)),
    ("resume", "record_disk", Kind::Is(Content::Profile)),
    ("run", "json", Kind::Is(Content::Json)),
    ("run", "trace", Kind::Is(Content::Trace)),
    ("serve", "access_log", Kind::Is(Content::Log)),
    ("sign", "output", Kind::Is(Content::Signature)),
];

/// The identifier of the flag that allows to replace a file of another kind.
const FORCE: &str = "force";
/// How the names of packs at an address end.
const PACK_SUFFIX: &str = ".hspk";
/// Arguments of the processes that a command starts of itself: what they write was checked before.
const OF_SERVERS: [&str; 2] = ["ready_fd", "supervisor_fd"];
/// The command that a start runs: its words are names inside the image.
const STARTED: &str = "command";

/// A file to be written.
struct Output {
    /// The argument that names it, for messages.
    flag: String,
    path: PathBuf,
    content: Content,
}

/// Adds to a command that writes files what the rule needs: `--force`, and that links are followed.
pub(crate) fn prepare(command: Command, name: &str) -> Command {
    let outputs = || OUTPUTS.iter().filter(|(of, ..)| *of == name);
    if outputs().next().is_none() {
        return command;
    }
    let force = Arg::new(FORCE).long(FORCE).action(ArgAction::SetTrue).hide_short_help(true).help(
        "Also replace an existing file of another kind. Without this flag a file is replaced by one of its \
         own kind only. A file that the command reads is never replaced",
    );
    outputs().filter(|(.., kind)| !matches!(kind, Kind::Keys)).fold(
        command.arg(force),
        |command, (_, id, _)| {
            command.mut_arg(*id, |arg| arg.value_parser(PathBufValueParser::new().map(followed)))
        },
    )
}

/// Where a link leads, if that is a file.
fn followed(path: PathBuf) -> PathBuf {
    let leads_to_file = path.is_symlink() && path.is_file();
    if leads_to_file { fs::canonicalize(&path).unwrap_or(path) } else { path }
}

/// Refuses outputs that would destroy something.
///
/// # Errors
/// Which file, why, and what to do.
pub(crate) fn check(matches: &ArgMatches) -> anyhow::Result<()> {
    let (command, matches) = innermost(matches);
    if OF_SERVERS.iter().any(|id| is_given(matches, id)) {
        return Ok(());
    }
    let is_forced = matches.try_get_one::<bool>(FORCE).ok().flatten().is_some_and(|forced| *forced);
    let outputs = outputs(&command, matches);
    if outputs.is_empty() {
        // Nothing is looked at: a mount that waits for its server would not answer.
        return Ok(());
    }
    let inputs = inputs(&command, matches);
    let mut before: Vec<(String, Identity)> = Vec::new();
    for output in outputs {
        let Some(identity) = output.check_place()? else { continue };
        let (path, flag) = (output.path.display(), &output.flag);
        if let Some(input) = inputs.iter().find(|input| Identity::of(input).as_ref() == Some(&identity)) {
            bail!("{path}: {flag} would replace {}, which is read: choose another name", input.display());
        }
        if let Some((other, _)) = before.iter().find(|(_, other)| *other == identity) {
            bail!("{path}: {flag} and {other} would write the same file: choose two names");
        }
        if matches!(identity, Identity::Is(..)) {
            output.check_kind(is_forced)?;
        }
        before.push((output.flag, identity));
    }
    Ok(())
}

/// The command that was called, such as `lab trace`, and its arguments.
fn innermost(mut matches: &ArgMatches) -> (String, &ArgMatches) {
    let mut names = Vec::new();
    while let Some((name, inner)) = matches.subcommand() {
        names.push(name);
        matches = inner;
    }
    (names.join(" "), matches)
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.try_contains_id(id).unwrap_or(false)
}

fn path_of(matches: &ArgMatches, id: &str) -> Option<PathBuf> {
    matches.try_get_one::<PathBuf>(id).ok().flatten().cloned()
}

/// What the command will write.
fn outputs(command: &str, matches: &ArgMatches) -> Vec<Output> {
    let mut found = Vec::new();
    let mut add =
        |flag: &str, path: PathBuf, content| found.push(Output { flag: flag.to_owned(), path, content });
    for (_, id, kind) in OUTPUTS.iter().filter(|(of, ..)| *of == command) {
        let Some(path) = path_of(matches, id) else { continue };
        let flag = format!("--{}", id.replace('_', "-"));
        match kind {
            Kind::Is(content) => add(&flag, path, *content),
            Kind::LikeImage => {
                let image = matches.try_get_one::<ImageLocation>("image").ok().flatten();
                let is_pack = image.is_some_and(is_pack);
                add(&flag, path, if is_pack { Content::Pack } else { Content::Image });
            }
            Kind::Export => {
                let named = matches.get_one("format").copied();
                let format = named.or_else(|| DiskFormat::of_file(&path));
                format.into_iter().for_each(|format| add(&flag, path.clone(), Content::Disk(format)));
            }
            Kind::Report => {
                let named = matches.get_one("format").copied();
                let format = named.or_else(|| hs_report::Format::of_file(&path));
                format.into_iter().for_each(|format| add(&flag, path.clone(), Content::Report(format)));
            }
            Kind::Keys => [".key", ".pub"].iter().for_each(|ending| {
                let name = [path.as_os_str(), OsStr::new(ending)].into_iter().collect::<OsString>();
                add("keygen", name.into(), Content::Key);
            }),
        }
    }
    // Signatures lie beside what they are of.
    match (command, path_of(matches, "output"), path_of(matches, "image")) {
        ("build" | "optimize", Some(image), _) if is_given(matches, "sign") => {
            add("--sign", channel::beside(&image), Content::Signature);
        }
        ("sign", None, Some(image)) => {
            let channel = matches.get_one::<String>("channel");
            let file = channel.map(|channel| image.with_file_name(format!("{channel}{SUFFIX}")));
            add("sign", file.unwrap_or_else(|| channel::beside(&image)), Content::Signature);
        }
        _ => {}
    }
    found
}

/// Every file that the command may read: what its other arguments name, and the disks beside packs.
fn inputs(command: &str, matches: &ArgMatches) -> Vec<PathBuf> {
    let is_output = |id: &str| OUTPUTS.iter().any(|(of, output, _)| *of == command && *output == id);
    let (mut found, mut images) = (Vec::new(), Vec::new());
    for id in matches.ids().map(clap::Id::as_str).filter(|id| !is_output(id) && *id != STARTED) {
        if let Ok(Some(paths)) = matches.try_get_many::<PathBuf>(id) {
            found.extend(paths.cloned());
        }
        if let Ok(Some(locations)) = matches.try_get_many::<ImageLocation>(id) {
            images.extend(locations.filter_map(|image| match &image.place {
                ImagePlace::File(path) => Some(path.clone()),
                ImagePlace::Remote(_) => None,
            }));
        }
        if let Ok(Some(words)) = matches.try_get_many::<OsString>(id) {
            let of_source = |word: &OsString| SourceName::parse(word).path().map(Path::to_owned);
            images.extend(words.flat_map(|word| [of_source(word), after_name(word)]).flatten());
        }
    }
    // Where the disk of a pack is somewhere else, that is an argument.
    if !is_given(matches, "base") {
        found.extend(images.iter().filter_map(|path| disk_beside(path)));
    }
    found.extend(images);
    found
}

/// The disk of the pack in this file, if that is one. Nothing but a regular file is opened: a pipe would
/// wait.
fn disk_beside(path: &Path) -> Option<PathBuf> {
    let header = path.is_file().then(|| pack::header_in_file(path)).flatten()?;
    (!header.name.is_empty()).then(|| path.with_file_name(&header.name))
}

/// Whether an image is a pack; of one at an address, its name says so.
fn is_pack(image: &ImageLocation) -> bool {
    match &image.place {
        ImagePlace::File(path) => path.is_file() && pack::header_in_file(path).is_some(),
        ImagePlace::Remote(address) => address.to_string().ends_with(PACK_SUFFIX),
    }
}

/// The file of NAME=FILE.
fn after_name(word: &OsStr) -> Option<PathBuf> {
    let at = word.as_bytes().iter().position(|byte| *byte == b'=')?;
    Some(OsStr::from_bytes(&word.as_bytes()[at + 1..]).into())
}

/// Tells files apart, whatever they are called.
#[derive(PartialEq, Eq)]
enum Identity {
    /// An existing file, by device and inode.
    Is(u64, u64),
    /// A file that is not there yet, by its folder and its name.
    Will(PathBuf),
}

impl Identity {
    /// Of a regular file or a file that is not there yet; none for anything else.
    fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(found) => found.is_file().then(|| Self::Is(found.dev(), found.ino())),
            Err(_) => Some(Self::Will(fs::canonicalize(folder(path)).ok()?.join(path.file_name()?))),
        }
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Output {
    /// Refuses a place that has no file and gets none; gives what the file is told apart by. A pipe or a
    /// terminal has nothing that could be lost.
    fn check_place(&self) -> anyhow::Result<Option<Identity>> {
        let path = self.path.display();
        match fs::metadata(&self.path) {
            Ok(found) if found.is_file() => {}
            Ok(found) => return self.check_special(&found).map(|()| None),
            Err(_) if self.path.is_symlink() => {
                bail!("{path}: this link leads to no file: give the name of the file, or remove the link")
            }
            Err(_) if !folder(&self.path).is_dir() => {
                bail!("{path} cannot be written: there is no directory {}", folder(&self.path).display())
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("look at {path}"));
            }
            Err(_) => {}
        }
        Ok(Identity::of(&self.path))
    }

    /// Refuses to replace a file of another kind.
    fn check_kind(&self, is_forced: bool) -> anyhow::Result<()> {
        let (path, flag, content) = (self.path.display(), &self.flag, self.content);
        if content == Content::Key {
            bail!(
                "{path} exists: a lost key cannot be made again, so no key is replaced; choose another name"
            );
        }
        if is_forced {
            return Ok(());
        }
        let mut start = Vec::new();
        File::open(&self.path)
            .and_then(|file| file.take(FileKind::NEEDED_BYTES as u64).read_to_end(&mut start))
            .with_context(|| format!("{path}: what it is cannot be read; --force replaces it"))?;
        if !content.is_same(&start) {
            let found = FileKind::of(&start);
            bail!(
                "{path}: {flag} writes {content}, and this is {found}: choose another name, or give --force"
            );
        }
        Ok(())
    }

    fn check_special(&self, found: &Metadata) -> anyhow::Result<()> {
        let kind = found.file_type();
        let what = match kind {
            _ if kind.is_dir() => "a directory",
            _ if kind.is_block_device() => "a disk",
            _ if self.content.is_seekable() && kind.is_char_device() => "a device",
            _ if self.content.is_seekable() => "a pipe or a socket",
            _ => return Ok(()),
        };
        bail!(
            "{}: this is {what}; {} writes {} to a regular file",
            self.path.display(),
            self.flag,
            self.content
        )
    }
}
