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

// A sentence whose truth a machine cannot check names the tests that would fail if it
// were false, in a comment that is invisible to readers of the page:
//
//	<!-- shown by: TestA in ./store, TestB in ./test/e2e -->
//
// The tests must exist. Whether they prove the sentence is for reviewers.
var (
	claim = regexp.MustCompile(`(?s)<!--\s*shown by\b:?(.*?)-->`)
	proof = regexp.MustCompile(`^(Test\w+|Example\w*) in \./([\w./-]+)$`)
)

func TestClaimsAreShown(t *testing.T) {
	t.Parallel()
	claims := 0
	for _, name := range pages(t) {
		for _, list := range claimsOf(page(t, name)) {
			claims++
			for _, p := range list {
				require.NoError(t, whyNotShown(p), name)
			}
		}
	}
	require.Greater(t, claims, 20)
}

// claimsOf lists the proofs of each claim of a page.
func claimsOf(text string) (claims [][]string) {
	for _, m := range claim.FindAllStringSubmatch(withoutCode(text), -1) {
		var list []string
		for p := range strings.SplitSeq(m[1], ",") {
			list = append(list, strings.Join(strings.Fields(p), " "))
		}
		claims = append(claims, list)
	}
	return claims
}

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

func TestPlantedClaimsAreFound(t *testing.T) {
	t.Parallel()
	require.Equal(t, [][]string{{"TestA in ./b", "TestC in ./d"}, {"x"}},
		claimsOf("a <!-- shown by: TestA in ./b,\n TestC in ./d --> b <!-- other --> `<!-- shown by: code -->`\n<!-- shown by x -->"))
	require.NoError(t, whyNotShown("TestPlantedClaimsAreFound in ./internal/docscheck"))
	for _, p := range []string{"TestNothing in ./internal/docscheck", "TestPlantedClaimsAreFound in ./store", "TestPlantedClaimsAreFound in ./nowhere",
		"TestPlantedClaimsAreFound", "", "whyNotShown in ./internal/docscheck"} {
		require.Error(t, whyNotShown(p), p)
	}
}

// promise is a row of README's table of features.
var promise = regexp.MustCompile(`(?m)^\| (.*) \| (?:yes|\[yes\]\([^)]*\))([^|]*) \|$`)

// TestPromisesAreClaims: a test proves what README promises.
func TestPromisesAreClaims(t *testing.T) {
	t.Parallel()
	rows := promise.FindAllStringSubmatch(page(t, "README.md"), -1)
	require.Greater(t, len(rows), 15)
	for _, row := range rows {
		require.NotEmpty(t, claimsOf(row[0]), "no test is named for: %s", row[1])
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
