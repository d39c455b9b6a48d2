package client

import "context"

// Login is the optional body of POST /v1/login.
type Login struct {
	APIKey string `json:"api_key,omitempty" doc:"The API key; without it that of the headers" maxLength:"16384"`
}

// Me is who makes a request, and what it may do.
type Me struct {
	Principal string `json:"principal"`
	Method    string `json:"method" doc:"How it has proved who it is; with a browser session how that was opened" enum:"none,token,api_key,oidc"`
	// BrowserSessionID and KeyUUID are null where there is none. A key of a file has no id.
	BrowserSessionID *string  `json:"browser_session_id" doc:"Of its browser session"`
	KeyUUID          *string  `json:"key_uuid" doc:"Of its API key of the database, or of the one that has opened the browser session"`
	Permissions      []string `json:"permissions"`
	Namespaces       []string `json:"namespaces" doc:"* stands for all"`
	ExpiresAt        *Time    `json:"expires_at" format:"date-time" doc:"When the credentials end; a browser session may end sooner, if it is revoked. Null: never"`
	Access           string   `json:"access" doc:"Whether the server requires credentials; log: it only logs what would be refused" enum:"off,log,enforce"`
}

// BrowserSession is a login of a browser that has not ended.
type BrowserSession struct {
	ID          string   `json:"id" format:"uuid"`
	Principal   string   `json:"principal"`
	OpenedBy    string   `json:"opened_by" enum:"api_key,oidc"`
	KeyUUID     *string  `json:"key_uuid" doc:"The API key of the database that has opened it; it ends with the key"`
	Permissions []string `json:"permissions"`
	Namespaces  []string `json:"namespaces" doc:"None: all"`
	CreatedAt   Time     `json:"created_at" format:"date-time"`
	LastUsedAt  Time     `json:"last_used_at" format:"date-time" doc:"To the minute"`
	ExpiresAt   Time     `json:"expires_at" format:"date-time" doc:"At the latest; it ends sooner if it is not used"`
	Current     bool     `json:"current" doc:"The request was made with it"`
}

// BrowserSessionListOptions select browser sessions.
type BrowserSessionListOptions struct {
	// Principal is whose; "": one's own, "*": everybody's. Those of others need auth:manage.
	Principal string
	Limit     int // 1 to 1000; 0 means 100
}

// Me returns who makes the requests of the client, and what it may do.
func (c *Client) Me(ctx context.Context) (*Me, error) { return get[Me](ctx, c, nil, "v1", "me") }

// BrowserSessions lists browser sessions that have not ended.
func (c *Client) BrowserSessions(ctx context.Context, o BrowserSessionListOptions) ([]BrowserSession, error) {
	q := parameters{"principal": o.Principal, "limit": o.Limit}
	return listed[BrowserSession](ctx, c, q, "browser_sessions", "v1", "browser-sessions")
}

// EndBrowserSession ends a browser session for good.
func (c *Client) EndBrowserSession(ctx context.Context, id string, why Why) (*BrowserSession, error) {
	return remove[BrowserSession](ctx, c, retryAlways, why.query(), "v1", "browser-sessions", id)
}
