# One environment. Each of the two commands adds what it needs, and again when pyproject.toml or constraints.txt changes.
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
TEST := $(VENV)/.installed-test
FUZZ := $(VENV)/.installed-fuzz
DOCS := $(VENV)/.installed-docs
# An MLflow server for slow tests. Its packages do not fit our constraints.
MLFLOW := .mlflow-venv/.installed
# Flower for slow tests. Its packages do not fit our constraints either.
FLOWER := .flower-venv/.installed
SBOM := $(VENV)/sbom/bin/cyclonedx-py
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
EXECUTE := --execute
PIP = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
# What computes with torch, and once more with the kernels that every processor has: a bound that holds on one processor
# alone is found out.
NUMERICAL := $(addprefix tests/,private_learning/gradients private_learning/training private_learning/tasks simulation goldens)
# These start whole studies, and compare what the same kernels gave on both sides.
STUDIES := $(addprefix --ignore=tests/simulation/,test_service.py test_command.py)
# Of these, what make test repeats: the goldens, and how gradients are clipped.
NUMERICAL_FIRST := $(addprefix tests/,goldens private_learning/gradients/test_clipping.py private_learning/gradients/test_per_record.py)
PLAIN := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE DNNL_MAX_CPU_ISA=SSE41

.PHONY: demo test tests test-all numerical campaigns lint figures coverage docs serve sbom bundle clean
.DELETE_ON_ERROR:

demo: $(DEMO)
	$(BIN)/wardround demo $(ARGS)

# The checks run beside the tests, which often wait for a process, a deadline or a browser.
test: $(TEST)
	@$(MAKE) --no-print-directory -j 2 lint tests

# With ARGS that is one run of what they choose; without, everything that is not slow, and some of it on plain kernels.
# Three processes on two cores, because the tests often wait.
tests: $(TEST)
	$(BIN)/pytest -n 3 $(or $(ARGS),--junitxml=.figures/junit.xml)
	$(if $(ARGS),,$(PLAIN) $(BIN)/pytest -n 2 $(NUMERICAL_FIRST))
	$(if $(findstring --cov,$(ARGS)),@$(MAKE) --no-print-directory coverage)

# Every test there is, the slow ones too.
# Where MLflow or Flower cannot be installed, the tests that need them are skipped.
test-all: lint
	-@$(MAKE) --no-print-directory $(MLFLOW)
	-@$(MAKE) --no-print-directory $(FLOWER)
	$(BIN)/pytest -n 2 -m 'slow or not slow' $(ARGS)
	@$(MAKE) --no-print-directory numerical

numerical: $(TEST)
	$(PLAIN) $(BIN)/pytest -n 2 -m 'slow or not slow' $(NUMERICAL) $(STUDIES)

# Fuzzing and chaos, in parts of some minutes to an hour. One that has passed is marked in .campaigns and not run again.
campaigns: $(FUZZ)
	$(BIN)/python -m tests.harness.campaigns $(PART) $(ARGS)

lint: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m research.quality.check

# What has to run before it can be measured. ARGS="--record after" writes it down, for docs/architecture.md as well.
figures: $(TEST)
	$(BIN)/python -m research.quality.figures $(ARGS)

# Line coverage of the packages that guarantees rest on, from the last run with --cov.
coverage:
	@failed=; for package in accounting study_protocol server/domain; do \
		printf '%-20s ' $$package; \
		$(BIN)/coverage report --include="$$package/*" --format=total --fail-under=92 || failed=1; \
	done; test -z "$$failed" || { echo "below 92 %: say why, or write the test" >&2; exit 1; }

# The site, in build/site. Its pages are those of docs/, and the three of the root, under the same names; notebooks are
# run, and the commands' page is what the commands say of themselves.
docs: $(DOCS)
	rm -rf build/docs && mkdir -p build && cp -R docs build/docs && rm -rf build/docs/notebooks
	cp CONTRIBUTING.md SECURITY.md CHANGELOG.md build/docs
	sed -i.before 's|](\.\./\([A-Z]*\.md\)|](\1|g; s|](docs/|](|g; s|](README.md)|](index.md)|g; s|\.ipynb)|.md)|g' build/docs/*.md && rm build/docs/*.before
	$(BIN)/python docs/reference/commands.py > build/docs/commands.md
	$(BIN)/jupyter-nbconvert --log-level WARN $(EXECUTE) --to markdown --output-dir build/docs/notebooks docs/notebooks/*.ipynb
	$(BIN)/zensical build --clean --strict

serve: $(DEMO)
	$(BIN)/wardround migrate
	$(BIN)/wardround serve $(ARGS)

# What is installed here, as CycloneDX.
sbom: $(DEMO) $(SBOM)
	$(SBOM) environment --pyproject pyproject.toml --output-reproducible --output-file sbom.cdx.json $(BIN)/python

# An archive in dist for machines without a network, signed with BUNDLE_KEY: docs/offline.md. ARGS=--help lists options.
bundle: $(DEMO) $(SBOM)
	$(if $(wildcard $(DOCS)),@$(MAKE) --no-print-directory docs)
	$(BIN)/python -m deploy.bundle $(if $(wildcard $(DOCS)),--documents build/site) $(if $(BUNDLE_KEY),--key '$(BUNDLE_KEY)') $(ARGS)

# The tool has an environment of its own, so that it does not list itself.
$(SBOM): constraints.txt | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/sbom
	$(VENV)/sbom/bin/python -m pip install --quiet --constraint constraints.txt cyclonedx-bom
	@touch $@

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

$(MLFLOW): constraints.txt
	$(PYTHON) -m venv .mlflow-venv
	.mlflow-venv/bin/python -m pip install --quiet "mlflow[auth]==$$(sed -n 's/^mlflow-skinny==//p' constraints.txt)"
	@touch $@

# The pinned torch has a build for CPUs alone.
$(FLOWER): pyproject.toml constraints.txt
	$(PYTHON) -m venv .flower-venv
	.flower-venv/bin/python -m pip install --quiet '.[flower]' 'flwr[simulation,dp]>=1.42,<1.43' \
		"$$(sed -n '/^torch==/p' constraints.txt)"
	@touch $@

$(FUZZ): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) '.[fuzz]'
	@touch $(DEMO) $(TEST) $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) '.[docs]'
	@touch $(DEMO) $@

clean:
	rm -rf $(VENV) .mlflow-venv .flower-venv build dist server/web/bundle .campaigns .figures
