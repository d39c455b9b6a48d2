//go:build !race

package perfguard

const raceAllowance = 1
