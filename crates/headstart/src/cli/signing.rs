//! Flags of the commands that make keys and signatures.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use hs_trust::date::Date;

/// Flags of `headstart keygen`.
#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Files to write: NAME.key (secret) and NAME.pub. Neither file may exist yet.
    #[arg(value_name = "NAME")]
    pub name: PathBuf,
    /// Encrypt the secret key with the password in the first line of this file.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `headstart sign`.
#[derive(Debug, Args)]
pub(crate) struct Sign {
    /// The image: a file.
    pub image: PathBuf,
    #[command(flatten)]
    pub by: SignFlags,
    /// The signature to write. Default: IMAGE.minisig, or CHANNEL.minisig beside the image.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Publish the image to this channel, whose file is CHANNEL.minisig.
    #[arg(long, value_name = "CHANNEL")]
    pub channel: Option<String>,
    /// Address of the image, absolute or relative to the signature. Default: beside the signature.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Date of the signature, at most a day ahead. Default: now. A channel only accepts later dates.
    #[arg(long, value_name = "DATE", hide_short_help = true)]
    pub date: Option<Date>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Who signs, and for how long.
#[derive(Clone, Debug, Args)]
pub(crate) struct SignFlags {
    /// The secret key, made by `headstart keygen` or minisign.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// File whose first line is the password of an encrypted key.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Lifetime of the signature in days, or `never`. Default: 90 for a channel, never for an image.
    #[arg(long, value_name = "DAYS|never")]
    pub expires: Option<Lifetime>,
    /// Revoke a key: its text or .pub file. Clients accept this from a key that stands behind the revoked one
    /// in their address (#key=KEY,KEY). Repeatable.
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub revoke: Vec<String>,
}

/// How long a signature may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// A number of days.
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
    /// Also sign the image with this secret key, as `headstart sign` does: IMAGE.minisig.
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub sign: Option<PathBuf>,
}
