package template_test

import (
	"fmt"

	"github.com/tasker-go/tasker/workflow/template"
)

func ExampleParse() {
	src := `name: nightly_report
namespace_name: reporting
version: 1.0
steps:
  - name: fetch
    handler: {callable: reporting.fetch}
  - name: render
    depends_on: [fetsh]
    handler: {callable: reporting.render}
    retry: {max_attempts: 0}
`
	_, problems, err := template.Parse("nightly.yaml", []byte(src))
	fmt.Println(err != nil)
	for _, p := range problems {
		fmt.Println(p)
	}
	// Output:
	// true
	// nightly.yaml:8:18: error: step "render" depends on "fetsh", which does not exist; did you mean "fetch"? [MISSING_DEP_REF]
	// nightly.yaml:10:27: warning: steps[1].retry.max_attempts is 0 in line 10 and read as 1: the first attempt always runs [RANGE]
}
