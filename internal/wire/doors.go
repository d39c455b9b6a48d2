package wire

import "github.com/tasker-go/tasker/client"

// BrowserSessionList are browser sessions that have not ended.
type BrowserSessionList struct {
	BrowserSessions []client.BrowserSession `json:"browser_sessions" nullable:"false"`
}

// APIKeyList are API keys, the newest first.
type APIKeyList struct {
	APIKeys []client.APIKey `json:"api_keys" nullable:"false"`
}
