#!/bin/bash
# Puts what boots from a headstart image into an initramfs of dracut(8): `dracut --add headstart`.

check() {
    require_binaries /usr/lib/headstart/headstart-live || return 1
    # Only when it is asked for.
    return 255
}

depends() {
    echo base
}

installkernel() {
    hostonly='' instmods fuse loop overlay ext4 qemu_fw_cfg isofs cdrom sr_mod sd_mod vfat exfat nls_ascii nls_cp437 \
        nls_iso8859-1 nls_utf8 =drivers/ata =drivers/block =drivers/scsi =drivers/usb/host =drivers/usb/storage
}

install() {
    inst /usr/lib/headstart/headstart-live /sbin/headstart-live
    inst_simple /etc/ssl/certs/ca-certificates.crt
    inst_multiple sleep
    inst_hook cmdline 90 "$moddir/parse-headstart.sh"
    inst_hook pre-trigger 90 "$moddir/start-headstart.sh"
    inst_hook mount 90 "$moddir/mount-headstart.sh"
    inst_script "$moddir/mount.headstart" /sbin/mount.headstart
    if dracut_module_included systemd; then
        inst_script "$moddir/headstart-generator" "$systemdutildir/system-generators/headstart-generator"
    fi
    dracut_need_initqueue
}
