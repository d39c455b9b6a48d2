package workflow

import (
	"regexp"
	"strings"
)

// versionZeros are the trailing parts of a version that say nothing: 1.0.0 is 1.
var (
	versionZeros  = regexp.MustCompile(`(\.0+)+$`)
	versionPrefix = regexp.MustCompile(`^[vV]([0-9])`)
	versionParts  = regexp.MustCompile(`[0-9]+|[^0-9]+`)
)

// versionDigits is the width of a number in a key.
const versionDigits = 50

// VersionKey is the place of a version among those of its template, compared byte by byte:
// numbers count as numbers, 1.0 is 1.0.0, 1.0-rc.1 comes before 1.0, and what follows a + says
// nothing. It is tasker.version_key of the database.
func VersionKey(version string) string {
	version, _, _ = strings.Cut(version, "+")
	core, rest := version, ""
	if at := strings.IndexByte(version, '-'); at >= 0 {
		core, rest = version[:at], version[at:]
	}
	core = versionZeros.ReplaceAllString(versionPrefix.ReplaceAllString(core, "$1"), "")
	if rest == "" {
		core += "#"
	} else {
		core += "!" + rest[1:]
	}
	var key strings.Builder
	for _, part := range versionParts.FindAllString(core, -1) {
		if part[0] >= '0' && part[0] <= '9' {
			if part = strings.TrimLeft(part, "0"); len(part) < versionDigits {
				key.WriteString(strings.Repeat("0", versionDigits-len(part)))
			}
		}
		key.WriteString(part)
	}
	return key.String()
}
