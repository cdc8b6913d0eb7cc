# Everything one does here, by one word each; CI says the same words (.ci/run).

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test nightly mutants sim check types rest format bench peers chaos soak site docs pictures venv venv-dev

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  Needs python3 >= 3.11 (or PYTHON=...) and a package index; all else goes to .venv.'

demo: venv ## real work on an embedded PostgreSQL, in about a minute
	@$(BIN)/rota demo

test: venv-dev ## the tests, in about five minutes; SMOKE=1: only the smoke tests, PG=15: on another PostgreSQL, ARGS='-k lease' for pytest
	@$(if $(PG),TEST_POSTGRES="$$($(BIN)/python scripts/postgres.py $(PG))" && export TEST_POSTGRES &&) \
		$(BIN)/python -m pytest $(if $(SMOKE),-m smoke) $(ARGS)

nightly: venv-dev ## all that `make test` leaves out; ONLY=kinds: a part of it, or of a folder of tests; SLICE=7: what CI runs of it
	@$(BIN)/python scripts/nightly.py $(if $(ONLY),--only '$(ONLY)') $(if $(SLICE),--slice $(SLICE))

mutants: venv-dev ## takes out one changed guard at a time, and its tests must fail; ALL=1: all guards, ONLY='claim: no two', FILE=job_leave.sql: those of a file, and their tests in a line, BASE=REV, SLICE=K/N: of all one of N, SECONDS=S: no further one after S, QUICK=1: no nightly tests, BY=sim/test_worlds.py::test_a_world_ends_well: by this test instead of its own
	@$(BIN)/python -m tests.mutants.run $(if $(ONLY),--only '$(ONLY)') $(if $(FILE),--file '$(FILE)') $(if $(ALL),--all) $(if $(BASE),--base '$(BASE)') $(if $(SLICE),--slice $(SLICE)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(QUICK),--quick) $(if $(BY),--by tests/$(BY))

sim: venv-dev ## simulated worlds for a minute, which repeat by their seed; MIX=storm SEED=7: the story of one, SECONDS=600: new ones for longer, FIRST=1: from this seed on, BUG='clock': builds old bugs in, and counts the worlds until each is seen
	@$(BIN)/python -m tests.sim.$(if $(BUG),bugs --only '$(BUG)',run $(if $(SEED),--seed $(SEED)) $(if $(MIX),--mix $(MIX)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(FIRST),--first $(FIRST)))

check: ## format, lint, types, imports, generated docs, spelling, the budgets of the house
	@$(MAKE) --no-print-directory --jobs 2 types rest

types: venv-dev
	$(BIN)/mypy

rest: venv-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python scripts/docs.py --check
	$(BIN)/python scripts/house.py
	$(BIN)/python scripts/words.py
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs examples scripts src
	$(BIN)/python scripts/trace.py

format: venv-dev ## puts right what ruff can put right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv-dev ## the benchmark: JSON and a table, up to 20 minutes
	@$(BIN)/python bench/run.py $(ARGS)

peers: venv-dev ## Rota beside other queues: JSON and a page in .peers/, up to 40 minutes; ROUNDS=1, ONLY=drain,pg-boss, SECONDS=2
	@$(BIN)/python -m bench.peers $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ONLY),--only '$(ONLY)') $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

chaos: venv-dev ## workers under kills, freezes, crashes and deploys, then a verdict; SECONDS=120 SEED=1
	@$(BIN)/python -m chaos --seconds $(or $(SECONDS),120) --seed $(or $(SEED),1) $(ARGS)

soak: venv-dev ## the app of chaos for hours, days of its clock in minutes, and what grew; HOURS=1 SEED=1
	@$(BIN)/python -m chaos.soak --hours $(or $(HOURS),1) --seed $(or $(SEED),1) $(ARGS)

site: ## the site of the documentation, in site/; needs no network to look at
	@PYTHON='$(PYTHON)' scripts/bootstrap site
	@$(BIN)/python scripts/site.py

docs: venv-dev ## writes the generated pages of docs/ again
	@$(BIN)/python scripts/docs.py

pictures: venv-dev ## records the terminals, draws the pictures, takes those of the dashboard
	@$(BIN)/python scripts/screens.py
	@$(BIN)/python scripts/drawings.py
	@$(BIN)/python scripts/pictures.py

venv:
	@PYTHON='$(PYTHON)' scripts/bootstrap run

venv-dev:
	@PYTHON='$(PYTHON)' scripts/bootstrap dev
