# `make demo` shows the whole way on a fresh clone, `make test` checks everything. Both make .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

# Process groups of jobs, so that what ends make ends all that a job started; /bin/sh has them on terminals only.
SHELL := bash

# $(call working,WHAT,COMMAND) runs COMMAND and says WHAT at once, then every five seconds with the time.
define working
@echo "make: $(1)" >&2; job=; ended=; trap 'ended=1; [ -z "$$job" ] || kill -- -$$job' HUP INT TERM; set -m; \
	(seconds=0; while sleep 5 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
		seconds=$$((seconds + 5)); echo "make: $(1) ($$seconds s)" >&2; done) & ticker=$$!; \
	{ $(2); } </dev/null & job=$$!; set +m; [ -z "$$ended" ] || kill -- -$$job; \
	wait $$job; code=$$?; kill -0 $$job 2>/dev/null && wait $$job; kill -- -$$ticker; exit $$code
endef
# $(call install,WHAT) installs this folder; WHAT is `.` or `.[dev]`. Modules are compiled when they are used.
install = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '$(1)'
# $(call page,FILE,COMMAND) writes what COMMAND prints, whole or not at all.
page = @mkdir -p build && $(2) > build/page && mv build/page $(1)
# $(call logged,FILE,COMMAND) keeps what COMMAND says in FILE, and shows it where COMMAND fails.
logged = $(2) >$(1) 2>&1 || { cat $(1) >&2; echo "make: '$(2)' failed, see above ($(1))" >&2; false; }

.PHONY: help demo test slow formal docs release clean

help: ## what there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: build/bert_encoder.onnx ## run a quantised BERT encoder layer on the RTL, with a report to open
	$(BIN)/heald run $< --hw default --compare onnxruntime --report build/report.html

# Types are checked beside the tests: one process would leave the other core without work.
test: $(VENV)/dev ## style, types, tests (docs/tests.md says what each tier proves)
	$(BIN)/ruff check .
	@$(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" --durations 30 --durations-min 5; \
	tests=$$?; wait $$types && exit $$tests

# Simulators of others, which Debian has; tests that need one say so where it is not there.
slow: $(VENV)/dev ## other machines, tools and long sweeps, all cases of what `make test` draws in part, planted faults
	@for tool in iverilog verilator; do test -x /usr/bin/$$tool || apt-get install --yes --quiet $$tool || \
		echo "make: $$tool is not installed: tests with it are skipped" >&2; done
	HEALD_CASES=all $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "slow or drawn"
	$(BIN)/python -m tests.mutations

formal: $(VENV)/dev ## prove properties of the hardware, and find planted faults
	$(BIN)/python -m hw.formal --faults

docs: $(VENV)/docs ## generate pages and, where there is a Chromium, screenshots of the reports; build the site in build/site
	$(call page,docs/isa.md,$(BIN)/heald isa)
	$(call page,docs/csr.md,$(BIN)/heald csr)
	$(call page,docs/fields.md,$(BIN)/python -c 'from hw.package import fields_page; print(end=fields_page())')
	$(BIN)/python docs/screenshots.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "make: the site is build/site/index.html; its search needs a server: python3 -m http.server -d build/site" >&2

# Nothing of the source tree takes part in the run: another directory, no PYTHONPATH, an empty cache.
release: $(VENV)/release build/bert_encoder.onnx ## wheel and sdist in build/dist; install the wheel afresh, run the demo from it
	@rm -rf build/dist build/release
	$(call working,building sdist and wheel,$(call logged,build/build.log,$(BIN)/python -m build --outdir build/dist))
	$(call working,making build/release for $(PYTHON),$(PYTHON) -m venv build/release)
	$(call working,installing the wheel and what it needs (one minute),\
		$(call logged,build/install.log,build/release/bin/python -m pip install --quiet build/dist/*.whl))
	@away=$$(mktemp -d) && trap 'rm -rf "$$away"' EXIT && trap 'exit 130' INT TERM && cd "$$away" && \
		env -u PYTHONPATH HEALD_CACHE="$$away/cache" "$(CURDIR)/build/release/bin/heald" run \
		"$(CURDIR)/build/bert_encoder.onnx" --hw default --compare onnxruntime --report release.html || \
		{ echo "make: the demo does not run from the wheel; do not publish build/dist" >&2; exit 1; }
	@echo "make: the demo ran from the wheel: build/dist can be published" >&2

clean: ## remove what was made here (not the cache of builds in the user's cache directory)
	rm -rf $(VENV) build

build/bert_encoder.onnx: examples/09_bert_encoder/make_model.py $(VENV)/installed
	@mkdir -p build
	$(call working,making and quantising the model of a BERT encoder layer,$(BIN)/python $< --output $@)

$(VENV)/made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: PYTHON must be Python 3.11 or newer, not $$($(PYTHON) --version)"; exit 2; }
	$(call working,making $(VENV) for $(PYTHON),$(PYTHON) -m venv $(VENV))
	@touch $@

$(VENV)/installed: $(VENV)/made
	$(call working,installing Heald and what it needs (one minute),$(call install,.))
	@touch $@

$(VENV)/docs: $(VENV)/made
	$(call working,installing Heald and the tools of the site (one minute),$(call install,.[docs]))
	@touch $@ $(VENV)/installed

$(VENV)/release: $(VENV)/made
	$(call working,installing Heald and the tool that builds packages (one minute),$(call install,.[release]))
	@touch $@ $(VENV)/installed

# What the tests need holds all that the others install.
$(VENV)/dev: $(VENV)/made
	$(call working,installing Heald and the tools of the tests (one or two minutes),$(call install,.[dev]))
	@touch $@ $(VENV)/docs $(VENV)/release $(VENV)/installed
