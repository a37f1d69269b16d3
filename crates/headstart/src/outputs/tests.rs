use std::any::TypeId;
use std::os::unix::fs::symlink;

use clap::CommandFactory;
use tempfile::TempDir;

use super::*;
use crate::arguments;
use crate::cli::Cli;

/// Arguments that name a file that is only read, a folder, or a socket, by command; of all commands where
/// none is named.
const NOT_WRITTEN: &[(&str, &[&str])] = &[
    (
        "",
        &["channel_state", "disk_cache", "initrd", "kernel", "learned", "password_file", "profiles", "sign"],
    ),
    // It is refused unless it is new, or keeps what was written to this disk.
    ("", &["keep"]),
    ("accelerate now", &["list", "profile", "root"]),
    ("accelerate record", &["root"]),
    ("accelerate status", &["list", "root"]),
    ("accelerate warm", &["list", "root"]),
    // It is refused unless it is a file that fills itself.
    ("attach", &["file", "log_file"]),
    ("build", &["source", "scratch", "order"]),
    ("bundle", &["dir", "remove"]),
    ("commit", &["overlay"]),
    ("convert", &["upload_state"]),
    ("demo", &["out", "cache"]),
    ("detach", &["file"]),
    ("docs", &["dir"]),
    ("fill", &["file", "image"]),
    ("import", &["file"]),
    ("inspect", &["layers"]),
    // It is refused when it holds anything (hs-iso, install/target.rs).
    ("install", &["disk", "live"]),
    ("iso", &["live"]),
    ("lab calibrate", &["path"]),
    ("lab disk", &["file", "dir"]),
    ("lab predict", &["input", "profile"]),
    ("lab replay", &["trace", "on"]),
    // Only the marked parts of the document are written.
    ("lab run", &["out", "markdown"]),
    ("lab trace", &["path"]),
    ("mount", &["dir", "fs"]),
    ("overlay check", &["file"]),
    ("overlay compact", &["file"]),
    ("overlay delete", &["file"]),
    ("overlay list", &["files"]),
    ("overlay revert", &["file"]),
    ("overlay snapshot", &["file"]),
    ("push", &["image", "upload_state"]),
    ("report", &["inputs", "ui"]),
    ("serve", &["uffd", "vhost_user_blk", "tls_certificates"]),
    ("sign", &["image", "key"]),
    ("snapshotter", &["root"]),
    ("snapshotter serve", &["containerd", "socket"]),
    ("status", &["of"]),
    ("top", &["of"]),
    ("verify", &["against", "signature"]),
];

/// A folder with a file to read, and one of a kind that no command writes.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().expect("a folder"));
        fs::write(files.path("in"), "what is read").expect("written");
        fs::write(files.path("program"), b"\x7fELF and so on").expect("written");
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    /// Words that call a command that reads a file and has these flags.
    fn words(&self, command: &str, flags: &[&str]) -> Vec<OsString> {
        let input = &*self.path("in");
        let own: &[&str] = match command {
            "accelerate record" => &["--root", input],
            "commit" => &[input, "an-overlay"],
            "convert" => &["oci://h/n", "-p", input],
            "export" => &[input, "--format", "raw"],
            "keygen" => &[],
            "mount" => &[input, "folder"],
            "optimize" => &["an-image", "-p", input],
            "report" if !flags.contains(&"--format") => &[input, "--format", "csv"],
            "resume" => &["a-snapshot", "--disk", input],
            "serve" => &["an-image", "--channel", &format!("name={input}"), "--http", "127.0.0.1:0"],
            "sign" => &[input, "--key", "a-key"],
            _ => &[input],
        };
        let with_record = flags.first().is_some_and(|flag| flag.starts_with("--record-disk"));
        let record: &[&str] = if with_record { &["--record", "a-profile"] } else { &[] };
        let end: &[&str] =
            if matches!(command, "run" | "profile" | "accelerate record") { &["--", "true"] } else { &[] };
        let words = command.split(' ').chain([own, record, flags, end].into_iter().flatten().copied());
        words.map(OsString::from).collect()
    }

    fn matches(&self, command: &str, flags: &[&str]) -> ArgMatches {
        arguments::parse(&self.words(command, flags)).unwrap_or_else(|error| panic!("{error}")).1
    }

    /// Whether the rule lets a command write there; else why not.
    fn check(&self, command: &str, flags: &[&str]) -> Result<(), String> {
        check(&self.matches(command, flags)).map_err(|error| format!("{error:#}"))
    }
}

/// A flag that names a file but stands in neither list fails here: say what it is.
#[test]
fn every_argument_that_names_a_file_is_known() {
    let mut unknown = Vec::new();
    look(&Cli::command(), "", &mut unknown);
    assert_eq!(unknown, [""; 0]);
}

fn look(command: &Command, name: &str, unknown: &mut Vec<String>) {
    for inner in command.get_subcommands() {
        look(inner, format!("{name} {}", inner.get_name()).trim(), unknown);
    }
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let is_written = OUTPUTS.iter().any(|(of, output, _)| (*of, *output) == (name, id));
        let is_read = NOT_WRITTEN.iter().any(|(of, ids)| (of.is_empty() || *of == name) && ids.contains(&id));
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        if is_path && !is_written && !is_read {
            unknown.push(format!("{name}: {id}"));
        }
        assert!(is_path || !is_written, "{name}: {id} is no path");
        assert_ne!(id, FORCE, "{name} has a flag of its own by that name");
    }
}

/// All outputs of all commands, each with what must not happen to a file by a slip.
#[test]
fn no_output_destroys_a_file_by_a_slip() {
    let files = Files::new();
    fs::hard_link(files.path("in"), files.path("linked")).expect("linked");
    symlink(files.path("in"), files.path("symbolic")).expect("linked");
    symlink(files.path("missing"), files.path("dangling")).expect("linked");
    fs::write(files.path("empty"), "").expect("written");
    for (command, id, kind) in OUTPUTS {
        let flag = id.replace('_', "-");
        let check = |name: &str, more: &[&str]| {
            let output = format!("--{flag}={}", files.path(name));
            files.check(command, &[&[&*output][..], more].concat())
        };
        let refused = |name: &str, more: &[&str], why: &str| {
            let said = check(name, more).expect_err(&format!("{command} --{flag} {name}"));
            assert!(
                said.contains(why) && said.contains(&files.path("")),
                "{command} --{flag} {name}: {said}"
            );
        };
        if matches!(kind, Kind::Keys) {
            continue;
        }
        for name in ["in", "./in", "linked", "symbolic"] {
            for force in [&[][..], &["--force"]] {
                refused(name, force, "which is read");
            }
        }
        refused("program", &[], "this is a program or library");
        refused("dangling", &["--force"], "this link leads to no file");
        refused("", &["--force"], "a directory");
        refused("missing/out", &["--force"], "there is no directory");
        for (name, force) in [("program", &["--force"][..]), ("new", &[]), ("empty", &[])] {
            assert_eq!(check(name, force), Ok(()), "{command} --{flag} {name}");
        }
    }
    assert_eq!(fs::read(files.path("in")).expect("read"), b"what is read");
}

#[test]
fn an_archive_that_is_read_is_not_replaced() {
    let files = Files::new();
    let words =
        ["build", &format!("oci-archive:{}:1.0", files.path("in")), "-o", &files.path("in"), "--force"];
    let words: Vec<OsString> = words.iter().map(Into::into).collect();
    let matches = arguments::parse(&words).unwrap_or_else(|error| panic!("{error}")).1;
    let error = check(&matches).expect_err("it is read").to_string();
    assert!(error.contains("which is read"), "{error}");
}

#[test]
fn a_file_of_the_same_kind_is_replaced() {
    let disk = |offset: usize, magic: &[u8]| [&vec![0; offset][..], magic].concat();
    let files = Files::new();
    for (command, flag, start) in [
        ("build", "--output", b"HSIMAGE\0".to_vec()),
        ("profile", "--output", b"HSPROF\0\0".to_vec()),
        ("iso", "--output", disk(0x8001, b"CD001")),
        ("export", "--output", disk(0x438, &[0x53, 0xef])),
        ("run", "--trace", b"# {\"disk_digest\":null}\nat_s,kind\n".to_vec()),
        ("run", "--json", b"{\n  \"ready_s\": 1\n}\n".to_vec()),
        ("report", "--output", b"input,at_s,process\n".to_vec()),
        ("lab trace", "--csv", b"at_s,process,pid\n".to_vec()),
        ("lab calibrate", "--output", b"# Fitted by headstart lab calibrate\n".to_vec()),
        ("sign", "--output", b"untrusted comment: x\n".to_vec()),
        ("boot", "--console", b"[    0.000000] Linux version 6.1\r\n".to_vec()),
        ("resume", "--console", b"login: \r\n".to_vec()),
        ("serve", "--access-log", b"any text\n".to_vec()),
    ] {
        fs::write(files.path("out"), start).expect("written");
        let output = format!("{flag}={}", files.path("out"));
        assert_eq!(files.check(command, &[&output]), Ok(()), "{command} {flag}");
        fs::write(files.path("out"), "my notes\n").expect("written");
        assert_eq!(files.check(command, &[&output]).is_ok(), command == "serve", "{command} {flag}");
    }
    for (name, start) in [
        ("html", &b"<!DOCTYPE html><html>"[..]),
        ("json", b"{}"),
        ("perfetto", &[b'\n', 0, 1, 2]),
        ("parquet", b"PAR1\x15\0"),
        ("iolog", b"fio version 3 iolog\n"),
    ] {
        let output = files.path(&format!("out.{name}"));
        fs::write(&output, start).expect("written");
        assert_eq!(files.check("report", &["--output", &output, "--format", name]), Ok(()), "{name}");
    }
}

#[test]
fn two_outputs_are_two_files() {
    let files = Files::new();
    let [trace, json] = ["--trace", "--json"].map(|flag| format!("{flag}={}", files.path("out")));
    let said = files.check("run", &[&trace, &json]).expect_err("one file");
    assert!(said.contains("would write the same file"), "{said}");
    // Nothing is lost on a device.
    assert_eq!(files.check("run", &["--trace=/dev/null", "--json=/dev/null"]), Ok(()));
}

/// The link stays, as with `cp`.
#[test]
fn a_link_is_followed() {
    let files = Files::new();
    fs::write(files.path("target"), b"HSIMAGE\0").expect("written");
    symlink("target", files.path("link")).expect("linked");
    let matches = files.matches("build", &["--output", &files.path("link")]);
    let (_, matches) = innermost(&matches);
    let target = fs::canonicalize(files.path("target")).expect("a file");
    assert_eq!(path_of(matches, "output"), Some(target));
}

#[test]
fn signatures_and_keys_are_outputs_too() {
    let files = Files::new();
    fs::write(files.path("out.minisig"), "my notes\n").expect("written");
    let output = files.path("out");
    let said = files.check("build", &["--output", &output, "--sign", "a-key"]).expect_err("notes");
    assert!(said.contains("--sign writes a signature, and this is a text file"), "{said}");
    fs::write(files.path("in.minisig"), "my notes\n").expect("written");
    files.check("sign", &[]).expect_err("notes");
    assert_eq!(files.check("sign", &["--channel", "stable"]), Ok(()));
    fs::write(files.path("stable.minisig"), "my notes\n").expect("written");
    files.check("sign", &["--channel", "stable"]).expect_err("notes");
    fs::write(files.path("me.pub"), "").expect("written");
    let said = files.check("keygen", &[&files.path("me"), "--force"]).expect_err("a key");
    assert!(said.contains("no key is replaced"), "{said}");
}
