# Everything runs in .venv, which `make` fills from pyproject.toml, in the versions of the lock, when either changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
LOCK := requirements-cpu.lock
GPU_LOCK := requirements-gpu.lock
UV := $(VENV)-uv/bin/uv
# What PyPI's torch for Linux asks for and its CPU wheel does not.
CUDA := cuda-bindings cuda-toolkit nvidia-cudnn-cu13 nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvshmem-cu13

.PHONY: help report sweep lab test test-all lint check doctor lock clean

help:
	@echo "make report   run the live notebook on the default model; outputs/live-quick/report.html"
	@echo "make sweep    a grid of live runs and its summary; SWEEP=params/sweeps/temperature-budget.yaml JOBS=1"
	@echo "make lab      open JupyterLab here"
	@echo "make test     lint, type check, tests, the notebooks on tiny settings, on two cores"
	@echo "make test-all the same with the tests that take longer, and every property case"
	@echo "make lint     what the pre-commit hooks run"
	@echo "make doctor   what is usable on this machine, and what is missing"
	@echo "make lock     pin anew what pyproject.toml asks for; make lock UPGRADE=--upgrade takes the newest of all"
	@echo "make clean    remove the environment and all that runs wrote"

$(READY): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0] + "; set PYTHON=.")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade "pip>=25"
	$(BIN)/python -m pip install --constraint $(LOCK) --editable ".[dev]"
	touch $@

report: $(READY)
	$(BIN)/ddtree fetch
	$(BIN)/ddtree run 03_live -f params/live/quick.yaml

SWEEP ?= params/sweeps/temperature-budget.yaml
JOBS ?= 1
sweep: $(READY)
	$(BIN)/ddtree fetch
	$(BIN)/ddtree sweep $(SWEEP) --jobs $(JOBS)

lab: $(READY)
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" notebooks/03_live.ipynb

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/nbstripout --verify --keep-id notebooks/*.ipynb

check: $(READY)
	$(BIN)/mypy

# A file stays on one worker, which keeps what its tests share; long files come first, as tests/conftest.py has them.
PYTEST = $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test: lint check
	$(BIN)/ddtree fetch
	$(PYTEST)

test-all: lint check
	$(BIN)/ddtree fetch
	$(PYTEST) -m ""

doctor: $(READY)
	$(BIN)/ddtree doctor

# Versions alone: hashes would be those of PyPI's CUDA build of torch, and refuse the CPU wheel of the same version.
lock: $(UV)
	printf '%s\n' $(CUDA) | $(UV) pip compile pyproject.toml --extra dev --excludes /dev/stdin --universal \
	  --python-version 3.11 $(COMPILE) --output-file $(LOCK)
	$(UV) pip compile pyproject.toml --extra gpu --extra notebooks --extra tools --python-platform x86_64-manylinux_2_34 \
	  --python-version 3.12 $(COMPILE) --output-file $(GPU_LOCK)

COMPILE = --quiet --no-python-downloads --no-annotate --custom-compile-command "make lock" $(UPGRADE)

$(UV):
	$(PYTHON) -m venv $(VENV)-uv
	$(VENV)-uv/bin/python -m pip install uv

clean:
	rm -rf $(VENV) $(VENV)-uv
	find outputs -mindepth 1 ! -name README.md -delete
