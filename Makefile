# The commands of this project. Each sets up first what it needs (Debian packages, Kubernetes, ZooKeeper); all that is
# built is kept outside the checkout, in ESFLEET_CACHE (default: esfleet in XDG_CACHE_HOME or ~/.cache).
#
#   make demo       two clusters, ZooKeeper, apps, two esfleet replicas, and what happens when some are killed;
#                   KEEP=1 keeps it up. ESFLEET_E2E_KUBECONFIGS, ESFLEET_E2E_ZOOKEEPER, ESFLEET_E2E_SAMPLE_IMAGE: one's own
#   make test       all tests, with each part's share of the time; TEST=part runs the scenarios whose name contains it
#   make test-long  what takes longer than a test run should; writes a report
#   make bench      esfleet and the Go peer with the same driver, alternating; bench-smoke: small, only that no phase is missing
#   make mutants    one-line changes to the code, each of which must turn a named test red
#   make fmt, lint, doc, deny; make clean-up ends and removes what killed runs may have left

SHELL := /bin/bash
export ESFLEET_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/esfleet
export CARGO_TARGET_DIR ?= $(ESFLEET_CACHE)/target
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin:$(ESFLEET_CACHE)/cargo/bin

.PHONY: demo test test-long bench bench-smoke mutants setup fmt lint doc deny clean-up

demo: setup
	@cargo build --locked --workspace --bins
	@$(CARGO_TARGET_DIR)/debug/esfleet-demo

test:
	@e2e/test $(TEST)

test-long: setup
	@e2e/test-long

bench: setup
	@cargo build --locked --release --bin esfleet
	@ESFLEET_BIN=$(CARGO_TARGET_DIR)/release/esfleet e2e/peer/bench

bench-smoke: setup
	@cargo build --locked --bin esfleet
	@SMOKE=1 ESFLEET_BIN=$(CARGO_TARGET_DIR)/debug/esfleet e2e/peer/bench

mutants: setup
	@e2e/mutants/run

setup:
	@e2e/cluster/setup

fmt:
	cargo fmt --all

lint: setup
	cargo fmt --all -- --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@if command -v shellcheck > /dev/null; then set -x; shellcheck -x $$(grep -lrIE '^#!/bin/(ba)?sh' .ci e2e); \
	 else echo "shellcheck is not installed: the shell scripts are not checked"; fi

doc: setup
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps

deny: setup
	@e2e/deny

clean-up:
	@e2e/cluster/clean-up
