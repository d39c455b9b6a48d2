package architecture_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const module = "github.com/tasker-go/tasker"

// floors of the packages. Sub-packages have their parent's floor, unless they have their
// own entry. Other internal packages have no floor.
var floors = map[string]int{
	"workflow": 0, "deploymode": 0, "internal/schedule": 0, "proto": 0,
	"config": 1, "internal/telemetry": 1, "signal": 1, "internal/breaker": 1, "internal/backpressure": 1, "internal/autoscale": 1, "worker/events": 1,
	"internal/store": 2, "internal/signal": 2,
	"listener": 3, "poller": 3, "internal/submission": 3,
	"coordinator": 4, "internal/command": 4, "internal/settle": 4,
	"internal/orchestration": 5, "worker": 5, "internal/sweep": 5,
	"internal/api": 6, "client": 6, "daemon": 6, "examples": 6, wholeEngine: 6,
	"cmd": 7,
	// Users of the product, in the same repository.
	"": 8, "test": 8, "docs": 8, "deploy": 8, "sdk": 8,
}

// pkg is the part of `go list -json` that the rules use.
type pkg struct {
	ImportPath   string
	Name         string
	Dir          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// room is the path below the module, "" for the root package.
func (p pkg) room() string { return roomOf(p.ImportPath) }

func roomOf(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// within reports whether a room is another one, or below it.
func within(room, above string) bool { return room == above || strings.HasPrefix(room, above+"/") }

// floorOf returns the floor of a package of the module, that of the nearest folder above
// it that has one.
func floorOf(importPath string) (floor int, known bool) {
	room := roomOf(importPath)
	for {
		if f, ok := floors[room]; ok {
			return f, true
		}
		above := strings.LastIndex(room, "/")
		if above < 0 {
			return 0, false
		}
		room = room[:above]
	}
}

// internal reports whether a package is internal and on no floor.
func internal(importPath string) bool {
	_, known := floorOf(importPath)
	return !known && strings.HasPrefix(roomOf(importPath), "internal/")
}

// testKit reports whether a package exists for tests only: it is internal to a package
// and uses the testing package.
func (p pkg) testKit() bool {
	return slices.Contains(strings.Split(p.room(), "/"), "internal") && slices.Contains(p.Imports, "testing")
}

func knowsDriver(importPath string) bool {
	return strings.HasPrefix(importPath, "github.com/jackc/") || strings.HasPrefix(importPath, "github.com/redis/") || importPath == "database/sql"
}

// load lists the packages of the module.
func load(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := listed()
	require.NoError(t, err)
	require.NotEmpty(t, pkgs)
	return pkgs
}

// listed runs the go command once for all tests.
var listed = sync.OnceValues(func() (pkgs []pkg, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list",
		"-json=ImportPath,Name,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the answer of go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
})

func TestImportsOnlyPointDown(t *testing.T) {
	t.Parallel()
	report(t, upwardImports(load(t)))
}

// upwardImports checks the imports of a package and its tests, and also indirect imports:
// internal packages have no floor and must not be a way up.
func upwardImports(pkgs []pkg) (wrong []string) {
	for _, p := range pkgs {
		if internal(p.ImportPath) {
			continue
		}
		floor, known := floorOf(p.ImportPath)
		if !known {
			wrong = append(wrong, p.room()+" has no floor; give it one in internal/architecture and the documentation")
			continue
		}
		for _, imp := range unique(p.Imports, p.TestImports, p.XTestImports, p.Deps) {
			if !ours(imp) || internal(imp) {
				continue
			}
			if f, ok := floorOf(imp); ok && f > floor {
				wrong = append(wrong, sentence(p, "imports", imp, "which is on a higher floor"))
			}
		}
	}
	return wrong
}

// storeFloors are those of the rooms below store: a room imports only rooms of lower
// floors, and their tests the kit.
var storeFloors = map[string]int{
	"stmt": 0, "pg": 1, "migration": 2, "registry": 2, "board": 3,
	"ledger": 4, "waits": 4, "schedules": 4, "events": 4, "operations": 4, "plantest": 5,
}

func TestRoomsOfStoreOnlyImportLowerOnes(t *testing.T) {
	t.Parallel()
	report(t, sidewaysRooms(load(t)))
}

func sidewaysRooms(pkgs []pkg) (wrong []string) {
	const rooms = module + "/internal/store/internal/"
	for _, p := range pkgs {
		room, below := strings.CutPrefix(p.ImportPath, rooms)
		if !below {
			continue
		}
		floor, known := storeFloors[room]
		if !known {
			wrong = append(wrong, p.room()+" has no floor within store; give it one in internal/architecture and the documentation")
		}
		for _, imp := range p.Imports {
			if other, ours := strings.CutPrefix(imp, rooms); ours && storeFloors[other] >= floor {
				wrong = append(wrong, sentence(p, "imports", imp, "which is not on a lower floor of store"))
			}
		}
	}
	return wrong
}

func TestOrchestrationAndWorkerAreStrangers(t *testing.T) {
	t.Parallel()
	report(t, acquaintances(load(t)))
}

// wholeEngine is the kit of programs for tests that play both sides.
const wholeEngine = "worker/workertest"

func acquaintances(pkgs []pkg) (wrong []string) {
	strangers := map[string]string{"internal/orchestration": "worker", "worker": "internal/orchestration"}
	for _, p := range pkgs {
		for side, stranger := range strangers {
			if !within(p.room(), side) || p.room() == wholeEngine {
				continue
			}
			for _, imp := range unique(p.Imports, p.TestImports, p.XTestImports, p.Deps) {
				if !ours(imp) || !within(roomOf(imp), stranger) {
					continue
				}
				wrong = append(wrong, sentence(p, "imports", imp, "but they meet in the database only"))
			}
		}
	}
	return wrong
}

func TestDatabaseDriverStaysInItsRooms(t *testing.T) {
	t.Parallel()
	report(t, strayDrivers(load(t)))
}

// strayDrivers: of the floors only that of store and of the sources of signals imports the
// driver, and cmd, and recipes for programs that have transactions of their own; the floors
// below do not even import it indirectly.
func strayDrivers(pkgs []pkg) (wrong []string) {
	for _, p := range pkgs {
		floor, known := floorOf(p.ImportPath)
		allowed := floor == floors["internal/store"] || internal(p.ImportPath) || within(p.room(), "cmd") || within(p.room(), "examples/cookbook")
		imports := p.Imports
		if known && floor < floors["internal/store"] {
			imports = unique(p.Imports, p.Deps)
		}
		for _, imp := range imports {
			if knowsDriver(imp) && !allowed {
				wrong = append(wrong, sentence(p, "imports", imp, "which only store, internal/signal, internal packages without a floor and cmd may import"))
			}
		}
	}
	return wrong
}

func TestTestKitsAreForTests(t *testing.T) {
	t.Parallel()
	report(t, strayTestKits(load(t)))
}

// testRunner is the program that runs the tests: it tells which tools they have.
const testRunner = "test/run"

func strayTestKits(pkgs []pkg) (wrong []string) {
	var kits []string
	for _, p := range pkgs {
		if p.testKit() {
			kits = append(kits, p.ImportPath)
		}
	}
	for _, p := range pkgs {
		if p.testKit() || p.room() == testRunner {
			continue
		}
		for _, imp := range p.Imports {
			if imp == "testing" || slices.Contains(kits, imp) {
				wrong = append(wrong, sentence(p, "imports", imp, "outside its tests"))
			}
		}
	}
	return wrong
}

func TestPackageNamesSaySomething(t *testing.T) {
	t.Parallel()
	report(t, emptyNames(load(t)))
}

func emptyNames(pkgs []pkg) (wrong []string) {
	forbidden := []string{"util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "shared", "base", "types"}
	for _, p := range pkgs {
		for _, part := range append(strings.Split(p.room(), "/"), p.Name) {
			if slices.Contains(forbidden, part) {
				wrong = append(wrong, p.room()+": the name "+part+" has no meaning; name a package for its content")
			}
		}
	}
	return wrong
}

func sentence(p pkg, verb, imp, rest string) string {
	return strings.Join([]string{p.room(), verb, strings.TrimPrefix(imp, module+"/") + ",", rest}, " ")
}

func unique(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

func report(t *testing.T, wrong []string) {
	t.Helper()
	slices.Sort(wrong)
	for _, w := range slices.Compact(wrong) {
		t.Error(w)
	}
}
