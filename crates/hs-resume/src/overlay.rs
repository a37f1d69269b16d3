//! What a guest had written to its disk: a qcow2 file that comes from the publisher of a snapshot. QEMU would
//! follow the names of other files in it, so none may be there (QEMU's docs/interop/qcow2.txt).

use std::ops::RangeInclusive;

/// What is looked at: the header and its extensions. QEMU writes one of some 400 bytes.
pub const HEAD_BYTES: u64 = 4096;

const MAGIC: &[u8] = b"QFI\xfb";
const VERSION: u64 = 3;
/// The least that a header of this version has, and the most that is known of it.
const HEADER_BYTES: RangeInclusive<u64> = 104..=112;
/// The extensions that name nothing: the end of them, and the names of features.
const END: u64 = 0;
const FEATURE_NAMES: u64 = 0x6803_f857;

/// Fields of the header that have one value: names, place and bytes. Of the incompatible features, one is a
/// file with the data elsewhere; QEMU gives none to what it writes for a guest.
const FIELDS: [(&str, usize, usize); 5] = [
    ("the place of the name of a file below", 8, 8),
    ("the length of the name of a file below", 16, 4),
    ("encryption", 32, 4),
    ("the number of snapshots", 60, 4),
    ("incompatible features", 72, 8),
];

/// Refuses what is no overlay of a disk of `disk_bytes` as QEMU writes it for a guest; `head` is its first
/// [`HEAD_BYTES`], or all of it.
///
/// # Errors
/// What is wrong with it.
pub fn check(head: &[u8], disk_bytes: u64) -> Result<(), String> {
    if !head.starts_with(MAGIC) {
        return Err("it does not begin as qcow2".to_owned());
    }
    let expect = |what: &str, found: u64, expected: u64| match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected}, found {found}")),
    };
    expect("version", number(head, 4, 4)?, VERSION)?;
    for (what, at, bytes) in FIELDS {
        expect(what, number(head, at, bytes)?, 0)?;
    }
    expect("bytes of the disk", number(head, 24, 8)?, disk_bytes)?;
    let header_bytes = number(head, 100, 4)?;
    if !HEADER_BYTES.contains(&header_bytes) {
        return Err(format!("a header of {header_bytes} bytes"));
    }
    let mut at = header_bytes;
    loop {
        let (kind, bytes) = (number(head, at as usize, 4)?, number(head, at as usize + 4, 4)?);
        match kind {
            END => return Ok(()),
            // No sum of two numbers of 32 bits overflows, and the next one lies in what is looked at.
            FEATURE_NAMES => at += 8 + bytes.next_multiple_of(8),
            _ => return Err(format!("a header extension of kind {kind:#x}")),
        }
    }
}

/// A big-endian number.
fn number(head: &[u8], at: usize, bytes: usize) -> Result<u64, String> {
    let digits = at.checked_add(bytes).and_then(|end| head.get(at..end));
    let digits = digits.ok_or_else(|| format!("its header has no end in {} bytes", head.len()))?;
    Ok(digits.iter().fold(0, |number, digit| number << 8 | u64::from(*digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK_BYTES: u64 = 5 << 20;

    fn made() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = hs_start::boot::empty_overlay(folder.path(), DISK_BYTES).unwrap();
        std::fs::read(path).unwrap()[..HEAD_BYTES as usize].to_vec()
    }

    fn changed(at: usize, bytes: &[u8]) -> Result<(), String> {
        let mut head = made();
        head[at..at + bytes.len()].copy_from_slice(bytes);
        check(&head, DISK_BYTES)
    }

    /// A header extension as QEMU writes it, and the end of them.
    fn extension(kind: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = [&kind.to_be_bytes()[..], &(content.len() as u32).to_be_bytes(), content].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn what_this_program_and_qemu_write_is_accepted() {
        assert_eq!(check(&made(), DISK_BYTES), Ok(()));
        assert_eq!(changed(104, &extension(0x6803_f857, &[7; 48 * 7])), Ok(()));
        // A header with the type of compression.
        assert_eq!(changed(100, &[0, 0, 0, 112]), Ok(()));
    }

    #[test]
    fn names_of_other_files_are_refused() {
        for (at, bytes, why) in [
            (8, &[0, 0, 0, 0, 0, 0, 2, 0][..], "file below"),
            (16, &[0, 0, 0, 9], "file below"),
            (32, &[0, 0, 0, 2], "encryption"),
            (60, &[0, 0, 0, 1], "snapshots"),
            // Bit 2: the data lies in another file.
            (79, &[4], "incompatible features"),
            (79, &[1], "incompatible features"),
            (72, &[0x80], "incompatible features"),
            // Its name, alone and behind another extension.
            (104, &extension(0x4441_5441, b"/etc/shadow"), "0x44415441"),
            (104, &[extension(0x6803_f857, &[7; 50]), extension(0x4441_5441, b"/x")].concat(), "0x44415441"),
            // The format of a file below, and keys.
            (104, &extension(0xe279_2aca, b"raw"), "0xe2792aca"),
            (104, &extension(0x0537_be77, &[1; 16]), "0x537be77"),
        ] {
            let refused = changed(at, bytes).unwrap_err();
            assert!(refused.contains(why), "{why}: {refused}");
        }
    }

    #[test]
    fn other_headers_are_refused() {
        for (at, bytes, why) in [
            (0, &b"QED\0"[..], "qcow2"),
            (7, &[2], "version"),
            (24, &[1], "bytes of the disk"),
            (100, &[0, 0, 0, 72], "72 bytes"),
            (100, &[0xff; 4], "4294967295 bytes"),
            (104, &extension(0x6803_f857, &[])[..4], "no end"),
        ] {
            let head = changed(at, bytes);
            // A feature table that says it is longer than the header.
            let head = head.and_then(|()| changed(104, &[0x68, 3, 0xf8, 0x57, 0xff, 0xff, 0xff, 0xff]));
            let refused = head.unwrap_err();
            assert!(refused.contains(why), "{why}: {refused}");
        }
        for bytes in [0, 4, 50, 103, 104, 111] {
            assert!(check(&made()[..bytes], DISK_BYTES).is_err(), "{bytes} bytes");
        }
    }
}
