#!/bin/sh
# Begins to look for the image while hardware is detected.
case "$root" in
headstart:*://*) ;;
headstart:*)
    modprobe -qa fuse loop overlay ext4 isofs qemu_fw_cfg
    mkdir -p /run/initramfs
    : >/run/initramfs/headstart.started
    (
        headstart-live root "$NEWROOT"
        echo $? >/run/initramfs/headstart.new
        mv /run/initramfs/headstart.new /run/initramfs/headstart.code
    ) &
    ;;
esac
