#!/bin/sh
# Mounts the root, or waits until it is mounted.
case "$root" in
headstart:*)
    if [ -p /run/initramfs/headstart.code ]; then
        read -r code </run/initramfs/headstart.code
        rm /run/initramfs/headstart.code
    elif ! ismounted "$NEWROOT"; then
        modprobe -qa fuse loop overlay ext4
        headstart-live root "$NEWROOT"
        code=$?
    else
        code=0
    fi
    case "$code" in
    0) ;;
    3)
        echo "The medium is right. Press Enter to restart."
        read -r _
        reboot -f
        ;;
    *) die "The root cannot be mounted from a headstart image; the reason is above, and in dmesg" ;;
    esac
    ;;
esac
