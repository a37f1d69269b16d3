//! The specification for init: one run of NUL-terminated strings, read from an inherited descriptor.
//!
//! Not by arguments, which every `ps` shows, nor by the environment, which belongs to the command.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::confinement::Confinement;

/// A user that a command runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandUser {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl CommandUser {
    fn encode(&self) -> String {
        let ids = [self.uid, self.gid].into_iter().chain(self.groups.iter().copied());
        ids.map(|id| id.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// What [`Self::encode`] made; no user for no text.
    fn decode(text: &str) -> Option<Option<Self>> {
        let ids: Option<Vec<u32>> = text.split_ascii_whitespace().map(|id| id.parse().ok()).collect();
        match ids?.as_slice() {
            [] => Some(None),
            [uid, gid, groups @ ..] => Some(Some(Self { uid: *uid, gid: *gid, groups: groups.to_vec() })),
            [_] => None,
        }
    }
}

/// Everything init needs to know.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InitSpec {
    /// Where init reports; see [`super::report`].
    pub(super) report: RawFd,
    /// Ends (end of file) when the process that started init does.
    pub(super) liveness: RawFd,
    /// What the command is kept from.
    pub(super) confinement: Confinement,
    /// The root, as seen from outside.
    pub(super) root: OsString,
    /// The command's working directory, inside the root.
    pub(super) cwd: OsString,
    /// The user that it runs as; nothing is changed when not given.
    pub(super) user: Option<CommandUser>,
    /// The command.
    pub(super) argv: Vec<OsString>,
    /// Its whole environment.
    pub(super) env: Vec<(OsString, OsString)>,
}

impl InitSpec {
    /// `None` when a string holds a NUL, which no argument of a program can.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut put = |string: &OsStr| {
            let string = string.as_bytes();
            bytes.extend_from_slice(string);
            bytes.push(0);
            !string.contains(&0)
        };
        let number = |number: usize| OsString::from(number.to_string());
        let mut ok = put(OsStr::new(&self.report.to_string()));
        ok &= put(OsStr::new(&self.liveness.to_string()));
        ok &= put(OsStr::new(&self.confinement.encode()));
        let user = self.user.as_ref().map(CommandUser::encode).unwrap_or_default();
        ok &= put(&self.root) && put(&self.cwd) && put(OsStr::new(&user)) && put(&number(self.argv.len()));
        ok &= self.argv.iter().all(|argument| put(argument)) && put(&number(self.env.len()));
        ok &= self.env.iter().all(|(name, value)| put(name) && put(value));
        ok.then_some(bytes)
    }

    /// `None` when the bytes are not what [`InitSpec::encode`] made.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(&[0])?;
        let mut strings = bytes.split(|&byte| byte == 0).map(|string| OsString::from_vec(string.to_vec()));
        let spec = Self {
            report: number(strings.next()?)?,
            liveness: number(strings.next()?)?,
            confinement: Confinement::decode(strings.next()?.to_str()?)?,
            root: strings.next()?,
            cwd: strings.next()?,
            user: CommandUser::decode(strings.next()?.to_str()?)?,
            argv: (0..number(strings.next()?)?).map(|_: usize| strings.next()).collect::<Option<_>>()?,
            env: (0..number(strings.next()?)?)
                .map(|_: usize| Some((strings.next()?, strings.next()?)))
                .collect::<Option<_>>()?,
        };
        (strings.next().is_none() && !spec.argv.is_empty()).then_some(spec)
    }
}

fn number<T: std::str::FromStr>(string: OsString) -> Option<T> {
    string.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_survives() {
        let spec = InitSpec {
            report: 5,
            liveness: 6,
            confinement: Confinement::Container { set_user_id: false },
            root: "/a b".into(),
            cwd: "".into(),
            user: Some(CommandUser { uid: 1000, gid: 4_000_000_000, groups: vec![5, 6] }),
            argv: vec!["sh".into(), "".into(), OsString::from_vec(vec![0xff, b'\n'])],
            env: vec![("A".into(), "".into()), ("B".into(), "x=y".into())],
        };
        let bytes = spec.encode().unwrap();
        assert_eq!(InitSpec::decode(&bytes).unwrap(), spec);
        for end in 0..bytes.len() {
            assert!(InitSpec::decode(&bytes[..end]).is_none(), "cut at {end}");
        }
        let nobody = InitSpec { user: None, ..spec };
        assert_eq!(InitSpec::decode(&nobody.encode().unwrap()).unwrap(), nobody);
        let spec = InitSpec { argv: vec!["a\0b".into()], ..nobody };
        assert!(spec.encode().is_none());
    }
}
