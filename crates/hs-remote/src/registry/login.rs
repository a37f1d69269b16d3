//! Logins: the files of docker, podman and similar tools.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};
use serde_json::Value;

use super::credential_helper::{self, Trouble};
use crate::http::HttpError;

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
    ///
    /// # Errors
    /// [`HttpError::Helper`] when such a program gives no answer.
    pub(super) fn find(&self, keys: &[String]) -> Result<Option<Login>, HttpError> {
        let mut told = HashSet::new();
        for (key, path) in keys.iter().flat_map(|key| self.files.iter().map(move |file| (key, file))) {
            let Ok(text) = fs::read_to_string(path) else { continue };
            match LoginFile::of(&text).find(key) {
                Ok(login) => return Ok(Some(login)),
                Err(Missing::None) => {}
                Err(Missing::Trouble(trouble)) => {
                    if told.insert(path) {
                        log::warn!("{}: no login for {key}: {trouble}", path.display());
                    }
                }
                Err(Missing::Helper(program, trouble)) => not_of(path, key, program, trouble)?,
            }
        }
        Ok(None)
    }
}

/// A file of logins.
struct LoginFile {
    /// The logins in it, as docker writes them.
    logins: String,
    /// The programs that have the logins of certain registries, and of all others.
    helpers: Value,
    store: Value,
}

/// Why a file has no login.
enum Missing {
    None,
    /// What is wrong with it.
    Trouble(&'static str),
    /// The program that should have it.
    Helper(String, Trouble),
}

impl LoginFile {
    fn of(text: &str) -> Self {
        let Ok(Value::Object(mut file)) = serde_json::from_str(text) else {
            return Self { logins: text.to_owned(), helpers: Value::Null, store: Value::Null };
        };
        let mut take = |key| file.remove(key).unwrap_or_default();
        let (helpers, store) = (take("credHelpers"), take("credsStore"));
        Self { logins: Value::Object(file).to_string(), helpers, store }
    }

    /// The login for a registry: of its helper, in the file, of the helper for all others.
    fn find(&self, key: &str) -> Result<Login, Missing> {
        let of = |helper: &Value| {
            let helper = helper.as_str().filter(|helper| !helper.is_empty())?;
            let program = format!("docker-credential-{helper}");
            Some(credential_helper::ask(&program, key).map_err(|trouble| Missing::Helper(program, trouble)))
        };
        if let Some(asked) = self.helpers.get(key).and_then(of) {
            return asked;
        }
        match get_credential_from_reader(self.logins.as_bytes(), key) {
            Ok(DockerCredential::IdentityToken(token)) => Ok(Login::Identity(token)),
            Ok(DockerCredential::UsernamePassword(user, password)) => Ok(Login::Password { user, password }),
            Err(CredentialRetrievalError::NoCredentialConfigured) => {
                of(&self.store).unwrap_or(Err(Missing::None))
            }
            Err(CredentialRetrievalError::ConfigReadError) => {
                Err(Missing::Trouble("the file is not what `docker login` writes"))
            }
            Err(_) => Err(Missing::Trouble("what the file has of it is no login")),
        }
    }
}

/// Says why a program has no login. What it says may be secret.
fn not_of(path: &Path, key: &str, program: String, trouble: Trouble) -> Result<(), HttpError> {
    match trouble {
        Trouble::HasNone => log::info!("{}: no login for {key}: {program} has none", path.display()),
        Trouble::NotStarted => {
            log::warn!(
                "{}: no login for {key}: its credential helper {program} cannot be started",
                path.display()
            );
        }
        Trouble::Broken(reason) => {
            let (file, key) = (path.display().to_string(), key.to_owned());
            return Err(HttpError::Helper { file, key, program, reason });
        }
    }
    Ok(())
}

/// A host without its port, as addresses have it.
fn host_of(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let url = url::Url::parse(&format!("http://{text}/")).ok();
    url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or(text)
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
        assert_eq!(user(logins.find(&keys(&["h:5000/a/b", "h:5000/a", "h:5000"])).expect("found")), "you");
        assert_eq!(user(logins.find(&keys(&["h:5000/c", "h:5000"])).expect("looked for")), "me");
        assert_eq!(logins.find(&keys(&["i"])).expect("looked for"), Some(Login::Identity("t".to_owned())));
        assert_eq!(logins.find(&keys(&["other"])).expect("looked for"), None);
        write("broken", "{");
        let broken = folder.path().join("broken").into_os_string();
        let only = Logins::of_environment(|name| match name {
            "REGISTRY_AUTH_FILE" => Some(broken.clone()),
            "HOME" => Some(home.clone()),
            _ => None,
        });
        assert_eq!(only.find(&keys(&["h:5000"])).expect("looked for"), None);
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
