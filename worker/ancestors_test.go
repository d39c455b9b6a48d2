package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

func TestAncestors(t *testing.T) {
	t.Parallel()
	step := func(name string, after ...string) workflow.StepTemplate {
		return workflow.StepTemplate{Name: name, Kind: workflow.KindStandard, Dependencies: after}
	}
	p, err := workflow.Compile(&workflow.Template{Name: "t", Steps: []workflow.StepTemplate{
		step("a"), step("b", "a"), step("c", "a"), step("other"), step("d", "b", "c"), step("e", "d")}})
	require.NoError(t, err)
	named := func(name string) (names []string) {
		no, ok := p.StepNumber(name)
		require.True(t, ok)
		for _, above := range ancestors(p, no) {
			names = append(names, p.Steps[above].Name)
		}
		return names
	}
	require.Empty(t, named("a"))
	require.Equal(t, []string{"a"}, named("c"))
	require.ElementsMatch(t, []string{"a", "b", "c", "d"}, named("e"))
}
