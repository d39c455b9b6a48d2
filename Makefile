# Everything here works on a fresh Debian or Ubuntu with Go, make and apt; `make demo` and
# `make test` wherever Go and make are.
# `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# scripts/require-node fills it where PATH has no Node, or one that is too old; else it does not exist.
export PATH := $(CURDIR)/.tools/node/bin:$(PATH)
# Per package. Packages share one PostgreSQL server, see internal/pgtest.
TEST_TIMEOUT ?= 50m
# Narrow with `make test PKG=./internal/store/...`, add flags with TESTFLAGS. RACE=1 adds the race
# detector.
PKG ?= ./...
TESTFLAGS ?=
RACE ?=
# Packages are tested in the listed order: the longest first, and twice as many at a
# time as there are processors, because most of them wait.
LONGEST := ./test/e2e ./daemon ./internal/enginetest ./internal/store ./cmd/tasker-ctl ./worker ./internal/corpus ./internal/api/rest
PACKAGES = $(if $(filter ./...,$(PKG)),$(LONGEST)) $(PKG)
JOBS = $$((2 * $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)))
DEMOFLAGS ?=
BENCHFLAGS ?=
CHAOSFLAGS ?=

# Of `make microbench`: the packages, which benchmarks, how often each.
MICROBENCH_PKG ?= ./workflow/... ./internal/dedup ./internal/jsonscan ./config
MICROBENCH ?= .
COUNT ?= 10

GOLANGCI_VERSION := v2.15.0
GOLANGCI := .tools/bin/golangci-lint-$(GOLANGCI_VERSION)
BUF_VERSION := v1.75.0
PROTOC_GEN_GO_GRPC_VERSION := v1.6.0
GORELEASER_VERSION := v2.15.4
CYCLONEDX_VERSION := v1.9.0
CYCLONEDX := .tools/cyclonedx-$(CYCLONEDX_VERSION)/cyclonedx-gomod
BENCHSTAT_VERSION := v0.0.0-20260908200009-22c9c6c9d4da
BENCHSTAT := .tools/bin/benchstat

##@ Try it
.PHONY: demo
demo: ## Start everything with sample workflows running (Ctrl-C ends it)
	$(call run-dev,--demo)

.PHONY: dev
dev: ## Start everything in one process on an embedded database
	$(call run-dev)

# Ctrl-C ends the program alone, and make tells how it ended; what ends make ends the program.
define run-dev
	@echo "Compiling ./bin/tasker-ctl with its modules; the first time takes a minute or two."
	@mkdir -p bin
	@GO=$(GO) scripts/compile -o bin/ ./cmd/tasker-ctl
	@exec scripts/dev bin/tasker-ctl dev $(1) $(DEMOFLAGS)
endef

##@ Check it
# Everything that a test may lack. Each script installs what is missing and nothing else.
TOOLS := require-postgresql require-pgbouncer require-rabbitmq require-redis require-clients require-node require-typescript require-python-stubs

.PHONY: test
test: $(if $(RACE),require-gcc) ## Run the tests of all packages; those that need a tool which is missing are left out, and named at the end
	$(call run-tests,)

.PHONY: test-all
test-all: export TASKER_TEST_ALL = 1
test-all: RACE = 1
test-all: require-gcc $(TOOLS) ## Install what tests need, and run all with the race detector and all repetitions
	$(call run-tests,)

.PHONY: test-long
test-long: export TASKER_TEST_FULL = 1
test-long: export TASKER_TEST_ALL = 1
test-long: RACE = 1
test-long: require-gcc $(TOOLS) ## The same with the sizes that `make test-all` leaves out
	$(call run-tests,)

.PHONY: test-short
test-short: $(if $(RACE),require-gcc) ## Run the tests without the long ones
	$(call run-tests,-short)

# The version of PostgreSQL is fetched if it is not installed. Go's cache of test results does
# not depend on it.
.PHONY: test-postgres
test-postgres: export TASKER_POSTGRES_VERSION = $(VERSION)
test-postgres: $(if $(RACE),require-gcc) ## Run the tests on one version of PostgreSQL, from 14 on (VERSION=18)
	@test -n "$(VERSION)" || { echo "want a version: make test-postgres VERSION=18" >&2; exit 2; }
	$(call run-tests,-count=1)

# The features that differ between versions: migrations, partitions, grants, plans, retention, standbys and
# replication slots, and workflows from end to end.
SMOKE := Diamond|Retry|Retire|Retention|Migrat|Partition|Grant|SchemaObjects|PlansMadeOn|StatementsStay|Standby|Slot|Stream|Lost|TestWorkflow
.PHONY: test-postgres-smoke
test-postgres-smoke: require-gcc ## Run a minute of tests on the oldest and the newest version of PostgreSQL (CI)
	for version in $(SMOKE_VERSIONS); do \
		echo "PostgreSQL $$version"; \
		TASKER_POSTGRES_VERSION=$$version $(GO) test -race -vet=off -count=1 -p $(JOBS) -timeout 10m -run '$(SMOKE)' \
			./internal/store/... ./internal/signal/wal ./internal/pgtest ./internal/enginetest || exit 1; \
	done
SMOKE_VERSIONS := 14 18

# `make lint` runs go vet.
define run-tests
	@GO=$(GO) RACE=$(RACE) scripts/test -vet=off -p $(JOBS) -timeout $(TEST_TIMEOUT) $(1) $(TESTFLAGS) -- $(PACKAGES)
endef

.PHONY: lint
lint: $(GOLANGCI) ## Check style, common mistakes, the floors and go.mod
	for module in . test/bench test/chaos test/tools; do (cd $$module && $(GO) mod tidy -diff); done # a module requires what it imports, and nothing else
	$(GOLANGCI) run $(PKG)
	for module in test/bench test/chaos; do (cd $$module && $(GO) vet ./... && ../../$(GOLANGCI) run ./...); done # modules of their own: their dependencies never enter the main one

.PHONY: vuln
vuln: ## Look for known vulnerabilities in what is called, where vuln.go.dev can be reached
	@GO=$(GO) scripts/vuln

.PHONY: chaos
chaos: require-postgresql ## 10,000 workflows under 10 minutes of random faults, twice: with handlers in Go, and in Python (CHAOS_SEED=n repeats a run)
	cd test/chaos && CHAOS_DIAMONDS=2000 CHAOS_KILLS=30 $(GO) test -count=1 -v -timeout 30m -run "Lease|Killed|Never|Services" ./scenarios
	cd test/chaos && $(GO) run . -standby $(CHAOSFLAGS)
	cd test/chaos && $(GO) run . -executors 4 $(CHAOSFLAGS)

.PHONY: chaos-brokers
chaos-brokers: require-postgresql require-rabbitmq require-redis ## 10,000 workflows under 10 minutes of random faults with RabbitMQ, and with Redis: killed, wiped, parted, full
	cd test/chaos && $(GO) run . -source amqp,redis $(CHAOSFLAGS)

.PHONY: chaos-greedy
chaos-greedy: require-postgresql ## 10,000 workflows under 10 minutes of random faults with access on, beside a principal that takes its whole share
	cd test/chaos && $(GO) run . -greedy $(CHAOSFLAGS)

.PHONY: chaos-limits
chaos-limits: require-postgresql ## Ten minutes of limits while workers are killed
	cd test/chaos && CHAOS_LIMITS=10m $(GO) test -count=1 -v -timeout 20m -run Limits ./scenarios

.PHONY: chaos-short
chaos-short: require-postgresql require-rabbitmq require-redis ## The scenarios and four short random runs, 12 minutes at most (CI)
	cd test/chaos && timeout --kill-after=10s 420s $(GO) test -count=1 ./...
	cd test/chaos && timeout --kill-after=10s 180s $(GO) run . -tasks 500 -length 25s -calm 1s -longest 5s -source notify,wal $(CHAOSFLAGS)
	cd test/chaos && timeout --kill-after=10s 60s $(GO) run . -tasks 100 -length 6s -calm 300ms -longest 1s -executors 3 -faults kill,freeze,cut,half-open $(CHAOSFLAGS)
	cd test/chaos && timeout --kill-after=10s 60s $(GO) run . -tasks 200 -length 10s -calm 300ms -longest 1s -source redis -faults kill-broker,wipe-broker,freeze-broker,starve-broker,fill-broker,part-broker,kill $(CHAOSFLAGS)

.PHONY: count
count: ## Lines, functions and exported names of the product, package by package
	@$(GO) test -count=1 -v -run TestRatchet ./internal/architecture | grep -E '^ +count_test.go' | sed -E 's/^ +count_test.go:[0-9]+: //'

.PHONY: proto
proto: ## Check the .proto files and generate their Go code (installs buf, which takes minutes)
	GOBIN=$(CURDIR)/.tools/proto $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
	GOBIN=$(CURDIR)/.tools/proto $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)
	GOBIN=$(CURDIR)/.tools/proto $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go
	cd proto && PATH=$(CURDIR)/.tools/proto:$$PATH && buf format -w && buf lint && buf generate

.PHONY: test-sources
test-sources: $(TOOLS) ## Run the end-to-end tests with each event source in turn (SOURCES="amqp redis" for some)
	for source in $(SOURCES); do \
		echo "event source $$source"; \
		TASKER_TEST_ALL=1 TASKER_TEST_EVENT_SOURCE=$$source $(GO) test -vet=off -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./test/e2e || exit 1; \
	done
SOURCES ?= notify wal relay amqp redis

.PHONY: python-sdk
python-sdk: require-postgresql ## Check the types of the Python SDK, and run its handlers from a wheel in a clean environment
	@scripts/python-sdk

.PHONY: typescript-sdk
typescript-sdk: require-postgresql require-node require-typescript ## Compile the TypeScript SDK, and run its handlers from an npm tarball in an empty directory
	@scripts/typescript-sdk

.PHONY: fuzz-api
fuzz-api: require-postgresql require-schemathesis ## Send what schemathesis makes of the API's description, with and without credentials (about 5 minutes)
	$(GO) test -count=1 -tags fuzzapi -v -timeout 60m -run TestFuzzedAPI ./daemon

.PHONY: python-stubs
python-stubs: require-postgresql require-python-stubs ## Make Python stubs of the protos, and call every rpc with them
	$(GO) test -count=1 -run TestPythonStubs ./daemon

.PHONY: model
model: require-spin require-gcc ## Check the protocol: every order of events on a small model
	test/model/check

.PHONY: chart
chart: require-helm require-kubeconform ## Lint and render the Helm chart, and refuse wrong values (CHART_UPDATE=1 writes the renders)
	$(GO) test -count=1 -tags chart -run 'Chart|Renders|Values|Conform' ./test/kubelet

.PHONY: kube-run
kube-run: require-postgresql ## Run the rendered fleet with a small kubelet under load: roll-outs, an upgrade and back, outages, planted faults
	$(GO) test -count=1 -tags kubelet -v -timeout 40m -run 'Rolling|Planted|Grace|Draining|Losing|Database' ./test/kubelet

.PHONY: kube-test
kube-test: require-postgresql require-helm require-kube-apiserver ## Install, upgrade and roll back the chart on an API server of Kubernetes, which refuses planted mistakes
	$(GO) test -count=1 -tags apiserver -v -timeout 30m -run APIServer ./test/kubelet

.PHONY: image
image: export CONTAINERS_CONF ?= $(CURDIR)/deploy/container/containers.conf
image: require-postgresql require-podman require-rabbitmq ## Build the image for all architectures, and run it without rights (ARCHS=amd64 for one)
	@name=$$(deploy/container/build) && first=$${name%%$$'\n'*} && echo "$$name" && \
		$(GO) test -count=1 -tags image -v -run Image ./test/kubelet -args -image "$$first"

.PHONY: metrics-test
metrics-test: require-postgresql require-prometheus require-rabbitmq require-redis ## Run the alerts and the queries of the dashboards with a real Prometheus over a fleet
	$(GO) test -count=1 -tags metricstest -v ./test/metrics

# Where the reports of other measurements than `make bench` go.
BENCHOUT := $(CURDIR)/bin/bench

.PHONY: bench
bench: require-postgresql ## Measure against the goals and other queues (about 20 minutes)
	cd test/bench && $(GO) run . -out ../../docs/inside/benchmarks/latest $(BENCHFLAGS)

.PHONY: bench-short
bench-short: require-postgresql ## The same with small sizes (about 6 minutes); writes no files
	cd test/bench && $(GO) run . -short $(BENCHFLAGS)

.PHONY: microbench
microbench: $(BENCHSTAT)-$(BENCHSTAT_VERSION) ## Times and allocations of the pure parts, for benchstat
	@$(GO) test -run '^$$' -bench '$(MICROBENCH)' -benchmem -count $(COUNT) $(MICROBENCH_PKG)

.PHONY: plans
plans: require-postgresql ## Execute the hot statements on 10 million finished tasks and write their plans down
	mkdir -p $(BENCHOUT)
	TMPDIR=$${TMPDIR:-/tmp} $(GO) test ./internal/store/internal/board -run TestHotStatementsStayOnTheirIndexes -timeout 30m -args -plans.waiting 1000000 -plans.finished 10000000 \
		-plans.out $(BENCHOUT)/plans.md
	TMPDIR=$${TMPDIR:-/tmp} $(GO) test -p 1 ./internal/store/internal/ledger ./internal/store/internal/operations ./internal/store/internal/waits -run 'Test.*StatementsStayOnTheirIndexes' \
		-timeout 30m -args -plans.waiting 200000 -plans.finished 2000000 # with events, batches and dead letters, on 5 GB of disk
	TMPDIR=$${TMPDIR:-/tmp} $(GO) test ./internal/store/internal/ledger -run TestListsOfALargeLedger -timeout 30m -args -lists.tasks 5000000 \
		-lists.out $(CURDIR)/docs/inside/benchmarks/lists.md

.PHONY: bench-snapshot
bench-snapshot: require-postgresql ## Hold a snapshot for 10 minutes, ours and River's; draws a picture
	cd test/bench && $(GO) run . -only snapshot -out $(BENCHOUT)/held-snapshot $(BENCHFLAGS)

.PHONY: bench-secure
bench-secure: require-postgresql ## Measure what credentials and TLS cost (about 13 minutes)
	cd test/bench && $(GO) run . -only secure -out $(BENCHOUT)/secure $(BENCHFLAGS)

.PHONY: bench-telemetry
bench-telemetry: require-postgresql ## Measure what traces and the scraping of metrics cost (about 15 minutes)
	cd test/bench && $(GO) run . -only telemetry -out $(BENCHOUT)/telemetry $(BENCHFLAGS)

.PHONY: bench-order
bench-order: require-postgresql ## Measure what shortest expected first does to waits, and how good its forecasts are (about 20 minutes)
	cd test/bench && $(GO) run . -only order -out $(BENCHOUT)/order $(BENCHFLAGS)

.PHONY: bench-limits
bench-limits: require-postgresql ## Measure what limits do: shares, a flood, a rate, ordered keys (about 7 minutes; BENCHFLAGS=-full: a million tasks)
	cd test/bench && $(GO) run . -only limits -out $(BENCHOUT)/limits $(BENCHFLAGS)

.PHONY: bench-former
bench-former: require-postgresql ## Compare with the version of a commit: make bench-former FORMER=<commit> (about 4 minutes)
	rm -rf bin/former && mkdir -p bin/former && git worktree add --force --detach bin/former/source $(FORMER)
	cd bin/former/source && $(GO) build -o .. ./cmd/orchestrator && cd test/bench && $(GO) build -o ../../.. ./worker
	git worktree remove --force bin/former/source
	cd test/bench && $(GO) run . -only former -former $(CURDIR)/bin/former $(BENCHFLAGS)

.PHONY: bench-ageing
bench-ageing: require-postgresql ## Measure how long tasks wait behind a flood of urgent ones, with ageing (about 10 minutes)
	cd test/bench && $(GO) run . -only ageing $(BENCHFLAGS)

.PHONY: bench-sources
bench-sources: require-postgresql require-rabbitmq require-redis ## Compare the event sources: latency, signals, cost, a killed source (about 7 minutes with BENCHFLAGS=-short, else 16)
	cd test/bench && $(GO) run . -only sources -out $(BENCHOUT)/sources $(BENCHFLAGS)

.PHONY: bench-streams
bench-streams: require-postgresql ## Measure 1,000 clients that follow transitions (about 2 minutes)
	cd test/bench && $(GO) run . -only streams -out $(BENCHOUT)/streams $(BENCHFLAGS)

##@ Change it
.PHONY: fmt
fmt: $(GOLANGCI) ## Format all Go files
	$(GOLANGCI) fmt $(PKG)

.PHONY: generate
generate: ## Make generated files anew
	$(GO) generate $(PKG)

.PHONY: build
build: ## Build the daemons and the CLI into ./bin
	mkdir -p bin
	@CGO_ENABLED=0 GO=$(GO) scripts/compile -o bin/ ./cmd/...

.PHONY: install
install: ## Install the daemons and the CLI where `go install` puts programs
	CGO_ENABLED=0 $(GO) install ./cmd/...
	@dir=$$($(GO) env GOBIN); dir=$${dir:-$$($(GO) env GOPATH)/bin}; echo "Installed orchestrator, worker and tasker-ctl in $$dir"; \
		case ":$$PATH:" in *":$$dir:"*) ;; *) echo "It is not in PATH: export PATH=\"$$dir:\$$PATH\"" ;; esac

.PHONY: ci-full
ci-full: chart kube-test kube-run image metrics-test python-sdk typescript-sdk python-stubs fuzz-api test-sources chaos-brokers fresh-machines ## What is too long for each change: the chart, the image, dashboards and SDKs on real parts, all event sources, bare machines

.PHONY: fresh-machines
fresh-machines: ## Run make demo and make test on bare Debian and Ubuntu, as root and without rights (FRESHFLAGS="-r debian-13 -u user")
	@scripts/fresh-machines $(FRESHFLAGS)
FRESHFLAGS ?=

# $(1): the arguments of goreleaser, which finds the tool for bills of materials in PATH.
define goreleaser
	PATH=$(CURDIR)/$(dir $(CYCLONEDX)):$$PATH $(GO) run github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION) $(1)
endef

.PHONY: release-dry-run
release-dry-run: $(CYCLONEDX) ## Check .goreleaser.yaml, and make a release in ./dist that is published nowhere
	$(call goreleaser,check)
	$(call goreleaser,release --snapshot --clean)

.PHONY: release
release: $(CYCLONEDX) # by .github/workflows/release.yml, for a tag
	$(call goreleaser,release --clean)

.PHONY: clean
clean: ## Remove what was built, and the tools
	rm -rf bin dist .tools coverage.out

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*##"} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*##/ {printf "  make %-15s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: require-postgresql require-pgbouncer require-rabbitmq require-gcc require-clients require-spin require-typescript require-helm require-kubeconform require-kube-apiserver require-podman require-prometheus require-schemathesis require-redis require-node require-python-stubs
require-postgresql:
	@scripts/require-postgresql
require-pgbouncer: # tests go through a real one
	@scripts/require-pgbouncer
require-rabbitmq: # tests send signals through a real one
	@scripts/require-rabbitmq
require-redis: # signals travel over a real one
	@scripts/require-redis
require-gcc: # the race detector needs a C compiler
	@scripts/require-gcc
require-clients: # tests act as clients, also in Python
	@scripts/require-clients
require-prometheus: # rules and dashboards are tested with a real one
	@scripts/require-prometheus
require-spin:
	@scripts/require-spin
require-helm:
	@scripts/require-helm
require-kubeconform:
	@scripts/require-kubeconform
require-kube-apiserver:
	@scripts/require-kube-apiserver
require-schemathesis:
	@scripts/require-schemathesis
require-podman:
	@scripts/require-podman
require-node: # runs what is compiled from TypeScript
	@scripts/require-node
require-typescript: # tests compile generated code
	@scripts/require-typescript
require-python-stubs: # a test calls every rpc with them
	@scripts/require-python-stubs

# The version is part of the name, so a new version is installed.
$(GOLANGCI):
	mkdir -p $(@D)
	GOBIN=$(CURDIR)/$(@D)/install $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(@D)/install/golangci-lint $@
	rmdir $(@D)/install

$(CYCLONEDX):
	GOBIN=$(CURDIR)/$(@D) $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)

# What it prints goes to the terminal, since microbench is written to a file.
# The plain name is for typing.
$(BENCHSTAT)-$(BENCHSTAT_VERSION):
	@mkdir -p $(@D)
	@GOBIN=$(CURDIR)/$(@D)/install-benchstat $(GO) install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION) >&2
	@mv $(@D)/install-benchstat/benchstat $@
	@rmdir $(@D)/install-benchstat
	@ln -sf $(@F) $(BENCHSTAT)
