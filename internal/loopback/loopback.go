// Package loopback tells the addresses that only this machine reaches: servers on others ask for
// credentials, or say that they do not.
//
// What may not enter: what follows from it.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Only reports whether an address to listen on is reached from this machine only.
func Only(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && Name(host)
}

// Name reports whether a host is one of this machine.
func Name(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
