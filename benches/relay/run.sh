#!/bin/sh
# Measures the cost of relaying: CPU time per gigabyte, compared with HAProxy in TCP mode with
# splicing, and memory for 1,000 idle sessions. Needs the Rust toolchain and haproxy (apt-get
# install haproxy). Passes its arguments to the benchmark:
#   benches/relay/run.sh [--rounds 7] [--gigabytes 2] [--flows 1,4] [--threads 2] [--also-auto]
# Prints lines of text, then one line of JSON, to standard output.
set -eu
cd "$(dirname "$0")/../.."
exec cargo bench --quiet -p longhaul-depot --bench relay -- "$@"
