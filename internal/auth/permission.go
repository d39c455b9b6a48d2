package auth

import (
	"slices"
	"strings"
)

// Permission allows an action on a kind of resource, as "resource:action".
type Permission string

// The permissions of Tasker.
const (
	TasksCreate         Permission = "tasks:create"
	TasksRead           Permission = "tasks:read"
	TasksList           Permission = "tasks:list"
	TasksCancel         Permission = "tasks:cancel"
	TasksContextRead    Permission = "tasks:context_read"
	StepsRead           Permission = "steps:read"
	StepsResolve        Permission = "steps:resolve"
	DLQRead             Permission = "dlq:read"
	DLQUpdate           Permission = "dlq:update"
	DLQStats            Permission = "dlq:stats"
	TemplatesRead       Permission = "templates:read"
	TemplatesValidate   Permission = "templates:validate"
	SystemConfigRead    Permission = "system:config_read"
	SystemHandlersRead  Permission = "system:handlers_read"
	SystemAnalyticsRead Permission = "system:analytics_read"
	WorkerConfigRead    Permission = "worker:config_read"
	WorkerTemplatesRead Permission = "worker:templates_read"
)

// The permissions of routes that Tasker does not have.
const (
	TasksManage       Permission = "tasks:manage" // retry, pause, reprioritise, release
	DLQReplay         Permission = "dlq:replay"
	TemplatesRegister Permission = "templates:register"
	SchedulesRead     Permission = "schedules:read"
	SchedulesManage   Permission = "schedules:manage"
	EventsRead        Permission = "events:read"
	EventsManage      Permission = "events:manage" // consumers of events
	EventsSend        Permission = "events:send"   // external events, to waiting steps
	ApprovalsRead     Permission = "approvals:read"
	ApprovalsDecide   Permission = "approvals:decide"
	NamespacesRead    Permission = "namespaces:read"
	NamespacesManage  Permission = "namespaces:manage"
	// QuotasManage changes the quotas and throttles that bound a namespace. It is apart from
	// NamespacesManage: who is bounded by them may manage the rest of the namespace.
	QuotasManage   Permission = "quotas:manage"
	WorkersRead    Permission = "workers:read"
	WorkersExecute Permission = "workers:execute" // sessions, which run steps
	SystemRead     Permission = "system:read"     // fleet, modes, breakers, sweeps, detailed health
	SystemManage   Permission = "system:manage"   // changes of the same
	AuthRead       Permission = "auth:read"       // API keys, without their secrets
	AuthManage     Permission = "auth:manage"
	AuditRead      Permission = "audit:read" // records of operators' actions
)

// all gives each permission its bit in a Permissions.
var all = []Permission{
	TasksCreate, TasksRead, TasksList, TasksCancel, TasksContextRead, StepsRead, StepsResolve, DLQRead, DLQUpdate, DLQStats,
	TemplatesRead, TemplatesValidate, SystemConfigRead, SystemHandlersRead, SystemAnalyticsRead, WorkerConfigRead, WorkerTemplatesRead,
	TasksManage, DLQReplay, TemplatesRegister, SchedulesRead, SchedulesManage, EventsRead, EventsManage, EventsSend,
	ApprovalsRead, ApprovalsDecide, NamespacesRead, NamespacesManage, WorkersRead, SystemRead, SystemManage, AuthRead, AuthManage, WorkersExecute,
	QuotasManage, AuditRead,
}

// grants has what each name that may stand in a token allows: the permissions, and
// "resource:*" for each resource. A lone * is no name.
var grants = func() map[string]Permissions {
	m := make(map[string]Permissions, 2*len(all))
	for i, p := range all {
		resource, _, _ := strings.Cut(string(p), ":")
		m[string(p)] = 1 << i
		m[resource+":*"] |= 1 << i
	}
	return m
}()

// All lists the permissions in a fixed order.
func All() []Permission { return slices.Clone(all) }

// Permissions is a set of permissions. Its zero value is empty.
type Permissions uint64

// Everything holds every permission.
const Everything = ^Permissions(0)

// ParsePermissions returns the set that names give, each a permission or "resource:*", and
// the names that are neither.
func ParsePermissions(names []string) (set Permissions, unknown []string) {
	for _, name := range names {
		grant, ok := grants[name]
		if !ok {
			unknown = append(unknown, name)
		}
		set |= grant
	}
	return set, unknown
}

// Has reports whether the set holds p.
func (s Permissions) Has(p Permission) bool {
	grant := grants[string(p)]
	return grant != 0 && s&grant == grant
}

// List returns the names of the set's permissions in the order of All.
func (s Permissions) List() []string {
	var names []string
	for i, p := range all {
		if s&(1<<i) != 0 {
			names = append(names, string(p))
		}
	}
	return names
}
