//! Errors of a server and of the connection to it.

use std::time::Duration;

/// Why a request over HTTP failed. It is the `source` of a [`StoreError`](hs_store::StoreError), whose text
/// names the store and the range.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The address is not one of an image.
    #[error("{address} is no address of an image: {reason}")]
    Address {
        /// What was given, without secrets.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The connection failed: no name, no connection, no answer in time, or a cut connection.
    #[error("{reason}")]
    Connection {
        /// The message of the network library.
        reason: String,
        /// Whether another try is useless, as with a certificate of an unknown authority.
        permanent: bool,
    },
    /// The server answered with a status that brings no bytes.
    #[error("the server answered {status}{}", reason(*.status))]
    Status {
        /// The status.
        status: u16,
        /// The pause that the server asks for, if it did.
        retry_after: Option<Duration>,
    },
    /// The answer ended before all its bytes had come.
    #[error("the answer ended after {got} of {expected} bytes")]
    Cut {
        /// Bytes that came.
        got: u64,
        /// Bytes that were announced.
        expected: u64,
    },
    /// The answer is for something else than the request.
    #[error("the server's answer makes no sense: {reason}")]
    Nonsense {
        /// What is wrong with it.
        reason: String,
    },
    /// The server sends the whole file and ignores the range.
    #[error("the server ignores that only a range was asked for (it must support range requests)")]
    RangesIgnored,
    /// Nothing says how long the file is.
    #[error(
        "the server does not say how long the file is: its Content-Range ends in '/*', and it answers HEAD without \
         Content-Length"
    )]
    NoLength,
    /// The file is not the one that was opened.
    #[error("the file was replaced on the server: it was {was}, it is {is}; start again to use the new one")]
    Replaced {
        /// What distinguished the file that was opened.
        was: String,
        /// What distinguishes the one that is there now.
        is: String,
    },
    /// The server requires a login, or refuses the one that it got.
    #[error("{host} {}{}", if *.had_login { "refuses this login" } else { "wants a login" }, login_of(host))]
    Login {
        /// The server.
        host: String,
        /// Whether there was a login for it.
        had_login: bool,
    },
    /// A login is not sent over plain HTTP, where others can read it.
    #[error("{host} wants a login, which is not sent over plain HTTP")]
    OpenLogin {
        /// The server.
        host: String,
    },
    /// A login of one host is not sent to another.
    #[error(
        "{host} wants its login sent to {realm}, which is another host: it is not sent; to allow it, set \
         HEADSTART_REGISTRY_REALMS={host}={realm}"
    )]
    ForeignLogin {
        /// The registry.
        host: String,
        /// The host that gives tokens for it.
        realm: String,
    },
    /// The program that should have a login gave no answer.
    #[error("{file}: {program}, which it names for the login of {key}, {reason}")]
    Helper {
        /// The file of logins.
        file: String,
        /// The registry, or its repository.
        key: String,
        /// The program.
        program: String,
        /// What it did.
        reason: String,
    },
    /// A request for something other than bytes of a file was refused.
    #[error("{what}: the server answered {status}{}{said}", if said.is_empty() { "" } else { ": " })]
    Refused {
        /// What was requested.
        what: &'static str,
        /// The status.
        status: u16,
        /// The server's message.
        said: String,
    },
    /// The registry has lost the upload that it began.
    #[error(
        "{said}: the registry does not know the upload that it began (it may have been started again, or several \
         answer that have not the same `http.secret`); the same command sends it anew"
    )]
    UploadLost {
        /// What it was asked, and its answer.
        said: String,
    },
    /// The registry does not have what it had.
    #[error(
        "the registry has no {what}, or has it no longer (it answered 404): `headstart convert --replace` removes \
         earlier conversions of a container's image; remove that image from this machine (`crictl rmi`, \
         `ctr image rm`), and pull it again"
    )]
    Gone {
        /// A manifest or a blob, with its digest.
        what: String,
    },
    /// The file is not an image.
    #[error("it is no image: {reason}")]
    NotAnImage {
        /// Why it cannot be one.
        reason: String,
    },
    /// The bytes of a small object do not have the digest that was requested.
    #[error("the server sent {found} instead of {expected}")]
    Digest {
        /// The requested digest.
        expected: String,
        /// The digest of what came.
        found: String,
    },
    /// A request to an object store failed.
    #[error("{reason}")]
    Cloud {
        /// The library's message, without secrets.
        reason: String,
    },
    /// Bytes come more slowly than a working connection would bring them.
    #[error("only {bytes} bytes came in {waited:.0?}")]
    Slow {
        /// Bytes that came.
        bytes: u64,
        /// The time that was spent waiting for them.
        waited: Duration,
    },
    /// The store was closed: no more requests are made.
    #[error("the request was given up, because the program ends")]
    Closed,
    /// The bytes are not in the cache, and requests are forbidden.
    #[error("not in the cache, and --offline forbids network requests")]
    Offline,
}

/// What gives a login to a bucket, or to a registry.
fn login_of(host: &str) -> String {
    if host.starts_with("s3://") {
        format!(": {}", crate::cloud::S3_LOGIN)
    } else {
        format!(": `podman login {host}` or `docker login {host}` gives it")
    }
}

impl HttpError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { permanent, .. } => !*permanent,
            Self::Status { status, .. } => may_pass(*status),
            // docker-registry says so of what is right, while another client sends a blob that both have.
            Self::Refused { status, said, .. } => may_pass(*status) || said.starts_with(DIGEST_INVALID),
            Self::Cut { .. } | Self::Nonsense { .. } | Self::Slow { .. } | Self::UploadLost { .. } => true,
            // A server that ignores ranges ignores the next one as well.
            Self::Address { .. }
            | Self::RangesIgnored
            | Self::NoLength
            | Self::Closed
            | Self::Replaced { .. }
            | Self::Login { .. }
            | Self::OpenLogin { .. }
            | Self::ForeignLogin { .. }
            | Self::Helper { .. }
            | Self::Gone { .. }
            | Self::NotAnImage { .. }
            | Self::Digest { .. }
            | Self::Cloud { .. }
            | Self::Offline => false,
        }
    }

    /// The pause that the server asks for.
    pub(crate) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// As the system's kind of error.
    pub(crate) fn into_io(self) -> std::io::Error {
        use std::io::ErrorKind;
        let kind = match &self {
            Self::Connection { .. } => ErrorKind::ConnectionAborted,
            Self::Cut { .. } => ErrorKind::UnexpectedEof,
            Self::Status { status: 404 | 410, .. }
            | Self::Refused { status: 404 | 410, .. }
            | Self::Gone { .. } => ErrorKind::NotFound,
            Self::Status { status: 401 | 403 | 407, .. }
            | Self::Refused { status: 403, .. }
            | Self::Login { .. }
            | Self::OpenLogin { .. }
            | Self::ForeignLogin { .. }
            | Self::Helper { .. } => ErrorKind::PermissionDenied,
            Self::Nonsense { .. } | Self::Replaced { .. } | Self::NotAnImage { .. } | Self::Digest { .. } => {
                ErrorKind::InvalidData
            }
            Self::RangesIgnored | Self::NoLength => ErrorKind::Unsupported,
            _ => ErrorKind::Other,
        };
        std::io::Error::new(kind, self)
    }
}

/// The code of a registry for content of another digest.
const DIGEST_INVALID: &str = "DIGEST_INVALID";

/// Statuses that tell of the moment: RFC 9110, section 15.5.9 (408) and 15.6; RFC 6585, section 4 (429);
/// RFC 8470, section 5.2 (425); those of Cloudflare's network when it does not reach the server (520 to 524).
const fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504 | 520..=524)
}

/// The usual names of common statuses.
fn reason(status: u16) -> &'static str {
    match status {
        401 => " (it wants a login)",
        403 => " (it refuses access)",
        404 | 410 => " (there is no such file)",
        407 => " (the proxy wants a login)",
        412 => " (the file is another one)",
        416 => " (the file is shorter)",
        429 => " (too many requests)",
        503 => " (it is overloaded)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn errors_have_the_systems_kinds() {
        let text = String::new;
        for (error, kind) in [
            (HttpError::Connection { reason: text(), permanent: false }, ErrorKind::ConnectionAborted),
            (HttpError::Cut { got: 1, expected: 2 }, ErrorKind::UnexpectedEof),
            (HttpError::Status { status: 404, retry_after: None }, ErrorKind::NotFound),
            (HttpError::Status { status: 407, retry_after: None }, ErrorKind::PermissionDenied),
            (HttpError::Status { status: 500, retry_after: None }, ErrorKind::Other),
            (HttpError::Refused { what: "it", status: 410, said: text() }, ErrorKind::NotFound),
            (HttpError::Refused { what: "it", status: 403, said: text() }, ErrorKind::PermissionDenied),
            (HttpError::Login { host: text(), had_login: true }, ErrorKind::PermissionDenied),
            (HttpError::OpenLogin { host: text() }, ErrorKind::PermissionDenied),
            (HttpError::Gone { what: text() }, ErrorKind::NotFound),
            (HttpError::ForeignLogin { host: text(), realm: text() }, ErrorKind::PermissionDenied),
            (HttpError::Nonsense { reason: text() }, ErrorKind::InvalidData),
            (HttpError::Replaced { was: text(), is: text() }, ErrorKind::InvalidData),
            (HttpError::NotAnImage { reason: text() }, ErrorKind::InvalidData),
            (HttpError::Digest { expected: text(), found: text() }, ErrorKind::InvalidData),
            (HttpError::RangesIgnored, ErrorKind::Unsupported),
            (HttpError::NoLength, ErrorKind::Unsupported),
            (HttpError::Offline, ErrorKind::Other),
        ] {
            let shown = format!("{error:?}");
            assert_eq!(error.into_io().kind(), kind, "{shown}");
        }
    }

    #[test]
    fn what_may_pass_is_transient() {
        let refused = |status| HttpError::Refused { what: "it", status, said: String::new() };
        let answered = |status| HttpError::Status { status, retry_after: None };
        for (status, passes) in [
            (408, true),
            (425, true),
            (429, true),
            (500, true),
            (503, true),
            (522, true),
            (403, false),
            (501, false),
        ] {
            assert_eq!(
                (refused(status).is_transient(), answered(status).is_transient()),
                (passes, passes),
                "{status}"
            );
        }
        for (permanent, passes) in [(true, false), (false, true)] {
            let error = HttpError::Connection { reason: String::new(), permanent };
            assert_eq!(error.is_transient(), passes);
        }
        assert!(HttpError::Slow { bytes: 1, waited: Duration::ZERO }.is_transient());
        assert!(!HttpError::Offline.is_transient() && !HttpError::Closed.is_transient());
    }

    #[test]
    fn statuses_are_told_in_words() {
        for (status, words) in [
            (401, "wants a login"),
            (403, "refuses access"),
            (404, "no such file"),
            (407, "the proxy"),
            (412, "another one"),
            (416, "shorter"),
            (429, "too many"),
            (503, "overloaded"),
            (500, "500"),
        ] {
            let text = HttpError::Status { status, retry_after: None }.to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
