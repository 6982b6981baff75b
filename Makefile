# Commands for building, testing and measuring. Everything is built into ./target (or
# $CARGO_TARGET_DIR).
#
#   make demo        Copies a real data set over emulated long-haul paths, with and without depots.
#   make test        Runs every test.
#   make test-trees  Interrupts copies of random trees at random moments and compares the results
#                    with rsync: 500 trees for each kind of copy, or CASES=n.
#   make test-portable  Runs the tests of copies over what replaces calls of Linux elsewhere.
#   make test-sync   Mirrors random trees, with all that -a keeps and without, and compares the
#                    results with rsync: 500 pairs of trees for each direction, or CASES=n.
#   make test-power  Simulates power failures during copies, on three file systems and in every
#                    mode: 12 snapshots of each copy, or SNAPSHOTS=n.
#   make test-page   Tests the page in a browser, over a lab. SCREENSHOTS=docs/images takes the
#                    screenshots of the documentation; E2E_ASSERT_SPEED=1 asserts the page's speed.
#   make test-api    Tests a running agent against its API description with schemathesis, in a
#                    sandbox. EXAMPLES=1000 sends more requests, SEED=7 others.
#   make test-python Tests the Python module with fsspec's own tests, against a server on loopback.
#   make figures     Measures all published figures and writes docs/results/. NAMES="lsr depots"
#                    selects experiments; the runs of the others stay.
#   make bench       Compares the relay with HAProxy, and the cost of a copy with GridFTP and rsync
#                    (written to docs/results/engine.md).
#   make docs        Builds the documentation as a book, in target/book.
#   make install     Installs the program, manual pages and completions below PREFIX (/usr/local),
#                    and `make install-services` systemd units and /etc/longhaul.
#   make static      Builds the program as one file that runs on any Linux, in target/static.
#   make check-macos Checks that the macOS client compiles, without a Mac (docs/portability.md).
#   make packages    Builds packages, in target/packages: PACKAGES="static deb rpm wheel container".
#   make test-packages  Installs each of them in a bare system and uses it.
#   make fuzz        Fuzzes every parser of network input and operators' files, ten minutes each.
#
# These need the Rust toolchain and iproute2; `make bench` also needs haproxy, and `make figures`
# needs iperf3 and the programs that are compared. `make deps` and `make bench-deps` install missing
# packages of the distribution, or print one line if they cannot.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# Cargo profile of the programs. `PROFILE=dev` is the profile of the tests, so little is compiled again
# after `make test`.
PROFILE ?= release
PROGRAMS := $(TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
FIGURES := $(PROGRAMS)/longhaul-figures
# Long tests mostly wait for paths and time limits, so two run for each processor.
export RUST_TEST_THREADS ?= $(shell expr 2 \* $$(nproc))

.PHONY: demo demo-small demo-build test test-portable test-trees test-sync test-power test-domains test-api test-python test-page web figures figures-check docs install install-services static check-macos packages test-packages bench deps bench-deps build everything lint deny machete advisories fuzz seeds clean

# Examples have the features of tests. With `PROFILE=dev` everything is built with these features, so
# that nothing is compiled twice.
compile = $(CARGO) build --profile $(PROFILE) --locked \
	$(if $(filter dev,$(PROFILE)),--workspace --lib --bins --examples,$(1))

demo: demo-build
	$(FIGURES) demo --out $(TARGET_DIR)/demo

demo-small: demo-build
	$(FIGURES) demo --small --out $(TARGET_DIR)/demo

demo-build: deps web
	$(call compile,-p longhaul-cli -p longhaul-figures -p wanbed)

NAMES ?= all

figures: bench-deps everything
	PATH="$(TARGET_DIR)/tools/s3/bin:$$PATH" $(FIGURES) figures $(NAMES)

# Checks that the published pages match the published runs and call no single run a median.
figures-check:
	$(CARGO) run --quiet --locked -p longhaul-figures -- figures --check

test: deps web
	scripts/web test
	$(CARGO) test --workspace --locked --no-fail-fast

# Tests copies over what replaces calls of Linux elsewhere.
test-portable: deps web
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/portable-rustc \
		$(CARGO) test --workspace --locked --test command --test engine

# `make test` runs the same tests with fewer cases.
CASES ?= 500

test-trees: deps
	LONGHAUL_TREE_CASES=$(CASES) $(CARGO) test --workspace --locked --test command --test ssh equal_rsync

test-sync: deps
	LONGHAUL_SYNC_CASES=$(CASES) $(CARGO) test --workspace --locked --test command mirrors_equal_rsync

SNAPSHOTS ?= 12

test-power: deps
	POWER_SNAPSHOTS=$(SNAPSHOTS) $(CARGO) test --workspace --locked --test command no_file_is_wrong -- --nocapture

# Kills controllers of several domains at every step; `make test` kills them at some.
test-domains:
	LONGHAUL_EVERY_STEP=1 $(CARGO) test --workspace --locked --test domains -- --nocapture

# Tests a running agent against everything that its API description allows and forbids.
test-api: deps web
	@# Uses the features of `make test`, so nothing is compiled twice.
	$(CARGO) test --no-run --locked --workspace --test command
	LONGHAUL=$(TARGET_DIR)/debug/longhaul CARGO_TARGET_DIR=$(TARGET_DIR) scripts/api-fuzz

# Tests the Python module as it is installed, with fsspec's abstract tests of file systems.
test-python: deps web
	@# Uses the features of `make test`, so nothing is compiled twice.
	$(CARGO) test --no-run --locked --workspace --test command
	LONGHAUL=$(TARGET_DIR)/debug/longhaul CARGO_TARGET_DIR=$(TARGET_DIR) scripts/python-tests

# Tests every use of the page in Debian's Chromium, over a lab whose network fails and whose agent
# is killed.
test-page: build
	@scripts/install-deps chromium:chromium unshare:util-linux mount:mount
	@# Builds the example as `make test` does. Examples have the features of tests, so with the release
	@# profile half of the workspace would be compiled again.
	$(CARGO) build --workspace --locked --example history
	PROGRAMS=$(PROGRAMS) HISTORY=$(TARGET_DIR)/debug/examples/history e2e/run.sh $(SCREENSHOTS)

bench: bench-deps build
	benches/relay/run.sh
	$(CARGO) bench --locked -p longhaul-cli --bench engine -- --page docs/results/engine.md

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@# The fuzz targets are a separate workspace with its own lock file, which only this checks.
	$(CARGO) metadata --locked --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null

deny:
	cargo deny --locked check bans licenses sources

# Finds dependencies that nothing uses.
machete:
	cargo machete

# Checks for known vulnerabilities if the advisory database is available.
advisories:
	scripts/advisories

# Builds the documentation as a book. Installs `mdbook` into target/tools once. The references of
# commands, errors and metrics are generated into target/reference, where the pages include them.
docs: web
	@test -x $(TARGET_DIR)/tools/bin/mdbook || $(CARGO) install --locked --quiet mdbook --root $(TARGET_DIR)/tools --debug
	@# As `make build PROFILE=dev` does, so that nothing is compiled again after `make test`.
	$(CARGO) build --workspace --locked --lib --bins --examples
	@mkdir -p target/reference
	$(TARGET_DIR)/debug/longhaul-reference . target/reference
	$(TARGET_DIR)/debug/longhaul reference >target/reference/commands.md
	$(TARGET_DIR)/tools/bin/mdbook build --dest-dir $(TARGET_DIR)/book

# Fuzzes every parser of network input and operators' files for FUZZ_SECONDS (600) each, FUZZ_JOBS
# (1) at a time. FUZZ_TARGETS selects targets. `make test` replays the corpora without fuzzing.
fuzz:
	scripts/fuzz $(FUZZ_TARGETS)

# Rewrites the named files of the corpora after a format has changed.
seeds:
	$(CARGO) run --locked --manifest-path fuzz/Cargo.toml --target-dir $(TARGET_DIR)/fuzz --example seeds

# Builds the agent's page, which is embedded in the program.
web: deps
	scripts/web build

# Builds the programs and libraries that users install.
build: web
	$(call compile,$(addprefix -p ,longhaul-cli longhaul-preload-object longhaul-capi drs-run libdrs wanbed))

# Also builds what measures and documents the project.
everything: web
	$(call compile,--workspace)

PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
# A statically linked program, which `longhaul cp --bootstrap` then copies to other hosts.
STATIC ?= $(wildcard target/static/longhaul-$(shell uname -m))

install:
	scripts/web build
	$(CARGO) build --profile $(PROFILE) --locked -p longhaul-cli -p drs-run -p longhaul-preload-object
	DESTDIR="$(DESTDIR)" STATIC="$(STATIC)" packaging/install client $(PROGRAMS) $(PREFIX)

install-services:
	DESTDIR="$(DESTDIR)" packaging/install services $(PREFIX) $(SYSCONFDIR)

static:
	scripts/build-static

check-macos:
	scripts/check-macos

packages:
	packaging/build $(PACKAGES)

# Needs root and the packages in target/packages.
test-packages:
	@scripts/install-deps mmdebstrap:mmdebstrap unshare:util-linux lintian:lintian rpm:rpm
	packaging/test/all

deps:
	@scripts/install-deps ip:iproute2 sysctl:procps cc:gcc c++:g++ pkg-config:pkgconf readelf:binutils curl:curl busybox:busybox groff:groff-base \
		iperf3:iperf3 nc.openbsd:netcat-openbsd nft:nftables vtysh:frr git:git \
		sshd:openssh-server ssh:openssh-client rsync:rsync pg_ctlcluster:postgresql setpriv:util-linux node:nodejs npm:npm python3:python3 import=jsonschema:python3-jsonschema \
		globus-url-copy:globus-gass-copy-progs globus-gridftp-server:globus-gridftp-server-progs \
		mount.exfat-fuse:exfat-fuse mkfs.exfat:exfatprogs ntfs-3g:ntfs-3g bindfs:bindfs sshfs:sshfs setfacl:acl setfattr:attr \
		mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs faketime:faketime openssl:openssl

bench-deps: deps
	@scripts/install-deps ip:iproute2 unshare:util-linux haproxy:haproxy iperf3:iperf3 \
		rsync:rsync rclone:rclone \
		xrootd:xrootd-server xrdcp:xrootd-client lftp:lftp danted:dante-server nc.openbsd:netcat-openbsd perf:linux-perf \
		wget:wget git:git psql:postgresql-client python3:python3 go:golang-go javac:default-jdk-headless nft:nftables \
		import=requests:python3-requests
	scripts/s3-programs

clean:
	$(CARGO) clean
