package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/workflow"
)

func integrity(t *testing.T, dsn string) ([]store.Violation, int) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: dsn, MaxConns: 2})
	require.NoError(t, err)
	defer s.Close()
	report, err := s.CheckIntegrity(t.Context(), workflow.Rules{MaxCrashes: 3})
	require.NoError(t, err)
	return report.Violations, report.Tasks
}

const order = `{"customer":{"id":7,"email":"a@example.org"},
	"items":[{"sku":"WIDGET","quantity":2,"unit_price_cents":2999},{"sku":"GADGET","quantity":1,"unit_price_cents":14999}],
	"payment":{"method":"card","token":"%s"},"shipping":{"method":"standard","address":{"city":"Bern"}},"run":"%s"}`

// scenarios are what every mode must support.
var scenarios = []struct {
	name string
	run  func(t *testing.T, r *running)
}{
	{"linear", func(t *testing.T, r *running) {
		task := r.run("mathematical_sequence", `{"even_number":6}`)
		require.Equal(t, "complete", task.Status)
		require.Equal(t, "all_complete", task.ExecutionStatus)
		require.NotNil(t, task.CompletedAt)
		require.Equal(t, map[string]string{"first": "36", "second": "1296", "third": "1679616", "fourth": "2821109907456"}, r.results(task.TaskUUID))
	}},
	{"diamond", func(t *testing.T, r *running) {
		task := r.run("diamond", `{"even_number":6}`)
		require.Equal(t, "complete", task.Status)
		require.Equal(t, map[string]string{"start": "36", "branch_left": "1296", "branch_right": "1296", "end": "2821109907456"}, r.results(task.TaskUUID))
	}},
	{"tree", func(t *testing.T, r *running) {
		task := r.run("tree", `{"even_number":6}`)
		require.EqualValues(t, 8, task.CompletedSteps)
		require.Equal(t, `"63340286662973277706162286946811886609896461828096"`, r.results(task.TaskUUID)["convergence"])
	}},
	{"mixed dag", func(t *testing.T, r *running) {
		task := r.run("mixed_dag", `{"even_number":2}`)
		require.EqualValues(t, 7, task.CompletedSteps)
		require.Equal(t, `"18446744073709551616"`, r.results(task.TaskUUID)["finalize"])
	}},
	{"order", func(t *testing.T, r *running) {
		task := r.run("order_fulfillment", fmt.Sprintf(order, "tok_good", "ok"))
		require.Equal(t, "complete", task.Status)
		var shipment struct {
			TotalCents int64 `json:"total_cents"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.results(task.TaskUUID)["ship_order"]), &shipment))
		require.EqualValues(t, 20997, shipment.TotalCents)
	}},
	{"retries", func(t *testing.T, r *running) {
		task := r.run("order_fulfillment", fmt.Sprintf(order, "tok_flaky", "retries"))
		require.Equal(t, "complete", task.Status)
		require.Contains(t, r.results(task.TaskUUID)["process_payment"], `"attempts":3`)
	}},
	{"permanent failure", func(t *testing.T, r *running) {
		task := r.run("order_fulfillment", fmt.Sprintf(order, "tok_declined", "declined"))
		require.Equal(t, "error", task.Status)
		require.Equal(t, "blocked_by_failures", task.ExecutionStatus)
		steps, err := r.clients[0].Steps(t.Context(), task.TaskUUID)
		require.NoError(t, err)
		states := map[string]string{}
		for _, s := range steps {
			states[s.Name] = s.CurrentState
		}
		require.Equal(t, map[string]string{"validate_order": "complete", "reserve_inventory": "complete",
			"process_payment": "error", "ship_order": "pending"}, states)
	}},
	{"delayed start", func(t *testing.T, r *running) {
		delay := 0.3
		req := request("diamond", `{"even_number":8,"run":"delayed"}`)
		req.DelaySeconds = &delay
		task, err := r.clients[0].CreateTask(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "pending", task.Status)
		done := r.wait(task.TaskUUID, 30*time.Second)
		require.Equal(t, "complete", done.Status)
		require.GreaterOrEqual(t, r.db.QueryInt(t, `select count(*) from tasker.v_tasks where completed_at - requested_at >= interval '0.3 s' and task_uuid = '`+task.TaskUUID+`'`), 1)
	}},
	{"cancel", func(t *testing.T, r *running) {
		delay := 3600.0
		req := request("diamond", `{"even_number":8,"run":"cancel"}`)
		req.DelaySeconds = &delay
		task, err := r.clients[0].CreateTask(t.Context(), req)
		require.NoError(t, err)
		cancelled, err := r.clients[0].CancelTask(t.Context(), task.TaskUUID, client.Why{})
		require.NoError(t, err)
		require.Equal(t, "cancelled", cancelled.Status)
	}},
	{"fifty at once", func(t *testing.T, r *running) {
		ids := submit(t, r, 50, "burst")
		for _, id := range ids {
			require.Equal(t, "complete", r.wait(id, time.Minute).Status)
		}
	}},
}

// submit creates n diamonds with 16 clients at once.
func submit(t *testing.T, r *running, n int, label string) []string {
	t.Helper()
	s := <-submitting(t, r, n, label)
	require.NoError(t, s.err)
	return s.ids
}

// submitted is the outcome of a submission.
type submitted struct {
	ids []string
	err error
}

// submitting submits in the background.
func submitting(t *testing.T, r *running, n int, label string) <-chan submitted {
	done := make(chan submitted, 1)
	clients := r.clients
	go func() {
		ids, errs := make([]string, n), make(chan error, 16)
		for worker := range cap(errs) {
			go func() {
				var err error
				for i := worker; i < n && err == nil; i += cap(errs) {
					var task *client.Task
					task, err = clients[i%len(clients)].CreateTask(t.Context(), request("diamond", fmt.Sprintf(`{"even_number":6,"run":"%s-%d"}`, label, i)))
					if err == nil {
						ids[i] = task.TaskUUID
					}
				}
				errs <- err
			}()
		}
		var err error
		for range cap(errs) {
			err = errors.Join(err, <-errs)
		}
		done <- submitted{ids, err}
	}()
	return done
}

// awaitAll waits until every submitted task is complete.
func (r *running) awaitAll(s submitted) {
	r.t.Helper()
	require.NoError(r.t, s.err)
	for _, id := range s.ids {
		require.Equal(r.t, "complete", r.wait(id, time.Minute).Status)
	}
}

func TestEveryModeWithEverySource(t *testing.T) {
	for _, source := range sources("notify", "wal", "relay", "redis") { // TestModesOverABroker has amqp
		for _, mode := range []string{"PollingOnly", "EventDrivenOnly", "Hybrid"} {
			if (source == "relay" || source == "redis") && mode == "PollingOnly" && os.Getenv(fleet.EnvSource) == "" {
				continue // relay sends like wal, and redis has no listener
			}
			t.Run(mode+"/"+source, func(t *testing.T) {
				if cell := mode + "/" + source; cell != "Hybrid/notify" && cell != "EventDrivenOnly/wal" && cell != "PollingOnly/notify" {
					needs.All(t, "the other modes and sources")
				}
				t.Parallel()
				r := pair(t, mode, source)
				for _, s := range scenarios {
					t.Run(s.name, func(t *testing.T) {
						r.t = t
						s.run(t, r)
					})
				}
				r.t = t
				r.clean()
			})
		}
	}
}

func TestMixedFleet(t *testing.T) {
	r := newFleet(t, pgtest.New(t)) // empty: all five migrate it at once
	r.start(fleet.Orchestrator, "Hybrid", "")
	r.start(fleet.Orchestrator, "PollingOnly", "")
	for _, mode := range []string{"EventDrivenOnly", "PollingOnly", "Hybrid"} {
		r.start(fleet.Worker, mode, "")
	}
	r.ready()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			r.t = t
			s.run(t, r)
		})
	}
	r.t = t
	seen, err := r.clients[0].Fleet(t.Context())
	require.NoError(t, err)
	require.Len(t, seen.Replicas, 5)
	r.clean()
}

func TestThousandDiamonds(t *testing.T) {
	needs.All(t, "twenty seconds of load")
	r := pair(t, "Hybrid", "")
	begin := time.Now()
	ids := submit(t, r, 1000, "thousand")
	for _, id := range ids {
		require.Equal(t, "complete", r.wait(id, 2*time.Minute).Status)
	}
	t.Logf("1,000 diamonds in %v", time.Since(begin).Round(time.Millisecond))
	r.clean()
	require.Equal(t, 4000, r.db.QueryInt(t, `select count(*) from tasker.step_attempts`), "every step ran exactly once")
}

func TestListenerKilledDuringARun(t *testing.T) {
	for _, mode := range []string{"EventDrivenOnly", "Hybrid"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := pair(t, mode, "notify")
			done := submitting(t, r, 200, "killed")
			killed := 0
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
				killed += r.db.QueryInt(t, `select count(pg_terminate_backend(pid)) from pg_stat_activity
					where datname = current_database() and application_name like '%-listener'`)
				return killed >= 3, "no listener to kill"
			})
			r.awaitAll(<-done)
			r.clean()
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
				health, metrics := get(t, r.all[0].URL+"/health/detailed"), get(t, r.all[0].URL+"/metrics")
				return strings.Contains(health, `"reconnects"`) && counted(metrics, "tasker_listener_reconnections_total"), health
			})
		})
	}
}

// TestRelayKilledDuringARun: no daemon polls, and the relay is killed repeatedly. The
// next relay's first announcement covers lost signals.
func TestRelayKilledDuringARun(t *testing.T) {
	t.Parallel()
	r := newFleet(t, databaseFor(t, "relay"))
	for range 2 {
		r.start(fleet.Orchestrator, "EventDrivenOnly", "relay")
	}
	r.start(fleet.Worker, "EventDrivenOnly", "relay")
	r.ready()
	done := submitting(t, r, 200, "relay")
	killed := 0
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		killed += r.db.QueryInt(t, `select count(pg_terminate_backend(l.pid)) from pg_locks l join pg_stat_activity a using (pid)
			where l.locktype = 'advisory' and l.granted and a.datname = current_database() and a.application_name = 'tasker-orchestrator-relay'`)
		return killed >= 3, "no relay to kill"
	})
	r.awaitAll(<-done)
	r.clean()
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		relays := 0
		for _, p := range r.all[:2] {
			if counted(get(t, p.URL+"/metrics"), "tasker_relay_leader") {
				relays++
			}
		}
		return relays == 1, fmt.Sprintf("%d orchestrators relay", relays)
	})
	require.Contains(t, get(t, r.all[0].URL+"/health/detailed"), "signal_relay")
}

// counted reports whether some series of a counter is above zero.
func counted(metrics, name string) bool {
	for _, line := range strings.Split(metrics, "\n") {
		if strings.HasPrefix(line, name) && !strings.HasSuffix(line, " 0") {
			return true
		}
	}
	return false
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}
