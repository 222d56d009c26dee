# `make` alone lists what there is. Everything runs in .venv, which `make setup` fills once.
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
PY := $(VENV)/bin/python
LAB_FLAGS ?=
N ?= 20
CHECKED := -m "not unchecked" --jaxtyping-packages=mha_lab,beartype.beartype
NBVAL := -p no:cacheprovider -W default --nbval --nbval-current-env --nbval-cell-timeout=120
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export VENV CONSTRAINTS
# Three workers on two cores: browsers and kernels wait for each other a good part of their time. The longest
# first, so that no worker waits for another at the end.
SLOWEST := tests/classroom tests/explore/test_jupyter.py

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

.PHONY: setup
setup: ## make .venv and install everything at the pins
	@sh tools/setup.sh

.PHONY: lab
lab: setup ## open JupyterLab on the first chapter
	$(PY) -m jupyter lab $(LAB_FLAGS) notebooks/00_start_here.ipynb

PARTS := lint test-docs test-unchecked test-package test-site test-notebooks test-colab

.PHONY: test
test: setup ## every check, as CI runs them; says at once what fails and how to run that alone
	@$(PY) -m tools.gate $(PARTS)

.PHONY: lint
lint: setup ## every check of .pre-commit-config.yaml: ruff, clean chapters, large files, secrets, schemas
	@$(PY) -m pre_commit run --all-files

.PHONY: format
format: setup ## lay out code and notebooks, mend what ruff can, drop what an editor left in a chapter
	@$(PY) -m ruff check --fix --exit-zero --quiet .
	@$(PY) -m ruff format .
	@$(PY) tools/notebooks.py clean

.PHONY: stamp
stamp: setup ## write address, titles, minutes and points wherever they are repeated
	@$(PY) -m tools.stamp

# $(call pytest,FLAGS) runs pytest and names each failure with the command that runs it alone.
pytest = ALONE='$(PY) -m pytest $(1)' $(PY) -m pytest -q -p tools.alone $(1)

.PHONY: test-docs
test-docs: setup ## the examples in the docstrings
	@$(call pytest,--doctest-modules) mha_lab

.PHONY: test-unchecked
test-unchecked: setup ## wrong arguments, wrong answers and export, where the jaxtyping checker would be in the way
	@$(call pytest,-m unchecked) -n 3 --dist worksteal tests --ignore tests/site --ignore tests/colab $(NOT_HERE)

# Tests and stored outputs are the same with and without a network: nothing of a gigabyte is loaded.
test-package test-notebooks test-colab repeat-notebooks notebooks bench: export HF_HUB_OFFLINE := 1

# Small tensors gain nothing from a second thread, and workers would fight for it.
test-package test-fast: export OMP_NUM_THREADS := 1

.PHONY: test-package
test-package: setup ## package, tools, exercises, class, explorables; every shape in every signature checked
	@$(call pytest,$(CHECKED)) -n 3 --dist loadfile --no-loadscope-reorder $(SLOWEST) tests \
		--ignore tests/site --ignore tests/colab $(NOT_HERE)

.PHONY: test-site
test-site: setup ## the website, built and opened in a browser
	@$(call pytest,) tests/site

.PHONY: test-notebooks
test-notebooks: setup ## every chapter, run afresh and compared with its stored outputs
	@$(call pytest,$(NBVAL)) -n 2 --dist loadfile notebooks

.PHONY: test-colab
test-colab: setup ## every chapter as on Colab: other versions, an empty folder, the package from a wheel
	@$(call pytest,) tests/colab

# What a change to the package breaks first; no browser, no kernel, no training, no other library.
SLOW := notebooks project site colab classroom explore check/test_corpus.py check/test_mutants.py check/test_luck.py check/test_luck_padding.py check/test_sandbox.py \
	test_lookups.py test_notebook_tool.py test_peers.py test_pretrained.py

.PHONY: test-fast
test-fast: setup ## the package alone, for the inner loop
	@$(call pytest,-x) -n 2 tests $(SLOW:%=--ignore tests/%)

# In an environment of its own, all that depends on versions; what looks at files is left out.
define lane
@mkdir -p build && $${PYTHON:-python3} tools/lane.py $(1) >build/$(1).txt
@$(MAKE) --no-print-directory setup VENV=.venv-$(1) CONSTRAINTS=build/$(1).txt
@VENV=.venv-$(1) CONSTRAINTS=build/$(1).txt PYTEST_ADDOPTS="-W default" \
	NOT_HERE="--ignore tests/project --ignore tests/test_figures.py" \
	.venv-$(1)/bin/python -m tools.gate test-docs test-unchecked test-package test-notebooks
endef

.PHONY: test-oldest
test-oldest: ## the checks of behaviour with the lower bounds of pyproject.toml
	$(call lane,oldest)

.PHONY: test-newest
test-newest: ## the checks of behaviour with the newest releases
	$(call lane,newest)

.PHONY: repeat-notebooks
repeat-notebooks: setup ## the chapters N=20 times; stops at the first difference
	@for i in $$(seq 1 $(N)); do \
		echo "== run $$i of $(N)"; \
		$(PY) -m pytest -q -n 2 --dist loadfile $(NBVAL) notebooks || exit 1; \
	done; echo "$(N) runs, no difference"

.PHONY: notebooks
notebooks: setup ## run every chapter, or CHAPTER=03, in a fresh kernel and store its outputs, cleaned
	@$(PY) tools/notebooks.py run $(CHAPTER)

COURSE ?= course

.PHONY: classroom
classroom: setup ## a course for nbgrader in COURSE=course: each chapter an assignment, ready to hand out
	@$(PY) -m tools.classroom layout "$(COURSE)"

.PHONY: collect
collect: setup ## take what was submitted of CHAPTER=03_splitting_heads through nbgrader's exchange into COURSE=course
	@$(PY) -m tools.classroom collect "$(COURSE)" "$(CHAPTER)"

.PHONY: grade
grade: setup ## autograde CHAPTER=03_splitting_heads in COURSE=course: points, feedback, grades.csv
	@$(PY) -m tools.classroom grade "$(COURSE)" "$(CHAPTER)"

.PHONY: figures
figures: setup ## draw everything under figures/ again
	@$(PY) -m tools.figures

SITE ?= build/site

.PHONY: site
site: setup ## the website of the chapters in SITE=build/site, from their stored outputs
	@$(PY) -m tools.site "$(SITE)"

.PHONY: matrix
matrix: setup ## write docs/check-matrix.md: how check judges the first tries of readers
	@$(PY) -m tools.matrix

.PHONY: draws
draws: setup ## every first try on N=20 draws of random problems: is it always judged the same?
	@$(PY) -m tools.draws $(N)

.PHONY: bench
bench: setup ## speed and memory as ratios, side by side with PyTorch's layer
	@$(PY) -m bench

.PHONY: pins
pins: ## write constraints.txt from a fresh environment: the newest releases, torch as in tools/pins.sh
	@sh tools/pins.sh

.PHONY: clean
clean: ## remove the environment and all caches
	rm -rf $(VENV) .venv-oldest .venv-newest .pytest_cache .ruff_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
