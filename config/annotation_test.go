package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnnotationsOfATable reads a struct that stands for two tables, of which one has
// no effect.
func TestAnnotationsOfATable(t *testing.T) {
	t.Parallel()
	type pace struct {
		Wait time.Duration `toml:"wait_minutes" default:"<wait>" min:"1" max:"9" reload:"yes" doc:"Wait of <whose>." effect:"How soon."`
		_    []string      `toml:"deep.words" default:"a b" oneof:"a,b,c" alias:"x=a" env:"A,B" sets:".other.words" doc:"Words."`
	}
	type tables struct {
		Cat  pace `toml:"cat" wait:"2" whose:"cats"`
		_    pace `toml:"dog" wait:"3" whose:"dogs" ignored:"<whose> bark"`
		Free int  // no key
	}
	var a annotations
	a.table("", reflect.TypeFor[tables](), []int{})
	for i := range a.keys {
		a.keys[i].rule = nil
	}
	wait := Key{Path: "cat.wait_minutes", Root: "cat", Rule: "1–9", Type: typeInt, Default: int64(2), Min: 1, Max: 9, Bounded: true, Description: "Wait of cats.", Impact: "How soon.",
		Reloadable: true, Status: StatusActive, unit: time.Minute, index: []int{0, 0}}
	words := Key{Path: "cat.deep.words", Root: "cat", Rule: "one of a, b, c", Type: typeStringList, Default: []string{"a", "b"}, Enum: []string{"a", "b", "c"}, Aliases: map[string]string{"x": "a"},
		Env: []string{"A", "B"}, Sets: []string{"cat.other.words"}, Description: "Words.", Status: StatusActive}
	bark, dogWords := wait, words
	bark.Path, bark.Root, bark.Default, bark.Description, bark.Impact, bark.index = "dog.wait_minutes", "dog", int64(3), "Wait of dogs.", "", nil
	dogWords.Path, dogWords.Root, dogWords.Sets = "dog.deep.words", "dog", []string{"dog.other.words"}
	bark.Status, bark.Reason, dogWords.Status, dogWords.Reason = statusIgnored, "dogs bark", statusIgnored, "dogs bark"
	require.Equal(t, []Key{wait, words, bark, dogWords}, a.keys)
}
