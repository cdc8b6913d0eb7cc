# Everything one does here, by one word each; CI says the same words (.ci/run).

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test mutants check format bench peers chaos soak site docs pictures venv venv-dev

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  Needs python3 >= 3.11 (or PYTHON=...) and a package index; all else goes to .venv.'

demo: venv ## real work on an embedded PostgreSQL, in about a minute
	@$(BIN)/rota demo

test: venv-dev ## the tests; SMOKE=1: only the smoke tests, LONG=1: only those of minutes, PG=14: on another PostgreSQL, ARGS='-k lease' for pytest
	@$(if $(PG),TEST_POSTGRES="$$($(BIN)/python scripts/postgres.py $(PG))" && export TEST_POSTGRES &&) \
		$(BIN)/python -m $(if $(ARGS),pytest,tests.run) $(if $(SMOKE),-m smoke) $(if $(LONG),-m long) $(ARGS)

mutants: venv-dev ## takes out one changed guard at a time, and its tests must fail; ALL=1: all guards, ONLY='claim: charged', BASE=REV, MOST=N: a sample, FULL=1: the whole suite
	@$(BIN)/python -m tests.mutants.run $(if $(ONLY),--only '$(ONLY)') $(if $(ALL),--all) $(if $(BASE),--base '$(BASE)') $(if $(MOST),--most $(MOST)) $(if $(FULL),--full)

check: venv-dev ## format, lint, types, imports, generated docs, spelling, the budgets of the house
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/docs.py --check
	$(BIN)/python scripts/house.py
	$(BIN)/python scripts/words.py
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs examples scripts src
	$(BIN)/python scripts/trace.py
	$(BIN)/python scripts/grow.py

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
