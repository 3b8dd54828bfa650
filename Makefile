# make demo: shows what dcd does, on this machine, in about a quarter of an hour.
# DEMO="--quick" takes two minutes; `dcd demo --help` has the rest.
# make test: everything that must hold before a commit; about half an hour on two cores from nothing, half of it building.

# make fuzz: the fuzzer's five searches, in a size for every change; a few minutes on two cores.

.PHONY: build deb deny demo bench-nbd bench-starts bench-volumes bench-store bench-peers test test-guest test-guest-service test-packages test-python test-long test-power-cut test-s3 test-ceph test-kill test-linearizability test-under-load fuzz seeded-build fuzz-seeded fuzz-seeded-long fuzz-bytes coverage mutants lint doc tools

# The commit is what `dcd fuzz` prints beside the seed.
build:
	DCD_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null) cargo build --locked --release --package dcd-cache

# The Debian packages, in target/deb: docs/install.md.
deb:
	scripts/make-deb

# Root is needed to mount; the build stays the user's.
demo:
	scripts/install-packages.sh
	$(MAKE) build
	$$([ "$$(id -u)" = 0 ] || echo sudo) target/release/dcd demo $(DEMO)

# Cold starts of programs, and a make, on a modelled disk: half an hour with all variants; BENCH_STARTS="outdated memory
# boot" for the rest. Needs root, and Debian's packages once: docs/benchmarks.md.
bench-starts: build
	$$([ "$$(id -u)" = 0 ] || echo sudo) scripts/bench-starts $(BENCH_STARTS)

# Volumes of six modelled disks against plain RAID: an hour; BENCH_VOLUMES="micro --quick" for a part. Needs root, and
# Debian's fio and postmark: docs/benchmarks.md.
bench-volumes: build
	$$([ "$$(id -u)" = 0 ] || echo sudo) scripts/bench-volumes $(BENCH_VOLUMES)

# The NBD server against nbdkit, with TLS and without, and with a crowd of hostile clients: a quarter of an hour. Needs fio, nbdkit and
# openssl; BENCH_NBD="crowd --rounds 3" for a part.
bench-nbd: build
	scripts/bench-nbd $(BENCH_NBD)

# A disk in an object store and one of another machine, at a distance, beside s3backer: half an hour; BENCH_STORE="ship --rounds 3" for
# a part. Needs Debian's fio, s3backer and nbdkit, and versitygw: docs/benchmarks.md. BENCH_STORE=rbd: a real Ceph, if it is installed.
bench-store:
	cargo build --locked --release --package dcd-cache --features s3
	scripts/bench-store $(BENCH_STORE)

# dcd over ublk beside bcache, dm-writecache and dm-cache, in a guest: PEERS="--rounds 5 --only dcd,dm-writecache". GUEST_KIND=uml: in
# User Mode Linux, where processors cost what they cost here.
GUEST_KIND ?= qemu
bench-peers: build
	scripts/bench-peers --kind $(GUEST_KIND) $(PEERS)

lint:
	cargo fmt --check
	cargo clippy --locked --workspace --exclude dcd-store --all-targets -- --deny warnings
	cargo clippy --locked --package dcd-cache --no-default-features -- --deny warnings

doc:
	RUSTDOCFLAGS="--deny warnings --allow rustdoc::private_intra_doc_links" cargo doc --locked --workspace --exclude dcd-store --no-deps --document-private-items

# Licences, sources and known vulnerabilities of what is built in: deny.toml. Skipped without cargo-deny.
deny:
	scripts/deny.sh

# Test tools that are crates or packages of Python. Without them their tests say that they are skipped.
tools:
	[ -x target/tools/python/bin/ruff ] || { python3 -m venv target/tools/python && target/tools/python/bin/pip install --quiet ruff==0.17.6; } || true
	[ -x target/tools/bin/fsx ] || cargo install fsx --version 0.3.2 --locked --root target/tools || true

test: lint tools
	scripts/test.sh

# Data-disks in object stores: apart from `make test`, because what they need takes minutes to build. Versitygw, a server of S3, is
# looked for in PATH, ~/go/bin and DCD_VERSITYGW: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
test-s3:
	cargo clippy --locked --package dcd-store --package dcd-fuzz --package dcd-cache --features dcd-cache/s3,dcd-fuzz/store --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings --allow rustdoc::private_intra_doc_links" cargo doc --locked --package dcd-store --no-deps --document-private-items
	cargo test --locked --package dcd-store
	cargo test --locked --package dcd-fuzz --features store --test store
	cargo test --locked --package dcd-cache --features s3 --test s3

# Images of a real Ceph behind qemu-nbd, in three minutes: apart from `make test`, because it needs a cluster, which scripts/ceph-cluster
# starts on loopback: apt-get install --no-install-recommends ceph-mon ceph-osd ceph-common qemu-utils qemu-block-extra
test-ceph:
	cargo test --locked --package dcd-cache --test ceph -- --ignored --nocapture --test-threads=3

fuzz: build
	target/release/dcd fuzz --runs 1000
	target/release/dcd fuzz --pairs --runs 2
	target/release/dcd fuzz --sweep --runs 40
	target/release/dcd fuzz --exhaustive 3
	target/release/dcd fuzz --driver --runs 2000
	target/release/dcd fuzz --driver --runs 500 --seed 1048576
	target/release/dcd fuzz --driver --runs 500 --seed 2097152
	target/release/dcd fuzz --legs --runs 300
	for kind in raid0 raid1 raid5 tiered; do target/release/dcd fuzz --volume $$kind --runs 100 || exit 1; done

# A copy of the sources with all mistakes of crates/dcd-mistakes/mistakes in it, and the dcd built from that, in directories of
# their own: that binary is for nothing else.
seeded-build:
	cargo run --locked --quiet --package dcd-mistakes
	cargo build --locked --release --manifest-path target/seeded-src/Cargo.toml --package dcd-cache --features s3 --target-dir target/seeded

# Whether the fuzzer finds mistakes that were made on purpose. About ten minutes on two cores, and as long to build, for the object
# stores (those alone: --store); fuzz-seeded-long has other runs, from SEED on, and more.
fuzz-seeded: seeded-build
	target/seeded/release/dcd fuzz --seeded-bugs

fuzz-seeded-long: seeded-build
	target/seeded/release/dcd fuzz --seeded-bugs --runs 20000 --seed $(or $(SEED),1)

# The real binary in a guest whose kernel has ublk: CYCLES of kill -9, CUTS of the power; a quarter of an hour by default.
# GUEST="ublk_device --seed 7" for some of it. GUEST_KIND=uml: in User Mode Linux, which is built once and is nearly as fast as this machine.
test-guest: build tools
	CYCLES=$(if $(filter file,$(origin CYCLES)),10,$(CYCLES)) CUTS=$(or $(CUTS),3) WORKLOADS=$(or $(WORKLOADS),3) scripts/test-guest --kind $(GUEST_KIND) $(GUEST)

# The Debian package in a guest with systemd and udev.
test-guest-service: build
	scripts/test-guest-service

# Crates, Debian packages, RPM, image, flake, manual pages, completions, alert rules: built twice and looked at, as far as there are
# tools here; two minutes. REPRODUCE=dist builds the program twice, too.
test-packages:
	cargo build --locked --package dcd-cache
	scripts/test-packages

# The wheel of python/ in a fresh environment: tests that compare it with the command, recipes for clusters, types, notebooks. Five
# minutes on two cores from nothing; skipped where no package index can be reached.
test-python:
	scripts/test-python.sh

# All tests with a thousand kill -9 and a thousand power cuts in place of a few, and twenty thousand
# fuzz runs.
test-long: tools
	DCD_CYCLES=1000 DCD_FUZZ_SEEDS=20000 scripts/test.sh

# The real binary, crashed again and again: CYCLES of them, or for FOR (10m). SEED repeats a run.
CYCLES ?= 500
test-power-cut test-kill test-linearizability:
	scripts/crash-cycles.sh $(@:test-%=%) $(CYCLES) "$(FOR)" $(or $(SEED),1999)

# Under fio, which verifies, on an ext4: three hundred legs of a cache-disk, pulled and put back, and the mode switched each second for ten
# minutes.
test-under-load:
	DCD_CYCLES=1000 cargo test --locked -p dcd-cache --test under_load -- --nocapture

# Each byte fuzz target under libFuzzer, for FOR each (30s, 5m), or all in turns for FOR together (8h); what they find goes on from
# run to run, in CORPUS. Skipped without nightly and cargo-fuzz.
fuzz-bytes:
	CORPUS="$(CORPUS)" scripts/fuzz-bytes.sh $(or $(FOR),30s) $(TARGET)

# Lines of the engine that fuzzing alone reaches; every line with its count goes to target/coverage.txt.
coverage:
	mkdir -p target
	scripts/coverage.sh target/coverage.txt

# Does a test notice when the engine is changed in one place? SHARD=3/64 tries every 64th change, from the
# third on.
mutants:
	scripts/mutants.sh $(or $(SHARD),0/64)
