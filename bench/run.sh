#!/bin/sh
# Measures headstart against other tools: every figure with the script that reproduces it.
#
#   bench/run.sh [SCRIPT]...     the scripts to run, without .py; all of them when none is given
#
# Needs root, a release build (`make release`) and the packages of `scripts/setup.sh --for bench`. Writes
# bench/results/. HEADSTART_CACHE is where the demo keeps its files (/var/cache/headstart).
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ "$(id -u)" -ne 0 ]; then
    echo "bench: needs root, to mount: run it with sudo" >&2
    exit 1
fi
"$here/../scripts/setup.sh" --for bench
if [ $# -eq 0 ]; then
    set -- start wrong_profile size build_speed random_reads sequential pipeline memory scale boot boot_variation \
        engine_decision boot_qemu keep self_filling predict limit report http http_boot packs http_clients http_server
fi
began=$(date +%s)
for script in "$@"; do
    echo "== $script, after $(($(date +%s) - began)) s" >&2
    python3 "$here/$script.py"
done
python3 "$here/table.py" "$@"
echo "$(($(date +%s) - began)) s in all" >&2
