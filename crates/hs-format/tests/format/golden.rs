//! Committed bytes of draft 1, so that the format cannot drift silently. When the format changes on
//! purpose, its version changes too, and these files stay, for a reader that refuses them by version.

use hs_format::*;
use hs_units::Digest;

use crate::reader::read_image;
use crate::sample::{build, small_recipe};

/// An image that a build of draft 1 wrote with zstd: it must be read as long as draft 1 is.
const IMAGE: &[u8] = include_bytes!("../vectors/draft1-zstd.hsi");

/// The superblock of the same disk, stored: it does not depend on a version of zstd.
const SUPERBLOCK: &[u8] = include_bytes!("../vectors/draft1-store.superblock");

fn digest(text: &str) -> Digest {
    text.parse().expect("a digest")
}

#[test]
fn a_stored_image_is_built_byte_for_byte() {
    let sample = build(&small_recipe(Codec::Store));
    let superblock = sample.superblock.encode();
    let differs = superblock.iter().zip(SUPERBLOCK).position(|(a, b)| a != b);
    assert_eq!(differs, None, "first byte that differs");
    assert_eq!(superblock.len(), SUPERBLOCK.len());
    let plain = Digest(*blake3::hash(&sample.image).as_bytes());
    assert_eq!(plain, digest("fb628ff2f8e711284f475f6506f12251fd883b1094978f5440e7549255d2dd86"));
    let name = sample.superblock.image_digest();
    assert_eq!(name.to_string(), "hs1-7aeb2bcdfbae547ef4d47c04ee138a1f6ab38293402b80d3f19b9dea62cb88d8");
}

#[test]
fn an_old_image_is_read() {
    let superblock = Superblock::decode(Unverified::new(&IMAGE[..4096])).expect("draft 1");
    assert_eq!(
        superblock.image_digest().to_string(),
        "hs1-894d5c6e82062d7d98258ae2c599c70a3d4c9a6730e7123ae9685600cb720cf3"
    );
    assert!(read_image(IMAGE) == Ok(small_recipe(Codec::Zstd).disk));
}

#[test]
fn digests() {
    let table = [7; 48];
    assert_eq!(
        chunk_digest(b"chunk"),
        digest("6b1d440ada61d0f4e4416c73bcbab3694f96875a3e5df3253075163ffe93cd4d")
    );
    assert_eq!(
        LeafRef::digest_of(&table),
        digest("be0018cdae91ce8a92158a4a3deeb4ffc4a782895da612fd8a6a7e1cfdc0cf56")
    );
    assert_eq!(
        ColdRoot::digest_of(&table),
        digest("4d6f100e71034e19939553cdd5dfdb8b424d45b96faf633041926ca1b7faf2e6")
    );
    assert_eq!(
        HotIndex::digest_of(&table),
        digest("8a5dbefa1ae2d09b251a09c22ddfcb425c1b5368a00ac1465a98c041b358e171")
    );
    assert_eq!(
        Hints::digest_of(&[]),
        digest("c372f4d5f93204424b1a343b38b99fcfd7560172ee04c794c13c75690e826db3")
    );
    let mut hasher = DiskHasher::new((1 << 30) + 4096);
    hasher.update_window(&[5; limits::DISK_DIGEST_WINDOW_BYTES]);
    hasher.zero_windows(8192);
    assert_eq!(hasher.finish(), digest("27e8b0f68a49deea45d27f1d7df36cc95df8a1cce1384bd2687eac66f2503792"));
    assert_eq!(
        superblock_disk_digest(),
        digest("165417a48f6575581c643e2db1f78d48a948dfaa17f3a604088205dc76c5f065")
    );
}

fn superblock_disk_digest() -> Digest {
    build(&small_recipe(Codec::Zstd)).superblock.disk_digest
}
