# Each target works alone and first, also on a fresh Debian 12 as root; a second run does only what is left to do.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-search test podman clients check unit lint accept bench bench-quick chaos soak hacks e2b-suite images search-image metrics ecosystem sbom audit pins docs pictures lock clean

engine := scripts/with-engine.sh
bin := .venv/bin
acceptance := ../shared/acceptance/swedev.py
e2b_suite_needs := chromium haproxy iproute2 openssl util-linux
chaos_needs := haproxy libfaketime iproute2 iptables util-linux

help: ## show the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile

setup: ## make .venv with everything that is locked
	@scripts/venv.sh

images: ## make the sample images and examples/instances.jsonl
	@$(engine) scripts/images.sh

search-image: ## make the image of code-search sandboxes
	@$(engine) scripts/search-image.sh

demo: setup ## drive the samples through all four endpoints and check every verdict
	@$(engine) sh -c 'scripts/images.sh && $(bin)/sandbox-server demo'

demo-search: setup ## play a rollout of code search on each of three instances and check every reward
	@$(engine) sh -c 'scripts/search-image.sh && $(bin)/sandbox-server demo-search'

test: setup ## run all tests
	@$(engine) sh -c 'scripts/environments.sh sdk .cache/sdk & environments=$$!; scripts/compile-tests.sh & compiled=$$!; \
	    scripts/images.sh && wait $$environments && wait $$compiled && scripts/environments.sh site .cache/site && scripts/test.sh $(PYTEST_ARGS)'

podman: setup ## run the conformance list of sandboxes on Podman, as root
	@$(engine) sh -c 'scripts/images.sh && scripts/with-podman.sh $(bin)/pytest -n $(or $(TEST_WORKERS),2) --dist loadfile \
	    tests/conformance/sandbox $(PYTEST_ARGS)'

clients: setup ## run clients that CI has no Python or Node.js for, as root: Harbor, OpenHands, E2B's command line
	@$(engine) sh -c 'scripts/images.sh && scripts/with-client.sh harbor "harbor[e2b]==0.26.0" \
	    scripts/with-client.sh openhands openhands-sdk==1.58.2 scripts/with-e2b-cli.sh \
	    $(bin)/pytest -q tests/live/test_harbor_client.py tests/live/test_openhands.py tests/live/test_e2b_cli.py $(PYTEST_ARGS)'

check: setup ## lint and unit tests: about a minute, no root, no Docker
	@$(MAKE) --no-print-directory --output-sync=target -j 2 lint unit

unit: setup ## unit tests
	@$(bin)/pytest -q -n 2 tests/unit

lint: setup ## ruff, mypy, import-linter
	@$(bin)/ruff check .
	@$(bin)/ruff format --check .
	@$(bin)/mypy
	@cd client && ../$(bin)/mypy
	@$(bin)/lint-imports

accept: setup ## run the protocol's acceptance script, where it lies beside this folder
	@if [ -e $(acceptance) ]; then \
	    $(engine) sh -c 'scripts/images.sh && $(bin)/python $(acceptance) --server-cmd "$(bin)/sandbox-server serve" \
	        --import examples/instances.jsonl --instance samples__ledger-12 $(ACCEPT_ARGS)'; \
	else echo "no $(acceptance): nothing to run"; fi

bench: setup ## measure everything beside the peers; writes bench/results/ and docs/performance.md (BENCH_ARGS)
	@$(engine) sh -c 'scripts/images.sh && scripts/environments.sh bench bench/.peers && $(bin)/python -m bench $(BENCH_ARGS)'

bench-quick: setup ## the same with fewer repetitions and smaller shapes, under three minutes; writes bench/results/ alone
	@$(engine) sh -c 'scripts/images.sh && scripts/environments.sh bench bench/.peers && $(bin)/python -m bench --quick $(BENCH_ARGS)'

chaos: setup ## harm a fleet of two nodes in every way, as root; writes chaos/results/ (CHAOS_ARGS)
	@scripts/apt.sh $(chaos_needs)
	@$(engine) sh -c 'scripts/images.sh && $(bin)/python -m chaos $(CHAOS_ARGS)'

soak: setup ## steady rollouts on two nodes for MINUTES (10), as root; what must not grow does not (SOAK_ARGS)
	@scripts/apt.sh $(chaos_needs)
	@$(engine) sh -c 'scripts/images.sh && $(bin)/python -m chaos.soak --minutes $(or $(MINUTES),10) $(SOAK_ARGS)'

hacks: setup ## try every hack on every grader, the benchmark's harness beside; writes hacks/results/ and docs/trust.md (HACKS_ARGS)
	@$(engine) sh -c 'scripts/images.sh && $(bin)/python -m hacks $(HACKS_ARGS)'

e2b-suite: setup ## run E2B's own test suites of a checkout, SUITE=PATH, as root; needs PyPI and npm (E2B_SUITE_ARGS)
	@scripts/apt.sh $(e2b_suite_needs)
	@$(engine) sh -c 'scripts/images.sh && PYTHONPATH=. $(bin)/python scripts/e2b_suite.py $(SUITE) $(E2B_SUITE_ARGS)'

ecosystem: setup ## remake docs/ecosystem.md from its lines and from the releases in the lock files
	@$(bin)/python scripts/ecosystem.py >docs/ecosystem.md

sbom: setup ## write build/sbom.json (CycloneDX) and build/licences.csv of all that the server is made of
	@scripts/environments.sh supply .cache/supply
	@scripts/sbom.sh

audit: setup ## look up every locked package of the server in a database of known holes; needs the network (AUDIT_ARGS)
	@scripts/environments.sh supply .cache/supply
	@scripts/audit.sh

pins: ## pull the images that the stacks take from registries; write their digests to build/pins.env and build/pins
	@scripts/pins.sh

docs: ## make the site of the documents in build/site, with search; a broken link fails
	@scripts/environments.sh site .cache/site
	@.cache/site/docs/bin/python scripts/docs.py

pictures: setup ## take the pictures of the pages anew, from a real server with real rollouts, into docs/pictures
	@scripts/apt.sh chromium
	@scripts/environments.sh sdk .cache/sdk browser
	@$(engine) sh -c 'scripts/images.sh && $(bin)/python scripts/pictures.py'

metrics: setup ## remake docs/metrics.md from the metrics that are declared
	@$(bin)/python scripts/metrics.py >docs/metrics.md

lock: ## remake requirements/*.txt (LOCK_ARGS=--upgrade for the newest versions)
	@scripts/lock.sh $(LOCK_ARGS)

clean: ## remove .venv, caches and the sample images
	rm -rf .venv .cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis bench/results bench/.peers chaos/results hacks/results
	@-{ docker images -q 'sandbox-samples/*'; docker images -q 'sandbox-bench/*'; docker images -q sandbox-egress; } 2>/dev/null | sort -u | xargs -r docker rmi -f
