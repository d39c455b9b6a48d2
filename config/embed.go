package config

import "embed"

// embedded holds the defaults and the overlays of the three environments, so
// that a daemon runs without any file.
//
//go:embed tasker
var embedded embed.FS
