# What a person types. Everything is built into ./target (or $CARGO_TARGET_DIR).
#
#   make demo      a real data set across emulated long-haul paths, direct and through depots
#   make test      every test
#   make test-trees random trees in copies that are ended at random moments, against rsync: 500 of each kind of copy, or CASES=n
#   make test-power power failures during copies, on three file systems and in every mode: 12 snapshots of each copy, or SNAPSHOTS=n
#   make test-page the page in a real browser, over a lab; SCREENSHOTS=docs/images takes those of the documents anew, E2E_ASSERT_SPEED=1 asserts its speed
#   make test-api  a running agent against its API's description, with schemathesis, in a sandbox; EXAMPLES=1000 SEED=7 asks more, and other things
#   make figures   the plan of every published measurement, with tables and plots in docs/results/; NAMES="lsr depots" measures some; other runs stay
#   make bench     the relay beside HAProxy; what a copy costs, beside GridFTP and rsync (written to docs/results/engine.md)
#   make docs      the documentation as a book, in target/book
#   make fuzz      every parser of what strangers and operators write, ten minutes each
#
# Beyond the Rust toolchain these need iproute2; `make bench` needs haproxy, `make figures` iperf3 and the programs that are compared.
# `make deps` and `make bench-deps` install what is missing from the distribution's packages, and say so in one line where they could not.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# How `build` compiles the programs: as releases are, or (`PROFILE=dev`) as tests are, which compiles hardly anything again behind `make test`.
PROFILE ?= release
PROGRAMS := $(TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
FIGURES := $(PROGRAMS)/longhaul-figures
# Tests that take long mostly wait, for paths and for time limits: twice as many go at a time as there are processors.
export RUST_TEST_THREADS ?= $(shell expr 2 \* $$(nproc))

.PHONY: demo demo-small test test-trees test-power test-api test-page web figures figures-check docs bench deps bench-deps build lint deny machete advisories fuzz seeds clean

demo: deps build
	$(FIGURES) demo --out $(TARGET_DIR)/demo

demo-small: deps build
	$(FIGURES) demo --small --out $(TARGET_DIR)/demo

NAMES ?= all

figures: bench-deps build
	$(FIGURES) figures $(NAMES)

# Whether the published pages say what the published runs say, and call no single run a median.
figures-check:
	$(CARGO) run --quiet --locked -p longhaul-figures -- figures --check

test: deps web
	scripts/web test
	$(CARGO) test --workspace --locked

# As `make test` does with fewer cases.
CASES ?= 500

test-trees: deps
	LONGHAUL_TREE_CASES=$(CASES) $(CARGO) test --workspace --locked --test command --test ssh equal_rsync

SNAPSHOTS ?= 12

test-power: deps
	POWER_SNAPSHOTS=$(SNAPSHOTS) $(CARGO) test --workspace --locked --test command no_file_is_wrong -- --nocapture

# A running agent, and all that its API's description allows and forbids.
test-api: deps web
	@# With the features that `make test` builds it with, so that nothing is compiled twice.
	$(CARGO) test --no-run --locked --workspace --test command
	LONGHAUL=$(TARGET_DIR)/debug/longhaul CARGO_TARGET_DIR=$(TARGET_DIR) scripts/api-fuzz

# The page in Debian's Chromium, over a lab: all that a person does with it, while the network goes away and the agent is killed.
test-page: build
	@scripts/install-deps chromium:chromium unshare:util-linux mount:mount
	@# As `make test` builds it: examples have the features of tests, with which half of the release would be compiled once more.
	$(CARGO) build --workspace --locked --example history
	PROGRAMS=$(PROGRAMS) HISTORY=$(TARGET_DIR)/debug/examples/history e2e/run.sh $(SCREENSHOTS)

bench: bench-deps build
	benches/relay/run.sh
	$(CARGO) bench --locked -p longhaul-cli --bench engine -- --page docs/results/engine.md

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@# What fuzzes is a workspace of its own, with versions of its own, which nothing else here reads.
	$(CARGO) metadata --locked --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null

deny:
	cargo deny --locked check bans licenses sources

# Dependencies that nothing uses.
machete:
	cargo machete

# Known vulnerabilities, where the data base of advisories can be had.
advisories:
	scripts/advisories

# The documentation as a book. `mdbook` is installed into target/tools once. The references of commands, errors and metrics
# are generated into target/reference, where the pages include them.
docs:
	@test -x $(TARGET_DIR)/tools/bin/mdbook || $(CARGO) install --locked --quiet mdbook --root $(TARGET_DIR)/tools --debug
	@mkdir -p target/reference
	$(CARGO) run --locked --quiet -p longhaul-reference -- . target/reference
	$(CARGO) run --locked --quiet -p longhaul-cli --bin longhaul -- reference >target/reference/commands.md
	$(TARGET_DIR)/tools/bin/mdbook build --dest-dir $(TARGET_DIR)/book

# Every parser that the network or an operator's file reaches, for ten minutes each; FUZZ_SECONDS and FUZZ_JOBS (how many at a time)
# say otherwise, FUZZ_TARGETS names some. `make test` replays the corpora without fuzzing.
fuzz:
	scripts/fuzz $(FUZZ_TARGETS)

# The corpora's named files, written again after a format has changed.
seeds:
	$(CARGO) run --locked --manifest-path fuzz/Cargo.toml --target-dir $(TARGET_DIR)/fuzz --example seeds

# The agent's page, which the program takes in.
web: deps
	scripts/web build

build: web
	@# Examples have the features of tests; without them the others would be compiled again.
	$(CARGO) build --profile $(PROFILE) --workspace --locked $(if $(filter dev,$(PROFILE)),--lib --bins --examples)

deps:
	@scripts/install-deps ip:iproute2 sysctl:procps cc:gcc c++:g++ pkg-config:pkgconf readelf:binutils curl:curl busybox:busybox groff:groff-base \
		iperf3:iperf3 nc.openbsd:netcat-openbsd nft:nftables git:git \
		sshd:openssh-server ssh:openssh-client rsync:rsync pg_ctlcluster:postgresql setpriv:util-linux node:nodejs npm:npm python3:python3 import=jsonschema:python3-jsonschema \
		globus-url-copy:globus-gass-copy-progs globus-gridftp-server:globus-gridftp-server-progs \
		mount.exfat-fuse:exfat-fuse mkfs.exfat:exfatprogs ntfs-3g:ntfs-3g bindfs:bindfs sshfs:sshfs \
		mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs faketime:faketime

bench-deps: deps
	@scripts/install-deps ip:iproute2 unshare:util-linux haproxy:haproxy iperf3:iperf3 \
		rsync:rsync rclone:rclone \
		xrootd:xrootd-server xrdcp:xrootd-client lftp:lftp danted:dante-server nc.openbsd:netcat-openbsd perf:linux-perf \
		wget:wget git:git psql:postgresql-client python3:python3 go:golang-go javac:default-jdk-headless nft:nftables \
		import=requests:python3-requests

clean:
	$(CARGO) clean
