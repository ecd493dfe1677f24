# Two commands do everything on a bare machine: `make demo` and `make test`.
#
# Both set up .venv on their first run, pinned by constraints.txt. A stamp file remembers that it
# is done, so a second run needs neither pip nor a network. PYTHON=/path/to/python3.11 picks the
# interpreter; otherwise the first suitable one on the PATH is taken.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
VENV := .venv
FRAMEWORKS := .venv-frameworks
BIN := $(VENV)/bin
WHEELS := $(VENV)/wheels
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt
SOURCES := planner cost_models api tests examples
JOBS ?= 2

MODEL_A := --model llama-3.1-70b --cluster dgx-h100:64 --seq-len 8192 --global-batch 512
MODEL_B := --model deepseek-v3 --cluster dgx-h800:2048 --seq-len 4096 --global-batch 15360
DEMO_A := planner plan $(MODEL_A) --precision bf16 --engine megatron
DEMO_B := planner plan $(MODEL_B) --precision bf16 --engine megatron

.PHONY: help demo test system lint docs audit bench matrix frameworks gpucheck accuracy coverage oracle calibrate clean

help:
	@echo "make demo   set up the core and plan two well-known models"
	@echo "make test   set up everything, then lint, types, import rules, docs checks, tests"
	@echo "make system tests with PostgreSQL, Chromium, Slurm, images; as root it installs them (Debian)"
	@echo "make lint   the same without the tests"
	@echo "make audit  known weaknesses of the pinned dependencies; asks their public database"
	@echo "make bench  speed measurements; wants an idle machine"
	@echo "make matrix     every layout beside one process; writes docs/executor_equality.md"
	@echo "make frameworks exported settings through the frameworks' own parsers (1.5 GB beside .venv)"
	@echo "make site       the documents as a site, in build/site"
	@echo "make handbook   numbers, pictures and reference in docs/ from the code"
	@echo "make gpucheck   profile one GPU, then run plans beside their predictions, about ten minutes"
	@echo "make accuracy   predict the published runs; writes docs/accuracy.md, docs/collectives.md"
	@echo "make coverage   read every counted config and write docs/model_coverage.md"
	@echo "make oracle     predicted memory beside torch's own tracker; writes docs/torch_oracle.md"
	@echo "make calibrate  the same, after fitting the constants in profiles/ to them"
	@echo "make clean  remove .venv and every cache"

demo: $(VENV)/.stamp-core
	@echo "\$$ $(DEMO_A)"; $(BIN)/$(DEMO_A)
	@echo; echo "\$$ $(DEMO_B)"; $(BIN)/$(DEMO_B)

test: lint docs
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not bench and not matrix and not frameworks and not system" -q

# What needs programs besides Python. As root on Debian they are installed first; elsewhere a test whose
# program is not there says which one it wants. Daemons and browsers of a busy machine are given a second try.
SYSTEM := "system and not bench and not matrix"
system: $(VENV)/.stamp-test
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing="$$(grep -v '^#' tests/system-packages.txt | while read -r package; do \
	    dpkg -s "$$package" >/dev/null 2>&1 || echo "$$package"; done)"; \
	  if [ -n "$$missing" ]; then apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $$missing >/dev/null; fi; \
	fi
	$(BIN)/python -m pytest -m $(SYSTEM) -q || $(BIN)/python -m pytest -m $(SYSTEM) -q --last-failed

lint: $(VENV)/.stamp-test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.stamp-test
	$(BIN)/codespell
	$(BIN)/python -m pytest tests/docs -m "not system" -q
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

site: docs
	@echo "build/site/index.html"

# Tables and pictures of docs/concepts and docs/reference, from the code.
handbook: $(VENV)/.stamp-test
	$(BIN)/python -m planner.handbook docs

# Exit code 4 where no database can be reached: then nothing was checked, which is not the same as clean.
audit: $(VENV)/.stamp-test
	@$(BIN)/python -m tests.deploy.audit constraints.txt

bench: $(VENV)/.stamp-test
	$(BIN)/python -m pytest -m bench -q
	$(BIN)/python -m planner.validation.search_speed
	$(BIN)/python -m planner.validation.search_speed --growth

matrix: $(VENV)/.stamp-test
	$(BIN)/python -m pytest -m matrix -q
	$(BIN)/python -m tests.planner.executor.equality_document docs/executor_equality.md

# The frameworks declare other Pythons and torches than they need here: without dependencies, beside .venv's own packages.
frameworks: $(FRAMEWORKS)/.stamp
	$(BIN)/python -m pytest -m frameworks -q

$(FRAMEWORKS)/.stamp: tests/frameworks/constraints.txt | $(VENV)/.stamp-test
	$(BIN)/python -m venv $(FRAMEWORKS)
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_paths()['purelib'])" \
	  > "$$($(FRAMEWORKS)/bin/python -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")/beside.pth"
	$(FRAMEWORKS)/bin/pip --disable-pip-version-check install --quiet --ignore-requires-python --no-deps \
	  --requirement tests/frameworks/constraints.txt
	touch $@

# Needs torch for the GPU, which .venv is not set up with: whatever python is at hand may run it.
gpucheck:
	mkdir -p build/gpucheck
	$(if $(wildcard $(BIN)/python),$(BIN)/python,python3) -c "from planner.cli import main; main()" \
	  loop --minutes 8 --output build/gpucheck --json --progress jsonl > build/gpucheck/loop.json

accuracy: $(VENV)/.stamp-test
	$(BIN)/python -m planner.validation
	$(BIN)/python -m planner.validation.collectives docs/collectives.md

coverage: $(VENV)/.stamp-test
	$(BIN)/python -m planner.validation.coverage

oracle: $(VENV)/.stamp-test
	$(BIN)/python -m planner.executor.oracle docs/torch_oracle.md

calibrate: $(VENV)/.stamp-test
	$(BIN)/python -m planner.validation --write

clean:
	rm -rf $(VENV) $(FRAMEWORKS) build dist .*_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- set-up

# Can this interpreter make the environment? A shim of a version that is not installed cannot.
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
CANDIDATES := python3 python3.11 python3.12 python3.13 python3.14 python
TOO_OLD := parallelism-planner needs Python 3.11 or newer with the venv module; \
install one, or name it: make demo PYTHON=/path/to/python3.11

$(VENV)/.stamp-python:
	@python=""; for candidate in $(or $(PYTHON),$(CANDIDATES)); do \
	  if "$$candidate" -c "$(SUITABLE)" >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "$(TOO_OLD)" >&2; exit 1; fi; \
	if $(BIN)/python -m pip --version >/dev/null 2>&1 && $(BIN)/python -c "$(SUITABLE)"; \
	then keep=""; else keep="--clear"; fi; \
	"$$python" -m venv $$keep $(VENV)
	@touch $@

# The build backend is installed first, pinned like the rest, so that no isolated build
# environment has to be fetched.
$(VENV)/.stamp-core: $(VENV)/.stamp-python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (core) ..."
	@$(INSTALL) hatchling
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

# The wheels of the core and the server are kept, so that the packaging tests can install
# the product into empty environments without a network. What is already kept is not asked for again.
KEEP := $(PIP) wheel --quiet --constraint constraints.txt --no-build-isolation \
  --find-links $(WHEELS) --wheel-dir $(WHEELS)
$(VENV)/.stamp-test: $(VENV)/.stamp-core
	@echo "Setting up $(VENV) (all extras) ..."
	@$(INSTALL) --no-build-isolation --editable ".[server,client,kubernetes,torch,transformers,report,dev,docs]"
	@mkdir -p $(WHEELS)
	@$(KEEP) --no-index ".[server]" >/dev/null 2>&1 || $(KEEP) ".[server]"
	@rm -f $(WHEELS)/parallelism_planner-*.whl
	@touch $@
