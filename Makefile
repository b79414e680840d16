# Everything runs in .venv, which `make` fills from pyproject.toml when that file changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: help report lab test lint check clean

help:
	@echo "make report   run the live notebook on the default model; outputs/live-quick/report.html"
	@echo "make lab      open JupyterLab here"
	@echo "make test     lint, type check, tests, the notebooks on tiny settings"
	@echo "make lint     what the pre-commit hooks run"
	@echo "make clean    remove the environment and all outputs"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0] + "; set PYTHON=.")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade "pip>=25"
	$(BIN)/python -m pip install --editable ".[dev]"
	touch $@

report: $(READY)
	$(BIN)/ddtree fetch
	$(BIN)/ddtree run 03_live -f params/live/quick.yaml

lab: $(READY)
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" notebooks/03_live.ipynb

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/nbstripout --verify --keep-id notebooks/*.ipynb

check: $(READY)
	$(BIN)/mypy

test: lint check
	$(BIN)/ddtree fetch
	$(BIN)/pytest

clean:
	rm -rf $(VENV) outputs
