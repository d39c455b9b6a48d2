package main

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wire"
)

func fakeEvent(position int64, name, payload string) client.Event {
	return client.Event{Position: position, ID: "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a4f10", Name: name, Version: "1.0", Payload: json.RawMessage(payload),
		Metadata: client.EventMetadata{TaskUUID: completeTask, StepUUID: completeTask[:35] + "b", StepName: "pay", Namespace: "shapes",
			CorrelationID: completeTask, FiredAt: at(float64(position)), FiredBy: "shapes.pay", Attempt: 1, Outcome: "success"}}
}

func fakeConsumer(name string) client.EventConsumer {
	holder, until, oldest := "mailer-1", at(30), at(7)
	c := client.EventConsumer{Name: name, Namespace: "shapes", Patterns: []string{"payment.*"}, Position: 7, Holder: &holder, LeaseUntil: &until, Unread: 1000,
		OldestUnreadAt: &oldest, CreatedAt: at(0), UpdatedAt: at(1), LastClaimedAt: &oldest}
	if name == "ledger" {
		c.Patterns, c.Holder, c.LeaseUntil, c.Unread, c.OldestUnreadAt, c.LastClaimedAt = []string{}, nil, nil, 0, nil, nil
	}
	return c
}

// events answers what is asked of domain events.
func (f *fakeAPI) events(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.Split(path, "/")
	q := r.URL.Query()
	switch {
	case path == "v1/events" && q.Get("after") == "now":
		answer(w, client.EventList{Events: []client.Event{}, Next: 8})
	case path == "v1/events" && q.Get("after") == "":
		answer(w, client.EventList{Events: []client.Event{fakeEvent(7, "payment.processed", `{"amount":12}`), fakeEvent(8, "order.refused", `null`)}, Next: 8, More: true})
	case path == "v1/events" && q.Get("after") == "8":
		answer(w, client.EventList{Events: []client.Event{fakeEvent(9, "payment.processed", `{"amount":13}`)}, Next: 9})
	case path == "v1/events":
		answer(w, client.EventList{Events: []client.Event{}, Next: 9})
	case len(parts) == 2 && r.Method == http.MethodPost:
		answer(w, fakeConsumer("new"))
	case len(parts) == 2:
		answer(w, wire.EventConsumerList{Consumers: []client.EventConsumer{fakeConsumer("ledger"), fakeConsumer("mailer")}})
	case parts[2] != "mailer" && parts[2] != "ledger":
		fail(w, http.StatusNotFound, "NOT_FOUND", "Event consumer not found: "+parts[2])
	default:
		answer(w, fakeConsumer(parts[2]))
	}
}
