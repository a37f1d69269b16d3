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

# Who makes the package, as other tools for packages find out.
maintainer() {
    of_git() { git -C "$root" config "$1" 2>/dev/null || true; }
    name=${DEBFULLNAME:-$(of_git user.name)}
    address=${DEBEMAIL:-$(of_git user.email)}
    echo "${name:-The headstart authors} <${address:-$(id -un)@$(hostname -f 2>/dev/null || hostname)}>"
}

control() {
    cat <<TEXT
Package: headstart
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk "$tree" | cut -f 1)
Depends: libc6 (>= $(glibc)), libgcc-s1
Recommends: ca-certificates, fuse3
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

copyright() {
    cat <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: headstart

Files: *
Copyright: $(sed -n 's/^Copyright (c) //p' "$root/LICENSE-MIT")
License: Expat or Apache-2.0

License: Expat
$(sed '1,/^Copyright/d;1d;s/^$/./;s/^/ /' "$root/LICENSE-MIT" | sed '1{/^ \.$/d}')

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
TEXT
}

# In the format of Debian's own packages; what has changed is in CHANGELOG.md.
changelog() {
    seconds=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CHANGELOG.md")}
    cat <<TEXT
headstart ($version) unstable; urgency=medium

  * What has changed is in CHANGELOG.md beside this file.

 -- $maintainer  $(LC_ALL=C date -uRd "@$seconds")
TEXT
}

# What each script of the package begins with.
script() {
    printf '#!/bin/sh\nset -e\n'
    cat
}

# An upgrade leaves servers alone: what they serve is in use.
before_removal() {
    script <<'TEXT'
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop 'headstart@*.service' 'headstart-serve@*.service' \
        headstart-snapshotter.service || true
fi
TEXT
}

after_installation() {
    script <<'TEXT'
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; fi
TEXT
}

# Gone with the package when it is purged: what was fetched and logged, which signatures were seen, and which
# services were enabled. systemd keeps folders of users that it makes up in `private`.
after_removal() {
    script <<'TEXT'
if [ "$1" = purge ]; then
    # Images that a snapshotter has mounted stay when it ends.
    for tree in /var/lib/headstart/snapshotter/images/*/tree; do
        if [ -d "$tree" ]; then umount "$tree" || true; fi
    done
    for folder in /var/cache /var/lib /var/log; do
        for name in headstart headstart-serve; do
            rm -rf --one-file-system "$folder/$name" "$folder/private/$name"
        done
    done
    rm -f /etc/systemd/system/*.wants/headstart@*.service /etc/systemd/system/*.wants/headstart-serve@*.service \
        /etc/systemd/system/*.wants/headstart-snapshotter.service \
        /etc/systemd/system/*.wants/headstart-accelerate.service
fi
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload || true; fi
TEXT
}

maintainer=$(maintainer)
doc=$tree/usr/share/doc/headstart
mkdir -p "$tree/DEBIAN"
make -s -C "$root" install PROGRAM="$program" PREFIX=/usr SBINDIR=/usr/sbin DESTDIR="$tree" >/dev/null
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
# Links within a package are relative.
for link in "$tree"/usr/sbin/*; do ln -sfn ../bin/headstart "$link"; done
copyright >"$doc/copyright"
changelog | gzip -9n >"$doc/changelog.gz"
control >"$tree/DEBIAN/control"
(cd "$tree" && find etc -type f | sed 's|^|/|') >"$tree/DEBIAN/conffiles"
after_installation >"$tree/DEBIAN/postinst"
before_removal >"$tree/DEBIAN/prerm"
after_removal >"$tree/DEBIAN/postrm"
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm" "$tree/DEBIAN/postrm"
(cd "$tree" && find usr -type f -exec md5sum {} +) >"$tree/DEBIAN/md5sums"
mkdir -p "$out"
package=$out/headstart_${version}_$architecture.deb
# xz, which Debian 11 reads too; the modes of files do not depend on who makes it.
chmod -R u=rwX,go=rX "$tree/usr" "$tree/etc"
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
echo "$package"
