//! Logins: the files of docker, podman and similar tools.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};

/// A login. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// User and password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token that is exchanged for others.
    Identity(String),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// The files in which logins are looked for, of which the first match counts, and the other hosts that may
/// get the logins.
#[derive(Clone, Debug, Default)]
pub struct Logins {
    files: Vec<PathBuf>,
    /// Pairs of a registry and its token server, both by their hosts.
    realms: Vec<(String, String)>,
}

impl Logins {
    /// The usual files: `$REGISTRY_AUTH_FILE`, docker's, podman's (containers-auth.json(5)); and
    /// `$HEADSTART_REGISTRY_REALMS`, `REGISTRY=REALM,...`.
    #[must_use]
    pub fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let realms = variable("HEADSTART_REGISTRY_REALMS").unwrap_or_default().to_string_lossy().into_owned();
        let pairs = realms.split(',').filter_map(|pair| pair.split_once('='));
        let realms = pairs.map(|(host, realm)| (host_of(host), host_of(realm))).collect();
        if let Some(file) = folder("REGISTRY_AUTH_FILE") {
            return Self { files: vec![file], realms };
        }
        let home = folder("HOME");
        let in_home = |below: &str| home.as_ref().map(|home| home.join(below));
        let files = [
            folder("DOCKER_CONFIG").or_else(|| in_home(".docker")).map(|path| path.join("config.json")),
            folder("XDG_RUNTIME_DIR").map(|path| path.join("containers/auth.json")),
            folder("XDG_CONFIG_HOME")
                .or_else(|| in_home(".config"))
                .map(|path| path.join("containers/auth.json")),
        ];
        Self { files: files.into_iter().flatten().collect(), realms }
    }

    /// Whether the user allows to send logins of this registry to this host.
    pub(super) fn allows(&self, registry: &str, realm: &str) -> bool {
        self.realms.iter().any(|(host, theirs)| host == registry && theirs == realm)
    }

    /// The login for the best of `keys`, if there is one. Runs credential helpers.
    pub(super) fn find(&self, keys: &[String]) -> Option<Login> {
        let mut told = HashSet::new();
        keys.iter().flat_map(|key| self.files.iter().map(move |file| (key, file))).find_map(|(key, path)| {
            let file = File::open(path).ok()?;
            match get_credential_from_reader(BufReader::new(file), key) {
                Ok(DockerCredential::IdentityToken(token)) => Some(Login::Identity(token)),
                Ok(DockerCredential::UsernamePassword(user, password)) => {
                    Some(Login::Password { user, password })
                }
                Err(CredentialRetrievalError::NoCredentialConfigured) => None,
                Err(CredentialRetrievalError::HelperFailure { helper, .. }) => {
                    // What it says may be secret.
                    log::info!("{}: no login for {key}: {helper} has none", path.display());
                    None
                }
                Err(error) => {
                    if told.insert(path) {
                        log::warn!("{}: no login for {key}: {}", path.display(), trouble(&error));
                    }
                    None
                }
            }
        })
    }
}

/// A host without its port, as addresses have it.
fn host_of(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let url = url::Url::parse(&format!("http://{text}/")).ok();
    url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or(text)
}

fn trouble(error: &CredentialRetrievalError) -> &'static str {
    match error {
        CredentialRetrievalError::ConfigReadError => "the file is not what `docker login` writes",
        CredentialRetrievalError::CredentialDecodingError => "what the file has of it is no login",
        CredentialRetrievalError::MalformedHelperResponse => "the answer of its credential helper is none",
        _ => "its credential helper cannot be started (docker-credential-NAME)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn the_first_file_and_the_narrowest_key_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("one")).expect("a folder");
            std::fs::write(path, text).expect("written");
        };
        // "me:secret", "you:other", as base64.
        write("home/.docker/config.json", r#"{"auths":{"h:5000":{"auth":"bWU6c2VjcmV0"}}}"#);
        write(
            "home/.config/containers/auth.json",
            r#"{"auths":{"h:5000/a":{"auth":"eW91Om90aGVy"},"i":{"identitytoken":"t"}}}"#,
        );
        let home = folder.path().join("home").into_os_string();
        let logins = Logins::of_environment(|name| (name == "HOME").then(|| home.clone()));
        let user = |found: Option<Login>| match found {
            Some(Login::Password { user, .. }) => user,
            other => format!("{other:?}"),
        };
        assert_eq!(user(logins.find(&keys(&["h:5000/a/b", "h:5000/a", "h:5000"]))), "you");
        assert_eq!(user(logins.find(&keys(&["h:5000/c", "h:5000"]))), "me");
        assert_eq!(logins.find(&keys(&["i"])), Some(Login::Identity("t".to_owned())));
        assert_eq!(logins.find(&keys(&["other"])), None);
        write("broken", "{");
        let broken = folder.path().join("broken").into_os_string();
        let only = Logins::of_environment(|name| match name {
            "REGISTRY_AUTH_FILE" => Some(broken.clone()),
            "HOME" => Some(home.clone()),
            _ => None,
        });
        assert_eq!(only.find(&keys(&["h:5000"])), None);
    }

    #[test]
    fn logins_are_told_to_the_hosts_that_the_user_names() {
        let realms = "Registry.example:5000=Tokens.example, other.example = auth.example,nonsense";
        let logins =
            Logins::of_environment(|name| (name == "HEADSTART_REGISTRY_REALMS").then(|| realms.into()));
        assert!(logins.allows("registry.example", "tokens.example"));
        assert!(logins.allows("other.example", "auth.example"));
        for (registry, realm) in [
            ("registry.example", "auth.example"),
            ("other.example", "tokens.example"),
            ("tokens.example", "registry.example"),
            ("nonsense", ""),
        ] {
            assert!(!logins.allows(registry, realm), "{registry} {realm}");
        }
        assert!(!Logins::default().allows("registry.example", "tokens.example"));
    }
}
