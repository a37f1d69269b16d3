//! A server that only one user is to see, beside other users of the machine and other sites in a browser. No
//! I/O.
//!
//! Everything lies below a secret in the path. A site in the user's browser does not know it, and gets no
//! answer by a name of its own that it lets point here (DNS rebinding): the `Host` header must be an address
//! of digits, `localhost`, or a name that the user gave.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use subtle::ConstantTimeEq;

/// Which requests see anything.
#[derive(Clone)]
pub struct Hidden {
    secret: Arc<str>,
    name: Option<Arc<str>>,
}

/// Why a request sees nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("a request names one host\n")]
    Hosts,
    #[error("this server is not asked by that name\n")]
    Host,
    #[error("no such page\n")]
    Path,
}

impl Refusal {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            // RFC 9112, section 3.2.
            Self::Hosts => StatusCode::BAD_REQUEST,
            Self::Host => StatusCode::FORBIDDEN,
            Self::Path => StatusCode::NOT_FOUND,
        }
    }
}

impl Hidden {
    /// Everything lies below `/SECRET/`; `name` is a further name of this machine.
    #[must_use]
    pub fn new(secret: &str, name: Option<&str>) -> Self {
        Self { secret: secret.into(), name: name.map(Into::into) }
    }

    /// The rest of a path, behind the secret. How long it takes says nothing of the secret but its length.
    pub(super) fn find<'p>(&self, host: Option<&str>, path: &'p str) -> Result<&'p str, Refusal> {
        if !host.is_some_and(|host| self.is_ours(host)) {
            return Err(Refusal::Host);
        }
        let (first, rest) =
            path.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or(Refusal::Path)?;
        if bool::from(first.as_bytes().ct_eq(self.secret.as_bytes())) { Ok(rest) } else { Err(Refusal::Path) }
    }

    /// Whether the host is no name that another site could have chosen. The port is that of this server, or
    /// the request would not be here.
    fn is_ours(&self, host: &str) -> bool {
        let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let name = match host.rsplit_once(':') {
            Some((name, port)) if is_port(port) => name,
            // IPv6 has colons of its own.
            _ => host,
        };
        let digits = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let is_known = |known: &str| name.eq_ignore_ascii_case(known);
        digits.parse::<IpAddr>().is_ok()
            || is_known("localhost")
            || self.name.as_deref().is_some_and(is_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_leads_anywhere() {
        let hidden = Hidden::new("s3cret", None);
        let find = |path: &'static str| hidden.find(Some("localhost:1"), path);
        assert_eq!(find("/s3cret/"), Ok(""));
        assert_eq!(find("/s3cret/feed/x"), Ok("feed/x"));
        for path in ["/", "", "/s3cret", "/s3creT/", "/s3cret0/", "/s3cre/", "//s3cret/", "/%733cret/", "*"] {
            assert_eq!(find(path), Err(Refusal::Path), "{path}");
        }
    }

    #[test]
    fn names_that_a_site_could_choose_are_refused() {
        let hidden = Hidden::new("s", Some("box.example"));
        for host in [
            "127.0.0.1:80",
            "127.0.0.1",
            "[::1]:8000",
            "[::1]",
            "LOCALHOST:1",
            "box.example:7",
            "Box.Example",
        ] {
            assert_eq!(hidden.find(Some(host), "/s/"), Ok(""), "{host}");
        }
        for host in [
            "evil.example:80",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil:1",
            "",
            "localhost:",
            ":1",
        ] {
            assert_eq!(hidden.find(Some(host), "/s/"), Err(Refusal::Host), "{host}");
        }
        assert_eq!(hidden.find(None, "/s/"), Err(Refusal::Host));
    }
}
