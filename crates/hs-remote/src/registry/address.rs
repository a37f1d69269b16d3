//! `oci://HOST[:PORT]/NAME[:TAG][@sha256:DIGEST]`.

use std::fmt;

use url::Url;

use crate::http::HttpError;
use crate::sha256::Sha256;

/// The registry that `docker.io` stands for, and what login files call it.
const DOCKER: [&str; 3] = ["docker.io", "registry-1.docker.io", "https://index.docker.io/v1/"];

/// The address of an image in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryAddress {
    /// Plain HTTP was asked for (`oci+http://`).
    pub(super) plain: bool,
    /// Host, and port where it is not the usual one.
    pub(super) host: String,
    /// The name of the repository.
    pub(super) repository: String,
    /// Tag or digest.
    pub(super) reference: Reference,
}

/// Which manifest of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The current manifest of the tag.
    Tag(String),
    /// This one and no other.
    Digest(Sha256),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => f.write_str(tag),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

impl RegistryAddress {
    /// Parses an address without a fragment. Without tag and digest it is the tag `latest`; where both are
    /// given, the digest counts.
    ///
    /// # Errors
    /// [`HttpError::Address`] when it is none.
    pub fn parse(text: &str) -> Result<Self, HttpError> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let wrong = |reason: &str| HttpError::Address {
            // What cannot be taken apart cannot be cleaned of secrets.
            address: format!("{scheme}://…"),
            reason: reason.to_owned(),
        };
        let plain = match scheme {
            "oci" => false,
            "oci+http" => true,
            _ => return Err(wrong("only oci and oci+http are registries")),
        };
        let (host, path) =
            rest.split_once('/').ok_or_else(|| wrong("there is no name of a repository in it"))?;
        if host.contains('@') {
            return Err(wrong("logins are in the login files (`docker login`), not in addresses"));
        }
        let url = Url::parse(&format!("http://{host}/")).map_err(|error| wrong(&error.to_string()))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("there is no host in it"));
        }
        let (named, digest) = match path.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (path, None),
        };
        let (repository, tag) = match named.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (named, None),
        };
        if !is_repository(repository) {
            return Err(wrong(
                "names of repositories are lower-case letters, digits, and . _ - / between them",
            ));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("tags are up to 128 letters, digits, . _ and -"));
        }
        let reference = match digest {
            Some(digest) => {
                Reference::Digest(digest.parse().map_err(|()| wrong("digests are sha256: and 64 digits"))?)
            }
            None => Reference::Tag(tag.unwrap_or("latest").to_owned()),
        };
        Ok(Self { plain, host: host.to_ascii_lowercase(), repository: repository.to_owned(), reference })
    }

    /// Tag or digest.
    #[must_use]
    pub const fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The address of the manifest of this digest, of the same repository.
    ///
    /// # Errors
    /// [`HttpError::NotAnImage`] when that is no digest.
    pub fn at(&self, digest: &str) -> Result<Self, HttpError> {
        let reason = || HttpError::NotAnImage { reason: format!("{digest:?} is no SHA-256 digest") };
        Ok(Self { reference: Reference::Digest(digest.parse().map_err(|()| reason())?), ..self.clone() })
    }

    /// The host and the name of the repository, as container engines write them.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    /// The last part of the repository's name.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.repository.rsplit('/').next().unwrap_or_default()
    }

    /// The address of a resource of the repository.
    pub(super) fn url(&self, below: &str) -> Result<Url, HttpError> {
        let scheme = if self.plain { "http" } else { "https" };
        let host = if self.host == DOCKER[0] { DOCKER[1] } else { &self.host };
        let text = format!("{scheme}://{host}/v2/{}/{below}", self.repository);
        Url::parse(&text)
            .map_err(|error| HttpError::Address { address: self.to_string(), reason: error.to_string() })
    }

    /// Names of the registry in login files, the best first: containers-auth.json(5) has logins for parts of
    /// a registry.
    pub(super) fn login_keys(&self) -> Vec<String> {
        if DOCKER[..2].contains(&self.host.as_str()) {
            return vec![DOCKER[2].to_owned(), DOCKER[0].to_owned()];
        }
        let whole = format!("{}/{}", self.host, self.repository);
        let ends = whole.match_indices('/').map(|(at, _)| at).chain([whole.len()]);
        let mut keys: Vec<String> = ends.map(|end| whole[..end].to_owned()).collect();
        keys.reverse();
        keys
    }

    /// Whether a secret may be sent to it: not over a network where others can read it.
    pub(super) fn keeps_secrets(&self) -> bool {
        let url = Url::parse(&format!("http://{}/", self.host)).ok();
        !self.plain || url.as_ref().is_some_and(is_loopback)
    }
}

/// Whether an address is one of this machine's own.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

impl fmt::Display for RegistryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if matches!(self.reference, Reference::Tag(_)) { ':' } else { '@' };
        let scheme = if self.plain { "oci+http" } else { "oci" };
        write!(f, "{scheme}://{}/{}{between}{}", self.host, self.repository, self.reference)
    }
}

/// The distribution specification's grammar, a little wider: `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*` between
/// slashes.
fn is_repository(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 255
        && text.split('/').all(|part| {
            part.bytes().all(|byte| plain(byte) || b"._-".contains(&byte))
                && part.bytes().next().is_some_and(plain)
                && part.bytes().next_back().is_some_and(plain)
        })
}

fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|byte| word(byte) || b".-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    #[test]
    fn addresses_of_registries() {
        let parsed = |text: &str| RegistryAddress::parse(text).expect(text);
        for (text, shown) in [
            ("oci://h.example/a/b-c", "oci://h.example/a/b-c:latest"),
            ("oci+http://127.0.0.1:5000/a:Tag.1", "oci+http://127.0.0.1:5000/a:Tag.1"),
            (&format!("oci://h:1/a@{DIGEST}"), &format!("oci://h:1/a@{DIGEST}")),
            (&format!("oci://h:1/a:t@{DIGEST}"), &format!("oci://h:1/a@{DIGEST}")),
        ] {
            let address = parsed(text);
            assert_eq!(address.to_string(), *shown);
            assert_eq!(parsed(shown), address);
        }
        let address = parsed("oci://h:5000/a/b:t");
        assert_eq!(address.url("blobs/x").expect("a url").as_str(), "https://h:5000/v2/a/b/blobs/x");
        assert_eq!(address.login_keys(), ["h:5000/a/b", "h:5000/a", "h:5000"]);
        let docker = parsed("oci://docker.io/library/x");
        assert_eq!(docker.url("tags/list").expect("a url").host_str(), Some("registry-1.docker.io"));
        assert_eq!(docker.login_keys()[0], "https://index.docker.io/v1/");
    }

    #[test]
    fn secrets_are_for_tls_and_this_machine() {
        for (text, keeps) in [
            ("oci://h/a", true),
            ("oci+http://h/a", false),
            ("oci+http://10.0.0.1:5000/a", false),
            ("oci+http://127.0.0.1:5000/a", true),
            ("oci+http://[::1]:5000/a", true),
            ("oci+http://localhost/a", true),
        ] {
            assert_eq!(RegistryAddress::parse(text).expect(text).keeps_secrets(), keeps, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_telling_secrets() {
        for text in [
            "oci://h",
            "oci:///a",
            "oci://h/",
            "oci://h/A",
            "oci://h/a//b",
            "oci://h/a:",
            "oci://h/a:b c",
            "oci://h/-a",
            "oci://h/a@sha256:12",
            "oci://h/a@md5:12",
            "oci://me:pass@h/a",
            "oci://h:99999/a",
            "oci2://h/a",
        ] {
            let error = RegistryAddress::parse(text).expect_err(text).to_string();
            assert!(!error.contains("pass"), "{error}");
        }
    }
}
