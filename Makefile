# Every target that needs the environment sets it up itself: `make demo` is enough on a fresh
# machine with Python, a C++ compiler, git and make.

PYTHON ?= python3
TORCH_INDEX ?=
JOBS ?=
TESTS ?= tests tests_timm
BENCH ?=
DEMO ?=

# Python has to ignore the PYTHON* variables, the user's packages and the current folder (-I); but
# a script may import what stands beside it (-E -s).
MODULE := .venv/bin/python -I -m
SCRIPT := .venv/bin/python -E -s
TIMM_MODULE := .venv-timm/bin/python -I -m
INSTALL := $(PYTHON) -E -s environment/install.py \
	$(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX)) $(if $(JOBS),--jobs $(JOBS))

# Tests of the timm bridge run in an environment of their own; options of pytest go to both.
TIMM_TESTS := $(filter tests_timm%,$(TESTS))
MAIN_TESTS := $(filter tests tests/%,$(TESTS))
PYTEST_OPTIONS := $(filter-out $(TIMM_TESTS) $(MAIN_TESTS),$(TESTS))
# Options alone are for the main tests.
RUN_MAIN := $(if $(TIMM_TESTS),$(MAIN_TESTS),yes)

# For the programs that Python starts in its turn.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.PHONY: help setup develop demo demo-all test lint bench clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'Variables:'
	@echo '  PYTHON       interpreter to start from (python3): 3.11 or 3.12'
	@echo '  TORCH_INDEX  index of CPU builds of torch, where pip would take CUDA packages'
	@echo '  JOBS         compilers at a time while mmcv is built'
	@echo '  TESTS        what make test runs, files or folders and options of pytest (tests tests_timm)'
	@echo '  BENCH        arguments of make bench'
	@echo '  DEMO         arguments of make demo and make demo-all, such as --seed 1'

setup: ## make .venv with the whole stack and .venv-timm on top of it, or complete them
	@$(INSTALL)

develop: ## link mminline into .venv for development (make setup undoes it)
	@$(INSTALL) --editable

demo: setup ## train and test a detector and a segmentor, see what they learn
	$(SCRIPT) tools/demo.py $(DEMO)

demo-all: setup ## the same with all four methods
	$(SCRIPT) tools/demo.py --all $(DEMO)

test: setup ## run the tests against the installed wheel
	status=0; \
	$(if $(RUN_MAIN),$(MODULE) pytest $(MAIN_TESTS) $(PYTEST_OPTIONS) || status=$$?;) \
	$(if $(TIMM_TESTS),$(TIMM_MODULE) pytest $(TIMM_TESTS) $(PYTEST_OPTIONS) || status=$$?;) \
	exit $$status

lint: setup ## check style and layout
	$(MODULE) ruff check .
	$(MODULE) ruff format --check .

bench: setup ## measure speed and memory
	$(SCRIPT) benchmarks/run.py $(BENCH)

clean: ## remove .venv, .venv-timm and caches (the built mmcv stays in the user's cache)
	rm -rf .venv .venv.old .venv.lock .venv-timm .venv-timm.old
	rm -rf .pytest_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
