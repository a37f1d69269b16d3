#!/bin/sh
# root=headstart:… is ours; an address needs the network.
if headstart-live asked; then
    root=$(getarg root=)
    rootok=1
    case "$root" in
    *://*) echo 'rd.neednet=1' >/etc/cmdline.d/90-headstart.conf ;;
    esac
fi
