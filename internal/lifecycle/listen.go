package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen listens on a TCP address for a server, host:port; port 0 picks a free one. The error
// says so if another process uses the address.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: another process uses this address: %w", address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}
