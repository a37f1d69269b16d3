#!/bin/sh
# Begins to look for the image while hardware is detected.
case "$root" in
headstart:*://*) ;;
headstart:*) mount.headstart begin "$NEWROOT" & ;;
esac
