//! Where a remote file is, and what of that may be shown.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use url::Url;

use super::HttpError;

/// An address of a file, `http` or `https`. Its text leaves out what may be secret: user, password, and the
/// query, in which signed addresses have their signature.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteAddress(Url);

impl RemoteAddress {
    /// Parses an address without a fragment.
    ///
    /// # Errors
    /// [`HttpError::Address`] when it is none, or of another scheme.
    pub fn parse(text: &str) -> Result<Self, HttpError> {
        let wrong = |address: String, reason: String| HttpError::Address { address, reason };
        let url = Url::parse(text).map_err(|error| {
            // What cannot be taken apart cannot be cleaned of secrets.
            let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
            wrong(format!("{scheme}://…"), error.to_string())
        })?;
        let address = Self(url);
        if !matches!(address.0.scheme(), "http" | "https") {
            return Err(wrong(address.to_string(), "only http and https are known".to_owned()));
        }
        Ok(address)
    }

    /// All of it, secrets included.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.clone();
        // Both fail only for addresses without a host, which have neither.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        shown.set_fragment(None);
        let secret = shown.query().is_some();
        shown.set_query(None);
        write!(f, "{shown}{}", if secret { "?…" } else { "" })
    }
}

impl fmt::Debug for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a file can be asked for now.
#[derive(Clone)]
pub struct Located {
    /// The address.
    pub url: Url,
    /// Headers for its host, such as a login; never sent to another host.
    pub headers: HeaderMap,
    /// How long this is valid, where that is known; the caller asks again before.
    pub lasts: Option<Duration>,
}

/// Finds a file: by its plain address, a signed one that ages, a login.
pub trait Locate: Send + Sync {
    /// The name of the file in messages: no secrets.
    fn name(&self) -> String;

    /// Where the file is now. Called again when a server refuses the earlier answer.
    ///
    /// # Errors
    /// When it cannot be found out.
    fn locate(&self) -> Result<Located, HttpError>;

    /// Whether [`locate`](Self::locate) may give another answer the next time.
    fn ages(&self) -> bool {
        false
    }

    /// What it means that a server refuses the file for good.
    fn explained(&self, error: HttpError) -> HttpError {
        error
    }

    /// The file's length, where it is known beside the file. Known once the file was found.
    fn size(&self) -> Option<u64> {
        None
    }

    /// The image's name, where the address itself proves it. Known once the file was found.
    fn certain_name(&self) -> Option<String> {
        None
    }
}

impl Locate for RemoteAddress {
    fn name(&self) -> String {
        self.to_string()
    }

    fn locate(&self) -> Result<Located, HttpError> {
        Ok(Located { url: self.0.clone(), headers: HeaderMap::new(), lasts: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let address =
            RemoteAddress::parse("https://me:pass@host.example:8443/a/b.hsi?signature=abc").expect("one");
        assert_eq!(address.to_string(), "https://host.example:8443/a/b.hsi?…");
        assert_eq!(format!("{address:?}"), address.to_string());
        assert_eq!(address.url().password(), Some("pass"));
        assert_eq!(RemoteAddress::parse("http://h/x").expect("one").to_string(), "http://h/x");
    }

    #[test]
    fn what_is_no_address_is_refused_without_telling_secrets() {
        for text in
            ["ftp://me:pass@host/x", "https://me:pass@:99999/", "http://", "image.hsi", "file:///pass"]
        {
            let error = RemoteAddress::parse(text).expect_err(text).to_string();
            assert!(!error.contains("pass@"), "{error}");
        }
    }
}
