//! Credentials and settings from the environment, for images that are not public.

use std::ffi::OsString;

use crate::cloud::Settings;
use crate::registry::Logins;

/// Logins, and settings for clouds. Nothing of it is ever printed.
#[derive(Clone, Default)]
pub struct Keyring {
    /// Of registries.
    pub logins: Logins,
    /// Of stores of objects.
    pub clouds: Settings,
}

impl Keyring {
    /// Reads these variables of an environment; files that they name are read when they are needed.
    #[must_use]
    pub fn of_environment(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let variables: Vec<_> = variables.into_iter().collect();
        let value = |name: &str| {
            let found = variables.iter().rev().find(|(known, _)| known.as_os_str() == name);
            found.map(|(_, value)| value.clone())
        };
        let text = variables.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
        Self { logins: Logins::of_environment(value), clouds: Settings::of_environment(text, value) }
    }
}
