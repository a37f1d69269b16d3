//! Flags of the commands that make keys and signatures.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::signing::date::Date;

/// Flags of `headstart keygen`.
#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// The files to write: NAME.key, which is secret, and NAME.pub. Neither may exist.
    #[arg(value_name = "NAME")]
    pub name: PathBuf,
    /// Encrypt the secret key by the password in the first line of this file; not encrypted when not given.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

/// Flags of `headstart sign`.
#[derive(Debug, Args)]
pub(crate) struct Sign {
    /// The image: a file.
    pub image: PathBuf,
    #[command(flatten)]
    pub by: SignFlags,
    /// The signature to write; it is replaced at once. IMAGE.minisig when not given, or CHANNEL.minisig beside the image.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Sign for this channel, whose file is called CHANNEL.minisig; when not given, for the image under its own name.
    #[arg(long, value_name = "CHANNEL")]
    pub channel: Option<String>,
    /// Where the image lies, from where the signature will lie, or an address; beside it when not given.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The date of the signature, a day from now at most; now when not given. A channel only moves to later
    /// dates.
    #[arg(long, value_name = "DATE")]
    pub date: Option<Date>,
}

/// Who signs, and for how long.
#[derive(Clone, Debug, Args)]
pub(crate) struct SignFlags {
    /// The secret key, as `headstart keygen` or minisign made it.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The file whose first line is the password of that key, if it is encrypted.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Nobody is to believe the signature after so many days, or `never` that; 90 for a channel when not
    /// given, and never for an image under its own name.
    #[arg(long, value_name = "DAYS|never")]
    pub expires: Option<Lifetime>,
    /// Say that this key is not to be believed any more: its text or its .pub file. Clients heed the word of
    /// a key that stands behind that one in their address (#key=KEY,KEY). It can be given several times.
    #[arg(long, value_name = "KEY")]
    pub revoke: Vec<String>,
}

/// How long a signature may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// So many days.
    Days(u32),
    /// It has no end.
    Never,
}

impl Lifetime {
    /// Of a channel, when nothing is said: long enough for who signs by hand, too short to hold back clients
    /// for long.
    pub(crate) const OF_CHANNELS: Self = Self::Days(90);
    /// A century: dates have four digits for the year.
    const MOST_DAYS: u32 = 36_500;
}

impl FromStr for Lifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "never" => Ok(Self::Never),
            Ok(days) if (1..=Self::MOST_DAYS).contains(&days) => Ok(Self::Days(days)),
            _ => Err(format!("1 to {} days, or `never`", Self::MOST_DAYS)),
        }
    }
}

/// The signature of what a command writes.
#[derive(Clone, Debug, Args)]
pub(crate) struct SignOutput {
    /// Also sign the image by this secret key, as `headstart sign` does: IMAGE.minisig.
    #[arg(long, value_name = "KEY")]
    pub sign: Option<PathBuf>,
}
