# `make` alone lists the targets. Go is the only prerequisite; PostgreSQL is
# found, or fetched once (see server/internal/pgembed).
#
# SEED=7 and SET="phases.measure=30s devices.ack_every=2" pass through to loadgen.
# make turns every failure into exit status 2: where loadgen's own matters, run
# bin/loadgen. The line "Error N" that make prints has it.

.DEFAULT_GOAL := help
.PHONY: help build test race baseline smoke verify property bench report filled lint fmt clean

GO       ?= go
COMMANDS  = server loadgen model reports
# A checkout without git's history builds as "dev".
REVISION  = $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo dev)
FLAGS     = $(if $(SEED),-seed $(SEED)) $(foreach s,$(SET),-set '$(s)')

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

build: ## build the four commands into bin/
	$(GO) build -buildvcs=false -ldflags '-X main.revision=$(REVISION)' -o bin/ $(COMMANDS:%=./%)

# Packages whose tests run without the race detector: they share no memory between goroutines, or drive whole programs and
# databases, and the packages of those run with it. It makes tests three times as long.
PLAIN = /(model|reports|scenarios|server/dashboard|server/local|server/internal/(checks|evidence|im|pgembed|postgres))(/|$$)|/loadgen$$
PLAIN := $(PLAIN)|/loadgen/internal/(app|limits|payload|population|preflight|scenario|search|selftest|series|stats)$$

# The packages whose tests take longest begin first, so that none runs alone at the end.
LONG_RACE  = ./server/internal/app
LONG_PLAIN = ./server/internal/checks ./loadgen ./server/internal/postgres

# -p 2: packages that start PostgreSQL and gateways disturb each other less.
test: ## run all tests, with the race detector where a C compiler works
	@race=-race; \
	CGO_ENABLED=1 $(GO) build -race -o /dev/null ./server/wire >/dev/null 2>&1 || \
		{ race=; echo "no working C compiler: the tests run without the race detector"; }; \
	code=0; set -x; \
	$(GO) test $$race -p 2 -timeout 10m $(LONG_RACE) $$($(GO) list ./... | grep -Ev '$(PLAIN)') || code=1; \
	$(GO) test -p 2 -timeout 10m $(LONG_PLAIN) $$($(GO) list ./... | grep -E '$(PLAIN)') || code=1; \
	exit $$code

race: ## run all tests with the race detector: a quarter of an hour and more
	$(GO) test -race -p 2 -timeout 30m ./...

baseline: build ## run the documents' baseline on this machine, and make its report
	@$(call run,baseline)

smoke: build ## run a tenth of the baseline's load for about ten seconds
	@$(call run,smoke)

# run drives scenario $(1) and makes the report of the run that this made, if
# it made one. Its exit status is loadgen's.
define run
before=$$(readlink runs/latest || true); code=0; \
bin/loadgen -scenario $(1) $(FLAGS) || code=$$?; \
if [ "$$(readlink runs/latest)" != "$$before" ]; then \
	bin/reports -run runs/latest -out reports/out || [ $$code != 0 ] || code=1; \
fi; \
exit $$code
endef

report: build ## make reports/out/index.html of the newest finished run
	bin/reports

# RUN='^TestCheck04$$' limits it; the exit status is then that of the checks that ran.
verify: ## run the named checks and write their evidence to evidence/
	@$(GO) run ./server/internal/evidence/verify -revision $(REVISION) $(if $(RUN),-run '$(RUN)')

# The test binary runs by itself, so that Ctrl-C reaches it: it ends then, and prints its counts.
property: ## run random histories against the store and its model for MINUTES=20
	$(GO) test -c -o bin/property.test ./server/internal/postgres
	cd server/internal/postgres && ../../../bin/property.test -test.run '^Test(Property|Linearizable)$$' -test.v -test.timeout 0 -property $(or $(MINUTES),20)m

# Those of the store run both arms of each comparison in turn and report ratios. BENCH='Send$$|Ack' picks by name, SHORT=1
# takes a look instead of figures, and the output is what benchstat reads.
bench: ## run the benchmarks: BENCH=regex for some, SHORT=1 for a quick look
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' $(if $(SHORT),-short) -benchmem -timeout 30m \
		$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)

filled: ## fill a database with ten million events, and hold the plans of all hot statements on it
	$(GO) test -count=1 -timeout 60m -v -run '^TestFilled$$' ./server/internal/postgres -full

lint: ## gofmt, go vet, staticcheck, and go.mod tidy
	@unformatted=$$(gofmt -l $(COMMANDS) scenarios); [ -z "$$unformatted" ] || { echo "not formatted (make fmt): $$unformatted"; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

fmt: ## format all Go files
	gofmt -w $(COMMANDS) scenarios

clean: ## remove what build and report made; runs/ stays
	rm -rf bin reports/out
