#!/bin/sh
# Makes a Debian package of a program that is built: OUT/headstart_VERSION_ARCH.deb.
#
#   scripts/deb.sh PROGRAM OUT
#
# What is in it is what `make install` installs. The libraries that it needs are those that the program names
# itself, so that it installs wherever they are as new; a binary built on Debian 12 runs on Debian 13, and not
# the other way.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
if [ $# -ne 2 ]; then
    echo "usage: scripts/deb.sh PROGRAM OUT" >&2
    exit 2
fi
program=$(realpath -- "$1")
out=$2
version=$("$program" --version | sed 's/^headstart //')
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree

# The newest symbols of glibc that the program asks for.
glibc() {
    readelf --version-info "$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1
}

control() {
    cat <<TEXT
Package: headstart
Version: $version
Architecture: $architecture
Maintainer: The headstart authors <headstart@localhost>
Installed-Size: $(du -sk "$tree" | cut -f 1)
Depends: libc6 (>= $(glibc)), libgcc-s1
Recommends: e2fsprogs, ca-certificates, fuse3
Suggests: fuse2fs, user-mode-linux, qemu-system-x86, minisign, xorriso, grub-pc-bin, grub-efi-amd64-bin, dosfstools, mtools
Section: admin
Priority: optional
Description: fast starts from compressed, verified, read-only block images
 headstart records which blocks a program or a system reads while it starts,
 stores a second copy of them in that order in a compressed image, and
 prefetches them, from a disk, a disc or a network. Every byte is verified.
 .
 This package has the program, its manual pages and completions, the helpers
 of mount(8), units of systemd, and what initramfs-tools and dracut put into
 an initramfs whose root is an image.
TEXT
}

# A script of the package that tells systemd of units that came or went.
reloading_script() {
    cat <<'TEXT'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; fi
TEXT
}

# Gone with the package when it is purged: what was fetched, and which signatures were seen.
removing_script() {
    reloading_script
    cat <<'TEXT'
if [ "$1" = purge ]; then rm -rf /var/cache/headstart /var/lib/headstart; fi
TEXT
}

mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/headstart"
make -s -C "$root" install PROGRAM="$program" PREFIX=/usr SBINDIR=/usr/sbin DESTDIR="$tree" >/dev/null
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
{
    printf 'headstart is licensed under either of these, as you choose.\n\n'
    cat "$root/LICENSE-MIT"
    printf '\n\n'
    cat "$root/LICENSE-APACHE"
} >"$tree/usr/share/doc/headstart/copyright"
gzip -9nc "$root/CHANGELOG.md" >"$tree/usr/share/doc/headstart/changelog.gz"
control >"$tree/DEBIAN/control"
reloading_script >"$tree/DEBIAN/postinst"
removing_script >"$tree/DEBIAN/postrm"
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/postrm"
(cd "$tree" && find usr -type f -exec md5sum {} +) >"$tree/DEBIAN/md5sums"
mkdir -p "$out"
package=$out/headstart_${version}_$architecture.deb
# xz, which Debian 11 reads too; the modes of files do not depend on who makes it.
chmod -R u=rwX,go=rX "$tree/usr"
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
echo "$package"
