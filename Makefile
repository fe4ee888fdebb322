# `make run` and `make test` need Python 3.11+, pip and make; they build their own virtual environment.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE := $(VENV)/.site
WORKERS ?= 2
# every array's shape and type is checked at run time in the tests of the agent interface, problems and drivers
TYPED := tests/conformance tests/problems tests/drivers
CHECKED := --jaxtyping-packages=coterie.problems,coterie.losses,coterie.drivers,coterie.algorithms,beartype.beartype

.PHONY: run test test-typed test-rest test-all test-browser test-faults test-deployed test-sums soak audit lint bench bench-peers docs notebook papers papers-quick lock sbom wheel clean
.DEFAULT_GOAL := run

# nothing is installed but the files whose hashes are in locks/; the project itself is built with what lies there too
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# a fifth of pip's time; it reads no settings of pip's, so where it finds no index pip goes on
UV := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python
$(READY): pyproject.toml locks/agent.txt locks/dev.txt locks/installer.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r locks/installer.txt || echo "no uv for this machine: pip installs, which takes longer"
	$(UV) --require-hashes -r locks/dev.txt || $(PIP) --require-hashes -r locks/dev.txt
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

run: $(READY)            ## forty parties train one model on embedded data; writes runs/default and its report.html
	$(BIN)/coterie run --out runs/default

# most of the time goes into compiling programs that run for milliseconds: here, but not in test-all, that is done fast
test: export XLA_FLAGS += --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_parallel_codegen_split_count=1
# where in the code each operation was written is of no use here, and a tenth of what compiling takes
test test-all audit: export JAX_TRACEBACK_IN_LOCATIONS_LIMIT := 0
# a worker has one core: linear algebra in more threads makes them wait for each other; bytecode serves all of them
test test-all audit: export OPENBLAS_NUM_THREADS := 1
test test-all audit: export OMP_NUM_THREADS := 1
test test-all audit: export PYTHONDONTWRITEBYTECODE :=
test: $(READY)           ## what CI runs: lint, types, and every test that is not marked slow
	$(MAKE) --no-print-directory -j 3 lint test-typed test-rest

# beside each other: while tests of deployed parties wait, other work has the cores
test-rest: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not faults and not audit" $(TYPED:%=--ignore=%)

test-typed: $(READY)     # in a third of the workers, or in one process; what it says comes when it is done
	@said=$$($(BIN)/python -m pytest -n $$(($(WORKERS) / 3)) -m "not slow and not audit" $(TYPED) $(CHECKED) 2>&1); \
		code=$$?; printf '%s\n' "$$said"; exit $$code

test-all: $(READY) lint  ## everything but audit and test-faults, the slow checks included
	$(BIN)/python -m pytest -n $(WORKERS) -m "not audit" $(TYPED) $(CHECKED)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not faults and not audit" $(TYPED:%=--ignore=%)

test-browser: $(SITE)    ## reports, a party's live page and the site in a browser; pictures to look at go to runs/shots
	command -v chromedriver > /dev/null || apt-get install -y --no-install-recommends chromium chromium-driver \
		|| echo "no browser: install chromium and chromium-driver"
	mkdir -p runs/shots
	COTERIE_SHOTS=runs/shots NO_MKDOCS_2_WARNING=1 $(BIN)/python -m pytest -p no:xdist -m "slow or not slow" \
		tests/report/test_html.py tests/deploy/test_window_page.py tests/test_site.py::test_the_site_builds_strictly

test-faults: $(READY)    ## kills, I/O errors, full disks, power cuts; wants root, strace and iproute2, says what it skips
	@if [ "$$(id -u)" = 0 ] && ! (command -v strace && command -v ip) > /dev/null; then \
		apt-get install -y --no-install-recommends strace iproute2 || echo "strace or iproute2 could not be installed"; fi
	$(BIN)/python -m pytest -p no:xdist -m "faults and not slow" -rs tests/faults

test-deployed: $(READY)  ## every private algorithm in five processes over TLS: the integers of a simulation; ten minutes
	$(BIN)/python -m pytest -p no:xdist -m slow tests/deploy/test_everything.py

test-sums: $(READY)      ## secret sums: deaths at every step, a thousand lies, twenty processes of which five die; two hours
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/sums
	nice -n 5 $(BIN)/python -m pytest -p no:xdist -m "faults and slow" -rs tests/faults/test_sums.py

# the size of a soak: small enough for a coffee; SOAK="--parties 20 --rounds 10000 --kills 40 --floods 30 --reference 800"
SOAK ?= --parties 5 --rounds 2000 --kills 10 --floods 6
soak: $(READY)           ## many rounds with kills, floods and rotations; prints what was measured, and what is wrong
	rm -rf runs/soak
	nice -n 15 $(BIN)/python -W ignore -m tests.faults.soak runs/soak $(SOAK)

audit: $(READY)          ## every algorithm on every loss, in every way that it runs; every seeded fault; 1,000 honest audits
	$(BIN)/python -m pytest -n $(WORKERS) -m audit tests/audit

lint: $(READY)           ## ruff, formatting, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)          ## ratios to peers measured in the same run
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.accounting
	$(BIN)/python -m benchmarks.samplers
	$(BIN)/python -m benchmarks.per_example
	$(BIN)/python -m benchmarks.ledger

$(SITE): $(READY) locks/docs.txt
	$(UV) --require-hashes -r locks/docs.txt || $(PIP) --require-hashes -r locks/docs.txt
	touch $@

bench-peers: $(READY)    ## other packages side by side, in environments of their own; says what would not install
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.per_example --opacus
	$(BIN)/python -m benchmarks.deploy_peers

docs: $(SITE)            ## rewrite the generated parts of README and docs/ from the code, build the site in site/
	$(BIN)/python -m coterie.report.pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebook: $(SITE)        ## run docs/five-hospitals.ipynb again and keep what it shows
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False docs/five-hospitals.ipynb

papers: $(READY)         ## every figure of the papers and their pages; two hours of processor time
	$(BIN)/python -m reproduction figure all --docs docs --engine local:$(WORKERS)

papers-quick: $(READY)   ## the same with few seeds and small sizes, in runs/papers-quick; below 10 minutes
	$(BIN)/python -m reproduction figure all --quick --engine local:$(WORKERS)

lock: $(READY)           ## locks/ anew from constraints.txt and pyproject.toml; hashes come from pip's index: read the diff
	$(BIN)/python release/lock.py

sbom: $(READY)           ## dist/coterie.cdx.json: what an agent is installed with (CycloneDX)
	mkdir -p dist
	$(BIN)/python release/sbom.py dist/coterie.cdx.json

wheel: $(READY)          ## dist/*.whl and dist/*.tar.gz from what is committed; the wheel's bytes are the same wherever it is built
	$(BIN)/python release/build_wheel.py dist
	$(BIN)/python release/build_wheel.py --sdist dist

clean:                   ## remove the virtual environment, runs and the site
	rm -rf $(VENV) runs site build dist
