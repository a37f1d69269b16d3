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
DOCDIR ?= $(SHAREDIR)/doc/headstart
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
# What an initramfs is made of is looked for here alone, whatever PREFIX is.
LIBDIR ?= /usr/lib
INITRAMFSDIR ?= /usr/share/initramfs-tools
DRACUTDIR ?= /usr/lib/dracut/modules.d
UNITS = headstart@.service headstart-serve@.service headstart-accelerate.service headstart-snapshotter.service
EXAMPLES = mount.conf.example serve.conf.example
SBINDIR ?= /sbin
# The report page, and what it is built from.
UI := report-ui/dist/report.html
UI_SOURCES := $(wildcard report-ui/*.json report-ui/*.ts report-ui/*.html) $(shell find report-ui/src -type f)
# npm writes it when all is there.
UI_MODULES := report-ui/node_modules/.package-lock.json
HELPERS := mount.headstart umount.fuse.headstart
# Not below the target folder, where root would leave files that its owner cannot remove.
DOCS = $(DESTDIR)$(SHAREDIR)/headstart-docs
# Pages of docs/ are named by the place where they are installed.
PLACED = sed 's|docs/\([A-Z\-]*\.md\)|$(DOCDIR)/&|g'

# Cargo uses all cores itself, and two cargos would only wait for each other.
.NOTPARALLEL:
.PHONY: help setup setup-build setup-demo setup-bench release ui deb demo demo-report test test-quick test-long format lints tidy unit doc book deny test-ui mutants bench fuzz install install-agent uninstall clean

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
	    while IFS='|' read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

setup: ## Install what `make test` needs (Debian packages, Rust), saying what and why
	@scripts/setup.sh --for test

# What only compiles, or only shows, needs less.
setup-build:
	@scripts/setup.sh --for build

setup-demo:
	@scripts/setup.sh --for demo

setup-bench:
	@scripts/setup.sh --for bench

release: setup-build ## Build the program: target/release/headstart
	@$(CARGO) build --release $(LOCKED) -p headstart -p hs-live -p hs-early || { \
	    echo "The program is not built, see above: mend that, and run make release again" >&2; exit 1; }
	@$(MAKE) -s --no-print-directory ui || \
	    echo "The program is built, its report page is not (it needs npm, and a network once): later, make ui" >&2

ui: $(UI) ## Build the page of `headstart report` (needs nodejs and npm)

$(UI): $(UI_SOURCES)
	@$(MAKE) -s --no-print-directory $(UI_MODULES)
	cd report-ui && npm run build

$(UI_MODULES): report-ui/package-lock.json
	cd report-ui && npm ci --no-audit --no-fund --prefer-offline --fetch-retry-maxtimeout=10000

demo: setup-demo release ## Tell both stories on this machine: a program starts, a system boots, before and after
	$(TARGET)/release/headstart demo --out $(DEMO_OUT)
	@$(MAKE) --no-print-directory demo-report

# Where the page could not be built, its data is kept.
demo-report:
	@if [ -e $(UI) ]; then file=$(DEMO_OUT)/report.html; \
	else \
	    file=$(DEMO_OUT)/report.json; \
	    echo "There is no report page (make ui): its data goes to $$file" >&2; \
	fi; \
	$(TARGET)/release/headstart report $(wildcard $(DEMO_OUT)/*.csv $(DEMO_OUT)/*.hsp) $(DEMO_OUT)/demo.json -o $$file

test: setup ## Check everything: style, rules, tests, documentation; a summary at the end says what failed
	@$(CARGO) run -q $(LOCKED) -p xtask -- test

test-quick: setup ## Check what an edit may have broken, in three minutes: style, rules, pure crates, one start
	@$(CARGO) run -q $(LOCKED) -p xtask -- test-quick

test-long: setup ## Check what takes hours: oldest Rust, release build, many endings, faults and kills, mutants, packages, demo
	@$(CARGO) run -q $(LOCKED) -p xtask -- test-long

# One step of `make test`; docs/TESTING.md has the list.
format lints tidy unit doc book deny test-ui: | setup
	@$(CARGO) run -q $(LOCKED) -p xtask -- test $(subst test-ui,ui,$(subst unit,tests,$@))

mutants: setup ## Change the code in 200 places, one at a time: a test must notice nine of ten
	@$(CARGO) run -q $(LOCKED) -p xtask -- mutants

bench: setup-bench release ## Measure against other tools; raw results go to bench/results/
	bench/run.sh

fuzz: setup ## Fuzz each parser for FUZZ_SECONDS (600); needs cargo-fuzz and a nightly compiler
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
	    echo "cargo-fuzz is missing: cargo install cargo-fuzz (a crate; a few minutes)" >&2; exit 1; }
	@$(CARGO) +nightly --version >/dev/null 2>&1 || { \
	    echo "a nightly compiler is missing: rustup toolchain install nightly" >&2; exit 1; }
	@set -e; for target in $$($(CARGO) +nightly fuzz list); do \
	    echo "fuzzing $$target for $(FUZZ_SECONDS) s"; mkdir -p fuzz/found/$$target; \
	    CARGO_PROFILE_RELEASE_LTO=off $(CARGO) +nightly fuzz run --features libfuzzer "$$target" \
	        fuzz/found/$$target fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS); done

# Builds only if nothing was built: `make release && sudo make install` compiles nothing as root.
# mount(8) looks for its helpers in /sbin, whatever PREFIX is.
install: $(PROGRAM) ## Install program, documentation, completions, mount helpers and units (PREFIX=/usr/local, DESTDIR)
	install -D -m 755 $< $(DESTDIR)$(BINDIR)/headstart
	install -D -m 755 $(dir $<)headstart-live $(DESTDIR)$(LIBDIR)/headstart/headstart-live
	install -m 755 $(dir $<)headstart-accelerate $(DESTDIR)$(LIBDIR)/headstart/headstart-accelerate
	set -e; for file in hooks/headstart scripts/init-top/headstart scripts/init-bottom/headstart-accelerate; do \
		install -D -m 755 dist/initramfs-tools/$$file $(DESTDIR)$(INITRAMFSDIR)/$$file; \
	done
	install -m 644 dist/initramfs-tools/scripts/headstart $(DESTDIR)$(INITRAMFSDIR)/scripts/headstart
	install -d $(DESTDIR)$(DRACUTDIR)/90headstart
	install -m 755 dist/dracut/90headstart/* $(DESTDIR)$(DRACUTDIR)/90headstart
	install -d $(DESTDIR)$(DRACUTDIR)/91headstart-accelerate
	install -m 755 dist/dracut/91headstart-accelerate/* $(DESTDIR)$(DRACUTDIR)/91headstart-accelerate
	rm -rf $(DOCS) && $< docs $(DOCS)
	install -d $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man8
	set -e; for page in $(DOCS)/*.[18]; do \
		$(PLACED) $$page | install -m 644 /dev/stdin $(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/}; \
	done
	install -d $(DESTDIR)$(DOCDIR)/docs/decisions $(DESTDIR)$(DOCDIR)/docs/pictures
	install -m 644 README.md CHANGELOG.md SECURITY.md $(DESTDIR)$(DOCDIR)
	install -m 644 docs/*.md $(DESTDIR)$(DOCDIR)/docs
	install -m 644 docs/decisions/* $(DESTDIR)$(DOCDIR)/docs/decisions
	install -m 644 docs/pictures/* $(DESTDIR)$(DOCDIR)/docs/pictures
	install -D -m 644 $(DOCS)/headstart.bash $(DESTDIR)$(SHAREDIR)/bash-completion/completions/headstart
	install -D -m 644 $(DOCS)/_headstart $(DESTDIR)$(SHAREDIR)/zsh/site-functions/_headstart
	install -D -m 644 $(DOCS)/headstart.fish $(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/headstart.fish
	rm -rf $(DOCS)
	if [ -e $(UI) ]; then install -D -m 644 $(UI) $(DESTDIR)$(SHAREDIR)/headstart/report.html; \
	    else echo "The report page is not built (make ui), and not installed" >&2; fi
	install -d $(DESTDIR)$(SBINDIR) $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/headstart
	install -m 644 $(addprefix dist/systemd/,$(EXAMPLES)) $(DESTDIR)$(SYSCONFDIR)/headstart
	set -e; for helper in $(HELPERS); do ln -sfn $(BINDIR)/headstart $(DESTDIR)$(SBINDIR)/$$helper; done
	set -e; for unit in $(UNITS); do \
		$(PLACED) dist/systemd/$$unit | sed 's|/usr/local/bin|$(BINDIR)|' | \
		    install -m 644 /dev/stdin $(DESTDIR)$(UNITDIR)/$$unit; \
	done

# For guests that are saved and resumed: docs/RESUME.md.
install-agent: ## Install the agent of resumed guests into the root at DESTDIR
	install -D -m 755 dist/resume/headstart-resumed $(DESTDIR)/usr/local/lib/headstart/headstart-resumed
	install -D -m 644 dist/resume/headstart-resumed.service \
	    $(DESTDIR)/etc/systemd/system/headstart-resumed.service
	install -D -m 644 dist/resume/60-headstart-resumed.rules $(DESTDIR)/etc/udev/rules.d/60-headstart-resumed.rules

deb: release ## Make a Debian package of the program: target/debian/headstart_VERSION_ARCH.deb
	@scripts/deb.sh $(PROGRAM) $(TARGET)/debian

uninstall: ## Remove what install has installed
	rm -f $(DESTDIR)$(BINDIR)/headstart $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS))
	rm -f $(DESTDIR)$(MANDIR)/man1/headstart.1 $(DESTDIR)$(MANDIR)/man1/headstart-*.1
	rm -f $(addsuffix .8,$(addprefix $(DESTDIR)$(MANDIR)/man8/,$(HELPERS)))
	rm -f $(addprefix $(DESTDIR)$(SYSCONFDIR)/headstart/,$(EXAMPLES))
	[ ! -d $(DESTDIR)$(SYSCONFDIR)/headstart ] || \
	    rmdir --ignore-fail-on-non-empty $(DESTDIR)$(SYSCONFDIR)/headstart
	rm -f $(DESTDIR)$(SHAREDIR)/bash-completion/completions/headstart
	rm -f $(DESTDIR)$(SHAREDIR)/zsh/site-functions/_headstart
	rm -f $(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/headstart.fish
	rm -rf $(addprefix $(DESTDIR)$(DOCDIR)/,docs README.md CHANGELOG.md SECURITY.md)
	[ ! -d $(DESTDIR)$(DOCDIR) ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(DOCDIR)
	rm -rf $(DESTDIR)$(SHAREDIR)/headstart $(DESTDIR)$(LIBDIR)/headstart $(DESTDIR)$(DRACUTDIR)/90headstart
	rm -f $(DESTDIR)$(INITRAMFSDIR)/hooks/headstart $(DESTDIR)$(INITRAMFSDIR)/scripts/init-top/headstart
	rm -f $(DESTDIR)$(INITRAMFSDIR)/scripts/headstart $(DESTDIR)$(INITRAMFSDIR)/scripts/init-bottom/headstart-accelerate
	rm -rf $(DESTDIR)$(DRACUTDIR)/91headstart-accelerate
	rm -f $(addprefix $(DESTDIR)$(SBINDIR)/,$(HELPERS))

$(TARGET)/release/headstart:
	$(MAKE) release

clean: ## Remove what was built and what the demo left
	$(CARGO) clean
	rm -rf $(DEMO_OUT)
