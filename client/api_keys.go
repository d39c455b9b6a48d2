package client

import (
	"context"
	"net/http"
)

// APIKey is an API key of the database. Its secret is shown once, in the answer that made it.
type APIKey struct {
	KeyUUID     string   `json:"key_uuid" format:"uuid"`
	Name        string   `json:"name" doc:"The principal"`
	Key         string   `json:"key,omitempty" doc:"The key itself, of a new one only"`
	Permissions []string `json:"permissions"`
	Namespaces  []string `json:"namespaces" doc:"None: all"`
	CreatedAt   Time     `json:"created_at" format:"date-time"`
	CreatedBy   string   `json:"created_by"`
	ExpiresAt   *Time    `json:"expires_at" format:"date-time" doc:"Null: never"`
	RevokedAt   *Time    `json:"revoked_at" format:"date-time"`
	LastUsedAt  *Time    `json:"last_used_at" format:"date-time" doc:"To the minute"`
}

// APIKeyRequest is the body of POST /v1/api-keys.
type APIKeyRequest struct {
	Name        string   `json:"name" doc:"The principal" maxLength:"255"`
	Permissions []string `json:"permissions" doc:"Such as tasks:create or tasks:*; those of whoever makes it at most"`
	Namespaces  []string `json:"namespaces,omitempty" doc:"Where; none: everywhere. Those of whoever makes it at most"`
	// ExpiresInSeconds is the life of the key.
	ExpiresInSeconds int64  `json:"expires_in_seconds,omitempty" doc:"Life of the key; 0: without end" minimum:"0"`
	Reason           string `json:"reason,omitempty" maxLength:"1000"`
	Actor            string `json:"actor,omitempty" maxLength:"255"`
}

// APIKeyRotation is the optional body of POST /v1/api-keys/{id}/rotate.
type APIKeyRotation struct {
	GraceSeconds     *int64 `json:"grace_seconds,omitempty" doc:"How long the old key is still good; a day when absent" minimum:"0"`
	ExpiresInSeconds int64  `json:"expires_in_seconds,omitempty" doc:"Life of the new key; 0: as long as that of the old one was" minimum:"0"`
	Reason           string `json:"reason,omitempty" maxLength:"1000"`
	Actor            string `json:"actor,omitempty" maxLength:"255"`
}

// APIKeys lists API keys, the newest first, those that have ended too; limit 0 means 100.
func (c *Client) APIKeys(ctx context.Context, limit int) ([]APIKey, error) {
	return listed[APIKey](ctx, c, parameters{"limit": limit}, "api_keys", "v1", "api-keys")
}

// CreateAPIKey makes an API key. The answer shows it once.
func (c *Client) CreateAPIKey(ctx context.Context, r APIKeyRequest) (*APIKey, error) {
	return send[APIKey](ctx, c, http.MethodPost, retryUnsent, r, "v1", "api-keys")
}

// RotateAPIKey makes a key in place of another one, which is still good for the grace.
func (c *Client) RotateAPIKey(ctx context.Context, id string, r APIKeyRotation) (*APIKey, error) {
	return send[APIKey](ctx, c, http.MethodPost, retryUnsent, r, "v1", "api-keys", id, "rotate")
}

// RevokeAPIKey ends an API key for good. Daemons may accept it for ten seconds more.
func (c *Client) RevokeAPIKey(ctx context.Context, id string, why Why) (*APIKey, error) {
	return remove[APIKey](ctx, c, retryAlways, why.query(), "v1", "api-keys", id)
}
