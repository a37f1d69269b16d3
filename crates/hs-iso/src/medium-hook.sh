#!/bin/sh
# A hook of initramfs-tools(7) that runs last: a medium needs no network, and udev loads drivers of graphics
# from the root.
if [ "$1" = prereqs ]; then
	exit 0
fi
modules="$DESTDIR/usr/lib/modules/$version/kernel"
[ -d "$modules" ] || modules="$DESTDIR/lib/modules/$version/kernel"
for unneeded in drivers/block/drbd drivers/gpu drivers/infiniband drivers/net drivers/nvme/target drivers/target \
	fs/9p fs/afs fs/btrfs fs/ceph fs/f2fs fs/gfs2 fs/jfs fs/nfs fs/nfs_common fs/ocfs2 fs/reiserfs fs/smb fs/xfs \
	net/9p net/ceph net/sunrpc; do
	rm -rf "${modules:?}/$unneeded"
done
