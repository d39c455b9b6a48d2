package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func nothingSet(string) (string, bool) { return "", false }

func TestEveryKeyIsAnnotated(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys() {
		assert.False(t, seen[k.Path], "%s is registered twice", k.Path)
		seen[k.Path] = true
		assert.NotEmpty(t, k.Description, k.Path)
		assert.NotRegexp(t, "<[a-z_]+>", fmt.Sprint(k.Description, k.Impact, literal(k.Default), k.Reason, k.Env), "%s: a placeholder that no table fills", k.Path)
		assert.Equal(t, k.Older || k.Member, k.Default == nil, "%s: its default", k.Path)
		assert.Equal(t, k.Status != statusIgnored, k.Impact != "", "%s: what a key does, if it does or will do anything", k.Path)
		assert.Equal(t, k.Status != StatusActive, k.Reason != "", "%s: the reason is that of keys without effect", k.Path)
		assert.True(t, strings.HasSuffix(k.Description, "."), "%s: the description is a sentence", k.Path)
		if k.Type == typeInt || k.Type == typeFloat || k.Type == typeIntList {
			assert.True(t, k.Bounded, "%s has no range", k.Path)
			assert.NotEmpty(t, k.Rule, k.Path)
		}
		for alias, value := range k.Aliases {
			assert.Contains(t, k.Enum, value, "%s: alias %s", k.Path, alias)
		}
	}
}

func TestEveryDefaultObeysItsOwnRule(t *testing.T) {
	for _, k := range Keys() {
		if k.Default == nil || k.Type == typeTables {
			continue
		}
		v := &values{lookup: nothingSet}
		v.check(&entry{key: &k, value: k.Default})
		assert.Empty(t, v.findings.problems, k.Path)
	}
}

func TestReferenceDefaultsHold(t *testing.T) {
	keys := theSchema().byPath
	for path, want := range map[string]any{
		"common.backoff.max_backoff_seconds":                               int64(3600),
		"common.cache.backend":                                             "redis",
		"orchestration.event_systems.task_readiness.processing.batch_size": int64(50),
		"worker.event_systems.worker.poller.relaxed_interval_ms":           int64(2000),
		"worker.grpc.max_concurrent_streams":                               int64(1000),
		"orchestration.web.max_body_bytes":                                 int64(2 << 20),
		"worker.worker_id":                                                 "",
	} {
		require.Contains(t, keys, path)
		assert.Equal(t, want, keys[path].Default, path)
	}
}

func TestFieldsHoldTheKeysThatHaveAnEffect(t *testing.T) {
	for _, k := range Keys() {
		assert.Equal(t, k.Status == StatusActive && len(k.Sets) == 0 && !k.Member, k.index != nil, "%s: a key has a field where it acts by itself, and is blank elsewhere", k.Path)
		if k.Secret && k.index != nil {
			assert.Contains(t, []reflect.Type{reflect.TypeFor[DSN](), reflect.TypeFor[Secret]()}, reflect.TypeFor[Loaded]().FieldByIndex(k.index).Type, "%s would show its secret where it is printed", k.Path)
		}
	}
	untagged := []string{}
	var visit func(reflect.Type)
	visit = func(table reflect.Type) {
		for i := range table.NumField() {
			field := table.Field(i)
			if field.Tag.Get("toml") == "" && !field.Anonymous {
				untagged = append(untagged, field.Name)
			}
			if field.Type.Kind() == reflect.Struct {
				visit(field.Type)
			}
		}
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Common](), reflect.TypeFor[Orchestration](), reflect.TypeFor[Worker]()} {
		visit(typ)
	}
	assert.Equal(t, []string{"Exclusive"}, untagged, "fields without a key")
}

// TestDurationsAreInTheUnitOfTheirName sets each key that carries a unit to its least
// value above nothing and expects a field of that duration.
func TestDurationsAreInTheUnitOfTheirName(t *testing.T) {
	units := map[string]time.Duration{"ms": time.Millisecond, "seconds": time.Second, "minutes": time.Minute, "hours": time.Hour, "days": 24 * time.Hour}
	found := 0
	for _, k := range Keys() {
		unit := units[k.Path[strings.LastIndexByte(k.Path, '_')+1:]]
		if k.index == nil {
			continue
		}
		if unit == 0 {
			assert.NotContains(t, reflect.TypeFor[Loaded]().FieldByIndex(k.index).Type.String(), "Duration", "%s says no unit", k.Path)
			continue
		}
		found++
		n := int64(max(k.Min, 1))
		e := &entry{key: &k, value: map[string]any{typeInt: n, typeFloat: float64(n), typeIntList: []int64{n}}[k.Type]}
		loaded := &Loaded{entries: map[string]*entry{k.Path: e}}
		loaded.decode()
		var want any = time.Duration(n) * unit
		if k.Type == typeIntList {
			want = []time.Duration{time.Duration(n) * unit}
		}
		assert.Equal(t, want, reflect.ValueOf(loaded).Elem().FieldByIndex(k.index).Interface(), k.Path)
	}
	assert.Greater(t, found, 60)
}

func TestNearest(t *testing.T) {
	sch := theSchema()
	for path, want := range map[string]string{
		"common.database.urll":                        "common.database.url",
		"comon.database.url":                          "common.database.url",
		"common.databse":                              "common.database",
		"common.pool.slow_acquire_threshold_ms":       "common.database.pool.slow_acquire_threshold_ms",
		"worker.lease_secodns":                        "worker.lease_seconds",
		"worker.web.auth.api_keys[2].permission":      "worker.web.auth.api_keys[].permissions",
		"completely.different.thing.altogether.xyzzy": "",
	} {
		assert.Equal(t, want, sch.nearest(path), path)
	}
}

func TestEditDistanceIsADistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-c_.]{0,8}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := editDistance(a, b)
		if d != editDistance(b, a) {
			t.Fatalf("not symmetric")
		}
		if (d == 0) != (a == b) {
			t.Fatalf("distance %d of %q and %q", d, a, b)
		}
		if d > max(len(a), len(b)) || d < max(len(a)-len(b), len(b)-len(a)) {
			t.Fatalf("distance %d out of bounds", d)
		}
	})
	assert.Equal(t, 1, editDistance("secodns", "seconds"), "a swap of neighbours")
}

func TestLookupFindsMembersByIndex(t *testing.T) {
	k, ok := Lookup("orchestration.web.auth.api_keys[12].key")
	require.True(t, ok)
	assert.True(t, k.Secret)
	_, ok = Lookup("nothing.of.the.kind")
	assert.False(t, ok)
}

func TestRulesAreReadable(t *testing.T) {
	for path, want := range map[string]string{
		"common.database.pool.max_connections":              "1–1000",
		"common.backoff.default_backoff_seconds":            "a non-empty list of integers 1–86400",
		"common.cache.backend":                              "one of redis, memcached, moka",
		"worker.event_systems.worker.deployment_mode":       "one of Hybrid, EventDrivenOnly, PollingOnly, Disabled",
		"common.queues.naming_pattern":                      "a string containing {namespace} and {name}",
		"worker.event_systems.worker.poller.jitter_percent": "0–1",
	} {
		k, ok := Lookup(path)
		require.True(t, ok, path)
		assert.Equal(t, want, k.Rule, path)
	}
	assert.Equal(t, "0.25", formatNumber(0.25))
	assert.Equal(t, "1073741824", fmt.Sprint(formatNumber(1<<30)))
}
