# All tasks of this repository by name. `make help` lists them.

# Tool chains that are installed but not in the PATH of a plain shell.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin

SECONDS ?= 60
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup build demo demo-program demo-peers test loom lint bench null-cipher bench-docs fuzz peers clean arm test-arm count-arm count-router count-kernel arm-flags test-vm packages test-packages release feed

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: ## Install what the other targets need and is missing (Debian packages)
	@scripts/setup

build: ## Build target/release/millrace, with its debug information beside it (millrace.debug)
	@scripts/setup build
	cargo build --release --locked -p millrace
	@scripts/split-debug target/release/millrace

# Built without the commands that the demo does not show, and by a profile that compiles quickly; releases are built with
# `make build`. MINUTES is what the first build takes on one processor, programs to compare with included.
demo: MINUTES = 4
demo: ## Show a tunnel at work: office, branch, real traffic, tables
	@scripts/setup demo
	@cores=$$(nproc); [ -x target/demo/millrace ] && build="seconds if nothing has changed" || build="about $$(($(MINUTES) / cores + 1)) min"; \
		echo "demo: the build takes $$build on $$cores processors, and the demonstration a minute"
	@$(MAKE) --no-print-directory --jobs=2 demo-peers demo-program
	target/demo/millrace demo $(ARGS)

# Both at once. They have schedulers of their own, and do not share the two jobs.
demo-peers:
	@MAKEFLAGS= scripts/peers || echo "demo: going on without the newest wireguard-go"

demo-program:
	MAKEFLAGS= MILLRACE_PROFILE=demo cargo build --profile demo --locked -p millrace --no-default-features --features lab

# The tests make network namespaces: as root, or in a user namespace if the kernel allows it.
test: setup ## Run all tests, and the model of the ring; say what was not tested
	@scripts/test

# The flag rebuilds everything, so these builds have their own directory; the model is small, so it is not optimised.
loom: ## Check the ring and the flags of the data plane in every interleaving
	RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 CARGO_TARGET_DIR=target/loom \
		cargo test --locked -p millrace-engine --lib \
		--config 'profile.dev.package."*".opt-level=0' --config 'profile.dev.package.millrace-engine.opt-level=0' \
		--config 'profile.dev.package.millrace-plane.opt-level=0' ::model::

lint: ## Check format, clippy, documentation, licences and scripts
	@scripts/lint

# The released program has no null cipher; the program measured with one is a separate build.
bench: build $(if $(findstring null,$(ARGS)),null-cipher) ## Measure Millrace and its peers side by side (ARGS="...")
	target/release/millrace bench $(ARGS)

null-cipher:
	cargo build --release --locked -p millrace --features null-cipher --target-dir target/null

bench-docs: build ## Make the tables and pictures of docs/benchmarks anew (ARGS="wireguard openvpn": only these)
	@scripts/peers all || echo "bench-docs: going on without the peers that could not be built"
	@scripts/bench-docs $(ARGS)

fuzz: ## Run each fuzz target for SECONDS=60
	@scripts/fuzz $(SECONDS)

peers: ## Build wireguard-go to compare with; ALL=1: boringtun and gotatun too, all anew
	@scripts/peers $(if $(ALL),all)

# The targets below install cross compilers, qemu and a separate Rust on first use. `test` installs some of them, to
# test the audit; `build` and `demo` need none.
arm: ## Build static programs for ARM routers; CHIP="ipq8065 mt7622": for those
	@scripts/arm $(CHIP)

test-arm: ## Test on ARM under qemu: ciphers, protocols, and a tunnel in a virtual router
	@scripts/test-arm $(ARGS)

test-vm: ## Test in virtual machines: accelerators, peers that need a kernel of their own (WireGuard, PPTP), the kernel's OpenVPN
	@scripts/test-vm $(ARGS)
	@$(if $(ARGS),,scripts/test-vm-peers)
	@$(if $(ARGS),,scripts/test-kernel-plane)

count-arm: ## Count instructions per byte of every cipher on ARM (ARGS="armv7 -- 32 1408 AES-256-GCM")
	@scripts/count-arm $(ARGS)

count-router: ## Count a virtual router's instructions per packet, Millrace beside its peers
	@scripts/router count $(ARGS)

count-kernel: ## Count a virtual machine's instructions per packet, Millrace beside the kernel's data planes (ARGS="scaling")
	@scripts/count-kernel $(ARGS)

arm-flags: ## Count what compiler options do to pi, e and ciphers on ARM, beside published times
	@scripts/arm-flags

packages: ## Make packages for OpenWrt and Debian; KEY="FILE ..." signs, PROGRAMS=DIR takes programs that are there
	@CHIP="$(CHIP)" KEY="$(KEY)" PROGRAMS="$(PROGRAMS)" scripts/packages

test-packages: ## Install the Debian package DEB=FILE on a fresh Debian with systemd, start it twice anew, purge it
	@scripts/test-packages $(DEB)

release: ## Packages, static programs, installer, bill of materials and checksums; KEY="FILE ..." signs, RESUME=1 goes on
	@KEY="$(KEY)" PROGRAMS="$(PROGRAMS)" scripts/release

feed: ## Write the packages below OUT=DIR as they lie in OpenWrt's feeds, after `make release`; DRAFT=1 tries it
	@[ -n "$(OUT)" ] || { echo "feed: name a directory, such as one with clones of both feeds: make feed OUT=DIR" >&2; exit 1; }
	@scripts/setup build
	@cargo run --quiet --locked -p millrace-tools --no-default-features --features packages --bin millrace-packages -- \
		feed --root . --out "$(OUT)" $(if $(DRAFT),--draft)

clean: ## Delete what was built
	cargo clean
