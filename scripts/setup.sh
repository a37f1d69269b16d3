#!/bin/sh
# Installs what building, demonstrating or testing headstart needs: Debian packages and Rust, and no more.
#
#   scripts/setup.sh [--for build|demo|test|bench] [--yes] [--check]
#
#   --for     what it is for; each has what the one before it has:
#               build   compiling the program (`make release`, `make install`, `make deb`), and its report page,
#                       without which it is built where nodejs and npm are not wanted or cannot be had
#               demo    `make demo`
#               test    `make test`; this when --for is not given
#               bench   `make bench`
#   --yes     install without asking
#   --check   only say what is missing; exit 1 if something is
#
# It asks once before it installs, on a person's terminal; it asks nothing under CI or without a
# terminal. When everything is there it says nothing and takes a fraction of a second. Services that
# Debian's packages bring (nginx, docker-registry) are neither started nor enabled.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/find-cargo.sh"
minimum=$(minimum_rust "$root")
yes=false
check=false
purpose=test
# Debian starts what it installs, unless this program says no.
policy=/usr/sbin/policy-rc.d

# One line a package: the first purpose that needs it, its name, and why.
all_packages() {
    cat <<'LIST'
build make                runs the targets of the Makefile
build gcc                 compiles the zstd and BLAKE3 sources inside their crates, and links
build libc6-dev           the C headers and start files that gcc needs
build ca-certificates     lets cargo and apt check who they download from
page  nodejs              builds the report page; 18 or newer
page  npm                 fetches what that page is made of, and builds it
demo  util-linux          mount, umount, unshare and losetup: the demo makes its roots in namespaces
demo  squashfs-tools      mksquashfs makes the squashfs that the demo compares with
demo  mmdebstrap          makes the Debian roots that the demo starts a program from and boots
demo  user-mode-linux     linux.uml is the guest that 'headstart boot', its tests and the demo boot images in
demo  uidmap              lets mmdebstrap make that root without being root
demo  gpg                 lets mmdebstrap find the key that signs the Debian archive
test  chromium            the browser in which the tests open the report page
test  e2fsprogs           e2fsck checks file systems that the tests make; mkfs.ext4 makes others
test  xfsprogs            mkfs.xfs: the tests let a file fill itself on XFS
test  btrfs-progs         mkfs.btrfs: and on btrfs
test  fuse3               fusermount3 mounts an image without root; its rules open /dev/fuse to users
test  fuse2fs             mounts the ext4 inside an image without root and without a loop device
test  busybox-static      the tiny root in which the tests of the command line run commands
test  systemd             systemd-analyze checks the unit of systemd that make install installs
test  cloop-utils         the tests make cloop files with it to import, and extract exported ones
test  qemu-utils          qemu-img reads and makes the cloop and qcow2 files that the tests export and build from
test  xz-utils            packs archives that the tests build images of
test  zstd                packs others
test  libnbd-bin          nbdinfo, nbdcopy and nbdfuse read what the tests serve over NBD
test  qemu-system-x86     the guest of 'headstart boot --vmm qemu' and its tests
test  xorriso             writes the bootable media that the tests start machines from
test  fdisk               sfdisk adds a partition to a stick that the tests start
test  grub-common         grub-mkimage makes the boot loaders of these media
test  grub-pc-bin         GRUB for BIOS
test  grub-efi-amd64-bin  GRUB for UEFI
test  dosfstools          mkfs.vfat makes the file system that UEFI starts from
test  mtools              puts GRUB into it
test  ovmf                UEFI for machines of QEMU
test  iproute2            ip makes networks in which machines start from a server
test  dnsmasq-base        tells the firmware of such a machine its address, and where its boot loader is
test  binutils            strip takes debug information out of what goes into an initramfs
test  gnutls-bin          certtool makes the certificates with which the tests speak NBD over TLS
test  fio                 reads the same at random, 16 requests at a time
test  nginx-light         a real web server, from which the tests read images over HTTP
test  docker-registry     a real registry, to which the tests send images and from which they read them
test  containerd          a real containerd, which starts containers from mounted images
test  containernetworking-plugins  networks of pods, in which the tests of containerd 2 start them
test  iptables            the ports of such a pod, and its way out
test  skopeo              sends containers' images to that registry, and reads what was sent
test  umoci               makes containers' images, layer by layer
test  runc                starts containers from the bundles of the tests, and for containerd
test  podman              starts a container from a mounted root
test  openssl             checks what the tests of stores of objects sign
test  gocryptfs           the encrypted folder from which the tests resume a saved guest
test  minisign            signs what headstart checks in the tests, and checks what it signs
test  python3             its web server, which knows no ranges, is one that the tests read from; bench/ is in it
test  python3-venv        the folder in which pip puts Perfetto's own classes, which read an exported trace
bench curl                copies a squashfs over HTTP, for comparison
LIST
    # Debian has its own keys; elsewhere mmdebstrap needs them to check what it downloads.
    if [ "$distribution" != debian ]; then
        echo "demo  debian-archive-keyring  the keys that the demo's Debian roots are checked against"
    fi
}

# What the purpose needs, and what it can do without.
choose_groups() {
    optional=none
    case $purpose in
    build) needed='build' optional='page' ;;
    demo) needed='build|demo' optional='page' ;;
    test) needed='build|page|demo|test' ;;
    bench) needed='build|page|demo|test|bench' ;;
    *) echo "setup: --for is one of build, demo, test and bench, not '$purpose'" >&2; exit 2 ;;
    esac
}

# packages GROUPS: those in them, name and reason.
packages() {
    all_packages | sed -nE "s/^($1) +//p"
}

# Programs of the tests that Debian does not package: name, version and why. Newer versions serve as well.
programs() {
    cat <<'LIST'
cargo-nextest 0.9.118 runs the tests, several at once; cargo compiles it, in three minutes
mdbook        0.5.4   builds the book of docs/; cargo compiles it, in two minutes
LIST
}

main() {
    while [ $# -gt 0 ]; do
        case $1 in
        --for) shift; purpose=${1-} ;;
        --yes) yes=true ;;
        --check) check=true ;;
        -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
        *) echo "setup: unknown argument $1 (see --help)" >&2; exit 2 ;;
        esac
        shift
    done
    choose_groups
    distribution=$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown}" || echo unknown)

    if ! command -v dpkg-query >/dev/null 2>&1; then
        foreign_system
        return
    fi
    missing=$(missing_packages "$needed")
    page=$(missing_packages "$optional")
    need_rust=false
    find_cargo "$root" >/dev/null || need_rust=true
    need_components=false need_programs=
    case $purpose in
    test | bench)
        has_components || need_components=true
        need_programs=$(missing_programs)
        ;;
    esac
    needs_more=true
    if [ -z "$missing$need_programs" ] && ! $need_rust && ! $need_components; then needs_more=false; fi
    if ! $needs_more && [ -z "$page" ]; then return; fi
    say_plan
    if $check; then exit 1; fi
    if ! agreed; then
        if $needs_more; then echo "setup: nothing was installed" >&2; exit 1; fi
        without_page "as you wish"
        return
    fi
    if $needs_more; then install_all; fi
    if [ -n "$page" ]; then (pauses=0; install_page) || without_page "and cannot be installed"; fi
}

without_page() {
    echo "setup: nodejs and npm are not there, $1: the program is built without its report page" >&2
}

install_page() {
    # shellcheck disable=SC2086 # one word a package is meant
    become_root && hold_services && apt_get update -q && install $page
}

install_all() {
    if [ -n "$missing" ] || $need_rust || $need_components; then
        become_root
        hold_services
        apt_get update -q
        # shellcheck disable=SC2086 # one word a package is meant
        if [ -n "$missing" ]; then install $missing; fi
        if $need_rust; then install_rust; fi
        if $need_components && ! has_components; then install_components; fi
    fi
    find_cargo "$root" >/dev/null || fail_without_rust
    for name in $need_programs; do install_program "$name"; done
}

# On a system without dpkg nothing is installed: Rust and the tools must be there already.
foreign_system() {
    echo "setup: this is not Debian or Ubuntu, so nothing is installed. These are needed:" >&2
    packages "$needed|$optional" | sed 's/^/  /' >&2
    find_cargo "$root" >/dev/null || fail_without_rust
}

# installed_of PACKAGE...: those that are installed, one a line. dpkg also knows of others, so their
# status decides.
installed_of() {
    dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | sed -n 's/ installed$//p'
}

is_installed() {
    [ -n "$(installed_of "$1")" ]
}

missing_packages() {
    names=$(packages "$1" | cut -d ' ' -f 1)
    # shellcheck disable=SC2086 # one word a package is meant
    installed=$(installed_of $names)
    for name in $names; do
        printf '%s\n' "$installed" | grep -qxF "$name" || is_there_otherwise "$name" || printf '%s ' "$name"
    done
}

# A node from elsewhere brings an npm of its own, and conflicts with Debian's packages.
is_there_otherwise() {
    case $1 in
    nodejs) [ "$(node --version 2>/dev/null | sed -n 's/^v\([0-9]*\)[.].*/\1/p')" -ge 18 ] 2>/dev/null ;;
    npm | chromium) command -v "$1" >/dev/null 2>&1 ;;
    *) false ;;
    esac
}

# rustfmt and clippy are parts of Rust that Debian and rustup both deliver apart.
has_components() {
    cargo=$(find_cargo "$root") || return 1
    here=$(dirname "$cargo")
    PATH="$here:$PATH" "$cargo" fmt --version >/dev/null 2>&1 &&
        PATH="$here:$PATH" "$cargo" clippy --version >/dev/null 2>&1
}

# Where cargo puts what it installs, and looks for its own subcommands.
programs_folder() {
    echo "${CARGO_HOME:-$HOME/.cargo}/bin"
}

missing_programs() {
    programs | while read -r name version _; do
        found=$(version_of "$name")
        version_at_least "$found" "$version" || printf '%s ' "$name"
    done
}

# The version of such a program that is installed, or nothing.
version_of() {
    program=$(PATH="$PATH:$(programs_folder)" command -v "$1") || return 0
    # A subcommand of cargo's wants its name once more.
    case $1 in cargo-*) word=${1#cargo-} ;; *) word= ;; esac
    "$program" $word --version 2>/dev/null | sed -n '1s/^[a-z-]* v\{0,1\}\([0-9.]*\).*/\1/p'
}

# Compiled quickly rather than well: they are quick beside what they start.
install_program() {
    version=$(programs | sed -n "s/^$1 *\([0-9.]*\) .*/\1/p")
    echo "Compiling $1 $version"
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    if ! "$root/scripts/cargo" install "$1" --quiet --locked --no-default-features --version "$version"; then
        echo "setup: $1 could not be compiled, see above; 'make test' needs it" >&2
        exit 1
    fi
}

say_plan() {
    echo "For 'make $(target_of "$purpose")' headstart needs:"
    packages "$needed|$optional" | while read -r name why; do
        case " $missing $page " in *" $name "*) printf '  %-24s %s\n' "$name" "$why" ;; esac
    done
    if $need_rust; then
        printf '  %-24s %s\n' "cargo and rustc" "Rust $minimum or newer builds everything; from Debian's or"
        printf '  %-24s %s\n' "" "Ubuntu's packages, from rustup only if they are all too old"
    fi
    if $need_components; then
        printf '  %-24s %s\n' "rustfmt and clippy" "check the style of the code in 'make test'"
    fi
    programs | while read -r name _ why; do
        case " $need_programs " in *" $name "*) printf '  %-24s %s\n' "$name" "$why" ;; esac
    done
}

# The target of the Makefile that a purpose is named after.
target_of() {
    case $1 in
    build) echo release ;;
    *) echo "$1" ;;
    esac
}

# As long as this script runs, no package starts a service: `policy-rc.d` says 101, "not allowed". It is
# removed however the script ends, and one that was there stays as it is.
hold_services() {
    if [ -e "$policy" ]; then return; fi
    trap 'release_services' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
    $sudo chmod 755 "$policy"
}

# Nor do the services that have come start when the machine does.
release_services() {
    for service in nginx docker-registry podman; do
        case " $missing " in
        *" $service "* | *" $service-light "*)
            # Podman has a socket, a timer and two services.
            [ "$service" != podman ] || service='podman.socket podman.service podman-auto-update.timer podman-restart'
            # shellcheck disable=SC2086
            $sudo systemctl disable --quiet $service >/dev/null 2>&1 || true ;;
        esac
    done
    $sudo rm -f "$policy"
}

is_ci() {
    [ -n "${CI:-}" ] && [ "$CI" != false ]
}

# Asks on a person's terminal.
agreed() {
    if $yes || is_ci || ! [ -t 0 ]; then return; fi
    printf 'Install these now? [Y/n] '
    read -r answer || answer=n
    case $answer in
    '' | y* | Y*) ;;
    *) return 1 ;;
    esac
}

become_root() {
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "setup: installing needs root, and there is no sudo: run scripts/setup.sh as root" >&2
            exit 1
        fi
        sudo=sudo
    fi
}

# Whether apt failed for what passes: another apt at work, as new machines have it, or a mirror that is away for a moment.
may_pass() {
    grep -qE 'Could not (get lock|connect|resolve)|Unable to (lock|connect)|Temporary failure|Failed to fetch|timed out' "$1"
}

apt_get() {
    # What apt prints while it works is long and matters only when it fails.
    log=$(mktemp)
    for pause in ${pauses:-5 20 60 0}; do
        if $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; then
            rm -f "$log"
            return
        fi
        if [ "$pause" -eq 0 ] || ! may_pass "$log"; then break; fi
        sleep "$pause"
    done
    tail -n 30 "$log" >&2
    rm -f "$log"
    echo "setup: 'apt-get $*' failed, see above" >&2
    return 1
}

install() {
    echo "Installing: $*"
    apt_get install -y -q --no-install-recommends "$@"
}

# candidate PACKAGE: the upstream part of the version that apt would install, or nothing.
candidate() {
    apt-cache policy "$1" 2>/dev/null |
        sed -n 's/^ *Candidate: *\([0-9]*:\)\{0,1\}\([0-9][0-9.]*\).*/\2/p'
}

# Debian's cargo package had its own numbering (0.66 for Rust 1.63), so rustc's version decides.
install_rust() {
    for suffix in '' -web $(versioned_suffixes); do
        version=$(candidate "rustc$suffix")
        if version_at_least "$version" "$minimum" && [ -n "$(candidate "cargo$suffix")" ]; then
            install "rustc$suffix" "cargo$suffix"
            return
        fi
    done
    if [ -n "$(candidate rustup)" ]; then
        echo "No Rust package here is as new as $minimum: rustup fetches it from the Rust project."
        install rustup
        rustup toolchain install stable --profile minimal --component rustfmt --component clippy
        return
    fi
    fail_without_rust
}

# Ubuntu keeps newer compilers beside its default as rustc-1.NN, cargo-1.NN; the newest comes first.
versioned_suffixes() {
    apt-cache search --names-only '^rustc-1\.[0-9]+$' | sed 's/^rustc\(-[0-9.]*\).*/\1/' | sort -rV
}

install_components() {
    cargo=$(find_cargo "$root") || fail_without_rust
    case $cargo in
    /usr/lib/rust-*)
        suffix=$(printf '%s\n' "$cargo" | sed 's|/usr/lib/rust\(-[0-9.]*\)/.*|\1|')
        names="rustfmt$suffix rust$suffix-clippy"
        ;;
    /usr/bin/cargo)
        names='rustfmt rust-clippy'
        if is_installed cargo-web; then names='rustfmt-web rust-web-clippy'; fi
        # The package rustup puts its proxies where cargo would be.
        if is_installed rustup; then names=; fi
        ;;
    *) names= ;;
    esac
    if [ -z "$names" ] && command -v rustup >/dev/null 2>&1; then
        rustup component add rustfmt clippy || true
    fi
    # shellcheck disable=SC2086 # one word a package is meant
    if [ -n "$names" ]; then install $names || true; fi
    if has_components; then return; fi
    echo "setup: rustfmt or clippy are missing for $cargo; 'make test' will say what it skips" >&2
    if is_ci; then exit 1; fi
}

fail_without_rust() {
    cat >&2 <<TEXT
setup: no Rust of version $minimum or newer was found, and no package here offers one.
  Install it with rustup (package 'rustup', then 'rustup toolchain install stable'),
  or enable backports of your distribution, and run scripts/setup.sh again.
TEXT
    exit 1
}

main "$@"
