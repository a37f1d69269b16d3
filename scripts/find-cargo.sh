# Sourced by scripts/setup.sh and scripts/cargo: finds a cargo that can build this workspace.
# shellcheck shell=sh

# The oldest Rust that builds the workspace; Cargo.toml is the only place that says it.
minimum_rust() {
    sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$1/Cargo.toml" | head -n 1
}

# version_at_least FOUND WANTED: true if FOUND is as new as WANTED, field by field.
version_at_least() {
    [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# cargo_works CARGO WANTED: true if this cargo and the rustc beside it run and are new enough.
# A rustup proxy without a toolchain exists but does not run, so both are asked for their version.
cargo_works() {
    [ -x "$1" ] || return 1
    found=$(PATH="$(dirname "$1"):$PATH" "$1" --version 2>/dev/null | cut -d ' ' -f 2)
    version_at_least "$found" "$2" || return 1
    found=$(PATH="$(dirname "$1"):$PATH" rustc --version 2>/dev/null | cut -d ' ' -f 2)
    version_at_least "$found" "$2"
}

# find_cargo ROOT: prints the path of the first cargo that is new enough. In order: the one on
# PATH, rustup's, Debian's, and the versioned packages that Ubuntu keeps beside its default.
find_cargo() {
    wanted=$(minimum_rust "$1")
    for candidate in "$(command -v cargo)" "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" /usr/bin/cargo \
        $(ls -d /usr/lib/rust-*/bin/cargo 2>/dev/null | sort -rV); do
        if cargo_works "$candidate" "$wanted"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}
