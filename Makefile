# make demo: shows what dcd does, on this machine, in about a quarter of an hour.
# DEMO="--quick" takes two minutes; `dcd demo --help` has the rest.
# make test: everything that must hold before a commit; about twenty minutes on two cores from nothing.

# make fuzz: the fuzzer's four searches, in a size for every change; a few minutes on two cores.

.PHONY: build demo test test-long fuzz fuzz-bytes lint doc tools

# The commit is what `dcd fuzz` prints beside the seed.
build:
	DCD_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null) cargo build --release --package dcd

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

fuzz: build
	target/release/dcd fuzz --runs 1000
	target/release/dcd fuzz --pairs --runs 2
	target/release/dcd fuzz --sweep --runs 40
	target/release/dcd fuzz --exhaustive 3

# A thousand kill -9 cycles over all file systems, and twenty thousand fuzz runs: under an hour.
test-long: tools
	DCD_CYCLES=1000 DCD_FUZZ_SEEDS=20000 scripts/test.sh

# Each byte fuzz target under libFuzzer, for FOR each; skipped without nightly and cargo-fuzz.
FOR ?= 30s
fuzz-bytes:
	scripts/fuzz-bytes.sh $(FOR) $(TARGET)
