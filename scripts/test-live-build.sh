#!/bin/sh
# Makes a system with live-build, a medium of it, and starts that medium in QEMU: the recipe of docs/LIVE.md.
#
#   scripts/test-live-build.sh HEADSTART [DIR]     the program, and a folder to work in: a new one, which goes
#
# Needs root, live-build, QEMU, what `headstart iso` needs, and a mirror of Debian. Takes a quarter of an hour.
set -eu

headstart=$(realpath -- "$1")
if [ $# -gt 1 ]; then
    work=$2
    mkdir -p "$work"
else
    work=$(mktemp -d)
    trap 'rm -rf -- "$work"' EXIT
fi
cd "$work"

# Everything that is mounted in the system ends with this namespace.
if [ ! -e made ]; then
    unshare --mount --pid --fork --kill-child -- sh -eu <<'TEXT'
lb config --distribution bookworm --architecture amd64 --linux-flavours cloud-amd64 --archive-areas main \
    --apt-recommends false --debootstrap-options --variant=minbase --security false --updates false \
    --firmware-chroot false --memtest none --initramfs none --initsystem systemd \
    --mirror-bootstrap http://deb.debian.org/debian --mirror-chroot http://deb.debian.org/debian
echo systemd-sysv udev initramfs-tools zstd >config/package-lists/system.list.chroot
lb bootstrap
lb chroot
TEXT
    : >made
fi

rm -f live.iso
"$headstart" iso chroot -o live.iso
"$headstart" boot live.iso --vmm qemu --memory 1G --ready 'login: $' --ready-timeout 500 --console console
grep -q 'root=headstart:' console
echo "test-live-build: the medium starts to its login prompt"
