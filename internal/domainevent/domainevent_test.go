package domainevent

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		fits          bool
	}{
		{"payment.processed", "payment.processed", true},
		{"payment.processed", "payment.processed2", false},
		{"payment.*", "payment.processed", true},
		{"payment.*", "payment.card.refused", true},
		{"payment.*", "payments.processed", false},
		{"*", "anything.at.all", true},
		{"*.failed", "payment.failed", true},
		{"*.failed", "payment.failed.again", false},
		{"a*a", "a", false},
		{"a*b*c", "a.x.b.y.c", true},
	} {
		require.Equal(t, c.fits, Matches(c.pattern, c.name), "%s %s", c.pattern, c.name)
	}
	for _, bad := range []string{"", "pay ment.*", "payment.%", "payment?", strings.Repeat("a", MaxName+1)} {
		require.Error(t, CheckPattern(bad), bad)
	}
	require.NoError(t, CheckPattern("payment.*"))
}

// TestPatternsAreRegular compares with a regular expression.
func TestPatternsAreRegular(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab.*]{0,8}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[ab.]{0,10}`).Draw(t, "name")
		want := regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `$`).MatchString(name)
		require.Equal(t, want, Matches(pattern, name))
	})
}
