# `make` alone lists all targets. Everything runs in .venv: `make lab` installs what a learner needs, and all
# other targets add what the checks need.
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
PY := "$(VENV)/bin/python"
LAB_FLAGS ?=
N ?= 20
NBVAL := -p no:cacheprovider -p tools.pictures -W default --nbval --nbval-current-env --nbval-cell-timeout=600
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export VENV CONSTRAINTS

# Outputs are the same with and without a network: no check downloads a gigabyte.
test-fast test-slow test-notebooks notebooks refresh repeat-notebooks bench: export HF_HUB_OFFLINE := 1
# Small tensors gain nothing from a second thread, and workers would fight for it.
test-docs test-fast test-slow test-browser test-grading test-colab test-trainings test-notebooks: export OMP_NUM_THREADS := 1

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

.PHONY: setup
setup: ## make .venv and install everything at the pins
	@EXTRAS=all sh tools/setup.sh

.PHONY: lab
lab: ## open JupyterLab on the first chapter
	@EXTRAS=lab sh tools/setup.sh
	$(PY) -m jupyter lab $(LAB_FLAGS) notebooks/00_start_here.ipynb

LANES := @MAKE="$(MAKE)" sh tools/lanes.sh

.PHONY: test
test: setup ## what a change should pass before a pull request
	$(LANES) lint test-docs test-fast test-notebooks

.PHONY: test-all
test-all: setup ## the rest: browsers, JupyterLab, the class, Colab's versions, other processors, trainings
	$(LANES) test-slow test-browser test-grading test-colab test-processors test-trainings

.PHONY: lint
lint: setup ## every check of .pre-commit-config.yaml: ruff, imports, clean chapters, secrets, schemas
	@$(PY) -m pre_commit run --all-files

.PHONY: format
format: setup ## format code and notebooks, fix what ruff can, remove what an editor left in a chapter
	@$(PY) -m ruff check --fix --exit-zero --quiet .
	@$(PY) -m ruff format .
	@$(PY) tools/notebooks.py clean

.PHONY: sync
sync: setup ## write titles, minutes and points wherever they are repeated
	@$(PY) -m tools.sync

.PHONY: publish
publish: setup ## write REPOSITORY=https://github.com/ada/attention wherever the course names its address
	@$(PY) -m tools.sync publish "$(REPOSITORY)"

.PHONY: test-docs
test-docs: setup ## the examples in the docstrings
	@$(PY) -m pytest -q -n 2 -p no:nbval -p tests.conftest --doctest-modules mha_lab mha_course

.PHONY: test-fast
test-fast: setup ## package, exercises, files; one submission; one build of the website; one explorable in one browser
	@$(PY) -m pytest -q -n 2 -p no:nbval

.PHONY: test-slow
test-slow: setup ## whole trainings, tests against lucky answers, other programs
	@$(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "slow and not (browser or grading or training or colab)"

.PHONY: test-trainings
test-trainings: setup ## whole chapters 07, 10 and 14, and what chapters 10 to 16 say of five seeds: twenty minutes
	@$(PY) tools/notebooks.py merge
	@$(PY) -m pytest -q $(NBVAL) -n 2 --dist loadfile build/chapters/07_* build/chapters/10_* build/chapters/14_*
	@$(PY) -m pytest -q -n 2 --dist loadfile -m training

# A browser on a busy machine may draw late: a test that fails is run once more, and the last lines name it.
.PHONY: test-browser
test-browser: setup ## every explorable, JupyterLab and Notebook, every page of the website
	@$(PY) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m browser --reruns 1 -r R

.PHONY: test-grading
test-grading: setup ## the class, including submissions of hostile students
	@$(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m grading

# Another folder than that of a class: the hub is installed into it once, and its state is deleted at each run.
.PHONY: test-hub
test-hub: export MHA_HUB_TEST ?= /srv/mha-hub-test
test-hub: setup ## as root: a JupyterHub with accounts on this machine, what a student can try against it, a lesson
	@$(PY) -m pytest -q -m hub

.PHONY: test-notebooks
test-notebooks: setup ## every chapter, or CHAPTER=08, run afresh and compared with its stored outputs
	@$(PY) tools/notebooks.py merge
	@$(PY) -m pytest -q $(NBVAL) -n 2 --dist loadfile build/chapters/$(CHAPTER)*.ipynb

.PHONY: test-colab
test-colab: setup ## every chapter as on Colab: other versions, an empty folder, the package from a wheel; the handout
	@$(PY) -m pytest -q -m colab

# Chapters 07, 10 and 14 train for fewer steps or seeds, with which each verdict still holds.
test-notebooks repeat-notebooks: export MHA_LAB_SHORT := 1

# As if a step of a training was computed on another processor.
.PHONY: test-noise
test-noise: export PYTHONSTARTUP := $(CURDIR)/tools/noise.py
test-noise: test-notebooks ## the chapters with noise in each step of a training; part of test-processors

# Another processor: PyTorch, MKL and oneDNN use only the instructions that it has, and so they round differently.
TWO_THREADS := OMP_NUM_THREADS=2
AVX2 := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2
SSE4 := ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41
PLAIN := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE

.PHONY: test-processors
test-processors: setup ## chapters and fast tests with the instructions of other processors: 25 minutes
	$(LANES) $(foreach one,TWO_THREADS AVX2 SSE4 PLAIN,"$($(one)) test-fast" "$($(one)) test-notebooks") test-noise

# In a separate environment, all checks that depend on versions; those that only read files are left out.
define other-versions
@EXTRAS=all VENV=.venv-$(1) CONSTRAINTS=build/$(1).txt sh tools/setup.sh
@VENV=.venv-$(1) CONSTRAINTS=build/$(1).txt PYTEST_ADDOPTS="-W default --ignore tests/project --ignore tests/test_figures.py" \
	$(MAKE) --no-print-directory -k test-docs test-fast test-slow test-grading test-notebooks
endef

.PHONY: test-oldest
test-oldest: setup ## the checks of behaviour with the lower bounds of what learners install
	@mkdir -p build && $(PY) -m uv pip compile -q --no-deps --no-annotate --resolution lowest-direct \
		--extra lab --extra class --extra pretrained pyproject.toml -o build/oldest.txt
	$(call other-versions,oldest)

.PHONY: test-newest
test-newest: ## the checks of behaviour with the newest releases
	@mkdir -p build && : >build/newest.txt
	$(call other-versions,newest)

.PHONY: repeat-notebooks
repeat-notebooks: setup ## run the chapters N=20 times; stop at the first difference
	@$(PY) tools/notebooks.py merge
	@for i in $$(seq 1 $(N)); do \
		echo "== run $$i of $(N)"; \
		$(PY) -m pytest -q -n 2 --dist loadfile $(NBVAL) build/chapters || exit 1; \
	done; echo "$(N) runs, no difference"

.PHONY: notebooks
notebooks: setup ## run every chapter, or CHAPTER=03, in a fresh kernel and store its outputs, cleaned
	@$(PY) tools/notebooks.py run $(CHAPTER)

.PHONY: refresh
refresh: setup ## run every chapter, and store those whose outputs or pictures have changed
	@$(PY) -m tools.notebooks refresh $(CHAPTER)

.PHONY: handout
handout: setup ## write build/handout.zip for students: the chapters, or CHAPTER=03, the package, how to install them
	@$(PY) -m tools.handout zip $(CHAPTER)

.PHONY: projector
projector: setup ## copy every chapter, or CHAPTER=03, into build/projector without outputs, hints and answers
	@$(PY) -m tools.handout projector $(CHAPTER)

COURSE ?= course

.PHONY: classroom
classroom: setup ## a course for nbgrader in COURSE=course: each chapter is an assignment, or only CHAPTER=03
	@$(PY) -m mha_course.grading layout "$(COURSE)" $(CHAPTER)

.PHONY: collect
collect: setup ## take the submissions of CHAPTER=03 from ZIP=file.zip of Moodle or Canvas, or from nbgrader's exchange, into COURSE=course
	@$(PY) -m mha_course.grading collect "$(COURSE)" "$(CHAPTER)" --zip "$(ZIP)"

.PHONY: grade
grade: setup ## autograde CHAPTER=03 in COURSE=course: points, feedback, tables, report; JOBS=2 at a time, or one for each core
	@$(PY) -m mha_course.grading grade "$(COURSE)" "$(CHAPTER)" --jobs "$(or $(JOBS),0)"

.PHONY: report
report: setup ## what to teach next, from the graded submissions of CHAPTER=03 in COURSE=course: two pages
	@$(PY) -m mha_course.grading report "$(COURSE)" "$(CHAPTER)"

.PHONY: exercise
exercise: setup ## a skeleton of all parts of an exercise: NAME=double_rows CHAPTER=03
	@$(PY) -m tools.exercise new "$(NAME)" "$(CHAPTER)"

.PHONY: exercise-check
exercise-check: setup ## every check that can fail because of NAME=double_rows
	@$(PY) -m tools.exercise check "$(NAME)"

.PHONY: figures
figures: setup ## draw everything under figures/ again
	@$(PY) -m tools.figures

CLASS ?= class.csv

.PHONY: hub
hub: ## as root: a JupyterHub for the class list CLASS=class.csv on this machine; hub/start.py lists the settings
	@"$(or $(PYTHON),python3)" hub/start.py "$(CLASS)"

SITE ?= build/site

.PHONY: site
site: setup ## the website of the chapters in SITE=build/site, from their stored outputs
	@$(PY) -m tools.site "$(SITE)"

.PHONY: matrix
matrix: setup ## write docs/check-matrix.md and docs/wrong-answers: what check says about the first tries of readers
	@$(PY) -m tests.check.matrix

.PHONY: class-report
class-report: setup ## write docs/class-report-example.html: the report about a simulated class
	@$(PY) -m tests.grading.simulated

.PHONY: stability
stability: setup ## every first try on N=20 sets of random problems: is it always named the same?
	@$(PY) -m tests.check.stability $(N)

.PHONY: bench
bench: setup ## speed and memory as ratios, side by side with PyTorch's layer
	@$(PY) -m bench

.PHONY: pins
pins: ## write constraints.txt from a fresh environment: the newest releases, torch as in tools/pins.sh
	@sh tools/pins.sh

.PHONY: clean
clean: ## remove the environment and all caches
	rm -rf "$(VENV)" .venv-oldest .venv-newest .pytest_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
