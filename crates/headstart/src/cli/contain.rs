//! What the command of an image gets of this machine: flags of `run` and `profile`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

/// By default a command gets no more than in a container.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ContainFlags {
    /// Pass an environment variable to the command: KEY with its value here, or KEY=VALUE. Repeatable.
    ///
    /// The command always gets PATH, HOME, USER, LOGNAME, TERM, COLORTERM, NO_COLOR, TZ, LANG, LANGUAGE and
    /// LC_…, and nothing else, because the rest may contain secrets.
    #[arg(long = "env", value_name = "KEY[=VALUE]", value_parser = variable_parser(), help_heading = "Containment")]
    pub variables: Vec<Variable>,
    /// Do not contain the command: it keeps all capabilities, the environment, device nodes and the host's
    /// name. Only for images that you trust with this machine.
    #[arg(long, help_heading = "Containment")]
    pub privileged: bool,
}

/// A variable of the environment, and its value unless that is the one that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Its name.
    pub key: OsString,
    /// What it is to be.
    pub value: Option<OsString>,
}

fn variable_parser() -> impl TypedValueParser<Value = Variable> {
    OsStringValueParser::new().try_map(|word| Variable::parse(&word))
}

impl Variable {
    fn parse(word: &OsStr) -> Result<Self, &'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
