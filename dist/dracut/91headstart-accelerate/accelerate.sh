#!/bin/sh
# The root is mounted: the root's own program reads ahead, and goes on in the system that starts from it. Its first
# letter tells systemd not to end it with the initramfs (systemd's "Root storage daemons").
program=/usr/lib/headstart/headstart-accelerate
if [ -e "$NEWROOT/var/lib/headstart/accelerate/on" ] && [ -x "$NEWROOT$program" ]; then
    (exec -a @headstart chroot "$NEWROOT" "$program") </dev/null >/dev/null 2>&1 &
fi
