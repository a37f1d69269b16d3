//! File systems on which a file does not last, or not as one expects.

use std::path::Path;

use rustix::fs::fstatfs;

const NFS: i64 = 0x6969;
const SMB2: i64 = 0xfe53_4d42;
const CIFS: i64 = 0xff53_4d42;
const OVERLAYFS: i64 = 0x794c_7630;
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const FUSE: i64 = 0x6573_5546;
const PLAN9: i64 = 0x0102_1997;
const CEPH: i64 = 0x00c3_6400;
const AFS: i64 = 0x5346_414f;
const LUSTRE: i64 = 0x0bd0_0bd0;

/// Warns where changes in this file may not last.
pub(crate) fn warn(file: &std::fs::File, path: &Path) {
    let Ok(found) = fstatfs(file) else { return };
    if let Some(why) = trouble(found.f_type) {
        log::warn!("{}: {why}", path.display());
    }
}

fn trouble(kind: i64) -> Option<&'static str> {
    Some(match kind & 0xffff_ffff {
        NFS => {
            "it lies on NFS: changes last as far as its server writes what it says that it has written, and other \
             machines are only kept out where the mount passes locks on"
        }
        PLAN9 | CEPH | AFS | LUSTRE => {
            "it lies on another machine: changes last as far as that writes what it says that it has written, and \
             other machines may not be kept out"
        }
        FUSE => {
            "it lies on a file system of a program (FUSE): changes last as far as that program writes what it says \
             that it has written"
        }
        SMB2 | CIFS => "it lies on a share of SMB: changes last as far as its server keeps what it is sent",
        OVERLAYFS => {
            "it lies on an overlayfs: changes last as long as its upper folder, which of a live system or a \
             container usually is gone at its end"
        }
        TMPFS | RAMFS => "it lies in memory: changes are gone when this machine is switched off",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_do_not_last_are_told() {
        assert!(trouble(TMPFS).is_some_and(|why| why.contains("memory")));
        assert!(trouble(NFS).is_some_and(|why| why.contains("NFS")));
        assert!(trouble(i64::from(OVERLAYFS as i32)).is_some_and(|why| why.contains("overlayfs")));
        assert!([PLAN9, CEPH, AFS, LUSTRE].iter().all(|kind| trouble(*kind).is_some()));
        assert!(trouble(FUSE).is_some_and(|why| why.contains("FUSE")));
        // ext4.
        assert_eq!(trouble(0xef53), None);
    }
}
