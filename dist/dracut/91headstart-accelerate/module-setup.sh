#!/bin/bash
# Reads ahead what the last boots used, as soon as the root is mounted: `headstart accelerate on`.

check() {
    # Part of each initramfs of a system that has it on.
    [ -e /var/lib/headstart/accelerate/on ] && return 0
    return 255
}

depends() {
    echo base
}

install() {
    inst_multiple chroot
    inst_hook pre-pivot 90 "$moddir/accelerate.sh"
}
