# For a machine with git, make and Python 3.11, 3.12 or 3.13:
#
#   make demo       set up, then run the bundled scenario under three policies
#   make test       set up, then pass the tests
#
#   make quick      the quick part of the tests, on every supported Python that is present
#   make slow       the full number of random cases, whole traces
#   make notebooks  execute the notebooks
#   make lint       style, types, and which room may import which
#   make lock       write down the newest versions for this Python in locks/
#   make clean      back to a fresh clone
#
# Setting up means a virtual environment in .venv with the versions of locks/; it is done again only
# when those or pyproject.toml change. Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
PYTEST ?= -m pytest -n 2 --dist loadgroup

MINOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
LOCK := $(wildcard locks/py$(subst .,,$(MINOR)).txt)
READY := .venv/ready-$(MINOR)
INSTALL := -m pip install -q --disable-pip-version-check
THIS := --no-deps --no-build-isolation
supported = $(if $(filter $(MINOR),3.11 3.12 3.13),,$(error apportion needs Python 3.11, 3.12 or 3.13, \
	and $(PYTHON) is $(or $(MINOR),not there); set PYTHON to one of them))

.PHONY: demo test quick slow notebooks lint lock clean
.SECONDARY:

demo: $(READY)
	@.venv/bin/apportion demo

test: $(READY)
	@.venv/bin/python $(PYTEST)

slow: $(READY)
	@.venv/bin/python $(PYTEST) -m slow

notebooks: $(READY)
	@.venv/bin/python -m pytest --nbmake notebooks

quick:
	@for minor in $$(.ci/pythons); do $(MAKE) -s --no-print-directory quick-$$minor || exit 1; done

quick-$(MINOR): $(READY)
	@.venv/bin/python $(PYTEST) -m 'quick and not slow'

quick-%: .venv-%/ready
	@.venv-$*/bin/python $(PYTEST) -m 'quick and not slow'

# pyright and lint-imports read a regular copy, laid out by the installed names.
lint: $(READY)
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@rm -rf build/lint build/lib build/bdist.*
	@.venv/bin/python $(INSTALL) $(THIS) --target build/lint .
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv/bin/pyright
	@PYTHONPATH=build/lint .venv/bin/lint-imports --no-logo --cache-dir build/imports

lock:
	$(supported)
	@$(PYTHON) .ci/lock.py

clean:
	@rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .benchmarks .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +

$(READY): pyproject.toml $(LOCK)
	$(supported)
	@echo "setting up .venv with Python $(MINOR), some minutes the first time" >&2
	@test -x .venv/bin/python$(MINOR) || $(PYTHON) -m venv --clear .venv
	@.venv/bin/python $(INSTALL) --no-deps -r $(LOCK)
	@.venv/bin/python $(INSTALL) $(THIS) -e .
	@touch $@

# The other Pythons get what the tests need and no more.
.venv-%/ready: pyproject.toml $(wildcard locks/*.txt)
	@echo "setting up .venv-$*" >&2
	@test -x .venv-$*/bin/python$* || "$$(.ci/pythons $* || echo false)" -m venv --clear .venv-$*
	@.venv-$*/bin/python $(INSTALL) -c locks/py$(subst .,,$*).txt setuptools
	@.venv-$*/bin/python $(INSTALL) -c locks/py$(subst .,,$*).txt --no-build-isolation -e '.[test]'
	@touch $@
