//! The command of a start, where the image says how it starts: its arguments, environment, user and working
//! directory. All of that lies in the image's tree, and is read as a stranger's.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_build::{MOST_START_CONFIG_BYTES, START_CONFIG_PATH, StartConfig};
use hs_linux::rootenv::{CommandUser, in_user_namespace};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The largest number of a user or a group, as container engines have it. The kernel takes the largest of 32
/// bits for "as it is".
const MOST_ID: u32 = i32::MAX as u32;
/// The most bytes of a list of users or groups.
const MOST_LIST_BYTES: u64 = 16 << 20;

/// How the command starts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OwnCommand {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Variables that the image has for it.
    pub variables: Vec<(OsString, OsString)>,
    /// Its user, unless that is the one who starts it.
    pub user: Option<CommandUser>,
    /// The home of the image's user; nothing where the image says nothing.
    pub home: Option<OsString>,
    /// Its working directory.
    pub folder: Option<PathBuf>,
}

impl OwnCommand {
    /// That of the image whose root this is, with `words` in place of its own arguments, and `entrypoint` in
    /// place of its own entrypoint.
    ///
    /// # Errors
    /// When there is nothing to start, or the image has no such user.
    pub fn find(root: &Path, words: &[OsString], entrypoint: Option<&OsString>) -> anyhow::Result<Self> {
        let tree = Tree::open(root)?;
        let of_image = tree.read(START_CONFIG_PATH, MOST_START_CONFIG_BYTES, ResolveFlags::NO_SYMLINKS)?;
        let Some(json) = of_image else {
            let words: Vec<_> =
                entrypoint.filter(|word| !word.is_empty()).into_iter().chain(words).cloned().collect();
            if words.is_empty() {
                bail!("the image has no command of its own: give one after `--`");
            }
            return Ok(Self { words, ..Self::default() });
        };
        let config =
            StartConfig::parse(&json).with_context(|| format!("/{START_CONFIG_PATH} in the image"))?;
        let words = command_words(&config, words, entrypoint);
        if words.is_empty() {
            bail!("the image has no command of its own, only an environment: give one after `--`");
        }
        let account = tree.account(&config.user)?;
        Ok(Self {
            words,
            variables: config.env.iter().filter_map(|variable| key_and_value(variable)).collect(),
            user: usable(account.user, &config.user),
            home: Some(account.home),
            folder: Some(config.working_dir).filter(|folder| !folder.is_empty()).map(PathBuf::from),
        })
    }
}

/// As container engines put them together.
fn command_words(config: &StartConfig, words: &[OsString], entrypoint: Option<&OsString>) -> Vec<OsString> {
    let own = |words: &[String]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let (mut command, own_words) = match entrypoint {
        // The image's own arguments are meant for its own entrypoint.
        Some(program) => {
            (vec![program.clone()].into_iter().filter(|word| !word.is_empty()).collect(), Vec::new())
        }
        None => (own(&config.entrypoint), own(&config.cmd)),
    };
    command.extend(if words.is_empty() { own_words } else { words.to_vec() });
    command
}

fn key_and_value(variable: &str) -> Option<(OsString, OsString)> {
    let (key, value) = variable.split_once('=')?;
    let is_one = !key.is_empty() && !variable.contains('\0');
    is_one.then(|| (key.into(), value.into()))
}

/// Without root there is no other user.
fn usable(user: CommandUser, name: &str) -> Option<CommandUser> {
    if user == CommandUser::default() {
        return None;
    }
    if in_user_namespace() {
        log::warn!("the image's user {name:?} needs root: the command runs as the root of a user namespace");
        return None;
    }
    Some(user)
}

/// A user, and the home of that.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    user: CommandUser,
    home: OsString,
}

/// The tree of an image.
struct Tree(OwnedFd);

impl Tree {
    fn open(root: &Path) -> anyhow::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty()).context("open the root of the image")?;
        Ok(Self(root))
    }

    /// A regular file in it, if it is there. No link leads out of the tree.
    fn read(&self, path: &str, most_bytes: u64, how: ResolveFlags) -> anyhow::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let how = how | ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = match rustix::fs::openat2(&self.0, path, flags, Mode::empty(), how) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("open /{path} in the image")),
        };
        let status = rustix::fs::fstat(&file).with_context(|| format!("look at /{path} in the image"))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            bail!("/{path} in the image is no regular file");
        }
        let mut bytes = Vec::new();
        let read = File::from(file).take(most_bytes + 1).read_to_end(&mut bytes);
        read.with_context(|| format!("read /{path} in the image"))?;
        if bytes.len() as u64 > most_bytes {
            bail!("/{path} in the image has more than {most_bytes} bytes");
        }
        Ok(Some(bytes))
    }

    fn list(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        Ok(self.read(path, MOST_LIST_BYTES, ResolveFlags::empty())?.unwrap_or_default())
    }

    /// The user that is meant: a name or number, perhaps with a group after a colon; root for nothing.
    fn account(&self, text: &str) -> anyhow::Result<Account> {
        let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
        let name = if name.is_empty() { "0" } else { name };
        let (users, groups) = (self.list("etc/passwd")?, self.list("etc/group")?);
        find_account(name, group.filter(|group| !group.is_empty()), &users, &groups)
    }
}

fn find_account(name: &str, group: Option<&str>, users: &[u8], groups: &[u8]) -> anyhow::Result<Account> {
    let number = name.parse::<u32>().ok();
    let mut lines = users.split(|&byte| byte == b'\n').map(fields);
    let line = lines.find(|line| {
        let is_name = line.first().is_some_and(|field| *field == name.as_bytes());
        line.len() >= 6 && (is_name || number.is_some() && number == line.get(2).and_then(|id| parse(id)))
    });
    let field_number = |at: usize| line.as_ref().and_then(|line| parse(line.get(at)?));
    let Some(uid) = field_number(2).or(number) else {
        bail!("the image's user {name:?} is not in its /etc/passwd");
    };
    let known = line.as_ref().map(|line| line[0]);
    let group_lines = || groups.split(|&byte| byte == b'\n').map(fields).filter(|line| line.len() >= 3);
    let gid = match group {
        None => field_number(3).unwrap_or(0),
        Some(group) => {
            let named =
                group_lines().find(|line| line[0] == group.as_bytes()).and_then(|line| parse(line[2]));
            let found = named.or_else(|| group.parse().ok());
            found.with_context(|| format!("the image's group {group:?} is not in its /etc/group"))?
        }
    };
    // As engines do it, a group that is named is the only one.
    let is_member = |line: &Vec<&[u8]>| {
        let members = line.get(3).copied().unwrap_or_default();
        group.is_none()
            && known.is_some_and(|known| members.split(|&byte| byte == b',').any(|one| one == known))
    };
    let more: Vec<u32> = group_lines().filter(is_member).filter_map(|line| parse(line[2])).collect();
    if let Some(id) = [uid, gid].iter().chain(&more).find(|id| **id > MOST_ID) {
        bail!("the image's user {name:?} or a group of it has the number {id}; they go to {MOST_ID}");
    }
    let home = line.as_ref().map(|line| OsString::from_vec(line[5].to_vec())).filter(|home| !home.is_empty());
    let usual_home = if uid == 0 { "/root" } else { "/" };
    Ok(Account {
        user: CommandUser { uid, gid, groups: more },
        home: home.unwrap_or_else(|| usual_home.into()),
    })
}

fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|&byte| byte == b':').collect()
}

fn parse(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &[u8] = b"root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:44:Web,,:/srv/web:/bin/sh\n\
        www:x:34:44::::\n";
    const GROUPS: &[u8] = b"root:x:0:\nweb:x:44:\nlog:x:5:other,web\nmedia:x:6:web\n";

    fn account(name: &str, group: Option<&str>) -> Result<(u32, u32, Vec<u32>, String), String> {
        let found = find_account(name, group, USERS, GROUPS).map_err(|error| error.to_string())?;
        let CommandUser { uid, gid, groups } = found.user;
        Ok((uid, gid, groups, found.home.into_string().unwrap()))
    }

    #[test]
    fn users_are_names_or_numbers_with_or_without_a_group() {
        assert_eq!(account("web", None), Ok((33, 44, vec![5, 6], "/srv/web".into())));
        assert_eq!(account("33", None), Ok((33, 44, vec![5, 6], "/srv/web".into())));
        assert_eq!(account("web", Some("log")), Ok((33, 5, vec![], "/srv/web".into())));
        assert_eq!(account("0", None), Ok((0, 0, vec![], "/root".into())));
        assert_eq!(account("1234", None), Ok((1234, 0, vec![], "/".into())));
        assert_eq!(account("1234", Some("77")), Ok((1234, 77, vec![], "/".into())));
        assert_eq!(account("www", None), Ok((34, 44, vec![], "/".into())));
        assert!(account("nobody", None).unwrap_err().contains("nobody"));
        assert!(account("web", Some("none")).unwrap_err().contains("none"));
        for (name, group) in [("4294967295", None), ("77", Some("4294967295")), ("2147483648", None)] {
            assert!(account(name, group).unwrap_err().contains("they go to 2147483647"));
        }
        for users in ["evil:x:4294967295:88::/:\n", "evil:x:8:4294967295::/:\n", "evil:x:8:9::/:\n"] {
            let groups = b"many:x:4294967295:evil\n";
            assert!(find_account("evil", None, users.as_bytes(), groups).is_err(), "{users}");
        }
        assert!(account("-1", None).is_err() && account("4294967296", None).is_err());
    }

    #[test]
    fn arguments_take_the_place_of_the_images_own() {
        let config = StartConfig {
            entrypoint: vec!["init".into(), "-s".into()],
            cmd: vec!["serve".into()],
            ..StartConfig::default()
        };
        let words = |given: &[&str], entrypoint: Option<&str>| {
            let given: Vec<OsString> = given.iter().map(Into::into).collect();
            let words = command_words(&config, &given, entrypoint.map(OsString::from).as_ref());
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(&[], None), "init -s serve");
        assert_eq!(words(&["check", "-v"], None), "init -s check -v");
        assert_eq!(words(&["-v"], Some("sh")), "sh -v");
        assert_eq!(words(&[], Some("sh")), "sh");
        assert_eq!(words(&["ls"], Some("")), "ls");
    }

    #[test]
    fn variables_have_a_name_and_a_value() {
        assert_eq!(key_and_value("A=b=c"), Some(("A".into(), "b=c".into())));
        for wrong in ["A", "=b", "A=\0"] {
            assert_eq!(key_and_value(wrong), None);
        }
    }
}
