# Two commands matter: `make demo` and `make test`. All but `clean` set up .venv first.

PYTHON ?= python3
BIN := .venv/bin
D3RLPY := .venv/d3rlpy
# uv takes a tenth of pip's time. Where it does not get at the packages (it does not read pip's settings), pip does.
UV := $(or $(shell command -v uv),$(BIN)/uv)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
install = $(UV) pip install --quiet --python $(BIN)/python $(1) || $(PIP) $(1)

.PHONY: setup demo test slow release check size paper-smoke soak fuzz kill audit docs cuda peers lock clean

setup: .venv/.ready

# The lock pins every package by hash; the package itself is then installed without looking further.
.venv/.ready: pyproject.toml requirements-dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -x $(UV) || $(PIP) uv || true
	$(call install,--require-hashes -r requirements-dev.txt)
	$(call install,--no-deps -e .)
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py

# Facts of the mathematics, and each promise to users once: minutes on two cores.
test: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

# The rest: whole programs that are killed, hang or meet odd environments, every pair, the pages' own code, peers.
slow: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q -m slow

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# How much there is to hold, beside its limits.
size: setup
	@$(BIN)/python tests/size.py

# Every experiment of the paper, tiny: does each leave its table and its figures?
paper-smoke: setup
	@for name in main swimmer robustness backbones metaworld structure rewards; do \
	  $(BIN)/python -m apportion paper $$name --scale smoke --out build/paper/$$name || exit 1; \
	done

# Half an hour of training with a checkpoint after every iteration: does anything grow? MINUTES=5 is a short one.
MINUTES ?= 30
soak: setup
	@$(BIN)/python benchmarks/soak.py --minutes $(MINUTES)

# The pages as a site, with navigation, search and the reference. A warning, such as a dead link, is an error.
docs: setup
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --fresh-env --conf-dir docs --doctree-dir build/doctrees . build/site
	@echo "Open build/site/index.html"

# Damaged files and odd command lines, at length: docs/reliability.md says what must not happen.
fuzz: setup
	@$(BIN)/python benchmarks/fuzz.py --cases 10000 --out results/fuzz.json

# Trainings that are killed at any moment, resumed, and compared bit for bit with one that never stopped.
kill: setup
	@$(BIN)/python benchmarks/kills.py --kills 50 --out results/kills.json

# Known vulnerabilities of the packages in the lock. It asks the advisory database, so it needs a network.
audit: setup
	$(UV) tool run pip-audit --strict --require-hashes --disable-pip -r requirements-dev.txt

# JAX for an NVIDIA GPU, in the version that the lock has: the extra `cuda`.
cuda: setup
	$(call install,-e ".[cuda]")

# Other people's packages that benchmarks and a few tests measure us against, or that we serve. torch by pip: where
# that was told of a build without CUDA, which is a tenth as large, it takes that one.
peers: setup
	$(PIP) torch==2.13.0
	$(call install,stable-baselines3==2.9.2 sbx-rl==0.28.0 wandb==0.31.0)
	@test -x $(D3RLPY)/bin/python || $(PYTHON) -m venv $(D3RLPY)
	$(D3RLPY)/bin/pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0 d3rlpy==2.8.1

# Wheel and source archive in dist/, and the demo from the wheel alone, in an environment of its own.
release: setup
	rm -rf dist build/release
	$(call install,hatchling)
	$(BIN)/hatchling build -d dist
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/release && bin/apportion --version && bin/python ../../examples/demo.py

lock: setup
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url --no-emit-find-links --extra dev --output-file requirements-dev.txt pyproject.toml

clean:
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis
