# Everything a newcomer runs. `make help` lists the targets; scripts/setup.sh installs what they need.
.DEFAULT_GOAL := help

CARGO := scripts/cargo
PREFIX ?= /usr/local
DESTDIR ?=
DEMO_OUT ?= demo-out
FUZZ_SECONDS ?= 600
# In CI a change of dependencies that is not in Cargo.lock is an error, not an edit.
IN_CI := $(filter-out false,$(CI))
LOCKED := $(if $(IN_CI),--locked)

# Where cargo leaves its results; cargo itself reads the same variable.
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

# Where things are installed, and which program.
PROGRAM ?= $(TARGET)/release/headstart
BINDIR ?= $(PREFIX)/bin
SHAREDIR ?= $(PREFIX)/share
MANDIR ?= $(SHAREDIR)/man
UNITDIR ?= $(PREFIX)/lib/systemd/system
UNITS = headstart@.service headstart-serve@.service
SBINDIR ?= /sbin
HELPERS := mount.headstart umount.fuse.headstart
# Not below the target folder, where root would leave files that its owner cannot remove.
DOCS = $(DESTDIR)$(SHAREDIR)/headstart-docs

# Cargo uses all cores itself, and two cargos would only wait for each other.
.NOTPARALLEL:
.PHONY: help setup release demo test fmt-check clippy tidy unit doc deny bench fuzz install uninstall clean

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
	    while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

setup: ## Install what the other targets need (Debian packages, Rust), saying what and why
	@scripts/setup.sh

release: setup ## Build the program: target/release/headstart
	$(CARGO) build --release $(LOCKED) -p headstart

demo: release ## Tell both stories on this machine: a program starts, a system boots, before and after
	$(TARGET)/release/headstart demo --out $(DEMO_OUT)

test: setup fmt-check clippy tidy unit doc deny ## Check everything: style, rules, tests, documentation
	@echo "All checks passed."

# $(call component,NAME,COMMAND): runs COMMAND if cargo has the component; otherwise skips it visibly
# on a person's machine and fails in CI.
component = @if $(CARGO) $(1) --version >/dev/null 2>&1; then set -x; $(2); \
	elif [ -n "$(IN_CI)" ]; then echo "cargo $(1) is missing" >&2; exit 1; \
	else echo "SKIPPED: cargo $(1) is missing; scripts/setup.sh says how to get it" >&2; fi

fmt-check: | setup
	$(call component,fmt,$(CARGO) fmt --all --check)

clippy: | setup
	$(call component,clippy,$(CARGO) clippy --workspace --all-targets $(LOCKED) -- -D warnings)

tidy: | setup ## Check the rules of the repository (dependency arrows, sizes, licences, links)
	$(CARGO) run -q $(LOCKED) -p xtask -- tidy

# The dev profile: the codecs and hashes are optimised in it all the same (see Cargo.toml), it checks
# integer overflow, and it spares the release profile's link-time optimisation for every test binary.
unit: | setup
	$(CARGO) test --workspace $(LOCKED)

doc: | setup
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items $(LOCKED)

# xtask tidy checks licences and sources from the same deny.toml, so cargo-deny is a second opinion
# that is asked only where it is installed: compiling it takes longer than all other checks.
deny: | setup
	@if $(CARGO) deny --version >/dev/null 2>&1; then set -x; $(CARGO) deny check bans licenses sources; \
	else echo "cargo-deny is not installed: licences and sources were checked by xtask tidy"; fi

bench: release ## Measure against other tools; raw results go to bench/results/
	bench/run.sh

fuzz: setup ## Fuzz each parser for FUZZ_SECONDS (600); needs cargo-fuzz and a nightly compiler
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
	    echo "cargo-fuzz is missing: cargo install cargo-fuzz (a crate; a few minutes)" >&2; exit 1; }
	@$(CARGO) +nightly --version >/dev/null 2>&1 || { \
	    echo "a nightly compiler is missing: rustup toolchain install nightly" >&2; exit 1; }
	@set -e; for target in $$($(CARGO) +nightly fuzz list); do \
	    echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	    $(CARGO) +nightly fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS); done

# Builds only if nothing was built: `make release && sudo make install` compiles nothing as root.
# mount(8) looks for its helpers in /sbin, whatever PREFIX is.
install: $(PROGRAM) ## Install program, man pages, completions, mount helper and unit (PREFIX=/usr/local, DESTDIR)
	install -D -m 755 $< $(DESTDIR)$(BINDIR)/headstart
	rm -rf $(DOCS) && $< docs $(DOCS)
	install -d $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man8
	install -m 644 $(DOCS)/*.1 $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(DOCS)/*.8 $(DESTDIR)$(MANDIR)/man8
	install -D -m 644 $(DOCS)/headstart.bash $(DESTDIR)$(SHAREDIR)/bash-completion/completions/headstart
	install -D -m 644 $(DOCS)/_headstart $(DESTDIR)$(SHAREDIR)/zsh/site-functions/_headstart
	install -D -m 644 $(DOCS)/headstart.fish $(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/headstart.fish
	rm -rf $(DOCS)
	install -d $(DESTDIR)$(SBINDIR) $(DESTDIR)$(UNITDIR)
	set -e; for helper in $(HELPERS); do ln -sfn $(BINDIR)/headstart $(DESTDIR)$(SBINDIR)/$$helper; done
	set -e; for unit in $(UNITS); do \
		sed 's|/usr/local/bin|$(BINDIR)|' dist/systemd/$$unit >$(DESTDIR)$(UNITDIR)/$$unit; \
		chmod 644 $(DESTDIR)$(UNITDIR)/$$unit; \
	done

uninstall: ## Remove what install has installed
	rm -f $(DESTDIR)$(BINDIR)/headstart $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS))
	rm -f $(DESTDIR)$(MANDIR)/man1/headstart.1 $(DESTDIR)$(MANDIR)/man1/headstart-*.1
	rm -f $(DESTDIR)$(MANDIR)/man8/mount.headstart.8
	rm -f $(DESTDIR)$(SHAREDIR)/bash-completion/completions/headstart
	rm -f $(DESTDIR)$(SHAREDIR)/zsh/site-functions/_headstart
	rm -f $(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/headstart.fish
	rm -f $(addprefix $(DESTDIR)$(SBINDIR)/,$(HELPERS))

$(TARGET)/release/headstart:
	$(MAKE) release

clean: ## Remove what was built and what the demo left
	$(CARGO) clean
	rm -rf $(DEMO_OUT)
