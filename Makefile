# Every target that needs the environment sets it up itself: `make demo` is enough on a fresh
# machine with Python, a C++ compiler, git and make.

PYTHON ?= python3
STACK ?= openmmlab
TORCH_INDEX ?=
JOBS ?=
TESTS ?= tests
WORKERS ?= 2
BENCH ?=
DEMO ?=
EXPLORE ?=

# One environment for each stack, see environment/stacks.py.
VENV := .venv$(if $(filter-out openmmlab,$(STACK)),-$(STACK))
VENVS := .venv .venv-onedl .venv-mmengine-0.11

# Python has to ignore the PYTHON* variables, the user's packages and the current folder (-I); but
# a script may import what stands beside it (-E -s).
MODULE := $(VENV)/bin/python -I -m
SCRIPT := $(VENV)/bin/python -E -s
# Processes take files of tests one by one, each isolated as this one; the models of the tests are
# too small for several threads.
PYTEST := OMP_NUM_THREADS=1 $(MODULE) pytest --dist loadfile \
	--tx '$(WORKERS)*popen//python=$(CURDIR)/$(VENV)/bin/python -I'
INSTALL := $(PYTHON) -E -s environment/install.py --stack $(STACK) \
	$(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX)) $(if $(JOBS),--jobs $(JOBS))

# Tests of all that depends on the stack; and a part of them that takes minutes, in which every
# config is read and the small ones learn and predict.
STACK_TESTS := tests/test_registry.py tests/test_config_bases.py tests/test_compat.py \
	tests/checkpoints tests/configs tests/tools/test_train.py tests/tools/test_mim.py \
	tests/timm_models/test_unsafe_weights.py tests/setup/test_steps.py
FAST_STACK_TESTS := tests/test_registry.py tests/test_config_bases.py tests/test_compat.py \
	tests/checkpoints tests/configs/test_configs.py tests/tools/test_mim.py \
	tests/timm_models/test_unsafe_weights.py tests/setup/test_steps.py -k 'not learns or nano or -t_'

# For the programs that Python starts in its turn.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.PHONY: help setup develop demo demo-all explore test test-fast test-stack test-stack-fast test-browser \
	lint bench docs clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'Variables:'
	@echo '  PYTHON       interpreter to start from (python3): 3.11 or 3.12'
	@echo '  STACK        what to set up and run on, each in an environment of its own:'
	@echo '               openmmlab (mmcv, mmdet, mmseg; .venv), onedl (maintained forks of them;'
	@echo '               .venv-onedl), mmengine-0.11 (its release candidate; .venv-mmengine-0.11)'
	@echo '  TORCH_INDEX  index of CPU builds of torch, where pip would take CUDA packages'
	@echo '  JOBS         compilers at a time while mmcv is built'
	@echo '  TESTS        what make test runs, files, folders and options of pytest (tests)'
	@echo '  WORKERS      processes that run tests, each on one core (2)'
	@echo '  BENCH        arguments of make bench'
	@echo '  DEMO         arguments of make demo and make demo-all, such as --seed 1'
	@echo '  EXPLORE      arguments of make explore, such as --port 7861'

setup: ## make .venv with the whole stack, or complete it
	@$(INSTALL)

develop: ## link mminline into .venv for development (make setup undoes it)
	@$(INSTALL) --editable

demo: setup ## train and test a detector and a segmentor, see what they learn
	$(SCRIPT) tools/demo.py $(DEMO)

demo-all: setup ## the same with all four methods
	$(SCRIPT) tools/demo.py --all $(DEMO)

explore: setup ## open a page on which a click shows where the models of make demo look
	$(SCRIPT) tools/explore.py --demo work_dirs/demo $(EXPLORE)

test: setup ## run the tests against the installed wheel
	$(PYTEST) $(TESTS)

test-fast: setup ## run the tests that are not marked as slow
	$(PYTEST) -m 'not slow' $(TESTS)

test-stack: setup ## run the tests of what depends on STACK
	$(PYTEST) $(STACK_TESTS)

test-stack-fast: setup ## run a fast part of them
	$(PYTEST) $(FAST_STACK_TESTS)

test-browser: setup ## test the page of make explore in chromium
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
		echo 'test-browser: chromium and chromedriver are needed:' \
			'apt-get install chromium chromium-driver'; exit 1; }
	$(MODULE) pip install --quiet -r requirements/browser.txt -c requirements/constraints.txt
	OMP_NUM_THREADS=1 $(MODULE) pytest -v tests/browser/check_explore.py

lint: setup ## check style and layout
	$(MODULE) ruff check .
	$(MODULE) ruff format --check .

bench: setup ## measure speed and memory
	$(SCRIPT) benchmarks/run.py $(BENCH)

docs: setup ## build the documentation site, with all links checked
	$(SCRIPT) docs/site/build.py

# .venv-timm is of earlier versions.
clean: ## remove all environments and caches (the built mmcv stays in the user's cache)
	rm -rf $(foreach venv,$(VENVS) .venv-timm,$(venv) $(venv).old $(venv).lock)
	rm -rf .pytest_cache .ruff_cache build dist site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
