package config

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// decode fills the typed parts from the checked values.
func (l *Loaded) decode() error {
	var document bytes.Buffer
	if err := toml.NewEncoder(&document).Encode(l.tree()); err != nil {
		return fmt.Errorf("encoding the merged configuration: %s", Redact(err.Error()))
	}
	parts := struct {
		Common        *Common        `toml:"common"`
		Orchestration *Orchestration `toml:"orchestration"`
		Worker        *Worker        `toml:"worker"`
	}{&l.Common, &l.Orchestration, &l.Worker}
	meta, err := toml.NewDecoder(&document).Decode(&parts)
	if err != nil {
		return fmt.Errorf("decoding the merged configuration: %s", Redact(err.Error()))
	}
	if extra := meta.Undecoded(); len(extra) > 0 {
		return fmt.Errorf("decoding the merged configuration: %s has no field", extra[0])
	}
	return nil
}

// tree builds the merged tree of the keys that have an effect.
func (l *Loaded) tree() map[string]any {
	tree := map[string]any{}
	for i := range l.keys {
		k := &l.keys[i]
		e, ok := l.entries[k.Path]
		if !ok || !k.held() {
			continue
		}
		table := tree
		parts := strings.Split(k.Path, ".")
		for _, part := range parts[:len(parts)-1] {
			sub, ok := table[part].(map[string]any)
			if !ok {
				sub = map[string]any{}
				table[part] = sub
			}
			table = sub
		}
		table[parts[len(parts)-1]] = e.value
	}
	return tree
}
