# `make` alone lists what there is. Everything runs in .venv, which `make setup` fills once.
VENV ?= .venv
PY := $(VENV)/bin/python
LAB_FLAGS ?=
N ?= 20
CHECKED := -m "not unchecked" --jaxtyping-packages=mha_lab,beartype.beartype
NBVAL := -p no:cacheprovider -W default --nbval --nbval-current-env --nbval-cell-timeout=120
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

.PHONY: setup
setup: ## make .venv and install everything at the pins
	@VENV="$(VENV)" sh tools/setup.sh

.PHONY: lab
lab: setup ## open JupyterLab on the first chapter
	$(PY) -m jupyter lab $(LAB_FLAGS) notebooks/00_start_here.ipynb

.PHONY: test
test: setup ## every check, as CI runs them
	@$(MAKE) --no-print-directory lint test-docs test-unchecked test-package test-notebooks

.PHONY: lint
lint: setup ## ruff, on code and notebooks
	@echo "== lint: $(PY) -m ruff check"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) tools/notebooks.py check

.PHONY: test-docs
test-docs: setup ## the examples in the docstrings
	@echo "== examples in docstrings"
	@$(PY) -m pytest -q --doctest-modules mha_lab

.PHONY: test-unchecked
test-unchecked: setup ## wrong arguments and export, where the jaxtyping checker would be in the way
	@echo "== wrong arguments, export"
	@$(PY) -m pytest -q -m unchecked tests

# Tests and stored outputs are the same with and without a network: nothing of a gigabyte is loaded.
test-package test-notebooks repeat-notebooks notebooks bench: export HF_HUB_OFFLINE := 1

.PHONY: test-package
test-package: setup ## all other tests, with every shape in every signature checked
	@echo "== package, tools and notebooks' structure, shapes checked"
	@$(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(CHECKED) tests/classroom tests

.PHONY: test-notebooks
test-notebooks: setup ## every chapter, run afresh and compared with its stored outputs
	@echo "== stored outputs of the chapters"
	@$(PY) -m pytest -q -n 2 --dist loadfile $(NBVAL) notebooks

.PHONY: test-fast
test-fast: setup ## the package only, for the inner loop
	@$(PY) -m pytest -q -x tests --ignore tests/notebooks --ignore tests/project

.PHONY: repeat-notebooks
repeat-notebooks: setup ## the chapters N=20 times; stops at the first difference
	@for i in $$(seq 1 $(N)); do \
		echo "== run $$i of $(N)"; \
		$(PY) -m pytest -q -n 2 --dist loadfile $(NBVAL) notebooks || exit 1; \
	done; echo "$(N) runs, no difference"

.PHONY: notebooks
notebooks: setup ## run every chapter in a fresh kernel and store its outputs, cleaned
	@$(PY) tools/notebooks.py run

COURSE ?= course

.PHONY: classroom
classroom: setup ## a course for nbgrader in COURSE=course: each chapter an assignment, ready to hand out
	@$(PY) -m tools.classroom layout "$(COURSE)"

.PHONY: grade
grade: setup ## autograde CHAPTER=03_splitting_heads in COURSE=course: points, feedback, grades.csv
	@$(PY) -m tools.classroom grade "$(COURSE)" "$(CHAPTER)"

.PHONY: figures
figures: setup ## draw everything under figures/ again
	@$(PY) -m tools.figures

.PHONY: matrix
matrix: setup ## how check judges the right and wrong answers of the tests
	@$(PY) -m tools.matrix

.PHONY: bench
bench: setup ## speed and memory as ratios, side by side with PyTorch's layer
	@$(PY) -m bench

.PHONY: pins
pins: ## write constraints.txt from a fresh environment with the newest releases
	@sh tools/pins.sh

.PHONY: clean
clean: ## remove the environment and all caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
