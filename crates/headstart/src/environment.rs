//! What the command of an image is told of this process's environment: in the rest there may be secrets, such
//! as those with which the image was fetched.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::cli::ContainFlags;

/// Where programs are, who starts them, how the terminal is written to, and where on Earth and in which
/// language that is.
const TOLD: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "TERM", "COLORTERM", "NO_COLOR", "TZ", "LANG", "LANGUAGE"];
/// So begin the names of further parts of the language.
const LANGUAGE_PREFIX: &[u8] = b"LC_";
/// Where programs are in most systems, if nothing is known.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of the command that these flags are for, of `all` that there is.
pub(crate) fn of_command(
    flags: &ContainFlags,
    all: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let all: BTreeMap<OsString, OsString> = all.into_iter().collect();
    let told = all.iter().filter(|(key, _)| flags.privileged || is_told(key));
    let mut environment: BTreeMap<OsString, OsString> =
        told.map(|(key, value)| (key.clone(), value.clone())).collect();
    if !flags.privileged {
        environment.entry("PATH".into()).or_insert_with(|| USUAL_PATH.into());
    }
    for variable in &flags.variables {
        if let Some(value) = variable.value.as_ref().or_else(|| all.get(&variable.key)) {
            environment.insert(variable.key.clone(), value.clone());
        }
    }
    environment.into_iter().collect()
}

fn is_told(key: &OsStr) -> bool {
    TOLD.iter().any(|told| key == *told) || key.as_bytes().starts_with(LANGUAGE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::contain::Variable;

    fn told(flags: &ContainFlags, all: &[(&str, &str)]) -> Vec<String> {
        let environment = of_command(flags, all.iter().map(|(key, value)| (key.into(), value.into())));
        let word = |(key, value): (OsString, OsString)| format!("{}={}", key.display(), value.display());
        environment.into_iter().map(word).collect()
    }

    #[test]
    fn secrets_are_told_only_if_asked_for() {
        let all = [("TOKEN", "secret"), ("LC_ALL", "C"), ("LCX", "no"), ("HOME", "/root")];
        let none = ContainFlags::default();
        let path = format!("PATH={USUAL_PATH}");
        assert_eq!(told(&none, &all), ["HOME=/root", "LC_ALL=C", &path]);
        let variable =
            |key: &str, value: Option<&str>| Variable { key: key.into(), value: value.map(Into::into) };
        let variables = vec![
            variable("TOKEN", None),
            variable("HOME", Some("/")),
            variable("GONE", None),
            variable("E", Some("")),
        ];
        let asked = ContainFlags { variables, privileged: false };
        assert_eq!(told(&asked, &all), ["E=", "HOME=/", "LC_ALL=C", &path, "TOKEN=secret"]);
        let all_of_it = ContainFlags { privileged: true, ..none };
        assert_eq!(told(&all_of_it, &all), ["HOME=/root", "LCX=no", "LC_ALL=C", "TOKEN=secret"]);
    }
}
