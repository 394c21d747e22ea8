# make book: environment, every figure, the book. make test: all tests. Both do only what is missing.

PYTHON ?= python3
ENVIRONMENT := .venv
RUN := $(ENVIRONMENT)/bin/python
INSTALLED := $(ENVIRONMENT)/installed
TESTED := $(ENVIRONMENT)/tested
# Everything a test can depend on: all files but those that the commands below make.
MADE := ./.git $(addprefix ./,$(ENVIRONMENT)) ./runs ./book/_build ./book/figures \
  ./data_cache/local ./data_cache/checkpoints ./data_cache/locks ./data_cache/datasets
TESTED_FILES := $(shell find . \( $(foreach path,$(MADE),-path $(path) -o) -name __pycache__ \
  -o -name '.*_cache' -o -name '*.egg-info' \) -prune -o -type f ! -name '* *' -print)

.PHONY: book test lock signatures

book: $(INSTALLED)
	@$(RUN) -m shared.cli run --all
	@$(RUN) -m shared.cli build --strict

test: book $(TESTED)
	@echo "All tests have passed"

$(TESTED): $(INSTALLED) $(TESTED_FILES)
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check
	@$(RUN) -m pytest
	@touch $(TESTED)

# The exact versions of everything; needs uv (pip install uv).
lock:
	uv pip compile pyproject.toml --group dev --extra dask --universal --python-version 3.11 \
	  --no-header --no-annotate --upgrade --output-file requirements.lock

# After a measurement's arguments or defaults have changed, and its version with them.
signatures: $(INSTALLED)
	@$(RUN) -m shared.signatures

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(None if sys.version_info >= (3, 11) else 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.12')"
	@echo "Installing the environment into $(ENVIRONMENT)"
	@$(PYTHON) -m venv $(ENVIRONMENT)
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(INSTALLED)
