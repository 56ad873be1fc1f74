# The environment is made once from pyproject.toml and constraints.txt, and again when either changes.
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: demo test lint serve clean
.DELETE_ON_ERROR:

demo: $(STAMP)
	$(BIN)/python -m experiments.demo $(ARGS)

test: lint
	$(BIN)/pytest -n 2 $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

serve: $(STAMP)
	$(BIN)/wardround migrate
	$(BIN)/wardround serve $(ARGS)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Wardround needs Python 3.11 or newer; set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) build dist
