//! The archive of files with which a kernel begins: cpio in its "new ASCII" form
//! (Documentation/driver-api/early-userspace/buffer-format.rst of Linux).

/// A file in it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry<'a> {
    /// A folder, by its path without a slash in front.
    Folder(&'a str),
    /// A program and its bytes.
    Program(&'a str, &'a [u8]),
    /// Another file and its bytes.
    File(&'a str, &'a [u8]),
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// The archive, which belongs to root and has no times.
pub(crate) fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        match entry {
            Entry::Folder(path) => push(&mut archive, number, FOLDER, path, &[]),
            Entry::Program(path, bytes) => push(&mut archive, number, PROGRAM, path, bytes),
            Entry::File(path, bytes) => push(&mut archive, number, FILE, path, bytes),
        }
    }
    push(&mut archive, 0, 0, "TRAILER!!!", &[]);
    archive
}

fn push(archive: &mut Vec<u8>, inode: u32, mode: u32, path: &str, bytes: &[u8]) {
    let (links, path_bytes, bytes_len) = (1, path.len() as u32 + 1, bytes.len() as u32);
    archive.extend(b"070701");
    // Inode, mode, user, group, links, time, size, device (two), device of a device file (two), length of the
    // path, checksum.
    for field in [inode, mode, 0, 0, links, 0, bytes_len, 0, 0, 0, 0, path_bytes, 0] {
        archive.extend(format!("{field:08X}").bytes());
    }
    archive.extend(path.bytes());
    archive.push(0);
    pad(archive);
    archive.extend(bytes);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_contents_begin_at_multiples_of_four() {
        let made = archive(&[Entry::Folder("dev"), Entry::Program("init", b"12345")]);
        let text = String::from_utf8(made.clone()).unwrap();
        let headers: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(headers.len(), 3);
        assert!(headers.iter().chain(&text.find("12345")).all(|at| at % 4 == 0), "{headers:?}");
        // The size and the path's length (with its NUL) are the seventh and the twelfth field.
        let field = |header: usize, field: usize| &text[headers[header] + 6 + 8 * field..][..8];
        assert_eq!([field(1, 1), field(1, 6), field(1, 11)], ["000081ED", "00000005", "00000005"]);
        assert_eq!(made.len() % 4, 0);
    }
}
