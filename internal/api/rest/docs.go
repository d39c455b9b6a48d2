package rest

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/transcode"
)

// The page shows the OpenAPI document and loads nothing from elsewhere.
//
//go:embed docs.html
var docsPage string

//go:embed docs.js
var docsScript string

//go:embed docs.css
var docsStyle string

// addDocs serves the document of the routes added so far, and its page.
func (a *api) addDocs() error {
	document, err := json.Marshal(a.document)
	if err != nil {
		return fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	a.openAPI = document
	page := strings.NewReplacer("/*style*/", docsStyle, "/*script*/", docsScript).Replace(docsPage)
	policy := fmt.Sprintf("default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors 'none'; script-src %s; style-src %s", sourceHash(docsScript), sourceHash(docsStyle))
	a.serveUndocumented("GET /api-docs/openapi.json", documentation, func(w http.ResponseWriter, _ *http.Request) {
		a.write(w, "application/openapi+json", document)
	})
	a.serveUndocumented(transcode.Reflection, grpcDiscovery, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	a.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if asksForJSON(r) {
			a.write(w, "application/json", a.entrance())
			return
		}
		http.Redirect(w, r, "/api-docs/ui", http.StatusFound)
	})
	a.serveUndocumented("GET /api-docs/ui", documentation, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		a.write(w, "text/html; charset=utf-8", []byte(page))
	})
	return nil
}

// asksForJSON reports whether a client names JSON among what it accepts, and no page.
func asksForJSON(r *http.Request) bool {
	accepts := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	return strings.Contains(accepts, "json") && !strings.Contains(accepts, "text/html")
}

// entrance says where a program finds what, at the path that one tries first. It is open to all,
// so it has the version only where the documentation, which has it too, is.
func (a *api) entrance() []byte {
	found := map[string]string{"name": a.name, "documentation": "/api-docs/ui",
		"openapi": "/api-docs/openapi.json", "health": "/health", "metrics": metricsPath}
	if a.cfg.Access.Authenticator == nil || a.inForce(documentation).needs == "" {
		found["version"] = a.cfg.Version
	}
	document, err := json.Marshal(found)
	if err != nil {
		return nil // texts can always be encoded
	}
	return document
}

func (a *api) write(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	if _, err := w.Write(body); err != nil {
		a.log.Debug("the client left before it had its answer", zap.Error(err))
	}
}

// sourceHash names an inline element in a content security policy.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// addMetrics serves /metrics in the text format of Prometheus. Under a second name, which those
// who come from Spring scrape, and where MetricAliases is set also under the first one, the
// metrics have their names in other products as well: some of those break the conventions of
// Prometheus, and who does not need them shall not pay for them.
func (a *api) addMetrics() {
	if a.cfg.Metrics == nil {
		return
	}
	own, aliased := a.cfg.Metrics, telemetry.Aliased(a.cfg.Metrics)
	if a.cfg.MetricAliases {
		own = aliased
	}
	for path, gathered := range map[string]prometheus.Gatherer{metricsPath: own, actuatorPath: aliased} {
		h := promhttp.HandlerFor(gathered, promhttp.HandlerOpts{
			ErrorHandling:       promhttp.ContinueOnError,
			ErrorLog:            metricsLog{a.log},
			MaxRequestsInFlight: 8,
			Timeout:             a.cfg.RequestTimeout,
			EnableOpenMetrics:   path == metricsPath && !a.cfg.MetricAliases, // has exemplars; other names would get its suffixes
		})
		a.serveUndocumented("GET "+path, metrics, h.ServeHTTP)
	}
}

const (
	metricsPath  = "/metrics"
	actuatorPath = "/actuator/prometheus"
)

// metricsLog writes promhttp's messages to the log.
type metricsLog struct{ log *zap.Logger }

// Println implements promhttp.Logger.
func (l metricsLog) Println(v ...any) {
	l.log.Warn("could not gather all metrics", zap.String("problem", fmt.Sprint(v...)))
}
