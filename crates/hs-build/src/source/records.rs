//! Records of POSIX (pax): what a header has no room for, of one entry or of all that follow.

use hs_ext4::Time;

use super::archive_fault::ArchiveFault;
use super::entries::shown;

/// Beginnings of keys that say what an entry is. For all entries of an archive they are not read.
const OF_ONE_ENTRY: [&[u8]; 9] = [
    b"path",
    b"linkpath",
    b"size",
    b"GNU.sparse.",
    b"SCHILY.xattr.",
    b"SCHILY.acl.",
    b"SCHILY.dev",
    b"LIBARCHIVE.xattr.",
    b"RHT.security.",
];

/// A key and its value.
type Record<'a> = (&'a [u8], &'a [u8]);

/// The records of a list, which zeros may end. `tar_core` takes the end for what it does not
/// understand.
pub(super) fn records(mut rest: &[u8]) -> impl Iterator<Item = Result<Record<'_>, ArchiveFault>> + use<'_> {
    std::iter::from_fn(move || {
        if rest.first().is_none_or(|&byte| byte == 0) {
            return None;
        }
        let Some((record, behind)) = first(rest) else {
            rest = &[];
            return Some(Err(ArchiveFault::Records));
        };
        rest = behind;
        Some(Ok(record))
    })
}

/// `LENGTH KEY=VALUE` and a line end; the length counts all of it.
fn first(list: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let blank = list.iter().position(|&byte| byte == b' ')?;
    let len: usize = std::str::from_utf8(&list[..blank]).ok()?.parse().ok()?;
    let (record, behind) = list.split_at_checked(len)?;
    let text = record.get(blank + 1..)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|&byte| byte == b'=')?;
    Some(((&text[..equals], &text[equals + 1..]), behind))
}

/// What the records for all entries say of each that has no record of its own.
#[derive(Default)]
pub(super) struct ForAll {
    pub(super) owner: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) modified: Option<Time>,
}

impl ForAll {
    /// Takes up a list: its records replace earlier ones.
    pub(super) fn read(&mut self, list: &[u8]) -> Result<(), ArchiveFault> {
        for record in records(list) {
            match record? {
                (b"uid", value) => self.owner = Some(id("owner", value)?),
                (b"gid", value) => self.group = Some(id("group", value)?),
                (b"mtime", value) => self.modified = Some(time(value)?),
                (key, _) if OF_ONE_ENTRY.iter().any(|beginning| key.starts_with(beginning)) => {
                    return Err(ArchiveFault::ForAll { key: shown(key) });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn whole(field: &'static str, value: &[u8]) -> Result<u64, ArchiveFault> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| ArchiveFault::Number { field, value: shown(value) })
}

pub(super) fn id(field: &'static str, value: &[u8]) -> Result<u32, ArchiveFault> {
    let number = whole(field, value)?;
    u32::try_from(number).map_err(|_| ArchiveFault::Number { field, value: shown(value) })
}

/// Seconds since 1970 with a fraction.
pub(super) fn time(value: &[u8]) -> Result<Time, ArchiveFault> {
    let time = std::str::from_utf8(value).ok().and_then(parse_time);
    time.ok_or_else(|| ArchiveFault::Number { field: "time", value: shown(value) })
}

fn parse_time(text: &str) -> Option<Time> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let only_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !only_digits(whole) || !only_digits(fraction) {
        return None;
    }
    let seconds = sign * whole.parse::<i64>().ok()?;
    let nanoseconds: u32 = format!("{:0<9.9}", fraction).parse().ok()?;
    // A fraction counts upwards also before 1970.
    Some(match (sign, nanoseconds) {
        (-1, 1..) => Time { seconds: seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - nanoseconds },
        _ => Time { seconds, nanoseconds },
    })
}

/// The name of an attribute, in which GNU tar writes `%3D` and `%25`: a key ends with `=`.
pub(super) fn attribute_name(mut written: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(written.len());
    while let Some((&byte, behind)) = written.split_first() {
        let (byte, behind) = match behind {
            [b'3', b'D', behind @ ..] if byte == b'%' => (b'=', behind),
            [b'2', b'5', behind @ ..] if byte == b'%' => (b'%', behind),
            _ => (byte, behind),
        };
        name.push(byte);
        written = behind;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_fractions_and_may_lie_before_1970() {
        let time = |seconds, nanoseconds| Some(Time { seconds, nanoseconds });
        assert_eq!(parse_time("1700000000.123456789"), time(1_700_000_000, 123_456_789));
        assert_eq!(parse_time("1.5"), time(1, 500_000_000));
        assert_eq!(parse_time("1.0000000019"), time(1, 1));
        assert_eq!(parse_time("-1.25"), time(-2, 750_000_000));
        assert_eq!(parse_time("-7"), time(-7, 0));
        for wrong in ["", "-", ".5", "1.x", "+1", "1e3", "99999999999999999999"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_list_of_records_is_read_to_its_end() {
        let read = |list| records(list).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string());
        let (a, b): (Record<'_>, Record<'_>) = ((b"a", b"x=\n"), (b"b", b""));
        assert_eq!(read(b"8 a=x=\n\n5 b=\n").unwrap(), [a, b]);
        assert_eq!(read(b"5 b=\n\0\0\0").unwrap(), [b]);
        for wrong in [
            &b"5 b=\n-5 path=abc\n"[..],
            b"99999999999999999999 path=abc\n",
            b"6 b=\n",
            b"4 b=\n",
            b"4 b\n",
            b"0 b=\n",
            b" 5 b=\n",
            b"5b=\n",
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("its records are damaged"), "{error}");
        }
    }

    #[test]
    fn names_of_attributes_are_those_of_gnu_tar() {
        let names = [("user.a%3Db%25c", "user.a=b%c"), ("user.%2525", "user.%25"), ("u.%3d%2%", "u.%3d%2%")];
        for (written, name) in names {
            assert_eq!(attribute_name(written.as_bytes()), name.as_bytes());
        }
    }
}
