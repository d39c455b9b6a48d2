package deploymode

import (
	"fmt"
	"slices"
	"strings"
)

// Replica is the record of a daemon from its heartbeat.
type Replica struct {
	ID string
	// System groups replicas that can replace one another, such as "orchestrator" or the
	// worker namespace.
	System string
	Mode   Mode
	// Live says that the heartbeat is recent.
	Live bool
}

// FleetWarning describes what a fleet lacks; warn is false when nothing is missing. Signals
// may be lost, so in every system at least one live replica must poll. A system without any
// live replica is named too.
func FleetWarning(replicas []Replica) (warning string, warn bool) {
	live, polling := map[string]int{}, map[string]int{}
	systems := []string{}
	for _, r := range replicas {
		if !slices.Contains(systems, r.System) {
			systems = append(systems, r.System)
		}
		if !r.Live {
			continue
		}
		live[r.System]++
		if r.Mode.Polls() {
			polling[r.System]++
		}
	}
	slices.Sort(systems)
	var gaps []string
	for _, s := range systems {
		switch {
		case live[s] == 0:
			gaps = append(gaps, fmt.Sprintf("%sno live replica", prefix(s)))
		case polling[s] == 0:
			gaps = append(gaps, fmt.Sprintf(
				"%snone of %d live replicas polls: a lost signal delays its work until the next one; run one in Hybrid or PollingOnly",
				prefix(s), live[s]))
		}
	}
	return strings.Join(gaps, "; "), len(gaps) > 0
}

func prefix(system string) string {
	if system == "" {
		return ""
	}
	return system + ": "
}
