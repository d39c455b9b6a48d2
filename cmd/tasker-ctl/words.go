package main

import (
	"fmt"
	"math"
	"time"
)

// counted is a number with its noun: "1 error", "2 errors".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// seconds writes a duration with as many digits as a reader needs.
func seconds(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d > 0 && d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// duration makes a time.Duration of the API's seconds.
func duration(s float64) time.Duration {
	return time.Duration(math.Round(s*1e6)) * time.Microsecond
}

// stateStyle is the colour of a task or step state, a health status, or a
// replica's condition.
func stateStyle(state string) style {
	switch state {
	case "complete", "resolved_manually", "healthy", "alive", "ready", "live", "running":
		return green
	case "error", "blocked_by_failures", "unhealthy", "lost", "stale":
		return red
	case "waiting_for_retry", "degraded", "warning", "enqueued_as_error_for_orchestration":
		return yellow
	case "cancelled", "stopped", "not_created":
		return dim
	case "in_progress", "steps_in_process", "enqueued_for_orchestration", "evaluating_results", "enqueuing_steps":
		return cyan
	}
	return plain
}

func stateCell(state string) cell { return cell{state, stateStyle(state)} }
