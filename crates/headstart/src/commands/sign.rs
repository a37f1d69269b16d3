//! `headstart keygen` and `headstart sign`

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use hs_image::ImageDigest;
use serde_json::json;
use tempfile::NamedTempFile;

use crate::cli::signing::{Keygen, Lifetime, Sign, SignFlags};
use hs_output::show;
use hs_output::whole_file::write_whole;
use hs_start::open::open_image;
use hs_trust::date::Date;
use hs_trust::keys::{self, Key};
use hs_trust::now::Now;
use hs_trust::pointer::{Pointer, SUFFIX};

/// Makes a pair of keys.
pub(crate) fn keygen(args: &Keygen, quiet: bool) -> anyhow::Result<()> {
    let (secret, public, key) = keys::generate(keys::read_password(args.password_file.as_deref())?)?;
    let file = |suffix: &str| {
        let mut name = args.name.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    };
    let (secret_file, public_file) = (file(".key"), file(".pub"));
    let secret = written_aside(&secret_file, &secret, 0o600)?;
    let public = written_aside(&public_file, &public, 0o644)?;
    give_name(secret, &secret_file)?;
    // Half a pair is of no use, and in the way of the next try.
    give_name(public, &public_file).inspect_err(|_| drop(std::fs::remove_file(&secret_file)))?;
    if args.json {
        show::line(json!({ "key": key.to_string(), "secret_file": secret_file, "public_file": public_file }));
        return Ok(());
    }
    if !quiet {
        hs_output::note!(
            "{} is secret. Clients that trust this key add it to an address:",
            secret_file.display()
        );
    }
    show::line(format_args!("#key={key}"));
    Ok(())
}

/// Writes a whole file under a temporary name beside `path`.
fn written_aside(path: &Path, text: &str, mode: u32) -> anyhow::Result<NamedTempFile> {
    let context = || format!("write {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let permissions = Permissions::from_mode(mode);
    let aside = tempfile::Builder::new().prefix(".headstart-").permissions(permissions).tempfile_in(folder);
    let mut aside = aside.with_context(context)?;
    aside.write_all(text.as_bytes()).and_then(|()| aside.as_file().sync_all()).with_context(context)?;
    Ok(aside)
}

/// A key that is lost cannot be made again, so nothing is replaced.
fn give_name(aside: NamedTempFile, path: &Path) -> anyhow::Result<()> {
    let named = aside.persist_noclobber(path).map_err(|error| error.error);
    named.map(drop).with_context(|| format!("write {}", path.display()))
}

/// Signs an image.
pub(crate) fn sign(args: &Sign, quiet: bool) -> anyhow::Result<()> {
    let image = open_image(&args.image)?.image_digest();
    let name = args.image.file_name().and_then(|name| name.to_str());
    let name =
        name.with_context(|| format!("{}: a signed image has a name that is text", args.image.display()))?;
    let channel = args.channel.clone().unwrap_or_else(|| name.to_owned());
    if channel.is_empty() || channel.contains(['/', '\t', '\n']) {
        bail!("'{channel}' is no name of a channel: it is the name of a file");
    }
    let beside = args.channel.is_some().then(|| name.to_owned());
    let url = args.url.clone().or(beside);
    if url.as_ref().is_some_and(|url| url.contains(|letter: char| letter.is_control())) {
        bail!("--url is one line");
    }
    let output =
        args.output.clone().unwrap_or_else(|| args.image.with_file_name(format!("{channel}{SUFFIX}")));
    let pointer = Pointer {
        channel,
        image,
        date: args.date.clone().unwrap_or_else(|| Date::at(SystemTime::now())),
        expires: expires(args),
        url,
        revoked: args.by.revoke.iter().map(|word| Key::from_word(word)).collect::<Result<_, _>>()?,
    };
    let now = Now::of_this_machine(None);
    if now.is_future(&pointer.date) {
        bail!(
            "--date {} is more than a day from now: until then nothing later could be signed",
            pointer.date
        );
    }
    let replaced = std::fs::read_to_string(&output).ok().and_then(|text| Pointer::claimed(&text));
    write(&pointer, &args.by, &output)?;
    warn_of_rollback(replaced.as_ref(), &pointer, &output);
    if args.json {
        show::line(json!({
            "signature": output,
            "channel": pointer.channel,
            "image": image.to_string(),
            "date": pointer.date.to_string(),
            "expires": pointer.expires.as_ref().map(ToString::to_string),
            "url": pointer.url,
        }));
    } else if !quiet {
        hs_output::note!("{}: {} is {image} since {}", output.display(), pointer.channel, pointer.date);
    }
    Ok(())
}

/// Clients take no pointer that is older than one that they have seen, nor another image of the same date.
fn warn_of_rollback(replaced: Option<&Pointer>, pointer: &Pointer, output: &Path) {
    let Some(replaced) = replaced.filter(|replaced| replaced.channel == pointer.channel) else { return };
    let is_later =
        pointer.date > replaced.date || (&pointer.date, pointer.image) == (&replaced.date, replaced.image);
    if !is_later {
        log::warn!(
            "{}: the signature that was there is of {}, and this one, of {}, is not later: clients that have \
             seen the former refuse it",
            output.display(),
            replaced.date,
            pointer.date
        );
    }
}

/// When the signature expires: a channel must move on, an image under its own name stays what it is.
fn expires(args: &Sign) -> Option<Date> {
    let usual = if args.channel.is_some() { Lifetime::OF_CHANNELS } else { Lifetime::Never };
    match args.by.expires.unwrap_or(usual) {
        Lifetime::Days(days) => Some(Date::in_days(days)),
        Lifetime::Never => None,
    }
}

/// Signs an image that was just written; the signature lies beside it.
pub(crate) fn sign_output(image: ImageDigest, output: &Path, key: Option<&Path>) -> anyhow::Result<()> {
    let Some(key) = key else { return Ok(()) };
    let name = output.file_name().and_then(|name| name.to_str());
    let name =
        name.with_context(|| format!("{}: a signed image has a name that is text", output.display()))?;
    let pointer = Pointer {
        channel: name.to_owned(),
        image,
        date: Date::at(SystemTime::now()),
        expires: None,
        url: None,
        revoked: Vec::new(),
    };
    let by = SignFlags { key: key.to_owned(), password_file: None, expires: None, revoke: Vec::new() };
    write(&pointer, &by, &output.with_file_name(format!("{name}{SUFFIX}")))
}

fn write(pointer: &Pointer, by: &SignFlags, output: &Path) -> anyhow::Result<()> {
    let secret = keys::read_secret(&by.key, keys::read_password(by.password_file.as_deref())?)?;
    write_whole(output, pointer.sign(&secret)?.as_bytes())
}
