//! `s3://BUCKET/KEY` and its like.

use std::fmt;

use url::Url;

use crate::http::HttpError;

/// Where an object lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudAddress(Url);

/// Whose store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    S3,
    Google,
    Azure,
}

impl CloudAddress {
    /// Parses an address without a fragment.
    ///
    /// # Errors
    /// [`HttpError::Address`] when it is none.
    pub fn parse(text: &str) -> Result<Self, HttpError> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let wrong = |reason: String| HttpError::Address { address: format!("{scheme}://…"), reason };
        let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
        if !matches!(url.scheme(), "s3" | "gs" | "az") {
            return Err(wrong("only s3, gs and az are clouds".to_owned()));
        }
        let has_more = !url.username().is_empty()
            || url.password().is_some()
            || url.port().is_some()
            || url.query().is_some()
            || url.fragment().is_some();
        if has_more {
            return Err(wrong(
                "there is more in it than a bucket and a key; logins are in the environment".to_owned(),
            ));
        }
        if url.host_str().is_none_or(str::is_empty) || url.path().len() < 2 || url.path().ends_with('/') {
            return Err(wrong("a bucket and a key of an object are wanted".to_owned()));
        }
        let address = Self(url);
        address.path().map_err(|error| wrong(error.to_string()))?;
        Ok(address)
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.0
    }

    /// The bucket, or container.
    #[must_use]
    pub fn bucket(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// What the bucket calls the object, as in an address.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.path().trim_start_matches('/')
    }

    /// The same, as the library has it.
    pub(super) fn path(&self) -> Result<object_store::path::Path, object_store::path::Error> {
        object_store::path::Path::from_url_path(self.0.path())
    }

    pub(super) fn provider(&self) -> Provider {
        match self.0.scheme() {
            "gs" => Provider::Google,
            "az" => Provider::Azure,
            _ => Provider::S3,
        }
    }
}

impl fmt::Display for CloudAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_keys() {
        let address = CloudAddress::parse("s3://images/a/b%20c.hsi").expect("one");
        assert_eq!((address.bucket(), address.key()), ("images", "a/b%20c.hsi"));
        assert_eq!(address.path().expect("a path").as_ref(), "a/b c.hsi");
        assert_eq!(address.provider(), Provider::S3);
        assert_eq!(CloudAddress::parse("gs://b/k").expect("one").provider(), Provider::Google);
        assert_eq!(CloudAddress::parse("az://b/k").expect("one").provider(), Provider::Azure);
    }

    #[test]
    fn what_is_no_address_is_refused_without_telling_secrets() {
        for text in [
            "s3://",
            "s3://b",
            "s3://b/",
            "s3:///k",
            "s3://b/k/",
            "s3://me:pass@b/k",
            "s3://b/k?pass=1",
            "s3://b:9/k",
            "http://b/k",
            "s3://b//k",
            "s3://b/%zz%ff",
        ] {
            let error = CloudAddress::parse(text).expect_err(text).to_string();
            assert!(!error.contains("pass"), "{error}");
        }
    }
}
