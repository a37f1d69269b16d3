#!/bin/sh
# Mounts the root where systemd does not.
case "$root" in
headstart:*)
    ismounted "$NEWROOT" || mount.headstart headstart "$NEWROOT" || die "The root is not mounted; the reason is above, and in dmesg"
    ;;
esac
