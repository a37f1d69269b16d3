//! Settings for clouds from the environment and from files that it names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{ClientOptions, HttpClient as Requests, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::MultipartStore;
use object_store::signer::Signer;
use object_store::{ObjectStore, RetryConfig};

use super::address::{CloudAddress, Provider};
use super::profile::Profile;
use crate::http::{HttpClient, HttpError};

/// How often the library tries a request that is not a read.
const TRIES: usize = 4;
const TRYING: Duration = Duration::from_secs(60);

/// Settings, secrets among them: never printed.
#[derive(Clone, Default)]
pub struct Settings {
    /// Names in lower case.
    variables: Vec<(String, String)>,
    credentials: Option<PathBuf>,
    config: Option<PathBuf>,
    profile: Option<String>,
}

/// An object store, to which an object can be sent in parts that a later process continues.
pub(super) trait Bucket: ObjectStore + MultipartStore + Signer {}

impl<B: ObjectStore + MultipartStore + Signer> Bucket for B {}

/// Makes the library's requests with our client.
#[derive(Debug)]
struct OurClient(reqwest::Client);

impl HttpConnector for OurClient {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<Requests> {
        Ok(Requests::new(self.0.clone()))
    }
}

impl Settings {
    /// Takes the settings of the clouds' own tools: the variables `AWS_…`, `GOOGLE_…` and `AZURE_…`, and the
    /// files of the AWS command line.
    pub(crate) fn of_environment<'a>(
        variables: impl Iterator<Item = (&'a str, &'a str)>,
        value: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let ours = |name: &str| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix));
        let home = value("HOME").map(PathBuf::from);
        let file = |name: &str, usual: &str| {
            value(name).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(usual)))
        };
        Self {
            variables: variables
                .filter(|(name, value)| ours(name) && !value.is_empty())
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
            config: file("AWS_CONFIG_FILE", ".aws/config"),
            profile: value("AWS_PROFILE").and_then(|name| name.into_string().ok()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.variables.iter().any(|(known, _)| known == name)
    }

    /// The bucket of an address.
    pub(super) fn bucket(
        &self,
        address: &CloudAddress,
        client: &HttpClient,
    ) -> Result<Arc<dyn Bucket>, HttpError> {
        let connector = OurClient(client.requests().clone());
        let retry = RetryConfig { max_retries: TRIES, retry_timeout: TRYING, ..RetryConfig::default() };
        let bucket: object_store::Result<Arc<dyn Bucket>> = match address.provider() {
            Provider::S3 => {
                let builder = self.s3(address)?.with_http_connector(connector).with_retry(retry);
                builder.with_bucket_name(address.bucket()).build().map(|bucket| Arc::new(bucket) as _)
            }
            Provider::Google => {
                let builder = self.apply(GoogleCloudStorageBuilder::new(), |builder, key, value| {
                    key.parse().map(|key| builder.with_config(key, value))
                });
                let builder = builder.with_bucket_name(address.bucket()).with_http_connector(connector);
                builder.with_retry(retry).build().map(|bucket| Arc::new(bucket) as _)
            }
            Provider::Azure => {
                let builder = self.apply(MicrosoftAzureBuilder::new(), |builder, key, value| {
                    key.parse().map(|key| builder.with_config(key, value))
                });
                let builder = builder.with_container_name(address.bucket()).with_http_connector(connector);
                builder.with_retry(retry).build().map(|bucket| Arc::new(bucket) as _)
            }
        };
        bucket.map_err(|error| HttpError::Cloud { reason: super::object::said(&error) })
    }

    /// Sets what the library knows; variables of the other clouds it does not.
    fn apply<B: Clone, E>(&self, builder: B, set: impl Fn(B, &str, &str) -> Result<B, E>) -> B {
        self.variables
            .iter()
            .fold(builder, |builder, (name, value)| set(builder.clone(), name, value).unwrap_or(builder))
    }

    fn s3(&self, address: &CloudAddress) -> Result<AmazonS3Builder, HttpError> {
        let mut builder = self.apply(AmazonS3Builder::new(), |builder, key, value| {
            key.parse().map(|key| builder.with_config(key, value))
        });
        let name = self.profile.as_deref().unwrap_or("default");
        let profile = Profile::read(self.credentials.as_deref().map(Path::new), self.config.as_deref(), name);
        // The variables take precedence, unless a profile is named.
        let has_key = self.has("aws_access_key_id") && self.profile.is_none();
        if let (Some(id), Some(secret), false) =
            (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key"), has_key)
        {
            builder = builder.with_access_key_id(id).with_secret_access_key(secret);
            if let Some(token) = profile.get("aws_session_token") {
                builder = builder.with_token(token);
            }
        }
        let region =
            profile.get("region").filter(|_| !self.has("aws_region") && !self.has("aws_default_region"));
        if let Some(region) = region {
            builder = builder.with_region(region);
        }
        let endpoint = profile
            .get("endpoint_url")
            .filter(|_| !self.has("aws_endpoint_url") && !self.has("aws_endpoint_url_s3"));
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let knows = |key| builder.get_config_value(&key).is_some();
        let has_login = knows(AmazonS3ConfigKey::AccessKeyId)
            || knows(AmazonS3ConfigKey::WebIdentityTokenFile)
            || knows(AmazonS3ConfigKey::ContainerCredentialsRelativeUri)
            || knows(AmazonS3ConfigKey::ContainerCredentialsFullUri);
        let is_told_not_to_ask = self
            .variables
            .iter()
            .any(|(name, value)| name == "aws_ec2_metadata_disabled" && value.eq_ignore_ascii_case("true"));
        if !has_login && is_told_not_to_ask {
            return Err(HttpError::Login { host: format!("s3://{}", address.bucket()), had_login: false });
        }
        Ok(builder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[default]\naws_access_key_id = FILE\naws_secret_access_key = s\nregion = there\n\
                        endpoint_url = http://file\n[other]\naws_access_key_id = OTHER\naws_secret_access_key = s\n";

    fn s3(
        file: &str,
        variables: &[(&str, &str)],
        profile: Option<&str>,
    ) -> Result<AmazonS3Builder, HttpError> {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join(".aws")).expect("a folder");
        std::fs::write(home.path().join(".aws/credentials"), file).expect("written");
        let value = |name: &str| match name {
            "HOME" => Some(home.path().into()),
            "AWS_PROFILE" => profile.map(OsString::from),
            _ => None,
        };
        let address = CloudAddress::parse("s3://bucket/key").expect("an address");
        Settings::of_environment(variables.iter().copied(), value).s3(&address)
    }

    #[test]
    fn variables_take_precedence_unless_a_profile_is_named() {
        let set = [
            ("AWS_ACCESS_KEY_ID", "VARIABLE"),
            ("AWS_SECRET_ACCESS_KEY", "v"),
            ("AWS_REGION", "here"),
            ("AWS_ENDPOINT_URL", "http://variable"),
        ];
        let said = |variables: &[(&str, &str)], profile| {
            let builder = s3(FILE, variables, profile).expect("settings");
            let keys =
                [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::Region, AmazonS3ConfigKey::Endpoint];
            keys.map(|key| builder.get_config_value(&key).unwrap_or_default())
        };
        assert_eq!(said(&[], None), ["FILE", "there", "http://file"]);
        assert_eq!(said(&set, None), ["VARIABLE", "here", "http://variable"]);
        assert_eq!(said(&set, Some("other")), ["OTHER", "here", "http://variable"]);
    }

    #[test]
    fn the_machine_is_asked_for_a_login_unless_that_is_forbidden() {
        let forbids = |word: &'static str| [("AWS_EC2_METADATA_DISABLED", word)];
        assert!(s3("", &[], None).is_ok() && s3("", &forbids("false"), None).is_ok());
        assert!(matches!(s3("", &forbids("True"), None), Err(HttpError::Login { had_login: false, .. })));
        assert!(s3(FILE, &forbids("true"), None).is_ok(), "there is one");
    }
}
