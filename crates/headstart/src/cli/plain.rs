//! Flags that become a plain struct of a library, which knows no flags.

use std::marker::PhantomData;
use std::ops::Deref;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id};

/// A struct of a library from flags with the same names.
macro_rules! same_names {
    ($flags:ident => $plain:path { $($field:ident),* $(,)? }) => {
        impl From<$flags> for $plain {
            fn from(flags: $flags) -> Self {
                let $flags { $($field),* } = flags;
                Self { $($field),* }
            }
        }
    };
}
pub(crate) use same_names;

/// Flags by the definition `F`, with their values as a `T`.
pub(crate) struct Plain<F, T>(T, PhantomData<fn() -> F>);

impl<F, T: Clone> Plain<F, T> {
    /// Their values.
    pub(crate) fn value(&self) -> T {
        self.0.clone()
    }
}

impl<F, T: Clone> Clone for Plain<F, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<F, T> Deref for Plain<F, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<F, T: std::fmt::Debug> std::fmt::Debug for Plain<F, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<F: FromArgMatches, T: From<F>> FromArgMatches for Plain<F, T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        F::from_arg_matches(matches).map(|flags| Self(flags.into(), PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<F: Args, T: From<F>> Args for Plain<F, T> {
    fn group_id() -> Option<Id> {
        F::group_id()
    }

    fn augment_args(command: Command) -> Command {
        F::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        F::augment_args_for_update(command)
    }
}
