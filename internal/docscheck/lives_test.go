package docscheck_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLivesFollowTheCode: each station of "Four lives" is a function that exists, and no
// life has more than eight.
func TestLivesFollowTheCode(t *testing.T) {
	t.Parallel()
	require.Empty(t, wrongStations(page(t, "docs/inside/architecture.md"), 4))
}

// maxStations bounds the stations of one life: a longer way is not one that a newcomer
// keeps in mind.
const maxStations = 8

var (
	stationRow = regexp.MustCompile(`(?m)^\| \d+ \|.*$`)
	station    = regexp.MustCompile("`([a-z/_]+\\.go)` `(?:([A-Za-z]+)\\.)?([A-Za-z]+)`")
)

// wrongStations lists what is wrong with the section "Four lives" of a page.
func wrongStations(text string, lives int) (wrong []string) {
	_, section, _ := strings.Cut(text, "\n## Four lives\n")
	section, _, _ = strings.Cut(section, "\n## ")
	parts := strings.Split(section, "\n### ")[1:]
	if len(parts) != lives {
		wrong = append(wrong, fmt.Sprintf("%d lives, not %d", len(parts), lives))
	}
	for _, life := range parts {
		title, _, _ := strings.Cut(life, "\n")
		rows := stationRow.FindAllString(life, -1)
		if len(rows) < 2 || len(rows) > maxStations {
			wrong = append(wrong, fmt.Sprintf("%s: %d stations, not 2 to %d", title, len(rows), maxStations))
		}
		for _, row := range rows {
			names := station.FindAllStringSubmatch(row, -1)
			if names == nil {
				wrong = append(wrong, fmt.Sprintf("%s: no file and function in %q", title, row))
			}
			for _, n := range names {
				if err := declares(n[1], n[2], n[3]); err != nil {
					wrong = append(wrong, fmt.Sprintf("%s: %v", title, err))
				}
			}
		}
	}
	return wrong
}

// declares returns an error unless the file declares the function, with that receiver;
// "" for none.
func declares(file, receiver, function string) error {
	src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return err
	}
	of := ""
	if receiver != "" {
		of = `\(\w+ \*?` + receiver + `(?:\[[^]]*\])?\) `
	}
	if !regexp.MustCompile(`(?m)^func ` + of + function + `[(\[]`).Match(src) {
		return fmt.Errorf("%s declares no function %s.%s", file, receiver, function)
	}
	return nil
}

func TestPlantedStationsAreFound(t *testing.T) {
	t.Parallel()
	row := "| 1 | `workflow/advance.go` `Advance` | pure |\n"
	life := func(rows ...string) string {
		return "\n## Four lives\n\n### One\n\n| | station |\n|---|---|\n" + strings.Join(rows, "")
	}
	require.Empty(t, wrongStations(life(row, row), 1))
	for planted, rows := range map[string][]string{
		"a function that is gone":   {row, "| 2 | `workflow/advance.go` `Retreat` | gone |\n"},
		"another receiver":          {row, "| 2 | `workflow/advance.go` `Plan.Advance` | no method |\n"},
		"a file that is gone":       {row, "| 2 | `workflow/gone.go` `Advance` | gone |\n"},
		"a station without a place": {row, "| 2 | somewhere | |\n"},
		"a ninth station":           {row, row, row, row, row, row, row, row, row},
	} {
		require.NotEmpty(t, wrongStations(life(rows...), 1), planted)
	}
	require.NotEmpty(t, wrongStations(life(row, row), 2), "a life is missing")
}
