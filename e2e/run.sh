#!/bin/bash
# Tests the page in Debian's Chromium, against a server and an ssh host 100 ms away:
#
#   e2e/run.sh [FOLDER FOR SCREENSHOTS]
#
# Creates its own lab. Needs root or user namespaces, chromium, sshd, ssh and Node.js. PROGRAMS is
# the folder of the programs (default target/release), and HISTORY the program that fills the
# history (default target/debug/examples/history). Prints durations; with E2E_ASSERT_SPEED=1 the run
# fails if the page is too slow. After a failure, target/e2e.png shows the page.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
programs=${PROGRAMS:-$here/../target/release}
if [ "${1:-}" != --inside ]; then
    if [ ! -e "$here/node_modules/.package-lock.json" ] || [ "$here/package-lock.json" -nt "$here/node_modules/.package-lock.json" ]; then
        npm ci --silent --no-audit --no-fund --prefix "$here"
    fi
    # Builds the page again with a source map, to find which parts of the source have run.
    "$here/../scripts/web" map "$here/../target/web-map"
    export SHOTS="${1:+$(cd "$1" && pwd)}" WANBED="$programs/wanbed"
    exec "$programs/wanbed" run "$here/../scenarios/copy.toml" -- "$here/run.sh" --inside
fi
# Uses memory if there is room. The path is short because it contains the agent's socket.
kibibytes=5000000
free=$(df --output=avail /dev/shm 2>/dev/null | tail -1)
memory=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
if [ "${free:-0}" -gt $kibibytes ] && [ "${memory:-0}" -gt $((2 * kibibytes)) ]; then scratch=/dev/shm; else scratch=/tmp; fi
scratch=$(mktemp -d "$scratch/longhaul-e2e.XXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT
export LONGHAUL="$programs/longhaul" HISTORY="${HISTORY:-$here/../target/debug/examples/history}" CHROMIUM="${CHROMIUM:-/usr/bin/chromium}" SERVER="$WANBED_ADDRESS_SERVER"
export ROOT="$scratch/root" HOST="$scratch/host" HOME="$scratch/home" LONGHAUL_HOME="$scratch/client" TARGET="$here/../target"
mkdir -p "$ROOT/tree" "$ROOT/many" "$ROOT/open" "$HOST" "$HOME"
head -c 1073741824 /dev/urandom >"$ROOT/large"
for file in $(seq 2000); do head -c 4096 /dev/urandom >"$ROOT/tree/$file"; done
(cd "$ROOT/many" && seq 100000 | xargs touch)

# Waits until FILE contains WORDS. Fails if PROCESS ends before.
until_said() { # FILE WORDS PROCESS
    until [ -e "$1" ] && grep -q "$2" "$1"; do
        kill -0 "$3" || { cat "$1" >&2; exit 1; }
        sleep 0.05
    done
}
# Grants reading of the whole root, and writing in `open`.
"$LONGHAUL" keys new >/dev/null 2>&1
key=$("$LONGHAUL" keys show | grep -o 'lhk1:[A-Za-z0-9_-]*')
LONGHAUL_HOME="$scratch/server" "$WANBED" exec server -- \
    "$LONGHAUL" serve --root "$ROOT" --read "$key" --write "$key=open" --listen 0.0.0.0:7511 --json >"$scratch/serve" 2>"$scratch/log" &
until_said "$scratch/serve" . $!
"$here/host.sh" "$scratch/ssh" "$HOST" "$(dirname "$LONGHAUL")" "$SERVER" 2>"$scratch/sshd" &
until_said "$scratch/sshd" "Server listening on" $!
# Wraps ssh to pass its configuration, because ssh reads ~/.ssh/config in the home of the system's
# user database instead of $HOME.
mkdir "$scratch/bin"
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$scratch/ssh/config" >"$scratch/bin/ssh"
chmod +x "$scratch/bin/ssh"
export PATH="$scratch/bin:$PATH"
"$WANBED" exec client -- node "$here/page.mjs"
