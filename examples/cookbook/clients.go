package cookbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
)

// cookbook: webhook
func receivePayment(tasker *client.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			ID string `json:"id"`
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20)) // check its signature too
		if err != nil || json.Unmarshal(body, &event) != nil || event.ID == "" {
			http.Error(w, "not an event", http.StatusBadRequest)
			return
		}
		task, err := tasker.CreateTask(r.Context(), client.TaskRequest{
			Namespace: "cookbook", Name: "payment_webhook", Context: body, Initiator: "payments",
			IdempotencyKey: "payments/" + event.ID, ConflictPolicy: client.ConflictUseExisting,
		})
		if err != nil {
			http.Error(w, "deliver it again", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Task", task.TaskUUID)
	}
}

// cookbook: end

// cookbook: nightly
func scheduleReports(ctx context.Context, tasker *client.Client, zones map[string]string) error {
	for name, zone := range zones { // "zurich": "Europe/Zurich"
		input, err := json.Marshal(map[string]string{"zone": zone})
		if err != nil {
			return err
		}
		_, err = tasker.CreateSchedule(ctx, client.ScheduleRequest{
			Namespace: "cookbook", Name: "report-" + name, Template: "nightly_report", Context: input,
			Cron: "30 2 * * *", TimeZone: zone, Overlap: "skip", Actor: "setup",
		})
		if err != nil && !client.IsConflict(err) { // it exists: an earlier start of the program created it
			return err
		}
	}
	return nil
}

// cookbook: end

// cookbook: approval-link
var question = template.Must(template.New("").Parse(`<p>{{.}}</p><form method="post"><button>Approve</button></form>`))

func approvalPage(tasker *client.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := r.PathValue("token")
		var open *client.Approval
		var err error
		if r.Method == http.MethodPost { // a GET decides nothing: programs that scan mails follow links
			open, err = tasker.Decide(r.Context(), token, client.Verdict{Approved: true, Actor: "mail"})
		} else {
			open, err = tasker.Approval(r.Context(), token)
		}
		switch {
		case client.IsNotFound(err):
			http.Error(w, "it is decided already", http.StatusGone)
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, "Thank you.")
		default:
			_ = question.Execute(w, open.Prompt)
		}
	}
}

// cookbook: end

// cookbook: own-transaction
type shop struct {
	pool  *pgxpool.Pool
	tasks *pgclient.Client // pgclient.New(pgclient.AnnounceNotify): one for the whole program
}

func (s *shop) placeOrder(ctx context.Context, id int64, customer string) error {
	input, err := json.Marshal(map[string]any{"order": id})
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders (id, customer) values ($1, $2)`, id, customer); err != nil {
			return err
		}
		_, err := s.tasks.CreateTaskTx(ctx, tx, client.TaskRequest{
			Namespace: "cookbook", Name: "process_order", Context: input, IdempotencyKey: fmt.Sprintf("order-%d", id),
		})
		return err
	})
}

// cookbook: end

// cookbook: payment-event
func paymentReceived(ctx context.Context, tasker *client.Client, order, payment string, cents int64) error {
	payload, err := json.Marshal(map[string]int64{"cents": cents})
	if err != nil {
		return err
	}
	_, err = tasker.SendEvent(ctx, client.ExternalEvent{
		Namespace: "cookbook", Name: "payment.received", Key: order, Payload: payload, ID: payment,
	})
	return err
}

// cookbook: end

// cookbook: rebuild
func saved(ctx context.Context, tasker *client.Client, document string, revision int) error {
	input, err := json.Marshal(map[string]any{"document": document, "revision": revision})
	if err != nil {
		return err
	}
	_, err = tasker.CreateTask(ctx, client.TaskRequest{Namespace: "cookbook", Name: "rebuild_index", Context: input})
	return err
}

// cookbook: end

// cookbook: export
func requestExport(ctx context.Context, tasker *client.Client, tenant string) (wait time.Duration, err error) {
	input, err := json.Marshal(map[string]string{"tenant": tenant})
	if err != nil {
		return 0, err
	}
	_, err = tasker.CreateTask(ctx, client.TaskRequest{Namespace: "cookbook", Name: "export_data", Context: input})
	var refused *client.Error
	if errors.As(err, &refused) && refused.Code == "THROTTLED" {
		return refused.RetryAfter, nil // show it to the tenant
	}
	return 0, err
}

// cookbook: end

// cookbook: offer
func quoteUntil(ctx context.Context, tasker *client.Client, input json.RawMessage, latest time.Time) (*client.Task, error) {
	return tasker.CreateTask(ctx, client.TaskRequest{
		Namespace: "cookbook", Name: "quote_price", Context: input, Deadline: &client.Time{Time: latest},
	})
}

// cookbook: end
