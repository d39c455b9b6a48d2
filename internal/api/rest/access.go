package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/oidclogin"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// access is who may use a route.
type access struct {
	needs auth.Permission // none: the route is public
	scope scope
}

// open reports whether no credentials are looked at.
func (n access) open() bool { return n.needs == "" && n.scope != scopeSelf }

// scope is how the namespace that a request acts in is known before its body is decoded. A
// principal of some namespaces is refused in all others.
type scope int

const (
	scopeNone  scope = iota // the answer is of no namespace
	scopeFleet              // of all namespaces, so that it is for principals of all only
	scopePath               // {namespace}
	scopeQuery              // ?namespace=, which may be left out by a principal of one namespace
	scopeTask               // that of a task: {uuid} or {task_uuid}
	scopeEntry              // that of a dead-letter entry
	scopeSchedule
	scopeApproval
	scopeConsumer
	scopeSession // those of a session: {session}
	scopeBody    // the operation calls within with what the body names
	scopeSelf    // about the principal itself: any good credentials do, whatever they permit
	// Of the daemon itself; Access.Public may open each, see endpoints.
	scopeMetrics
	scopeHealth
	scopeDocs // of no namespace
	scopeReflection
)

// endpoints are the words of Access.Public.
var endpoints = map[scope]string{scopeMetrics: "metrics", scopeHealth: "health_detailed", scopeDocs: "docs", scopeReflection: "reflection"}

// accesses has every operation that is described by its id; a server with another one is
// not made. OpenAPI, the gRPC services and the tests read it too.
var accesses = map[string]access{
	"health": {}, "health-live": {}, "health-ready": {}, "health-accepting": {},

	"health-detailed": {auth.SystemRead, scopeHealth},
	"event-metrics":   metrics,
	"worker-metrics":  metrics,

	"create-task":    {auth.TasksCreate, scopeBody},
	"create-tasks":   {auth.TasksCreate, scopeBody},
	"enqueue":        {auth.TasksCreate, scopeBody},
	"list-tasks":     {auth.TasksList, scopeQuery},
	"find-task":      {auth.TasksRead, scopeQuery},
	"get-task":       {auth.TasksRead, scopeTask},
	"get-enqueued":   {auth.TasksRead, scopeTask},
	"get-timeline":   {auth.TasksRead, scopeTask},
	"get-task-graph": {auth.TasksRead, scopeTask},
	"get-batches":    {auth.TasksRead, scopeTask},
	"predict-task":   {auth.TasksContextRead, scopeTask},
	"get-chain":      {auth.TasksRead, scopeTask},
	"verify-task":    {auth.TasksRead, scopeTask},
	"cancel-task":    {auth.TasksCancel, scopeTask},

	"stream-transitions": {auth.TasksRead, scopeBody},

	"get-task-summary": {auth.TasksRead, scopeTask},
	"get-task-context": {auth.TasksContextRead, scopeTask},

	"act-on-task":           {auth.TasksManage, scopeTask},
	"preview-action":        {auth.TasksManage, scopeTask},
	"act-on-tasks":          {auth.TasksManage, scopeBody},
	"replay-isolated-items": {auth.TasksManage, scopeTask},

	"list-steps":          {auth.StepsRead, scopeTask},
	"get-step":            {auth.StepsRead, scopeTask},
	"get-task-logs":       {auth.StepsRead, scopeTask},
	"stream-task-logs":    {auth.StepsRead, scopeTask},
	"get-step-audit":      {auth.StepsRead, scopeTask},
	"list-isolated-items": {auth.StepsRead, scopeTask},
	"act-on-step":         {auth.StepsResolve, scopeTask},

	"list-templates":       {auth.TemplatesRead, scopeQuery},
	"get-template":         {auth.TemplatesRead, scopePath},
	"list-task-types":      {auth.TemplatesRead, scopeQuery},
	"get-task-type":        {auth.TemplatesRead, scopeQuery},
	"deprecate-template":   {auth.TemplatesRegister, scopePath},
	"undeprecate-template": {auth.TemplatesRegister, scopePath},
	"register-template":    {auth.TemplatesRegister, scopeBody},
	"put-task-type":        {auth.TemplatesRegister, scopeBody},
	"delete-task-type":     {auth.TemplatesRegister, scopeQuery},

	"list-worker-templates":    {auth.WorkerTemplatesRead, scopeQuery},
	"get-worker-template":      {auth.WorkerTemplatesRead, scopePath},
	"validate-worker-template": {auth.TemplatesValidate, scopePath},

	"get-config":        {auth.SystemConfigRead, scopeFleet},
	"get-worker-config": {auth.WorkerConfigRead, scopeFleet},
	"get-performance":   {auth.SystemAnalyticsRead, scopeFleet},
	"get-bottlenecks":   {auth.SystemAnalyticsRead, scopeFleet},
	"get-autoscaling":   {auth.WorkersRead, scopePath},

	"list-callable-rates":  {auth.NamespacesRead, scopeQuery},
	"get-callable-rates":   {auth.NamespacesRead, scopeQuery},
	"list-namespace-rates": {auth.NamespacesRead, scopeQuery},

	"list-dlq-entries":            {auth.DLQRead, scopeQuery},
	"get-dlq-entry-of-task":       {auth.DLQRead, scopeTask},
	"get-dlq-investigation-queue": {auth.DLQRead, scopeFleet},
	"get-dlq-staleness":           {auth.DLQRead, scopeFleet},
	"get-dlq-stats":               {auth.DLQStats, scopeFleet},
	"update-dlq-entry":            {auth.DLQUpdate, scopeEntry},
	"add-dlq-entry":               {auth.DLQUpdate, scopeBody},
	"purge-dlq":                   {auth.DLQUpdate, scopeFleet},
	"replay-dlq":                  {auth.DLQReplay, scopeBody},

	"list-schedules":  {auth.SchedulesRead, scopeQuery},
	"get-schedule":    {auth.SchedulesRead, scopeSchedule},
	"get-next-runs":   {auth.SchedulesRead, scopeSchedule},
	"create-schedule": {auth.SchedulesManage, scopeBody},
	"update-schedule": {auth.SchedulesManage, scopeSchedule},
	"delete-schedule": {auth.SchedulesManage, scopeSchedule},
	"pause-schedule":  {auth.SchedulesManage, scopeSchedule},
	"resume-schedule": {auth.SchedulesManage, scopeSchedule},
	"run-schedule":    {auth.SchedulesManage, scopeSchedule},

	"list-events":           {auth.EventsRead, scopeQuery},
	"stream-events":         {auth.EventsRead, scopeQuery},
	"list-event-consumers":  {auth.EventsRead, scopeFleet},
	"get-event-consumer":    {auth.EventsRead, scopeConsumer},
	"claim-events":          {auth.EventsRead, scopeConsumer},
	"ack-events":            {auth.EventsRead, scopeConsumer},
	"create-event-consumer": {auth.EventsManage, scopeBody},
	"reset-event-consumer":  {auth.EventsManage, scopeConsumer},
	"delete-event-consumer": {auth.EventsManage, scopeConsumer},

	"send-event":      {auth.EventsSend, scopeBody},
	"list-approvals":  {auth.ApprovalsRead, scopeQuery},
	"get-approval":    {auth.ApprovalsRead, scopeApproval},
	"decide-approval": {auth.ApprovalsDecide, scopeApproval},

	"list-policies":           {auth.NamespacesRead, scopeQuery},
	"set-policy":              {auth.NamespacesManage, scopePath},
	"delete-policy":           {auth.NamespacesManage, scopePath},
	"list-limits":             {auth.NamespacesRead, scopeQuery},
	"set-limit":               {auth.NamespacesManage, scopePath},
	"delete-limit":            {auth.NamespacesManage, scopePath},
	"list-namespaces":         {auth.NamespacesRead, scopeFleet},
	"pause-namespace":         {auth.NamespacesManage, scopePath},
	"resume-namespace":        {auth.NamespacesManage, scopePath},
	"list-quotas":             {auth.NamespacesRead, scopeFleet},
	"set-quota":               {auth.QuotasManage, scopePath},
	"delete-quota":            {auth.QuotasManage, scopePath},
	"list-submission-limits":  {auth.NamespacesRead, scopeQuery},
	"set-submission-limit":    {auth.QuotasManage, scopePath},
	"delete-submission-limit": {auth.QuotasManage, scopePath},
	"list-workers":            {auth.WorkersRead, scopeQuery},

	"submit-queue-task":     {auth.TasksCreate, scopeBody},
	"submit-queue-tasks":    {auth.TasksCreate, scopeBody},
	"list-queue-tasks":      {auth.TasksList, scopeBody},
	"get-queue-task":        {auth.TasksRead, scopeTask},
	"claim-queue-tasks":     {auth.WorkersExecute, scopeBody},
	"complete-queue-task":   {auth.WorkersExecute, scopeBody},
	"complete-queue-tasks":  {auth.WorkersExecute, scopeBody},
	"fail-queue-task":       {auth.WorkersExecute, scopeBody},
	"register-queue-worker": {auth.WorkersExecute, scopeBody},
	"beat-queue-worker":     {auth.WorkersExecute, scopeBody},
	"list-queue-workers":    {auth.WorkersRead, scopeBody},
	"list-queues":           {auth.NamespacesRead, scopeBody},
	"pause-queue":           {auth.NamespacesManage, scopePath},
	"resume-queue":          {auth.NamespacesManage, scopePath},

	"compat-enqueue":    {auth.TasksCreate, scopeBody},
	"compat-get-task":   {auth.TasksRead, scopeTask},
	"compat-health":     {},
	"compat-submit-job": {auth.TasksCreate, scopeBody},
	"compat-get-job":    {auth.TasksRead, scopeTask},

	"open-session":      {auth.WorkersExecute, scopeBody},
	"poll-session":      {auth.WorkersExecute, scopeSession},
	"stream-session":    {auth.WorkersExecute, scopeSession},
	"report-steps":      {auth.WorkersExecute, scopeSession},
	"save-checkpoint":   {auth.WorkersExecute, scopeSession},
	"show-progress":     {auth.WorkersExecute, scopeSession},
	"keep-lines":        {auth.WorkersExecute, scopeSession},
	"keep-session":      {auth.WorkersExecute, scopeSession},
	"get-parent-result": {auth.WorkersExecute, scopeSession},
	"get-batch-results": {auth.WorkersExecute, scopeSession},
	"close-session":     {auth.WorkersExecute, scopeSession},

	"login": {}, "logout": {}, "login-oidc": {}, "login-oidc-callback": {}, // they look at the credentials themselves
	"get-me":                {scope: scopeSelf},
	"list-browser-sessions": {scope: scopeSelf},
	"end-browser-session":   {scope: scopeSelf},

	"list-audit":     {auth.AuditRead, scopeQuery},
	"list-api-keys":  {auth.AuthRead, scopeBody},
	"create-api-key": {auth.AuthManage, scopeBody},
	"rotate-api-key": {auth.AuthManage, scopeBody},
	"revoke-api-key": {auth.AuthManage, scopeBody},

	"get-fleet":           {auth.SystemRead, scopeFleet},
	"get-deployment-mode": {auth.SystemRead, scopeFleet},
	"get-log-levels":      {auth.SystemRead, scopeFleet},
	"set-log-levels":      {auth.SystemManage, scopeFleet},
	"list-breakers":       {auth.SystemRead, scopeFleet},
	"list-sweeps":         {auth.SystemRead, scopeFleet},
	"set-deployment-mode": {auth.SystemManage, scopeFleet},
	"force-breaker":       {auth.SystemManage, scopeFleet},
	"run-sweep":           {auth.SystemManage, scopeFleet},
}

// The accesses to what the document does not describe, and to metrics.
var (
	metrics       = access{auth.SystemRead, scopeMetrics}
	documentation = access{auth.SystemRead, scopeDocs}
	grpcDiscovery = access{auth.SystemRead, scopeReflection}
)

// inForce is an access as the server is configured.
func (s *Server) inForce(needed access) access {
	if word := endpoints[needed.scope]; word != "" && slices.Contains(s.cfg.Access.Public, word) {
		return access{}
	}
	return needed
}

// Access says who may use a server. Its zero value admits every request.
type Access struct {
	// Authenticator verifies credentials; nil: every client may do everything.
	Authenticator *auth.Authenticator
	// KeyHeader carries API keys.
	KeyHeader string
	// Provider logs browsers in by OpenID Connect; nil: there is none.
	Provider *oidclogin.Provider
	// LogOnly lets requests through that would be refused, and logs them.
	LogOnly bool
	// Public needs no credentials, of docs, metrics, health_detailed and reflection.
	Public []string
	// Share is the percentage of batches, streams, sessions, waiting requests and bytes that one
	// principal may hold; 0: all. Requests without credentials have no share.
	Share int
	// Reach says what content may use beside the namespaces of its principal; nil: nothing more.
	Reach *auth.Reach
	// Origins are those whose pages may call the API; "*" stands for all.
	Origins []string
	// Hosts are those that requests may name, besides this machine. None: any, unless the server
	// asks for no credentials and listens on a loopback address.
	Hosts []string
}

// ownerOf finds the namespace of the thing that a request names; "" if the id can be none's. The
// error wraps store.ErrNotFound if there is no such thing.
type ownerOf func(ctx context.Context, s scope, id string) (namespace string, err error)

// authorise finds out for whom a request is made, and refuses it without the permission. It
// comes before everything that reads the request's parameters and body.
func (a *api) authorise(x *exchange, needed access) error {
	x.who = auth.Unchecked()
	authenticator := a.cfg.Access.Authenticator
	if authenticator == nil || needed.open() {
		return nil
	}
	ctx, credentials := x.request.Context(), x.credentials()
	if credentials.BySession() {
		if err := a.browsers.foreign(x.request); err != nil {
			return a.decided(x, needed.needs, err)
		}
	}
	who, err := authenticator.Authenticate(ctx, credentials)
	if err == nil && asksOnly(ctx) {
		return nil
	}
	if err == nil {
		x.who = who
		err = a.permit(ctx, x, needed)
	}
	return a.decided(x, needed.needs, err)
}

type askingKey struct{}

// asksOnly reports whether a request only asks if its credentials are good, see Refuse.
func asksOnly(ctx context.Context) bool { return ctx.Value(askingKey{}) != nil }

// Refuse answers a request whose credentials are missing or wrong, and logs that, as its operation
// does before it reads a body. Where they are good, it answers 204, and nothing is done.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request) {
	s.Handler().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askingKey{}, true)))
}

// credentials are those of a request.
func (x *exchange) credentials() auth.Credentials {
	c := x.sent()
	c.Session = cookieToken(x.request)
	return c
}

// sent are the credentials that a client sends by itself.
func (x *exchange) sent() auth.Credentials {
	h := x.request.Header
	return auth.Credentials{Authorization: h.Get("Authorization"), Key: h.Get(x.server.keyHeader)}
}

// stillGood returns an error if the credentials of a request whose answer lasts are no longer
// what they were when it was authorised, or that cannot be known.
func (x *exchange) stillGood() error {
	authenticator := x.server.cfg.Access.Authenticator
	if authenticator == nil || x.permission == "" || x.server.cfg.Access.LogOnly {
		return nil
	}
	who, err := authenticator.Authenticate(x.request.Context(), x.credentials())
	if err == nil {
		err = who.Authorize(x.permission)
	}
	if err == nil && (who.Everywhere() != x.who.Everywhere() || !slices.Equal(who.Namespaces, x.who.Namespaces)) {
		err = errOtherNamespaces
	}
	return x.server.judged(x, err)
}

var errOtherNamespaces = errors.New("the namespaces of the credentials have changed")

// permit compares what the principal of a request may do with what it wants to.
func (a *api) permit(ctx context.Context, x *exchange, needed access) error {
	if needed.scope == scopeSelf {
		return nil
	}
	if err := x.who.Authorize(needed.needs); err != nil {
		return err
	}
	if needed.scope == scopeSession {
		return a.permitSession(x)
	}
	if x.who.Everywhere() {
		return nil
	}
	switch needed.scope {
	case scopeNone, scopeBody, scopeDocs, scopeReflection:
		return nil
	case scopeFleet, scopeMetrics, scopeHealth:
		return x.who.AllNamespaces()
	case scopePath:
		return x.who.In(cmp.Or(x.request.PathValue("namespace"), x.request.PathValue("name")))
	case scopeQuery:
		return a.permitQuery(x)
	}
	id := ""
	for _, name := range []string{"uuid", "task_uuid", "dlq_entry_uuid", "id", "token", "name"} {
		if id == "" {
			id = x.request.PathValue(name)
		}
	}
	return a.permitThing(ctx, x, needed.scope, id)
}

// permitThing refuses a request for a thing of a namespace that its principal may not act in with
// the answer to one that does not exist, which it gives here too: both come before what else is
// wrong with a request, so that nothing tells them apart. An id that can be none's is left to the
// operation.
func (a *api) permitThing(ctx context.Context, x *exchange, s scope, id string) error {
	namespace, err := a.owner(ctx, s, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return absentThing(s, id, err)
	case err != nil || namespace == "":
		return err
	}
	return hidden(x.who.In(namespace), func(refused error) error { return absentThing(s, id, refused) })
}

// hidden replaces a refusal by the answer about what does not exist, with the refusal as its cause.
func hidden(refused error, absent func(refused error) error) error {
	if refused == nil {
		return nil
	}
	return absent(refused)
}

// absentThing is the answer about a thing that does not exist, with its cause.
func absentThing(s scope, id string, cause error) error {
	if key, err := uuid.Parse(id); err == nil {
		id = key.String()
	}
	f := notFound(fmt.Sprintf(absences[s], clip(id, 64)))
	f.cause = cause
	return f
}

// absences are the answers about what does not exist.
var absences = map[scope]string{
	scopeTask: "Task not found: %s", scopeEntry: "DLQ entry not found: %s", scopeSchedule: "Schedule not found: %s",
	scopeApproval: unknownApproval + "%.0s", scopeConsumer: "Event consumer not found: %s",
}

// permitSession wants the principal that has opened a session, with all its namespaces. Another one
// gets the answer about a session that does not exist, which is left to the operation.
func (a *api) permitSession(x *exchange) error {
	in := sessionInput{x.request.PathValue("session")}
	opened, known := a.sessions.Opened(in.id())
	if !known {
		return nil
	}
	var refused error
	switch {
	case opened.Principal != x.who.Holder():
		refused = auth.Foreign("session")
	case len(opened.Namespaces) == 0:
		refused = x.who.AllNamespaces()
	}
	for _, name := range opened.Namespaces {
		if refused == nil {
			refused = x.who.In(name)
		}
	}
	return hidden(refused, func(refused error) error {
		return &failure{status: http.StatusNotFound, code: codeNotFound, message: remote.ErrNoSession.Error(), cause: refused}
	})
}

// permitQuery looks at the parameter namespace, and sets it to the only namespace of the
// principal where it is missing.
func (a *api) permitQuery(x *exchange) error {
	query := x.request.URL.Query()
	if named := query["namespace"]; len(named) > 0 {
		return x.who.In(query.Get("namespace"))
	}
	if len(x.who.Namespaces) != 1 {
		return x.who.AllNamespaces()
	}
	query.Set("namespace", x.who.Namespaces[0])
	x.request.URL = &url.URL{Path: x.request.URL.Path, RawPath: x.request.URL.RawPath, RawQuery: query.Encode()}
	return nil
}

// within refuses a request whose body names a namespace that its principal may not act in;
// no namespace stands for all.
func within(ctx context.Context, namespace string) error {
	x := exchangeOf(ctx)
	switch {
	case x == nil || x.who == nil || x.who.Everywhere():
		return nil
	case namespace == "":
		return x.server.judged(x, x.who.AllNamespaces())
	}
	return x.server.judged(x, x.who.In(namespace))
}

// namespaces are those that within lets a request act in; nil: all.
func (x *exchange) namespaces() []string {
	if x == nil || x.who == nil || x.who.Everywhere() || x.server.cfg.Access.LogOnly {
		return nil
	}
	return x.who.Namespaces
}

// reaches says of which namespaces what a task of one names may be: those of the principal who brings
// it, and those that are granted; nil: of all.
func (x *exchange) reaches(from string) func(namespace string) bool {
	if x.namespaces() == nil {
		return nil
	}
	return func(namespace string) bool {
		return !x.hides(namespace) || x.server.cfg.Access.Reach.Granted(from, namespace)
	}
}

// withinReach refuses a template that names templates of namespaces which its own may not use. The
// principal's namespaces do not count: others' tasks run by it.
func withinReach(ctx context.Context, t *workflow.Template) error {
	x := exchangeOf(ctx)
	for i := range t.Steps {
		named := t.Steps[i].Task
		if named == nil || named.Namespace == "" {
			continue
		}
		var beyond *auth.BeyondError
		if errors.As(x.server.cfg.Access.Reach.Check(t.Namespace, named.Namespace), &beyond) {
			if err := x.server.judged(x, beyond.Refusal()); err != nil {
				return err
			}
		}
	}
	return nil
}

// showsInputs reports whether answers to a request have contexts, payloads and what is made of them.
func (x *exchange) showsInputs() bool {
	return x == nil || x.who == nil || x.server.cfg.Access.LogOnly || x.who.Permissions.Has(auth.TasksContextRead)
}

// shownInput is a context or a part of it in an answer, null for who may not read it.
func shownInput(ctx context.Context, input json.RawMessage) json.RawMessage {
	if exchangeOf(ctx).showsInputs() {
		return input
	}
	return json.RawMessage("null")
}

// hides reports whether a request is not shown what is of a namespace.
func (x *exchange) hides(namespace string) bool {
	shown := x.namespaces()
	return shown != nil && !slices.Contains(shown, namespace)
}

// withinTask is within for the namespace of a task.
func (a *api) withinTask(ctx context.Context, task string) error {
	x := exchangeOf(ctx)
	if x == nil || x.who == nil || x.who.Everywhere() {
		return nil
	}
	return a.judged(x, a.permitThing(ctx, x, scopeTask, task))
}

// withinThing is within for a namespace that the request does not name, but a thing that it names:
// the answer is that about one which does not exist.
func withinThing(ctx context.Context, s scope, id, namespace string) error {
	return hidden(within(ctx, namespace), func(refused error) error { return absentThing(s, id, refused) })
}

// owners finds namespaces by reading the thing itself. It is asked for principals of some
// namespaces only.
func (o *orchestratorAPI) owners(ctx context.Context, s scope, id string) (namespace string, err error) {
	var key uuid.UUID
	if s != scopeConsumer {
		if key, err = uuid.Parse(id); err != nil {
			return "", nil //nolint:nilerr // the operation says what is wrong with it
		}
	}
	switch s {
	case scopeTask:
		var task *store.Task
		if task, err = o.store.TaskWithoutResults(ctx, key); err == nil {
			namespace = task.Plan.Template.Namespace
		}
	case scopeEntry:
		entry, failed := o.store.DeadLetter(ctx, key)
		namespace, err = entry.Namespace, failed
	case scopeSchedule:
		schedule, failed := o.engine.Schedule(ctx, key)
		namespace, err = schedule.Namespace, failed
	case scopeApproval:
		approval, failed := o.engine.Approval(ctx, key.String()) // as the operation reads the token
		namespace, err = approval.Namespace, failed
	case scopeConsumer:
		namespace, err = o.ownConsumer(ctx, id)
	}
	return namespace, err
}

// ownConsumer finds the consumer that a name means in the namespaces of the principal, and has the
// request name it by the key under which it is kept.
func (o *orchestratorAPI) ownConsumer(ctx context.Context, name string) (namespace string, err error) {
	x := exchangeOf(ctx)
	if x.namespaces() == nil { // a server that only logs
		consumer, err := o.store.EventConsumer(ctx, name)
		return consumer.Namespace, err
	}
	consumer, err := o.store.EventConsumerIn(ctx, name, x.namespaces())
	if err == nil {
		x.request.SetPathValue("name", consumer.Name)
	}
	return consumer.Namespace, err
}

// decided writes the audit log of a request and returns the refusal, if it is one.
func (a *api) decided(x *exchange, needed auth.Permission, err error) error {
	x.permission = needed
	if err != nil {
		return a.judged(x, err)
	}
	level := zap.DebugLevel
	if x.request.Method != http.MethodGet {
		level = zap.InfoLevel
	}
	if line := a.audit.Check(level, "allowed"); line != nil {
		fields, _ := a.lines.Get().(*[]zap.Field)
		if fields == nil {
			fields = &[]zap.Field{}
		}
		*fields = x.auditFields((*fields)[:0])
		line.Write(*fields...) // which keeps none
		a.lines.Put(fields)
	}
	return nil
}

// judged logs a refusal, and lifts it where the server only logs.
func (s *Server) judged(x *exchange, err error) error {
	var refused *auth.Failure
	if err == nil {
		return nil
	}
	if !errors.As(err, &refused) {
		return fmt.Errorf("authorise: %w", err)
	}
	fields := append(x.auditFields(nil), zap.String("reason", string(refused.Reason)), zap.String("detail", refused.Message), zap.NamedError("cause", refused.Cause))
	s.cfg.Telemetry.AuthRefusals.WithLabelValues(string(refused.Reason)).Inc()
	if s.cfg.Access.LogOnly {
		s.audit.Warn("would be refused", fields...)
		return nil
	}
	s.audit.Warn("refused", fields...)
	return err
}

// auditFields adds who wants to do what.
func (x *exchange) auditFields(to []zap.Field) []zap.Field {
	return append(x.fields(to), zap.String("route", x.request.Pattern), zap.String("permission", string(x.permission)),
		zap.String("principal", x.who.Subject), zap.String("by", string(x.who.Method)), zap.String("client_address", x.request.RemoteAddr))
}

// serveUndocumented registers a route that the document does not have.
func (a *api) serveUndocumented(route string, needed access, h http.HandlerFunc) {
	needed = a.inForce(needed)
	a.permissions[route] = needed.needs
	a.mux.HandleFunc(route, a.guarded(needed, func(x *exchange) error {
		h(x, x.request)
		return nil
	}))
}

// Permissions returns what every route needs, "" for a public one, by "METHOD /path".
func (s *Server) Permissions() map[string]auth.Permission { return maps.Clone(s.permissions) }

// Admits returns who makes requests with such headers, or an error if an operation, "METHOD /path",
// is refused to them because their credentials are missing or wrong. What the principal may do is
// not looked at.
func (s *Server) Admits(ctx context.Context, operation string, h http.Header) (*auth.Principal, error) {
	authenticator := s.cfg.Access.Authenticator
	if authenticator == nil || s.permissions[operation] == "" || s.cfg.Access.LogOnly {
		return auth.Unchecked(), nil
	}
	return authenticator.Authenticate(ctx, auth.Credentials{Authorization: h.Get("Authorization"), Key: h.Get(s.keyHeader)})
}

// allowOrigin answers browsers of the configured origins. It reports whether the request was a
// preflight and is answered.
func (s *Server) allowOrigin(x *exchange, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	allowed := s.cfg.Access.Origins
	if origin == "" || isAdmin(r) || !slices.Contains(allowed, origin) && !slices.Contains(allowed, "*") {
		return false
	}
	h := x.Header()
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "*, Authorization")
	x.WriteHeader(http.StatusOK)
	return true
}
