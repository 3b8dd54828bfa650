# make demo: shows what dcd does, on this machine, in about a quarter of an hour.
# DEMO="--quick" takes two minutes; `dcd demo --help` has the rest.

.PHONY: build demo

build:
	cargo build --release --package dcd

# Root is needed to mount; the build stays the user's.
demo:
	bench/install-packages.sh
	$(MAKE) build
	$$([ "$$(id -u)" = 0 ] || echo sudo) target/release/dcd demo $(DEMO)
