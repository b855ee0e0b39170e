# make demo    the whole idea on your machine, from nothing but Python
# make test    the tests; what this machine lacks is skipped by name
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev
RUN = $(VENV)/bin
STAMP = $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
comma := ,

.PHONY: demo test lint types clean

demo: $(VENV)/.installed
	$(RUN)/goldiclip demo

test: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest $(PYTEST)

lint: $(STAMP)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

types: $(STAMP)
	$(RUN)/mypy

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "goldiclip needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo 'Without venv nothing can be installed. Debian and Ubuntu keep it apart: apt install python3-venv'; exit 1; }

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	.ci/install $(RUN)/python -e .
	touch $@

$(STAMP): $(VENV)/bin/python pyproject.toml
	.ci/install $(RUN)/python -e '.[$(EXTRAS)]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
