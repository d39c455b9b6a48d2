package template

import (
	"fmt"
	"slices"
	"strings"
)

// The severities of a Problem. Only an error keeps a template from being used.
const (
	SeverityError   = "error"
	severityWarning = "warning"
	severityInfo    = "info"
)

// The codes of problems, grouped by subject. They are part of the interface of the command
// line and of the validation API and do not change meaning.
const (
	// The text of the file.
	CodeIO                = "IO"                 // the file or folder cannot be read
	codeSyntax            = "SYNTAX"             // not YAML
	codeTooLarge          = "TOO_LARGE"          // beyond a size, depth or count limit
	codeDuplicateKey      = "DUPLICATE_KEY"      // a key twice in one mapping
	codeUndefinedAlias    = "UNDEFINED_ALIAS"    // *name without an earlier &name
	codeMultipleDocuments = "MULTIPLE_DOCUMENTS" // a second document with content

	// The keys and values.
	codeType            = "TYPE"             // a value of another type than the key takes
	codeRequired        = "REQUIRED"         // a missing required key
	codeRange           = "RANGE"            // a number or a length outside its bounds
	codeEnum            = "ENUM"             // not one of the words the key takes
	codeFormat          = "FORMAT"           // a text that does not have the form the key takes
	codeUnknownKey      = "UNKNOWN_KEY"      // a key the format does not have
	codeLegacyKey       = "LEGACY_KEY"       // a key of older files that has no effect
	codeIgnoredKey      = "IGNORED_KEY"      // a known key that has no effect in this place
	codeUnknownDelivery = "UNKNOWN_DELIVERY" // a delivery_mode that does not exist

	// The graph of the steps.
	codeDuplicateStepName        = "DUPLICATE_STEP_NAME"
	codeSelfDependency           = "SELF_DEPENDENCY"
	codeMissingDependency        = "MISSING_DEP_REF"
	codeDuplicateDependency      = "DUPLICATE_DEPENDENCY"
	codeCycle                    = "CYCLE_DETECTED"
	codeOrphanStep               = "ORPHAN_STEP"
	codeDecisionWithoutParent    = "DECISION_WITHOUT_DEPENDENCY"
	codeConvergenceWithoutParent = "CONVERGENCE_WITHOUT_DEPENDENCY"
	codeBatchWorkerUnreachable   = "BATCH_WORKER_UNREACHABLE"
	codeDecisionLeadsNowhere     = "DECISION_LEADS_NOWHERE"
	codeJoinOfBranches           = "JOIN_OF_BRANCHES"
	codeCompensation             = "COMPENSATION"
	codeReference                = "UNKNOWN_REFERENCE" // $.context, $.steps or $.task has nothing of that name
	codeMissingWorkerTemplate    = "MISSING_WORKER_TEMPLATE"
	codeUnknownStep              = "UNKNOWN_STEP" // an override addresses a step that does not exist

	// Names, schemas, sets of files.
	codeEmptyCallable     = "EMPTY_CALLABLE"
	codeNamespaceTooLong  = "NAMESPACE_TOO_LONG"
	codeSchemaInvalid     = "SCHEMA_INVALID"
	codeSchemaNotObject   = "SCHEMA_NOT_OBJECT"
	codeDuplicateTemplate = "DUPLICATE_TEMPLATE"
)

// maxProblems bounds what is reported for one file; the rest is counted.
const maxProblems = 1000

// Problem is one finding about a template file.
type Problem struct {
	File     string `json:"file"`
	Line     int    `json:"line"`     // from 1; 0 when the problem has no place in the file
	Column   int    `json:"column"`   // in characters, from 1; 0 like Line
	Severity string `json:"severity"` // error, warning or info
	Code     string `json:"code"`
	Path     string `json:"path,omitempty"` // such as steps[2].retry.max_attempts
	Message  string `json:"message"`
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
func (ps Problems) Warnings() Problems { return ps.withSeverity(severityWarning) }

func (ps Problems) withSeverity(s string) Problems {
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

// Error says why template files cannot be used. Callers get the single findings with
// errors.As.
type Error struct {
	Problems Problems // all of them errors; never empty
	Hints    Problems // warnings about the same files; an unknown key may be a missing one
}

// Error lists every problem, one per line, and then the hints.
func (e *Error) Error() string { return slices.Concat(e.Problems, e.Hints).String() }

// errorOf is nil when there is no error among the problems.
func errorOf(ps Problems) error {
	errs := ps.Errors()
	if len(errs) == 0 {
		return nil
	}
	broken := map[string]bool{}
	for _, p := range errs {
		broken[p.File] = true
	}
	hints := slices.DeleteFunc(ps.Warnings(), func(p Problem) bool { return !broken[p.File] })
	return &Error{Problems: errs, Hints: hints}
}
