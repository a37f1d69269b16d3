//! Kernels for guests of QEMU: a real one, from the package archive, and some that are made of a few
//! instructions.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where a guest's code lies in its memory.
const LOAD_ADDRESS: u32 = 1 << 20;
/// Bytes of a multiboot header that says where the code goes.
const HEADER_BYTES: u32 = 32;

/// The action of a little kernel after its output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It stays.
    Hang,
    /// It resets the machine, by way of the keyboard controller.
    Reset,
}

/// A kernel that prints `text` on the first serial port: a file as the Multiboot Specification 0.6.96
/// (section 3.1) has it, which QEMU loads in a fraction of the time that Linux takes.
pub(crate) fn little_kernel(path: &Path, text: &str, then: Then) {
    let code = |text_at: u32| {
        let mut code = vec![0xfa, 0xbe]; // cli; mov esi, text
        code.extend(text_at.to_le_bytes());
        code.extend([0xac, 0x84, 0xc0, 0x74, 20]); // next: lodsb; test al, al; jz done
        code.extend([0x88, 0xc4, 0x66, 0xba, 0xfd, 0x03]); // mov ah, al; mov dx, line status
        code.extend([0xec, 0xa8, 0x20, 0x74, 0xfb]); // wait: in al, dx; test al, empty; jz wait
        code.extend([0x88, 0xe0, 0x66, 0xba, 0xf8, 0x03, 0xee]); // mov al, ah; mov dx, data; out dx, al
        code.extend([0xeb, 0xe7]); // jmp next
        if then == Then::Reset {
            code.extend([0xb0, 0xfe, 0xe6, 0x64]); // done: mov al, pulse reset; out controller, al
        }
        code.extend([0xf4, 0xeb, 0xfd]); // hlt; jmp hlt
        code
    };
    let entry = LOAD_ADDRESS + HEADER_BYTES;
    let code = code(entry + code(0).len() as u32);
    let (magic, addresses_are_given) = (0x1bad_b002_u32, 1_u32 << 16);
    let checksum = 0_u32.wrapping_sub(magic).wrapping_sub(addresses_are_given);
    let header = [magic, addresses_are_given, checksum, LOAD_ADDRESS, LOAD_ADDRESS, 0, 0, entry];
    let mut file: Vec<u8> = header.into_iter().flat_map(u32::to_le_bytes).collect();
    file.extend(code);
    file.extend(text.as_bytes());
    file.push(0);
    fs::write(path, file).expect("written");
}

/// A Linux of Debian's: the kernel of linux-image-cloud-amd64, which has drivers for NVMe and ext4, and its
/// modules for virtio disks and network cards. It is downloaded once and kept beside what cargo builds;
/// installing it would run hooks of boot loaders. Nothing, which is said aloud, and fails in CI, where there
/// is no Debian archive to be had.
pub(crate) fn linux() -> Option<&'static Path> {
    static KEPT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let kept = KEPT.get_or_init(|| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-linux");
        if !kept.join("vmlinuz").exists() {
            download(&kept)?;
        }
        Ok(kept)
    });
    let skip = |lack: &String| hs_testing::skip(format!("no kernel for QEMU's guests: {lack}"));
    kept.as_ref().inspect_err(|lack| skip(lack)).ok().map(PathBuf::as_path)
}

/// Those modules of [`linux`] that a virtio disk needs, in the order in which they are to be loaded.
pub(crate) const VIRTIO_MODULES: [&str; 6] = [
    "virtio_ring.ko",
    "virtio.ko",
    "virtio_pci_legacy_dev.ko",
    "virtio_pci_modern_dev.ko",
    "virtio_pci.ko",
    "virtio_blk.ko",
];

/// The same for a virtio network card, after those.
pub(crate) const NETWORK_MODULES: [&str; 3] = ["failover.ko", "net_failover.ko", "virtio_net.ko"];

fn download(kept: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|error| error.to_string())?;
    let script = "
        name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
        test -n \"$name\" || { apt-get update -qq
            name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1); }
        test -n \"$name\"
        apt-get download -qq -o APT::Sandbox::User=root \"$name\"
        dpkg-deb --fsys-tarfile ./*.deb >all.tar
        tar -xf all.tar --wildcards './boot/vmlinuz-*' '*/drivers/virtio/*' '*/drivers/block/virtio_blk.ko' \
            '*/drivers/net/virtio_net.ko' '*/drivers/net/net_failover.ko' '*/net/core/failover.ko'
        mkdir done
        mv boot/vmlinuz-* done/vmlinuz
        find lib usr -name '*.ko' -exec mv {} done/ ';' 2>/dev/null || true
        rm -- *.deb all.tar
    ";
    let output = Command::new("sh")
        .args(["-euc", script])
        .current_dir(folder.path())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let done = folder.path().join("done");
    // Another run of the tests may have been faster.
    match fs::rename(&done, kept) {
        Err(_) if kept.join("vmlinuz").exists() => Ok(()),
        renamed => renamed.map_err(|error| error.to_string()),
    }
}

/// An initial RAM disk: a cpio archive of the new ASCII format (cpio(5)), with these files; libraries, those
/// in `bin` and `init` can be executed.
pub(crate) fn initrd(path: &Path, files: &[(&str, Vec<u8>)]) {
    let mut archive = Vec::new();
    let mut add = |number: usize, name: &str, mode: u32, content: &[u8]| {
        let fields =
            [number as u32, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        archive.extend(b"070701");
        archive.extend(fields.map(|field| format!("{field:08x}")).concat().bytes());
        archive.extend(name.bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(content);
        archive.resize(archive.len().next_multiple_of(4), 0);
    };
    let of_files = files.iter().flat_map(|(name, _)| Path::new(name).ancestors().skip(1));
    let of_files = of_files.filter_map(|folder| folder.to_str()).filter(|folder| !folder.is_empty());
    // Those in others come behind them.
    let folders: BTreeSet<&str> = ["dev", "new"].into_iter().chain(of_files).collect();
    for (number, folder) in folders.iter().enumerate() {
        add(1 + number, folder, 0o40_755, b"");
    }
    for (number, (name, content)) in files.iter().enumerate() {
        let executable = *name == "init" || name.starts_with("bin/") || name.starts_with("lib");
        add(1 + folders.len() + number, name, if executable { 0o100_755 } else { 0o100_644 }, content);
    }
    add(0, "TRAILER!!!", 0, b"");
    fs::write(path, archive).expect("written");
}
