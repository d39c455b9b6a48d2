package client

// Limit bounds what runs of a callable, key by key; the fields from Running on are read only.
type Limit struct {
	Namespace string `json:"namespace" doc:"Of the callable"`
	Callable  string `json:"callable" doc:"What steps name as handler.callable"`
	LimitRequest
	ChangedAt Time   `json:"changed_at" format:"date-time"`
	ChangedBy string `json:"changed_by"`
	// Removing: it bounds nothing more, and its steps return to the others.
	Removing bool `json:"removing"`
	Running  int  `json:"running" doc:"Steps that run under it"`
	Waiting  int  `json:"waiting" doc:"Steps that wait for their keys, counted up to 10000"`
	Keys     int  `json:"keys" doc:"Keys with such steps"`
}

// LimitRequest is what a limit says. The key of a step is the text at KeyPath in the context
// of its task, or what follows KeyTag in a tag of the task; of a step without one, and of all
// with neither, it is empty.
type LimitRequest struct {
	Method     string             `json:"method,omitempty" doc:"Of the handler, where steps name one" maxLength:"255"`
	Resolver   string             `json:"resolver,omitempty" doc:"Of the handler, where steps name one" maxLength:"255"`
	KeyPath    []string           `json:"key_path,omitempty" doc:"Where the key stands in the context of the task, member by member" maxItems:"16"`
	KeyTag     string             `json:"key_tag,omitempty" doc:"The key is what follows this in a tag of the task, such as tenant:" maxLength:"64"`
	MaxRunning *int               `json:"max_running,omitempty" doc:"Steps of a key that run at once; no bound when absent"`
	PerSecond  *float64           `json:"per_second,omitempty" doc:"Steps of a key that begin in a second, on average; no bound when absent"`
	Burst      int                `json:"burst,omitempty" doc:"With per_second: steps of a key that begin at once after a pause; 1 when absent"`
	Ordered    bool               `json:"ordered,omitempty" doc:"One step of a key at a time, in the order in which they became claimable"`
	Overtake   bool               `json:"overtake,omitempty" doc:"With ordered: others run while the first one waits for its retry"`
	Weights    map[string]float64 `json:"weights,omitempty" doc:"Shares of keys in what is claimed; 1 for others"`
	Reason     string             `json:"reason,omitempty" doc:"Kept in the history" maxLength:"500"`
	Actor      string             `json:"actor,omitempty" doc:"Who acts" maxLength:"255"`
}
