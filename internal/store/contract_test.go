package store_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// TestThePageNamesEveryOperation: the contract lists the operations of every room, and no
// others.
func TestThePageNamesEveryOperation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("store.go")
	require.NoError(t, err)
	var listed, exist []string
	for _, comment := range regexp.MustCompile(`(?:(?m)^// .*\n)+type \(`).FindAllString(string(page), -1) {
		_, list, ok := strings.Cut(strings.ReplaceAll(strings.TrimSuffix(comment, "type ("), "\n// ", " "), "Operations: ")
		require.True(t, ok, comment)
		if _, again, ok := strings.Cut(list, "Operations: "); ok {
			list = again
		}
		listed = append(listed, regexp.MustCompile(`\w+`).FindAllString(list, -1)...)
	}
	rooms := reflect.TypeFor[store.Store]()
	for i := range rooms.NumField() {
		for room, n := rooms.Field(i).Type, 0; n < room.NumMethod(); n++ {
			exist = append(exist, room.Method(n).Name)
		}
	}
	require.ElementsMatch(t, exist, listed)
}
