#!/bin/bash
# The page in Debian's Chromium, against a server 100 ms away: e2e/run.sh [FOLDER FOR SCREENSHOTS]
# It lays out a lab of its own; needs root or user namespaces, chromium and Node.js. The programs are those of target/release, or of $PROGRAMS.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
programs=${PROGRAMS:-$here/../target/release}
if [ "${1:-}" != --inside ]; then
    [ -d "$here/node_modules" ] || npm ci --silent --no-audit --no-fund --prefix "$here"
    export SHOTS="${1:+$(cd "$1" && pwd)}" WANBED="$programs/wanbed"
    exec "$programs/wanbed" run "$here/../scenarios/copy.toml" -- "$here/run.sh" --inside
fi
scratch=$(mktemp -d /dev/shm/longhaul-e2e.XXXX)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT
export LONGHAUL="$programs/longhaul" CHROMIUM="${CHROMIUM:-/usr/bin/chromium}" SERVER="$WANBED_ADDRESS_SERVER"
export ROOT="$scratch/root" HOME="$scratch/home" LONGHAUL_HOME="$scratch/client"
mkdir -p "$ROOT/tree" "$ROOT/many" "$HOME"
head -c 1073741824 /dev/urandom >"$ROOT/large"
for file in $(seq 2000); do head -c 4096 /dev/urandom >"$ROOT/tree/$file"; done
(cd "$ROOT/many" && seq 100000 | xargs touch)
key=$("$LONGHAUL" keys new >/dev/null 2>&1; "$LONGHAUL" keys show | grep -o 'lhk1:[A-Za-z0-9_-]*')
LONGHAUL_HOME="$scratch/server" "$WANBED" exec server -- "$LONGHAUL" serve --root "$ROOT" --read "$key" --listen 0.0.0.0:7511 --json >"$scratch/serve" 2>"$scratch/log" &
until grep -q . "$scratch/serve"; do sleep 0.05; done
"$WANBED" exec client -- node "$here/page.mjs"
