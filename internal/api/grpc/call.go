package grpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// call is a request for an operation.
type call struct {
	// operation is one of routes; empty: that of the rpc.
	operation string
	path      []string // the values of the path's parameters, in their order
	query     url.Values
	body      any // as JSON; nil: none
	// leaves says that the answer may lack documents, see convert.
	leaves bool
}

// answer is what an operation answers. It implements http.ResponseWriter.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	// invalid is the UUID of the request that is none; empty: all are.
	invalid string
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// ask calls an operation for an rpc, with its credentials and its deadline, and returns the
// body of a success. The error of a failure is a status.
func (s *Server) ask(ctx context.Context, c call) ([]byte, error) {
	v := visitOf(ctx)
	if c.operation == "" {
		c.operation = v.route.operation
	}
	if !s.serves[c.operation] {
		return nil, notServed(v.route, c.operation)
	}
	request, invalid, err := s.requestOf(ctx, c)
	if err != nil {
		return nil, err
	}
	a := &answer{header: http.Header{}, invalid: invalid}
	s.handler.ServeHTTP(a, request)
	v.answered(ctx, a.header)
	if a.status < 200 || a.status > 299 {
		return nil, failureOf(ctx, v.route, a)
	}
	return a.body.Bytes(), nil
}

func notServed(r route, operation string) error {
	code := r.absent
	if code == codes.OK {
		code = codes.Unimplemented
	}
	return status.Errorf(code, "This daemon does not serve %s", operation)
}

// requestOf is the request of a call; invalid is a UUID of it that is none.
func (s *Server) requestOf(ctx context.Context, c call) (r *http.Request, invalid string, err error) {
	method, path, _ := strings.Cut(c.operation, " ")
	path, invalid = expand(path, c.path)
	if len(c.query) > 0 {
		path += "?" + c.query.Encode()
	}
	var body []byte
	if c.body != nil {
		if body, err = json.Marshal(c.body); err != nil {
			return nil, "", status.Errorf(codes.InvalidArgument, "The request has no form in JSON: %v", err)
		}
	}
	r, err = http.NewRequestWithContext(ctx, method, "http://"+inProcess+path, bytes.NewReader(body))
	if err != nil {
		return nil, "", fmt.Errorf("make the request for %s: %w", c.operation, err)
	}
	if c.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	s.addCredentials(ctx, r.Header)
	if from, known := peer.FromContext(ctx); known {
		r.RemoteAddr = from.Addr.String()
	}
	return r, invalid, nil
}

// inProcess is the host of requests that no connection carries.
const inProcess = "in-process"

// carried are the headers of REST that the metadata of an rpc may have, by their names there.
// The header of API keys is one of them, if it has a name.
func carried(keyHeader string) map[string]string {
	headers := map[string]string{}
	for _, name := range []string{"Authorization", keyHeader, "Traceparent", "Tracestate"} {
		if name != "" {
			headers[strings.ToLower(name)] = name
		}
	}
	return headers
}

// addCredentials copies the credentials and the trace of an rpc's metadata.
func (s *Server) addCredentials(ctx context.Context, h http.Header) {
	for key, name := range s.carried {
		for _, value := range metadata.ValueFromIncomingContext(ctx, key) {
			h.Add(name, value)
		}
	}
}

// expand puts values in the place of a path's parameters. A UUID that is none is replaced
// by a word that the operation refuses, after it has looked at the credentials.
func expand(path string, values []string) (expanded, invalid string) {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if !strings.HasPrefix(segment, "{") || len(values) == 0 {
			continue
		}
		value := values[0]
		values = values[1:]
		segments[i] = escaped(value)
		if _, err := uuid.Parse(value); err != nil && strings.HasSuffix(segment, "uuid}") {
			segments[i], invalid = "invalid", value
			if value == "" {
				invalid = emptyUUID
			}
		}
	}
	return strings.Join(segments, "/"), invalid
}

// emptyUUID stands for a UUID that a request does not have.
const emptyUUID = "none"

// escaped is one segment of a path. Nothing, and dots, would be lost in a path: no thing is
// called as what stands for nothing.
func escaped(value string) string {
	text := url.PathEscape(value)
	switch {
	case text == "":
		return "%20"
	case strings.Trim(text, ".") == "":
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return text
}
