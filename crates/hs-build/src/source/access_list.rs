//! Access control lists in words, as archives have them, and as extended attributes.

/// Tags of entries, in the order that the kernel wants (`linux/posix_acl.h`).
mod tag {
    pub(super) const OWNER: u16 = 0x01;
    pub(super) const USER: u16 = 0x02;
    pub(super) const OWNING_GROUP: u16 = 0x04;
    pub(super) const GROUP: u16 = 0x08;
    pub(super) const MASK: u16 = 0x10;
    pub(super) const OTHER: u16 = 0x20;
}
/// The id of entries that have none.
const NO_ID: u32 = u32::MAX;
/// The version of the form that system calls have (`linux/posix_acl_xattr.h`).
const VERSION: u32 = 2;

/// A list, sorted by tags and ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AccessList(Vec<Entry>);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    tag: u16,
    id: u32,
    permissions: u16,
}

impl AccessList {
    /// Reads words such as `user::rw-,user:lisa:r--:1000,group::r--,mask::rw-,other::r--`, with commas as of
    /// star and libarchive or with line ends as of GNU tar. Nothing when it is no list, or names a user or
    /// group other than root without a number: whose number that would be, the archive does not say.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let words = text.split([',', '\n']).map(|word| word.split('#').next().unwrap_or_default().trim());
        let entries = words.filter(|word| !word.is_empty()).map(Entry::parse).collect::<Option<Vec<_>>>();
        let mut entries = entries?;
        entries.sort_unstable();
        let count = |wanted: u16| entries.iter().filter(|entry| entry.tag == wanted).count();
        let is_named = count(tag::USER) + count(tag::GROUP) > 0;
        let has_each = [tag::OWNER, tag::OWNING_GROUP, tag::OTHER].iter().all(|&tag| count(tag) == 1);
        let is_twice = entries.windows(2).any(|pair| (pair[0].tag, pair[0].id) == (pair[1].tag, pair[1].id));
        let is_list = has_each && !is_twice && (count(tag::MASK) == 1 || !is_named);
        is_list.then_some(Self(entries))
    }

    /// The nine bits of the mode of what has it: a mask stands where the group's are.
    pub(super) fn permissions(&self) -> u16 {
        let of = |wanted| self.0.iter().find(|entry| entry.tag == wanted).map(|entry| entry.permissions);
        let group = of(tag::MASK).or(of(tag::OWNING_GROUP)).unwrap_or(0);
        of(tag::OWNER).unwrap_or(0) << 6 | group << 3 | of(tag::OTHER).unwrap_or(0)
    }

    /// Whether it says more than a mode.
    pub(super) fn is_extended(&self) -> bool {
        self.0.len() > 3
    }

    /// The value of the attribute.
    pub(super) fn attribute(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend(entry.tag.to_le_bytes());
            value.extend(entry.permissions.to_le_bytes());
            value.extend(entry.id.to_le_bytes());
        }
        value
    }
}

impl Entry {
    fn parse(word: &str) -> Option<Self> {
        let fields: Vec<&str> = word.split(':').map(str::trim).collect();
        let (kind, name, permissions, number) = match fields[..] {
            // Solaris and older versions of star.
            [kind, permissions] => (kind, "", permissions, None),
            [kind, name, permissions] => (kind, name, permissions, None),
            [kind, name, permissions, number] => (kind, name, permissions, Some(number)),
            _ => return None,
        };
        let (tag, id) = match (kind, name) {
            ("user" | "u", "") => (tag::OWNER, NO_ID),
            ("user" | "u", _) => (tag::USER, id(name, number)?),
            ("group" | "g", "") => (tag::OWNING_GROUP, NO_ID),
            ("group" | "g", _) => (tag::GROUP, id(name, number)?),
            ("mask" | "m", "") => (tag::MASK, NO_ID),
            ("other" | "o", "") => (tag::OTHER, NO_ID),
            _ => return None,
        };
        let bit = |letter| match letter {
            'r' => Some(4),
            'w' => Some(2),
            'x' => Some(1),
            '-' => Some(0),
            _ => None,
        };
        let permissions = permissions.chars().map(bit).try_fold(0, |all, bit| Some(all | bit?))?;
        Some(Self { tag, id, permissions })
    }
}

/// The number of a user or group: the one that is given, or the name if that is one.
fn id(name: &str, number: Option<&str>) -> Option<u32> {
    let id = match number.unwrap_or(name) {
        "root" => 0,
        digits => digits.parse().ok()?,
    };
    (id != NO_ID).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_each_program_are_one_list() {
        let of_gnu = b"user::rw-\nuser:1000:r-x\t#effective:r--\nuser:70000:rw-\ngroup::r--\ngroup:root:r--\nmask::rwx\nother::r--\n";
        let of_libarchive =
            b"user::rw-,group::r--,other::r--,user:70000:rw-,user:lisa:r-x:1000,group:root:r--:0,mask::rwx";
        let of_solaris = b"u::rw-,user:1000:r-x,user:70000:rw-,group::r--,group:0:r--,mask:rwx,other:r--";
        let list = AccessList::parse(of_gnu).expect("a list");
        assert_eq!(AccessList::parse(of_libarchive).as_ref(), Some(&list));
        assert_eq!(AccessList::parse(of_solaris).as_ref(), Some(&list));
        assert_eq!((list.permissions(), list.is_extended()), (0o674, true));
        let attribute = list.attribute();
        assert_eq!(attribute[..12], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(attribute[12..20], [2, 0, 5, 0, 232, 3, 0, 0]);
        assert_eq!(attribute.len(), 4 + 7 * 8);
    }

    #[test]
    fn what_says_no_more_than_a_mode_is_none() {
        let list = AccessList::parse(b"user::rwx,group::r-x,other::--x").expect("a list");
        assert_eq!((list.permissions(), list.is_extended()), (0o751, false));
    }

    #[test]
    fn what_is_no_list_is_not_taken_for_one() {
        for wrong in [
            "",
            "user::rwx",
            "user::rwx,group::r-x,other::--x,user:5:r--",
            "user::rwx,group::r-x,other::--x,user:lisa:r--,mask::r--",
            "user::rwx,group::r-x,other::--x,other::--x",
            "user::rwx,group::r-x,other::--x,user:5:r--,user:5:r-x,mask::r--",
            "user::rwy,group::r-x,other::--x",
            "user::rwx,group::r-x,other::--x,user:4294967295:r--,mask::r--",
            "user::rwx,group::r-x,other::--x,mask:5:r--",
            "user::rwx:0:0,group::r-x,other::--x",
        ] {
            assert_eq!(AccessList::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(AccessList::parse(b"\xff"), None);
    }
}
