package docscheck_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// proof is a test and its package.
var proof = regexp.MustCompile(`^(Test\w+|Example\w*) in \./([\w./-]+)$`)

// whyNotShown is nil where a proof is a test that exists.
func whyNotShown(p string) error {
	m := proof.FindStringSubmatch(p)
	if m == nil {
		return fmt.Errorf("invalid proof %q: want TestX in ./package", p)
	}
	dir := filepath.Join(root, filepath.FromSlash(m[2]))
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("shown by %q: %w", p, err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("shown by %q: %w", p, err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == m[1] {
				return nil
			}
		}
	}
	return fmt.Errorf("shown by %q: no such test", p)
}

func TestPlantedProofsAreFound(t *testing.T) {
	t.Parallel()
	require.NoError(t, whyNotShown("TestPlantedProofsAreFound in ./internal/docscheck"))
	for _, p := range []string{"TestNothing in ./internal/docscheck", "TestPlantedProofsAreFound in ./store", "TestPlantedProofsAreFound in ./nowhere",
		"TestPlantedProofsAreFound", "", "whyNotShown in ./internal/docscheck"} {
		require.Error(t, whyNotShown(p), p)
	}
}

var (
	target    = regexp.MustCompile(`(?m)^([a-z-]+):`)
	mentioned = regexp.MustCompile("`make ([a-z-]+)")
	typed     = regexp.MustCompile(`(?m)^make ([a-z-]+)`)
)

// TestTargetsExist: mentioned targets exist.
func TestTargetsExist(t *testing.T) {
	t.Parallel()
	exist := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(page(t, "Makefile"), -1) {
		exist[m[1]] = true
	}
	var found [][]string
	for _, name := range pages(t) {
		found = append(found, mentioned.FindAllStringSubmatch(page(t, name), -1)...)
	}
	for _, b := range blocks(t, "sh") {
		found = append(found, typed.FindAllStringSubmatch(b.text, -1)...)
	}
	require.Greater(t, len(found), 20)
	for _, m := range found {
		require.True(t, exist[m[1]], "no target `make %s`", m[1])
	}
}
