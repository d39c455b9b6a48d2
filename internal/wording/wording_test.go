package wording

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two letters that have changed places are one mistake, as one wrong letter is.
func TestNearestWord(t *testing.T) {
	t.Parallel()
	words := []string{"task", "list", "run", "docs", "watch", "namespace_name"}
	for word, want := range map[string]string{
		"tsak": "task", "lsit": "list", "rnu": "run", "taks": "task", "tsk": "task", "logs": "", "wait": "", "get": "",
		"task": "", "namespace": "namespace_name", "watvh": "watch",
	} {
		require.Equal(t, want, Nearest(word, words), word)
	}
	require.Equal(t, 2, editDistance("abcd", "badc"))
	require.Equal(t, 1, editDistance("ab", "ba"))
	require.Equal(t, 3, editDistance("", "abc"))
}
