# make demo: shows what dcd does, on this machine, in about a quarter of an hour.
# DEMO="--quick" takes two minutes; `dcd demo --help` has the rest.
# make test: everything that must hold before a commit; about twenty minutes on two cores from nothing.

.PHONY: build demo test test-long fuzz-bytes lint doc tools

build:
	cargo build --release --package dcd

# Root is needed to mount; the build stays the user's.
demo:
	scripts/install-packages.sh
	$(MAKE) build
	$$([ "$$(id -u)" = 0 ] || echo sudo) target/release/dcd demo $(DEMO)

lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets -- --deny warnings

doc:
	RUSTDOCFLAGS="--deny warnings --allow rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --document-private-items

# Test tools that are crates. Without them their tests say that they are skipped.
tools:
	[ -x target/tools/bin/fsx ] || cargo install fsx --version 0.3.2 --locked --root target/tools || true

test: lint tools
	scripts/test.sh

# A thousand kill -9 cycles over all file systems, and twenty thousand fuzz runs: under an hour.
test-long: tools
	DCD_CYCLES=1000 DCD_FUZZ_SEEDS=20000 scripts/test.sh

# Each byte fuzz target under libFuzzer, for FOR each; skipped without nightly and cargo-fuzz.
FOR ?= 30s
fuzz-bytes:
	scripts/fuzz-bytes.sh $(FOR) $(TARGET)
