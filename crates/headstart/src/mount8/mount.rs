//! `/sbin/mount.headstart`: mount(8)'s words for `headstart mount`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use anyhow::{Context, bail};
use clap::{CommandFactory, Parser};

use super::{FAILED, WRONG_USAGE, enter};
use crate::cli::{Cli, Command};
use crate::commands;
use hs_output::log_output;

/// Mount a headstart image; mount(8) calls this for the type headstart.
///
/// The disk in the image SPEC appears as DIR/disk.img, and its file system at the directory of the option
/// fs. Everything is read-only. A server stays in the background until DIR or the file system is unmounted.
///
/// Options, separated by commas: fs=DIRECTORY; partition=PARTITION, ignore-journal, emulate=MEDIUM,
/// prefetch=WHERE, budget=SIZE, cache=SIZE, mode=OCTAL, owner=`USER[:GROUP]`, trusted, insecure and
/// clear-dead as the flags of headstart-mount(1). Of mount(8)'s own options these are accepted: ro, rw (which
/// mount says when nothing is said), defaults, exec, nosuid, nodev, auto, noauto, nouser, nofail, sync,
/// async, atime, noatime, diratime, nodiratime, relatime, norelatime, strictatime, _netdev, and all that
/// begin with x- or X-. Any other is an error, unless -s is given.
#[derive(Debug, Parser)]
#[command(name = "mount.headstart", version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    /// The image.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,
    /// An empty directory, in which disk.img appears.
    dir: PathBuf,
    /// Ignore options that are not known.
    #[arg(short = 's')]
    sloppy: bool,
    /// Check the options and mount nothing.
    #[arg(short = 'f')]
    fake: bool,
    /// Accepted; there is no table of mounts to be written.
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Say more.
    #[arg(short = 'v')]
    verbose: bool,
    /// Mount in this mount namespace: a file, or a process id.
    #[arg(short = 'N', value_name = "NS")]
    namespace: Option<PathBuf>,
    /// Options.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Accepted; there is one type.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
}

const EXAMPLES: &str = "Examples:
  mount -t headstart fast.hsi /mnt/disk -o fs=/mnt/root
  /etc/fstab: /images/root.hsi /mnt/disk headstart fs=/srv,nofail 0 0";

/// mount(8)'s own words that change nothing here, or say what is so anyway.
const ACCEPTED: &[&str] = &[
    "ro",
    "rw",
    "defaults",
    "exec",
    "nosuid",
    "nodev",
    "auto",
    "noauto",
    "nouser",
    "nofail",
    "sync",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "_netdev",
    "foreground",
];

/// The definition, for its man page.
pub(crate) fn command() -> clap::Command {
    Arguments::command()
}

/// Mounts; gives mount(8)'s exit code.
pub(super) fn run(arguments: &[OsString]) -> u8 {
    let arguments: Arguments = match super::parse("mount.headstart", arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    log_output::start(false, u8::from(arguments.verbose));
    let words = match arguments.words() {
        Ok(words) => words,
        Err(error) => {
            log_output::failure(&error);
            return WRONG_USAGE;
        }
    };
    let cli = match crate::arguments::parse(&words) {
        Ok((cli, _)) => cli,
        Err(error) => {
            let _ = error.print();
            return WRONG_USAGE;
        }
    };
    if arguments.fake {
        return 0;
    }
    match mount(&arguments, &cli, &words) {
        Ok(0) => 0,
        // The server has said why.
        Ok(_) => FAILED,
        Err(error) => {
            log_output::failure(&format!("{error:#}"));
            FAILED
        }
    }
}

fn mount(arguments: &Arguments, cli: &Cli, words: &[OsString]) -> anyhow::Result<i32> {
    if let Some(namespace) = &arguments.namespace {
        enter(namespace).with_context(|| format!("enter the namespace {}", namespace.display()))?;
    }
    let Command::Mount(args) = &cli.command else { bail!("the words of another command: {words:?}") };
    let code = commands::mount::run(args, words, !arguments.verbose)?;
    if let (0, Some(fs), false) = (code, &args.fs, arguments.no_mtab) {
        make_umount_ask(&args.dir, fs);
    }
    Ok(code)
}

/// Makes umount(8) ask its helper when it is to unmount `dir`, which the file system in it keeps busy.
///
/// As root it looks for the helper only when it knows the type, and it only looks that up for a mount of
/// which its own notes hold an option (`x-…`). It makes such a note itself when a mount is changed; nothing
/// else of it changes here. Without the note `umount` of the file system still ends both.
fn make_umount_ask(dir: &Path, fs: &Path) {
    let mut options = OsString::from("remount,bind,ro,nosuid,nodev,x-headstart.fs=\"");
    options.push(fs);
    options.push("\"");
    let ran = Process::new("mount").arg("-o").arg(options).arg(dir).stdin(Stdio::null()).output();
    match ran {
        Ok(ran) if ran.status.success() => {}
        Ok(ran) => {
            log::info!("unmount {} and not its disk: {}", fs.display(), String::from_utf8_lossy(&ran.stderr))
        }
        Err(error) => log::info!("unmount {} and not its disk: mount: {error}", fs.display()),
    }
}

impl Arguments {
    /// The same, as arguments of `headstart`.
    fn words(&self) -> Result<Vec<OsString>, String> {
        let mut words: Vec<OsString> = vec!["mount".into()];
        if self.verbose {
            words.push("-v".into());
        }
        for option in self.options.iter().flat_map(|list| split(list)) {
            match flag(&option) {
                Some(flag) => words.extend(flag.map(OsString::from)),
                None if self.sloppy => {}
                None => return Err(unknown(&option)),
            }
        }
        words.extend([OsStr::new("--"), self.spec.as_os_str(), self.dir.as_os_str()].map(OsStr::to_owned));
        Ok(words)
    }
}

fn unknown(option: &str) -> String {
    let advice = match option {
        "suid" | "dev" => "; set-user-id programs and device nodes come with trusted",
        _ => {
            "; there are fs=, partition=, ignore-journal, emulate=, prefetch=, budget=, cache=, mode=, owner=, trusted, insecure, clear-dead and what mount(8) has for all"
        }
    };
    format!("unknown option '{option}'{advice}")
}

/// The flag that an option is, at most one word; `None` when it is not known.
fn flag(option: &str) -> Option<Option<String>> {
    let word = match option.split_once('=') {
        Some((
            name @ ("fs" | "partition" | "emulate" | "medium" | "prefetch" | "budget" | "cache" | "mode"
            | "owner"),
            value,
        )) => Some(format!("--{name}={value}")),
        None if matches!(option, "trusted" | "insecure" | "clear-dead" | "ignore-journal") => {
            Some(format!("--{option}"))
        }
        None if ACCEPTED.contains(&option) => None,
        _ if option.starts_with("x-") || option.starts_with("X-") => None,
        _ => return None,
    };
    Some(word)
}

/// Options are separated by commas that are not within double quotes.
fn split(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut quoted = false;
    for c in list.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => options.push(String::new()),
            c => options.last_mut().expect("there is one from the start").push(c),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(arguments: &[&str]) -> Result<Vec<String>, String> {
        let all = std::iter::once(&"mount.headstart").chain(arguments);
        let arguments = Arguments::try_parse_from(all).map_err(|error| error.to_string())?;
        let words = arguments.words()?;
        crate::arguments::parse(&words).map_err(|error| error.to_string())?;
        Ok(words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn mounts_words_become_flags() {
        let options = "rw,fs=/srv/a b,medium=flat-10ms-25mbs,budget=64M,cache=auto,mode=0440,x-systemd.requires=net,_netdev,trusted,insecure";
        let found = words(&["/i.hsi", "/mnt", "-nv", "-t", "headstart", "-o", options]).expect("known");
        assert_eq!(
            found,
            [
                "mount",
                "-v",
                "--fs=/srv/a b",
                "--medium=flat-10ms-25mbs",
                "--budget=64M",
                "--cache=auto",
                "--mode=0440",
                "--trusted",
                "--insecure",
                "--",
                "/i.hsi",
                "/mnt",
            ]
        );
        assert_eq!(words(&["-o", "ro", "--", "-i", "/mnt"]).expect("known"), ["mount", "--", "-i", "/mnt"]);
        let found = words(&["i", "/mnt", "-o", r#"fs="/a,b",ro"#]).expect("known");
        assert_eq!(found[1], "--fs=/a,b");
        let found = words(&["i", "/mnt", "-o", "partition=LABEL=root,ignore-journal"]).expect("known");
        assert_eq!(found[1..3], ["--partition=LABEL=root", "--ignore-journal"]);
    }

    #[test]
    fn unknown_options_are_named() {
        for (option, said) in [
            ("ro,fsck", "'fsck'"),
            ("fs", "'fs'"),
            ("trusted=1", "'trusted=1'"),
            ("suid", "trusted"),
            ("noexec", "'noexec'"),
            ("medium=floppy", "floppy"),
            ("prefetch=maybe", "maybe"),
        ] {
            let error = words(&["i", "/mnt", "-o", option]).expect_err(option);
            assert!(error.contains(said), "{option}: {error}");
        }
        assert!(words(&["i", "/mnt", "-s", "-o", "fsck"]).is_ok());
        assert!(words(&["i"]).is_err());
    }
}
