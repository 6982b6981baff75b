#!/bin/sh
# What relaying costs: CPU a gigabyte beside HAProxy in TCP mode with splicing, and memory for 1,000 idle sessions.
# Needs the Rust toolchain and haproxy (apt-get install haproxy). Arguments are those of the benchmark:
#   benches/relay/run.sh [--rounds 7] [--gigabytes 2] [--flows 1,4] [--threads 2] [--also-auto]
# Lines of text, then one line of JSON, on standard output.
set -eu
cd "$(dirname "$0")/../.."
exec cargo bench --quiet -p longhaul-depot --bench relay -- "$@"
