# One environment. Each of the two commands adds what it needs, and again when pyproject.toml or constraints.txt changes.
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
TEST := $(VENV)/.installed-test
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.PHONY: demo test lint coverage serve sbom clean
.DELETE_ON_ERROR:

demo: $(DEMO)
	$(BIN)/python -m experiments.demo $(ARGS)

test: lint
	$(BIN)/pytest -n 2 $(ARGS)
	$(if $(findstring --cov,$(ARGS)),@$(MAKE) --no-print-directory coverage)

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# Line coverage of the packages that guarantees rest on, from the last run with --cov.
coverage:
	@failed=; for package in accounting client_sdk/protocol server/domain; do \
		printf '%-20s ' $$package; \
		$(BIN)/coverage report --include="$$package/*" --format=total --fail-under=92 || failed=1; \
	done; test -z "$$failed" || { echo "below 92 %: say why, or write the test" >&2; exit 1; }

serve: $(DEMO)
	$(BIN)/wardround migrate
	$(BIN)/wardround serve $(ARGS)

# What is installed here, as CycloneDX. The tool has an environment of its own, so that it does not list itself.
sbom: $(DEMO)
	$(BIN)/python -m venv $(VENV)/sbom
	$(VENV)/sbom/bin/python -m pip install --quiet --constraint constraints.txt cyclonedx-bom
	$(VENV)/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file sbom.cdx.json $(BIN)/python

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Wardround needs Python 3.11 or newer; set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) '.[demo]'
	@touch $@

# The tests' extra holds the demonstration's.
$(TEST): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) '.[test]'
	@touch $(DEMO) $@

clean:
	rm -rf $(VENV) build dist
