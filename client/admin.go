package client

// Fleet is the daemons that gave a sign of life recently.
type Fleet struct {
	Replicas []Replica `json:"replicas"`
	// Warning says what is missing, such as a poller; empty if nothing is.
	Warning string `json:"warning"`
}

// Replica is one daemon.
type Replica struct {
	UUID       string   `json:"uuid"`
	ID         string   `json:"id"`
	Kind       string   `json:"kind" doc:"orchestrator or worker"`
	Hostname   string   `json:"hostname"`
	Address    string   `json:"address" doc:"host:port of its API, with the host's name where it listens on all addresses; empty without an API"`
	Version    string   `json:"version"`
	Mode       string   `json:"mode"`
	Namespaces []string `json:"namespaces"`
	StartedAt  Time     `json:"started_at" format:"date-time"`
	// HeartbeatAgeSeconds is by the database's clock.
	HeartbeatAgeSeconds float64 `json:"heartbeat_age_seconds"`
	Live                bool    `json:"live"`
	Stopped             bool    `json:"stopped" doc:"It has signed off"`
	// The event sources. Programs of earlier versions do not tell them.
	EventSource string   `json:"event_source,omitempty" doc:"What carries its signals; absent where it does not tell"`
	MovingFrom  string   `json:"moving_from,omitempty" doc:"The event source that it moves away from, beside event_source"`
	Unheard     []string `json:"unheard,omitempty" doc:"Those of its event sources over which signals are not known to arrive"`
}
