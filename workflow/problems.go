package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says how much a Problem matters.
type Severity string

// The severities. Only an error keeps a template from being used.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityInfo    Severity = "info"
)

// The codes of problems, grouped by subject. They are part of the interface of the command
// line and of the validation API and do not change meaning.
const (
	// The text of the file.
	CodeIO                = "IO"                 // the file or folder cannot be read
	CodeSyntax            = "SYNTAX"             // not YAML
	CodeTooLarge          = "TOO_LARGE"          // beyond a size, depth or count limit
	CodeDuplicateKey      = "DUPLICATE_KEY"      // a key twice in one mapping
	CodeUndefinedAlias    = "UNDEFINED_ALIAS"    // *name without an earlier &name
	CodeMultipleDocuments = "MULTIPLE_DOCUMENTS" // a second document with content

	// The keys and values.
	CodeType            = "TYPE"             // a value of another type than the key takes
	CodeRequired        = "REQUIRED"         // a missing required key
	CodeRange           = "RANGE"            // a number or a length outside its bounds
	CodeEnum            = "ENUM"             // not one of the words the key takes
	CodeFormat          = "FORMAT"           // a text that does not have the form the key takes
	CodeUnknownKey      = "UNKNOWN_KEY"      // a key the format does not have
	CodeLegacyKey       = "LEGACY_KEY"       // a key of older files that has no effect
	CodeIgnoredKey      = "IGNORED_KEY"      // a known key that has no effect in this place
	CodeUnknownDelivery = "UNKNOWN_DELIVERY" // a delivery_mode that does not exist

	// The graph of the steps.
	CodeDuplicateStepName        = "DUPLICATE_STEP_NAME"
	CodeSelfDependency           = "SELF_DEPENDENCY"
	CodeMissingDependency        = "MISSING_DEP_REF"
	CodeDuplicateDependency      = "DUPLICATE_DEPENDENCY"
	CodeCycle                    = "CYCLE_DETECTED"
	CodeOrphanStep               = "ORPHAN_STEP"
	CodeDecisionWithoutParent    = "DECISION_WITHOUT_DEPENDENCY"
	CodeConvergenceWithoutParent = "CONVERGENCE_WITHOUT_DEPENDENCY"
	CodeBatchWorkerUnreachable   = "BATCH_WORKER_UNREACHABLE"
	CodeDecisionLeadsNowhere     = "DECISION_LEADS_NOWHERE"
	CodeJoinOfBranches           = "JOIN_OF_BRANCHES"
	CodeCompensation             = "COMPENSATION"
	CodeReference                = "UNKNOWN_REFERENCE" // $.context, $.steps or $.task has nothing of that name
	CodeMissingWorkerTemplate    = "MISSING_WORKER_TEMPLATE"
	CodeUnknownStep              = "UNKNOWN_STEP" // an override addresses a step that does not exist

	// Names, schemas, sets of files.
	CodeEmptyCallable     = "EMPTY_CALLABLE"
	CodeNamespaceTooLong  = "NAMESPACE_TOO_LONG"
	CodeSchemaInvalid     = "SCHEMA_INVALID"
	CodeSchemaNotObject   = "SCHEMA_NOT_OBJECT"
	CodeNoResultSchema    = "NO_RESULT_SCHEMA"
	CodeDuplicateTemplate = "DUPLICATE_TEMPLATE"
)

// maxProblems bounds what is reported for one file; the rest is counted.
const maxProblems = 1000

// Problem is one finding about a template file.
type Problem struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`   // from 1; 0 when the problem has no place in the file
	Column   int      `json:"column"` // in characters, from 1; 0 like Line
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`
	Path     string   `json:"path,omitempty"` // such as steps[2].retry.max_attempts
	Message  string   `json:"message"`
}

// String is the one-line form "file:line:column: severity: message [CODE]",
// which editors and build tools can follow.
func (p Problem) String() string {
	place := p.File
	if p.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	}
	return fmt.Sprintf("%s: %s: %s [%s]", place, p.Severity, p.Message, p.Code)
}

// Problems is a list of findings in the order of the file.
type Problems []Problem

// Errors returns the problems that keep a template from being used.
func (ps Problems) Errors() Problems { return ps.withSeverity(SeverityError) }

// Warnings returns the problems that do not keep a template from being used
// but are probably mistakes.
func (ps Problems) Warnings() Problems { return ps.withSeverity(SeverityWarning) }

func (ps Problems) withSeverity(s Severity) Problems {
	var found Problems
	for _, p := range ps {
		if p.Severity == s {
			found = append(found, p)
		}
	}
	return found
}

// String lists the problems, one per line.
func (ps Problems) String() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sort puts the problems in reading order. Problems of the same place keep
// the order in which they were found.
func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// TemplateError says why template files cannot be used. Callers get the single findings with
// errors.As.
type TemplateError struct {
	Problems Problems // all of them errors; never empty
	Hints    Problems // warnings about the same files; an unknown key may be a missing one
}

// Error lists every problem, one per line, and then the hints.
func (e *TemplateError) Error() string { return slices.Concat(e.Problems, e.Hints).String() }

// templateError is nil when there is no error among the problems.
func templateError(ps Problems) error {
	errs := ps.Errors()
	if len(errs) == 0 {
		return nil
	}
	broken := map[string]bool{}
	for _, p := range errs {
		broken[p.File] = true
	}
	hints := slices.DeleteFunc(ps.Warnings(), func(p Problem) bool { return !broken[p.File] })
	return &TemplateError{Problems: errs, Hints: hints}
}
