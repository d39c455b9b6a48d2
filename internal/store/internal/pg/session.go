package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// A role, a database or a server may have settings of its own, with which statements mean
// something else or fail. Sessions with a server of their own begin with the settings that
// statements need. Behind a pooler, which refuses or ignores them, they are only checked.

// session are the settings that statements need.
var session = map[string]string{
	"standard_conforming_strings":   "on", // E'' is the only form with escapes
	"client_encoding":               "UTF8",
	"default_transaction_isolation": "read committed", // rows that others have locked are skipped, or read anew
}

// checked are settings that are never overruled: the intention of an operator, or that of a
// superuser.
var checked = map[string]string{
	"default_transaction_read_only": "off",
	"session_replication_role":      "origin", // triggers are a part of the schema
}

const (
	planCacheMode    = "plan_cache_mode"
	forceGenericPlan = "force_generic_plan"
)

// poolerRemedy follows the error of a pooler without its settings.
const poolerRemedy = "the address is that of a pooler: set common.database.prepared_statements = false for it, " +
	"and common.database.listener_url to the address of the server"

// setParameter sets a parameter of a connection, whatever the case of the name in the URL.
func setParameter(parameters map[string]string, name, value string) {
	for other := range parameters {
		if strings.EqualFold(other, name) {
			delete(parameters, other)
		}
	}
	parameters[name] = value
}

// refusedParameter reports whether a pooler has refused a parameter of the connection.
func refusedParameter(err error) bool {
	return ServerCode(err) == "08P01" && strings.Contains(ServerError(err).Message, "startup parameter")
}

// value is a row of every kind of value that statements send and read in lists.
type value struct {
	ID       uuid.UUID
	Flag     bool
	Small    int16
	Number   int32
	Big      int64
	Name     string
	Document json.RawMessage
	At       time.Time
	Took     time.Duration
	Bytes    []byte
	Names    []string
}

// written is what the database returns of a value.
type written struct {
	ID         uuid.UUID
	Flag       bool
	Small      int16
	Number     int32
	Big        int64
	Name       string
	Document   json.RawMessage
	At         time.Time
	Took       time.Duration
	Bytes      []byte
	Names      []string
	Namespaces []string
	Callables  []int32
	Same       bool
	Seconds    float64
	Digits     string
}

// Index: the primary keys.
var (
	writeValues = Compile(`
with v as (
    select * from ` + stmt.List[value]("v") + `
), kept as (
    insert into tasker.task_identities (identity, task_uuid) select bytes, id from v returning identity
), worker as (
    insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces, callables,
                                refused_templates, status, stopped_at)
    select id, name, name, name, name, @names::text[], @numbers::int[], document::jsonb, small, at from v
    returning worker_uuid, worker_id, namespaces, callables, refused_templates, status, stopped_at
)
select w.worker_uuid as id, v.flag, w.status as small, v.number, v.big, w.worker_id as name,
       w.refused_templates as document, w.stopped_at as at, v.took, i.identity as bytes,
       string_to_array(v.names, {separator}) as names, w.namespaces, w.callables, v.id = any (@ids::uuid[]) as same,
       extract(epoch from v.took * interval '1 ms')::float8 as seconds,
       (w.refused_templates ->> 'n')::numeric::text as digits
from worker w cross join v cross join kept i`)
	readSettings = Compile(`select n.name, current_setting(n.name, true) as value from unnest(@names::text[]) n(name)`)
)

// CheckSession writes and reads a row of every kind of value over the pool, in a transaction that
// is rolled back, and checks the settings of a session. What every request would meet is so
// reported at the start.
func (s Server) CheckSession(ctx context.Context) error {
	const doing = "check the sessions of the database"
	return s.db.Repeatable(ctx, "session", doing, func(ctx context.Context, db *Conn) error {
		if err := s.db.checkSettings(ctx, db); err != nil {
			return err
		}
		err := s.db.InTx(ctx, db, func(tx pgx.Tx) error {
			if err := exchange(ctx, tx); err != nil {
				return err
			}
			return errDry
		})
		if errors.Is(err, errDry) {
			return nil
		}
		return err
	})
}

// setting is one of the session.
type setting struct {
	Name  string
	Value *string
}

func (s *DB) checkSettings(ctx context.Context, db *Conn) error {
	wanted := map[string]string{}
	for _, list := range []map[string]string{session, checked} {
		for name, value := range list {
			wanted[name] = value
		}
	}
	if !s.Opts.NoPreparedStatements {
		wanted[planCacheMode] = forceGenericPlan
	}
	found, err := stmt.All[setting](ctx, db, readSettings.With(Args{"names": slices.Sorted(maps.Keys(wanted))}))
	if err != nil {
		return err
	}
	for _, f := range found {
		want := wanted[f.Name]
		switch {
		case f.Value == nil || strings.EqualFold(*f.Value, want):
		case f.Name == planCacheMode:
			return fmt.Errorf("the session lacks the parameters of its connection (%s is %q): %s",
				f.Name, *f.Value, poolerRemedy)
		default:
			return fmt.Errorf("invalid setting %s = %q of the session: want %q; "+
				"alter role, alter database and the server's configuration set it", f.Name, *f.Value, want)
		}
	}
	return nil
}

// exchange writes a row of values and compares what the database returns.
func exchange(ctx context.Context, tx pgx.Tx) error {
	id := uuid.New()
	sent := value{ID: id, Flag: true, Small: int16(WorkerDead), Number: -1, Big: 1<<53 + 1, Name: `a\'"ü`,
		Document: json.RawMessage(`{"n": 9007199254740993.1, "s": "\\ü"}`),
		At:       time.Date(2026, 3, 29, 2, 30, 0, 123456000, time.UTC),
		Took:     1500 * time.Millisecond, Bytes: id[:], Names: []string{`\`, "ü"}}
	namespaces, callables := []string{`\`, "b"}, []int32{1, -2}
	got, err := stmt.One[written](ctx, tx, writeValues.With(Args{"v": []value{sent}, "names": namespaces,
		"numbers": callables, "ids": UUIDs{id}}))
	if err != nil {
		return fmt.Errorf("write and read a row of every kind of value: %w", err)
	}
	want := written{ID: id, Flag: true, Small: sent.Small, Number: sent.Number, Big: sent.Big, Name: sent.Name,
		Document: sent.Document, At: got.At, Took: sent.Took, Bytes: sent.Bytes, Names: sent.Names,
		Namespaces: namespaces, Callables: callables, Same: true, Seconds: 1.5, Digits: "9007199254740993.1"}
	if !got.At.Equal(sent.At) || !reflect.DeepEqual(got, want) {
		return fmt.Errorf("write and read a row of every kind of value: the database returned %+v for %+v", got, want)
	}
	return nil
}
