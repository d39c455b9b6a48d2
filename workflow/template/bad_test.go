package template

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

var updateWant = flag.Bool("update", false, "rewrite the .want files of testdata; review the difference")

// Every file under testdata has a .want beside it that holds all its
// problems, with their places. The files in bad have at least one problem.
func TestProblemsOfTemplateFiles(t *testing.T) {
	for _, folder := range []string{"bad", "good"} {
		files, err := filepath.Glob("testdata/" + folder + "/*.yaml")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			t.Run(folder+"/"+filepath.Base(file), func(t *testing.T) {
				src, err := os.ReadFile(file)
				require.NoError(t, err)
				template, problems, err := Parse(filepath.Base(file), src)
				requireConsistent(t, template, problems, err)
				if folder == "good" {
					require.NoError(t, err)
				} else {
					require.NotEmpty(t, problems)
				}
				compareWant(t, strings.TrimSuffix(file, ".yaml")+".want", problems.String()+"\n")
			})
		}
	}
}

func compareWant(t *testing.T, file, got string) {
	t.Helper()
	if *updateWant {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// requireConsistent holds for every result of Parse: either a
// template or an error that lists exactly the problems that are errors.
func requireConsistent(t require.TestingT, template *workflow.Template, problems Problems, err error) {
	if err == nil {
		require.NotNil(t, template)
		require.Empty(t, problems.Errors())
	} else {
		require.Nil(t, template)
		var failed *Error
		require.ErrorAs(t, err, &failed)
		require.NotEmpty(t, failed.Problems)
		require.Equal(t, problems.Errors(), failed.Problems)
	}
	require.LessOrEqual(t, len(problems), maxProblems+1)
	for _, p := range problems {
		require.NotEmpty(t, p.Code)
		require.NotContains(t, p.String(), "\n")
		require.NotContains(t, p.String(), "\x1b")
		if p.Line == 0 {
			require.Equal(t, codeTooLarge, p.Code)
		}
	}
}
