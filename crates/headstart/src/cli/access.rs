//! Who may read the file that shows a disk: flags of `mount` and `attach`.

use std::ffi::CString;
use std::str::FromStr;

use anyhow::bail;
use clap::Args;
use hs_serve::FileAccess;

/// Owner and permissions of the disk's file.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccessFlags {
    /// Permissions of the disk's file, in octal. 0444 lets every user of this machine read the whole disk,
    /// whatever the permissions of the files in it are. With 0600 and the like it can be opened for writing,
    /// by programs that map it privately; writes are refused.
    #[arg(long, value_name = "OCTAL", default_value = "0400", value_parser = parse_mode, hide_short_help = true, help_heading = "Access")]
    pub mode: u32,
    /// Owner of the disk's file, by name or number, for a program of another user such as QEMU. Needs root.
    #[arg(long, value_name = "USER[:GROUP]", hide_short_help = true, help_heading = "Access")]
    pub owner: Option<Owner>,
}

impl AccessFlags {
    /// What they say.
    ///
    /// # Errors
    /// When this user cannot give the file to that one.
    pub(crate) fn access(&self) -> anyhow::Result<FileAccess> {
        let own = FileAccess { mode: self.mode, ..FileAccess::default() };
        let Some(owner) = self.owner else { return Ok(own) };
        let given = own.owned_by(owner.uid, owner.gid.unwrap_or(own.gid));
        if given != own && !rustix::process::geteuid().is_root() {
            bail!("--owner: only root can give the disk's file to another user");
        }
        Ok(given)
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & !0o777 == 0 => Ok(mode),
        _ => Err("permissions are three octal digits, for example 0440".to_owned()),
    }
}

/// A user of this machine, and a group: the user's own when none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    uid: u32,
    gid: Option<u32>,
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let (uid, own_gid) = find_user(user)?;
        Ok(Self { uid, gid: group.map(find_group).transpose()?.or(own_gid) })
    }
}

/// The user's id, and the id of the user's group where that is known.
fn find_user(word: &str) -> Result<(u32, Option<u32>), String> {
    let found = CString::new(word).ok().and_then(|name| {
        // SAFETY: the name ends with a zero byte. The result lies in memory of the C library until its next
        // call, and is copied at once; arguments are parsed while this process has one thread.
        unsafe { libc::getpwnam(name.as_ptr()).as_ref() }.map(|entry| (entry.pw_uid, entry.pw_gid))
    });
    match (found, word.parse()) {
        (Some((uid, gid)), _) => Ok((uid, Some(gid))),
        (None, Ok(uid)) => Ok((uid, None)),
        (None, Err(_)) => Err(format!("there is no user '{word}' on this machine")),
    }
}

fn find_group(word: &str) -> Result<u32, String> {
    let found = CString::new(word).ok().and_then(|name| {
        // SAFETY: as for the user's name.
        unsafe { libc::getgrnam(name.as_ptr()).as_ref() }.map(|entry| entry.gr_gid)
    });
    found.or_else(|| word.parse().ok()).ok_or_else(|| format!("there is no group '{word}' on this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        assert_eq!("root".parse(), Ok(Owner { uid: 0, gid: Some(0) }));
        assert_eq!("0:12345".parse(), Ok(Owner { uid: 0, gid: Some(12345) }));
        assert_eq!("54321".parse(), Ok(Owner { uid: 54321, gid: None }));
        for wrong in ["", "no such user", "root:", "root:no such group", "-1", "4294967296"] {
            assert!(wrong.parse::<Owner>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn modes_are_octal_and_only_permissions() {
        assert_eq!(parse_mode("0440"), Ok(0o440));
        assert_eq!(parse_mode("444"), Ok(0o444));
        for wrong in ["", "4444", "9", "rw", "-1", "0x100"] {
            assert!(parse_mode(wrong).is_err(), "{wrong}");
        }
    }
}
