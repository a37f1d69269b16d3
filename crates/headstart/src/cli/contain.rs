//! What the command of an image gets of this machine: flags of `run` and `profile`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hs_start::environment::{Containment, Variable};

use super::plain::Plain;

/// What the command of an image gets.
pub(crate) type ContainFlags = Plain<ContainValues, Containment>;

/// By default a command gets no more than in a container.
#[derive(Clone, Debug, Args)]
pub(crate) struct ContainValues {
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

impl From<ContainValues> for Containment {
    fn from(flags: ContainValues) -> Self {
        Self { variables: flags.variables, privileged: flags.privileged }
    }
}

fn variable_parser() -> impl TypedValueParser<Value = Variable> {
    OsStringValueParser::new().try_map(|word| Variable::parse(&word))
}
