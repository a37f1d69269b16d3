//! Who vouches for an image: signed, dated pointers ([`mod@pointer`]), what was seen of them
//! ([`seen`]), and whether one is to be believed ([`channel`]).
//!
//! Keys, signatures and their files are minisign's, so that its tools can make and check them as well.

pub mod channel;
pub mod date;
pub mod keys;
pub mod now;
pub mod pointer;
pub mod seen;

/// Why a signature or a key is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// A text is no key.
    #[error("{what} is no {kind} key as minisign writes them: {reason}")]
    Key {
        /// The text, if it is a public one, or the file.
        what: String,
        /// Secret or public.
        kind: &'static str,
        /// What the library said.
        reason: String,
    },
    /// A file is no signature, or not of a pointer.
    #[error("{name} is no signature of an image: {reason}")]
    Malformed {
        /// The signature.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The signature is not by this key.
    #[error("{name} is not signed by the key {key}: {reason}")]
    NotSigned {
        /// The signature.
        name: String,
        /// The public key.
        key: String,
        /// What the library said.
        reason: String,
    },
    /// The signature is of another channel than the one that was asked for.
    #[error("{name}: it is signed for the channel '{found}', not for '{expected}'")]
    OtherChannel {
        /// The signature.
        name: String,
        /// Which channel was asked for.
        expected: String,
        /// Which it is of.
        found: String,
    },
    /// It has expired, and no newer one is there.
    #[error(
        "{name}: it was good until {expires}, and nobody has signed a newer one (or this machine's clock is wrong)"
    )]
    Expired {
        /// The signature.
        name: String,
        /// Until when.
        expires: date::Date,
    },
    /// It is older than it must be.
    #[error("{name}: it is of {found}, older than {least}, {why}: somebody rolls the channel back")]
    RolledBack {
        /// The signature.
        name: String,
        /// Its date.
        found: date::Date,
        /// The date that it must have at least.
        least: date::Date,
        /// Who says so.
        why: String,
    },
    /// A later key has said that this one is not to be believed any more.
    #[error("{name}: it is signed by the key {key}, which was revoked")]
    Revoked {
        /// The signature.
        name: String,
        /// The public key.
        key: String,
    },
    /// It is of a day that has not come.
    #[error(
        "{name}: it is of {date}, more than a day from now ({now}): the publisher's clock is wrong, or this \
         machine's"
    )]
    FromTheFuture {
        /// The signature.
        name: String,
        /// Its date.
        date: date::Date,
        /// What this machine takes for now.
        now: date::Date,
    },
    /// Two images of one date.
    #[error("{name}: the publisher signed {found} and {seen} with the same date {date}")]
    Ambiguous {
        /// The signature.
        name: String,
        /// The date.
        date: date::Date,
        /// What was seen before.
        seen: String,
        /// What is there now.
        found: String,
    },
}
