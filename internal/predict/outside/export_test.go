package outside

import "net/http"

// Through replaces the network.
func (c *Client) Through(t http.RoundTripper) { c.http.Transport = t }
