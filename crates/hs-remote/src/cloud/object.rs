//! An object that [`HttpStore`](crate::http::HttpStore) reads, by an address that is signed for some time.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use reqwest::Method;
use reqwest::header::HeaderMap;

use super::address::CloudAddress;
use super::settings::{Bucket, Settings};
use crate::http::{HttpClient, HttpError, Locate, Located};

/// How long a signed address can be used; it is signed again after half of that. Long responses outlive it:
/// only the start of a request counts.
const SIGNED_FOR: Duration = Duration::from_secs(3600);

/// An object in a store of objects.
pub struct CloudObject {
    name: String,
    bucket: Arc<dyn Bucket>,
    path: Path,
    client: Arc<HttpClient>,
}

impl CloudObject {
    /// The object at `address`. Makes no request yet.
    ///
    /// # Errors
    /// [`HttpError::Cloud`] when the settings are not valid, and [`HttpError::Login`] when there is no login.
    pub fn new(
        address: &CloudAddress,
        client: &Arc<HttpClient>,
        settings: &Settings,
    ) -> Result<Self, HttpError> {
        let bucket = settings.bucket(address, client)?;
        let path = address.path().map_err(|error| HttpError::Cloud { reason: error.to_string() })?;
        Ok(Self { name: address.to_string(), bucket, path, client: Arc::clone(client) })
    }
}

impl Locate for CloudObject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn locate(&self) -> Result<Located, HttpError> {
        let signed = self.client.wait_for(self.bucket.signed_url(Method::GET, &self.path, SIGNED_FOR));
        let url = signed.map_err(|error| HttpError::Cloud { reason: said(&error) })?;
        Ok(Located { url, headers: HeaderMap::new(), lasts: Some(SIGNED_FOR) })
    }

    fn ages(&self) -> bool {
        true
    }
}

/// Where the machines of a cloud get a login, which the library asks when it has none.
const METADATA_SERVERS: [&str; 2] = ["169.254.", "metadata.google.internal"];

/// The library's message, in a line, without addresses that may be signed. Without a login it says what gives
/// one.
pub(super) fn said(error: &object_store::Error) -> String {
    let text = error.to_string();
    if METADATA_SERVERS.iter().any(|server| text.contains(server)) {
        return format!("there is no login: {}", login_of(&text));
    }
    let words = text.split_whitespace().map(|word| match word.find("://") {
        Some(at) if word.contains('?') => format!("{}://…", &word[..at].trim_start_matches(['(', '"'])),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ").chars().take(400).collect()
}

/// What gives a login to the store that the library's message names.
fn login_of(text: &str) -> &'static str {
    match text {
        _ if text.contains("GCS") => "set GOOGLE_APPLICATION_CREDENTIALS to a key file",
        _ if text.contains("Azure") => "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        _ => S3_LOGIN,
    }
}

/// What gives a login to S3.
pub(crate) const S3_LOGIN: &str =
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile in ~/.aws";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Timeouts;

    /// The address and headers for an object with these variables set; no request is made.
    fn located(address: &str, variables: &[(&str, &str)]) -> Result<(String, Located), HttpError> {
        let client = HttpClient::new(Timeouts::default())?;
        let settings = Settings::of_environment(variables.iter().copied(), |_| None);
        let object = CloudObject::new(&CloudAddress::parse(address)?, &client, &settings)?;
        Ok((object.name(), object.locate()?))
    }

    const S3: [(&str, &str); 3] =
        [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "eu-west-3")];

    #[test]
    fn addresses_are_signed_for_some_time_and_tell_no_secret() {
        let azure = [("AZURE_STORAGE_ACCOUNT_NAME", "me"), ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")];
        for (address, variables, host, path, signature) in [
            ("s3://b/d/k.hsi", &S3[..], "s3.eu-west-3.amazonaws.com", "/b/d/k.hsi", "X-Amz-Signature="),
            ("az://c/d/k.hsi", &azure, "me.blob.core.windows.net", "/c/d/k.hsi", "sig="),
        ] {
            let (name, found) = located(address, variables).expect(address);
            assert_eq!((name.as_str(), found.lasts), (address, Some(SIGNED_FOR)));
            assert_eq!((found.url.scheme(), found.url.host_str()), ("https", Some(host)));
            assert_eq!(found.url.path(), path);
            assert!(found.url.as_str().contains(signature));
            assert!(!found.url.as_str().contains("secret") && !found.url.as_str().contains("c2VjcmV0"));
        }
        let endpoint = [&S3[..], &[("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")]].concat();
        let (_, found) = located("s3://b/k", &endpoint).expect("found");
        assert!(found.url.as_str().starts_with("http://127.0.0.1:9000/b/k?"));
    }

    #[test]
    fn who_has_no_login_is_told_before_anybody_is_asked() {
        let nothing = [("AWS_EC2_METADATA_DISABLED", "true")];
        assert!(matches!(located("s3://b/k", &nothing), Err(HttpError::Login { had_login: false, .. })));
        let half = [("AWS_ACCESS_KEY_ID", "id")];
        assert!(matches!(located("s3://b/k", &half), Err(HttpError::Cloud { .. })));
    }

    #[test]
    fn without_a_login_the_variables_are_named() {
        for (store, variable) in [
            ("S3", "AWS_ACCESS_KEY_ID"),
            ("GCS", "GOOGLE_APPLICATION_"),
            ("MicrosoftAzure", "AZURE_STORAGE_"),
        ] {
            let source = "Error performing PUT http://169.254.169.254/latest/api/token in 10s".into();
            let text = said(&object_store::Error::Generic { store, source });
            assert!(text.contains(variable) && !text.contains("169.254"), "{text}");
        }
        let error =
            located("s3://b/k", &[("AWS_EC2_METADATA_DISABLED", "true")]).map(drop).expect_err("no login");
        assert!(error.to_string().contains("wants a login: set AWS_ACCESS_KEY_ID"), "{error}");
    }

    #[test]
    fn what_the_library_says_is_told_without_signed_addresses() {
        let source = "get (https://h/k?X-Amz-Signature=abc&x=1) failed".into();
        let error = object_store::Error::Generic { store: "S3", source };
        let text = said(&error);
        assert!(text.contains("failed") && text.contains("https://…") && !text.contains("abc"), "{text}");
    }
}
