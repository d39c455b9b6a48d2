package wording

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoTextDeceives: characters that change how others look are escaped as JSON has them, and no others.
func TestNoTextDeceives(t *testing.T) {
	t.Parallel()
	escaped := map[rune]bool{0x7f: true, 0x061c: true, 0x200e: true, 0x200f: true}
	for _, span := range [][2]rune{{0x80, 0x9f}, {0x202a, 0x202e}, {0x2066, 0x2069}} {
		for r := span[0]; r <= span[1]; r++ {
			escaped[r] = true
		}
	}
	for r := rune(0); r <= 0x2fff; r++ {
		text := "a" + string(r) + "é\n"
		got := string(Escape([]byte(text)))
		if !escaped[r] {
			require.Equal(t, text, got, "%x", r)
			continue
		}
		require.Regexp(t, `^a\\u[0-9a-f]{4}é\n$`, got)
		var back string
		require.NoError(t, json.Unmarshal([]byte(`"`+strings.TrimSpace(got)+`"`), &back))
		require.Equal(t, strings.TrimSpace(text), back)
	}
	require.Equal(t, `a\u009bb`+"\xff\ufffd", string(Escape([]byte("a\x9bb\xff\ufffd"))), "a byte that is no UTF-8")
	var b bytes.Buffer
	n, err := Escaping{&b}.Write([]byte("x\u202ey"))
	require.NoError(t, err)
	require.Equal(t, len("x\u202ey"), n)
	require.Equal(t, `x\u202ey`, b.String())
	require.Same(t, &b, Beneath(Escaping{Escaping{&b}}))
}
