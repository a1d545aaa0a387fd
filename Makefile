# make repro              everything, from nothing to the tables of the embedded corpus
# make fetch STUDY=ptb    the data sets of a study, into RETABLE_DATA (default: data/), from RETABLE_MIRROR if it is set
# make repro STUDY=ptb    another study; RETABLE_DATA=folder says where its data sets are (default: data/),
#                         JOBS=4 how many stages run at a time (default: one per core or GPU), ENGINE=ray or slurm on what
# make test               the tests, those on real data too where the folder is there
SHELL := /bin/bash
.DEFAULT_GOAL := help

STUDY ?= history
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ifndef RETABLE_DATA
RETABLE_DATA := data
endif
export RETABLE_DATA
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Without an NVIDIA driver torch comes from PyTorch's index of CPU builds, a tenth of the size. On a machine with a GPU
# PyPI's own build is the right one. TORCH_INDEX= switches the extra index off.
ifeq ($(shell command -v nvidia-smi),)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
endif
# An environment belongs to one folder, whose path is in its scripts: a copied or moved checkout makes its own.
INSTALLED_IN := $(shell cat $(VENV)/installed 2>/dev/null)
ifneq ($(INSTALLED_IN),)
ifneq ($(INSTALLED_IN),$(CURDIR))
$(shell rm -rf $(VENV))
endif
endif
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# pip's editable install is an import hook, before which a folder that is called retable, such as the one of this
# checkout, counts as a package wherever Python is started next to it. A folder on the path comes before both.
export SOURCE_ON_PATH := import sys, sysconfig; open(sysconfig.get_path('purelib') + '/retable-source.pth', 'w').write(sys.argv[1])

# A worker for each processor; a file's tests share what it trains, so they stay with one worker. In the files' own
# order, since the few tests of a file may take the longest, and would come last.
WORKERS := -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder

.PHONY: help env data-link fetch repro graph experiments test check audit docs screenshots ui clean

help:
	@sed -n 's/^# //p' Makefile | head -5
	@echo 'make env                the environment alone: .venv, 2.7 GB'
	@echo 'make data-link          data/ as a link to RETABLE_DATA, for commands without make'
	@echo 'make graph              params.yaml and dvc.yaml of all studies (make repro writes those of its study)'
	@echo 'make experiments        experiments of dvc exp run, next to the committed scores'
	@echo 'make check               style, types'
	@echo 'make audit               known vulnerabilities of requirements.lock, secrets in the tree'
	@echo 'make docs                the documentation, into site/index.html'
	@echo 'make screenshots         pictures of reports and the site, into docs/images'
	@echo 'make ui                  MLflow, on the runs of this project'

env: $(VENV)/installed

# What is installed is compiled by all processors, not by pip, which takes one for a minute and a half; but for a file of
# torch in the syntax of 3.12. What does not compile is told, and ends nothing: it is compiled when it is imported.
$(VENV)/installed: pyproject.toml requirements.lock src/retable/nn/fused.c
	$(PYTHON) -m venv $(VENV)
	$(PIP) --quiet --retries 1 $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) "$$(grep ^torch== requirements.lock)"
	$(PIP) --constraint requirements.lock --editable '.[dev]'
	@$(BIN)/python -c "$$SOURCE_ON_PATH" '$(CURDIR)/src'
	-@$(BIN)/python -m compileall -q -x py312 -j 0 $(VENV)/lib
	@echo '$(CURDIR)' > $@

# The data folder is linked to data/, the path that the graph knows it by, so that dvc.lock holds on every machine.
data-link:
	@case "$${RETABLE_DATA%/}" in data | ./data | "$(CURDIR)/data") exit 0 ;; esac; \
	  fail() { echo "error: $$1" >&2; exit 2; }; \
	  [ -d "$$RETABLE_DATA" ] || fail "RETABLE_DATA=$$RETABLE_DATA is no folder; write that of the data sets, or leave it out"; \
	  [ ! -e data ] || [ -L data ] || fail 'data/ is a folder of its own; move it, or unset RETABLE_DATA'; \
	  ln -sfn -- "$$RETABLE_DATA" data

fetch: env
	@mkdir -p -- "$$RETABLE_DATA"
	@$(MAKE) --no-print-directory data-link
	@retable fetch --study $(STUDY)

repro: env data-link
	@retable repro $(STUDY) $(if $(JOBS),--jobs $(JOBS)) $(if $(ENGINE),--engine $(ENGINE))

graph: env
	@for study in studies/*/; do retable graph $$study; done

# Without the columns of what stages depend on.
experiments: env
	@dvc exp show --only-changed --drop '(outputs|data|code|conf|pipelines|src|studies|params.yaml)(/|$$)'

test: env data-link
	@[ -d data ] || echo 'Without RETABLE_DATA the tests on real data are left out.'
	python -m pytest $(WORKERS) --junitxml work/tests.xml -m "not chaos and not cluster and not matrix and not long and not site$$([ -d data ] || echo ' and not real')"

check: env
	ruff check
	ruff format --check
	mypy

# The scanners have an environment of their own. Digests in hexadecimal are no secrets, and results are numbers. A package
# that the service does not know, as where it cannot be reached, is a failure: pip-audit passes it over unless --strict.
AUDIT := $(VENV)/audit
audit: $(AUDIT)/bin/pip-audit
	@git ls-files -z -- . ':!studies' ':!dvc.lock' ':!docs/images' \
	  | xargs -0 $(AUDIT)/bin/detect-secrets-hook --disable-plugin HexHighEntropyString \
	  || { echo 'error: there may be secrets in these lines; those that are none end with  # pragma: allowlist secret' >&2; exit 1; }
	@$(AUDIT)/bin/pip-audit --requirement requirements.lock --no-deps --disable-pip --strict --progress-spinner off \
	  2> $(AUDIT)/said || { echo "error: $$(tail -n 1 $(AUDIT)/said)" >&2; exit 1; }

$(AUDIT)/bin/pip-audit:
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check detect-secrets==1.5.0 pip-audit==2.10.1

# MkDocs 1 and its themes warn of MkDocs 2, which the extra docs leaves out.
docs: export DISABLE_MKDOCS_2_WARNING := true
docs: export NO_MKDOCS_2_WARNING := 1
docs: env
	@python -m mkdocs build --strict --quiet
	@echo 'site/index.html'

screenshots: env
	@python -m docs.screenshots

# Without the address's end MLflow opens on what it has for users of large models, where there are no runs.
ui: env
	@echo 'http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning'
	@MLFLOW_BACKEND_STORE_URI="$${MLFLOW_TRACKING_URI:-sqlite:///mlflow.db}" mlflow ui --port 5000

clean:
	rm -rf outputs work multirun site studies/*/{outputs,work,multirun,code}
