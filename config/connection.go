package config

import (
	"net/url"
	"regexp"
	"strings"
)

// keywordSetting is one setting of a connection string of the form key=value.
var keywordSetting = regexp.MustCompile(`([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s']*)`)

// settingOf reads one setting of a PostgreSQL connection string; "" where it is
// not set. It does not read the user part of a URL.
func settingOf(dsn, name string) string {
	if strings.Contains(dsn, "://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return ""
		}
		return u.Query().Get(name)
	}
	value := ""
	for _, m := range keywordSetting.FindAllStringSubmatch(dsn, -1) {
		if m[1] == name {
			value = strings.Trim(m[2], "'") // the last one counts
		}
	}
	return value
}

// hostsOf are the hosts that a PostgreSQL connection string names, in the order
// in which they are tried.
func hostsOf(dsn string) []string {
	list := settingOf(dsn, "host")
	if u, err := url.Parse(dsn); list == "" && err == nil && strings.Contains(dsn, "://") {
		list = u.Host
	}
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
