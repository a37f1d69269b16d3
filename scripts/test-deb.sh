#!/bin/sh
# Looks at the package with lintian, installs it in clean roots of Debian 12 and 13, starts a program from an
# image there, and purges it again.
#
#   scripts/test-deb.sh PACKAGE [SUITE]...     the suites: bookworm and trixie when none is given
#
# Needs root, /dev/fuse, lintian, mmdebstrap and a mirror of Debian. The roots are made once and kept in
# /var/cache/headstart/deb-roots (or HEADSTART_DEB_ROOTS); each test has a throw-away layer over one.
# Everything is mounted in a namespace of its own, so nothing is left, however this ends.
set -eu

package=$(realpath -- "$1")
shift
[ $# -gt 0 ] || set -- bookworm trixie
roots=${HEADSTART_DEB_ROOTS:-/var/cache/headstart/deb-roots}

if [ "$(id -u)" -ne 0 ]; then
    echo "test-deb: needs root, to mount" >&2
    exit 1
fi

# make_root SUITE: a clean root with what the package recommends, and busybox for an image.
make_root() {
    if [ -e "$roots/$1.complete" ]; then return; fi
    echo "test-deb: making a root of $1"
    rm -rf "${roots:?}/$1"
    mkdir -p "$roots"
    unshare --mount --pid --fork --kill-child -- mmdebstrap --quiet --mode=root --variant=minbase \
        --include=ca-certificates,fuse3,busybox-static \
        --dpkgopt=force-unsafe-io "$1" "$roots/$1"
    : >"$roots/$1.complete"
}

# What is done in the root. Every step must succeed, and what it says is shown when it does not.
steps() {
    cat <<'TEXT'
set -eux
dpkg --force-unsafe-io -i /package.deb
headstart --version
test -e /usr/share/man/man1/headstart.1.gz
test -x /sbin/mount.headstart
test -e /usr/lib/systemd/system/headstart@.service
test -e /usr/share/headstart/report.html
test -e /usr/share/doc/headstart/docs/GUESTS.md
headstart iso --help | grep -q /usr/share/doc/headstart/docs/LIVE.md
test -e /etc/headstart/mount.conf.example
test "$(stat -c %s "$(command -v headstart)")" -lt 40000000
headstart doctor
mkdir -p /tmp/root/bin /tmp/root/proc /tmp/root/dev /tmp/root/tmp
cp "$(command -v busybox)" /tmp/root/bin/busybox
headstart build /tmp/root -o /tmp/root.hsi
headstart profile /tmp/root.hsi -o /tmp/start.hsp --record-after-ready 0 -- /bin/busybox echo recorded
headstart optimize /tmp/root.hsi --profile /tmp/start.hsp -o /tmp/fast.hsi
test "$(headstart run /tmp/fast.hsi -- /bin/busybox echo started)" = started
headstart verify /tmp/fast.hsi
# A service was enabled and has run; systemd is played by a script that notes what it is asked for.
wants=/etc/systemd/system/multi-user.target.wants
mkdir -p /run/systemd/system "$wants"
printf '#!/bin/sh\necho "$*" >>/asked\n' >/usr/bin/systemctl
chmod 755 /usr/bin/systemctl
ln -s /usr/lib/systemd/system/headstart-serve@.service "$wants/headstart-serve@class.service"
for folder in cache/headstart-serve cache/private/headstart-serve lib/headstart lib/private/headstart-serve \
    log/private/headstart; do
    mkdir -p "/var/$folder/class"
done
ln -s private/headstart /var/log/headstart
dpkg --force-unsafe-io -i /package.deb
if grep -q stop /asked; then exit 1; fi
dpkg --purge headstart
grep -qxF 'stop headstart@*.service headstart-serve@*.service' /asked
test -z "$(find / -xdev -name '*headstart*' -not -path '/tmp/*' -not -path '/proc/*')"
test -z "$(dpkg -L headstart 2>/dev/null)"
TEXT
}

# try SUITE: in namespaces of its own, over a layer that goes with them.
try() {
    log=$(mktemp)
    steps >"$log.sh"
    # shellcheck disable=SC2016 # expanded by the shell inside
    if unshare --mount --pid --fork --kill-child -- sh -eu -c '
        root=$1 package=$2 steps=$3
        layer=$root.layer
        mkdir -p "$layer"
        mount -t tmpfs none "$layer"
        mkdir "$layer/upper" "$layer/work" "$layer/root"
        mount -t overlay overlay -o "lowerdir=$root,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
        mount -t proc proc "$layer/root/proc"
        mount --rbind /dev "$layer/root/dev"
        mount --rbind /sys "$layer/root/sys"
        mount -t tmpfs none "$layer/root/tmp"
        cp "$package" "$layer/root/package.deb"
        cp "$steps" "$layer/root/steps.sh"
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive \
            chroot "$layer/root" sh /steps.sh
    ' sh "$roots/$1" "$package" "$log.sh" >"$log" 2>&1; then
        echo "test-deb: $1: installed, doctor, start, installed again, purged: ok"
        rm -f "$log" "$log.sh"
        return
    fi
    tail -n 60 "$log" >&2
    echo "test-deb: $1: FAILED, see above" >&2
    rm -f "$log" "$log.sh"
    return 1
}

if ! lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$package"; then
    echo "test-deb: lintian: FAILED, see above (or it is not installed: apt install lintian)" >&2
    exit 1
fi
for suite; do
    make_root "$suite"
    try "$suite"
done
