package config

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// postgresPort is the port of a host that names none.
const postgresPort = "5432"

// PostgresDSN is a connection string as the driver reads it: without the line end of a file, and
// with hosts that are the encoded directory of a socket (%2Fvar%2Frun) in the parameter host.
// libpq has both forms, and package url refuses the first.
func PostgresDSN(text string) string {
	text = strings.TrimSpace(text)
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "postgres" && scheme != "postgresql" {
		return text
	}
	authority, tail := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, tail = rest[:end], rest[end:]
	}
	user := authority[:strings.LastIndexByte(authority, '@')+1]
	list := authority[len(user):]
	if !strings.Contains(strings.ToUpper(list), "%2F") {
		return text
	}
	var hosts, ports []string
	for one := range strings.SplitSeq(list, ",") {
		host, port := one, ""
		if colon := strings.LastIndexByte(one, ':'); colon > strings.LastIndexByte(one, ']') {
			host, port = one[:colon], one[colon+1:]
		}
		decoded, err := url.PathUnescape(host)
		if err != nil {
			return text // its reader says what is wrong
		}
		hosts, ports = append(hosts, strings.Trim(decoded, "[]")), append(ports, port)
	}
	parameters := "host=" + url.QueryEscape(strings.Join(hosts, ","))
	if slices.ContainsFunc(ports, func(port string) bool { return port != "" }) {
		for i := range ports {
			ports[i] = cmp.Or(ports[i], postgresPort)
		}
		parameters += "&port=" + url.QueryEscape(strings.Join(ports, ","))
	}
	path, query, _ := strings.Cut(tail, "?")
	if query != "" {
		parameters += "&" + query
	}
	return scheme + "://" + user + path + "?" + parameters
}
