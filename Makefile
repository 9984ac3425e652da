# The two commands a newcomer needs are `cargo run --release -- demo` and `make test`.
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= lib
CARGO ?= cargo
FUZZ_SECONDS ?= 30
SOAK_LOOKS ?= 20000
SOAK_FAMILY_LOOKS ?= 1000
SOAK_CIRCLES ?= 10000
SOAK_GOROUTINES ?= 100000
SOAK_LANGUAGE_LOOKS ?= 1000
SOAK_ROUNDS ?= 1000
SOAK_KILLS ?= 200
SOAK_SECONDS ?= 60
SOAK_WATCH ?= 100000

.PHONY: all build lint test test-matrix soak bench fuzz install uninstall dist deb rpm publish-check clean

all: build

build:
	$(CARGO) build --release --workspace

# Formatting, warnings, licences.
lint:
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/lint-agent
	@# The tool needs nothing of the library's inside, and the library's pages have no dead links.
	$(CARGO) check -p tglass
	@# The library compiles with what each of its users asks for, not only with all that the workspace asks for together.
	$(CARGO) clippy -p libc_db -- -D warnings
	$(CARGO) clippy -p threadglass --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -p threadglass --no-deps
	@# The fuzz targets are a workspace of their own; checking them needs no fuzzer to link with.
	CUSTOM_LIBFUZZER_PATH=/nonexistent/libfuzzer.a $(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir target/fuzz-lint -- -D warnings
	scripts/lint-licences

# Every test, with what it needs; prints how many ran and how many were skipped and why. The oldest and the newest C library
# are among what it needs (Debian's apt; about 30 MB, once).
test:
	scripts/install-test-deps
	scripts/with-glibc-roots bullseye sid -- scripts/run-tests

# The fixtures on the C libraries of several distribution releases (needs Debian's apt; about 60 MB), and with several versions of
# tokio.
test-matrix:
	scripts/install-test-deps
	scripts/glibc-roots target/glibc-roots
	TG_GLIBC_ROOTS=$(CURDIR)/target/glibc-roots $(CARGO) test -p tglass --test other_glibc --test stacks --test track --test track_deep --test inject version -- --nocapture
	TG_GLIBC_ROOTS=$(CURDIR)/target/glibc-roots $(CARGO) test -p threadglass --test inject_alone version -- --nocapture
	TG_GLIBC_ROOTS=$(CURDIR)/target/glibc-roots $(CARGO) test -p libc_db --test clients every_glibc_version
	@# More versions of tokio, built in more ways.
	TG_TOKIO_ALL=1 $(CARGO) test -p tglass --test tokio -- --nocapture

# Thousands of looks at programs that are busy with their locks: no false alarm. A server under load with the agent in
# it. Hostile programs, files and cores, under the limits that are promised for a release build. Takes minutes.
soak:
	$(CARGO) test --release -p tglass --test hostile_corpus --test hostile_files --test hostile_targets
	TG_EVERY_HANG=1 $(CARGO) test --release -p tglass --test snap every_hang -- --nocapture
	TG_SECONDS=$(SOAK_SECONDS) $(CARGO) test --release -p tglass --test track server -- --nocapture
	TG_LOOKS=$(SOAK_LOOKS) $(CARGO) test --release -p tglass --test no_false_alarm -- --nocapture
	TG_FAMILY_LOOKS=$(SOAK_FAMILY_LOOKS) $(CARGO) test --release -p tglass --test busy_families -- --nocapture
	TG_GOROUTINES=$(SOAK_GOROUTINES) $(CARGO) test --release -p tglass --test goroutines -- --nocapture come_and_go
	TG_LOOKS=$(SOAK_CIRCLES) $(CARGO) test --release -p tglass --test no_false_circle -- --nocapture --test-threads 1
	TG_LOOKS=$(SOAK_LANGUAGE_LOOKS) $(CARGO) test --release -p tglass --test languages busy -- --nocapture
	TG_WATCH_LOOKS=$(SOAK_WATCH) $(CARGO) test --release -p tglass --test watch_soak -- --nocapture
	TG_ROUNDS=$(SOAK_ROUNDS) $(CARGO) test --release -p threadglass --test inject -- --nocapture a_program_that_does
	TG_ROUNDS=$(SOAK_ROUNDS) $(CARGO) test --release -p threadglass --test inject_alone -- --nocapture
	TG_ROUNDS=200 TG_KILLS=$(SOAK_KILLS) $(CARGO) test --release -p tglass --test inject -- --nocapture killed a_real
	$(CARGO) build --release -p tglass && scripts/soak-container target/release/tglass

# Ratios against peers, side by side in one run. Takes minutes; a busy machine disturbs it.
bench: build
	$(CARGO) run --release -p bench

# Each fuzz target for FUZZ_SECONDS seconds.
fuzz:
	fuzz/run $(FUZZ_SECONDS)

# What is installed, and not the benchmarks and what the tests need.
install:
	$(CARGO) build --release -p tglass -p libc_db -p libprofil
	TG_LIBDIR=$(LIBDIR) scripts/install "$(DESTDIR)$(PREFIX)" "$(PREFIX)"

# Removes what `make install` with the same PREFIX and DESTDIR has installed.
uninstall:
	scripts/uninstall "$(DESTDIR)$(PREFIX)"

# target/dist/tglass: one static program for every distribution and container.
dist:
	scripts/dist

# Packages for Debian and its relatives, and for Fedora and its relatives; each is tried in fresh roots where that is possible.
deb:
	scripts/package deb

rpm:
	scripts/package rpm

# What would be refused by crates.io.
publish-check:
	$(CARGO) publish --workspace --dry-run

clean:
	$(CARGO) clean
