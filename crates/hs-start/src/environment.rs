//! What the command of an image is told of this process's environment: in the rest there may be secrets, such
//! as those with which the image was fetched.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::own_command::OwnCommand;

/// Where programs are, who starts them, how the terminal is written to, and where on Earth and in which
/// language that is.
const TOLD: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "TERM", "COLORTERM", "NO_COLOR", "TZ", "LANG", "LANGUAGE"];
/// So begin the names of further parts of the language.
const LANGUAGE_PREFIX: &[u8] = b"LC_";
/// Where programs are in most systems, if nothing is known.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The access of a command to this machine; by default no more than in a container.
#[derive(Clone, Debug, Default)]
pub struct Containment {
    /// Variables of the environment that it gets besides the usual ones.
    pub variables: Vec<Variable>,
    /// It keeps all capabilities, the environment, device nodes and the name of this machine.
    pub privileged: bool,
}

/// A variable of the environment, and its value unless that is the one that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub key: OsString,
    /// What it is to be.
    pub value: Option<OsString>,
}

impl Variable {
    /// The variable in `KEY` or `KEY=VALUE`.
    ///
    /// # Errors
    /// When it has no name.
    pub fn parse(word: &OsStr) -> Result<Self, &'static str> {
        let bytes = word.as_bytes();
        let (key, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned())),
            None => (bytes, None),
        };
        if key.is_empty() {
            return Err("a variable has a name: KEY or KEY=VALUE");
        }
        Ok(Self { key: OsStr::from_bytes(key).to_owned(), value })
    }
}

/// Of those, what belongs to this machine and to the user who starts the command, which an image with a user
/// of its own has itself.
const OF_THE_MACHINE: [&str; 4] = ["PATH", "HOME", "USER", "LOGNAME"];

/// The environment of the command that these flags are for, of `all` that there is. What the image has of its
/// own comes before that of this process, and what the flags say before both.
pub(crate) fn of_command(
    flags: &Containment,
    own: &OwnCommand,
    all: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let all: BTreeMap<OsString, OsString> = all.into_iter().collect();
    let is_of_machine = |key: &OsString| own.home.is_some() && OF_THE_MACHINE.iter().any(|name| key == *name);
    let told = all.iter().filter(|(key, _)| flags.privileged || is_told(key) && !is_of_machine(key));
    let mut environment: BTreeMap<OsString, OsString> =
        told.map(|(key, value)| (key.clone(), value.clone())).collect();
    environment.extend(own.home.iter().map(|home| ("HOME".into(), home.clone())));
    environment.extend(own.variables.iter().cloned());
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

    fn told(flags: &Containment, all: &[(&str, &str)]) -> Vec<String> {
        told_of(&OwnCommand::default(), flags, all)
    }

    fn told_of(own: &OwnCommand, flags: &Containment, all: &[(&str, &str)]) -> Vec<String> {
        let environment = of_command(flags, own, all.iter().map(|(key, value)| (key.into(), value.into())));
        let word = |(key, value): (OsString, OsString)| format!("{}={}", key.display(), value.display());
        environment.into_iter().map(word).collect()
    }

    #[test]
    fn secrets_are_told_only_if_asked_for() {
        let all = [("TOKEN", "secret"), ("LC_ALL", "C"), ("LCX", "no"), ("HOME", "/root")];
        let none = Containment::default();
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
        let asked = Containment { variables, privileged: false };
        assert_eq!(told(&asked, &all), ["E=", "HOME=/", "LC_ALL=C", &path, "TOKEN=secret"]);
        let all_of_it = Containment { privileged: true, ..none };
        assert_eq!(told(&all_of_it, &all), ["HOME=/root", "LCX=no", "LC_ALL=C", "TOKEN=secret"]);
    }

    #[test]
    fn the_image_says_more_than_the_user_and_the_flags_say_most() {
        let own = OwnCommand {
            variables: vec![
                ("PATH".into(), "/opt".into()),
                ("A".into(), "1".into()),
                ("B".into(), "2".into()),
            ],
            home: Some("/srv".into()),
            ..OwnCommand::default()
        };
        let all = [("PATH", "/bin"), ("HOME", "/root"), ("USER", "me"), ("TERM", "vt100"), ("B", "3")];
        let variables = vec![Variable { key: "B".into(), value: None }];
        let flags = Containment { variables, privileged: false };
        assert_eq!(told_of(&own, &flags, &all), ["A=1", "B=3", "HOME=/srv", "PATH=/opt", "TERM=vt100"]);
    }

    #[test]
    fn an_image_with_a_user_has_its_own_path() {
        let own = OwnCommand { home: Some("/".into()), ..OwnCommand::default() };
        let all = [("PATH", "/of/this/machine"), ("TERM", "vt100")];
        let path = format!("PATH={USUAL_PATH}");
        assert_eq!(told_of(&own, &Containment::default(), &all), ["HOME=/", &path, "TERM=vt100"]);
    }

    #[test]
    fn a_variable_has_a_name_and_perhaps_a_value() {
        let parsed = |word: &str| Variable::parse(OsStr::new(word));
        let variable = |key: &str, value: Option<&str>| {
            Ok(Variable { key: key.into(), value: value.map(OsString::from) })
        };
        assert_eq!(parsed("A"), variable("A", None));
        assert_eq!(parsed("A="), variable("A", Some("")));
        assert_eq!(parsed("A=b=c"), variable("A", Some("b=c")));
        assert!(parsed("=b").is_err() && parsed("").is_err());
    }
}
