package grpcclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/transcode"
)

// Options say more about a daemon than a [client.Config].
type Options struct {
	Worker bool        // it is a worker; default: an orchestrator
	TLS    *tls.Config // for https; default: the certificates of the system
}

// Transport is a [client.Transport] over one gRPC connection. It is safe for concurrent use.
type Transport struct {
	conn     *grpc.ClientConn
	methods  []method
	metadata []string
}

// maxAnswer bounds the size of an answer.
const maxAnswer = 64 << 20

// New returns a transport to the gRPC server at cfg.BaseURL, http://host:port or https, with
// the credentials of cfg. It connects with the first call.
func New(cfg client.Config, o Options) (*Transport, error) {
	at, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, errors.New("invalid base URL") // it may hold a password
	}
	secure := credentials.NewTLS(o.TLS)
	switch {
	case at.Host == "" || strings.Trim(at.Path, "/") != "" || at.Scheme != "http" && at.Scheme != "https":
		return nil, fmt.Errorf("invalid base URL %q: want http://host:port", at.Redacted())
	case at.Scheme == "http":
		secure = insecure.NewCredentials()
	}
	t := &Transport{methods: methodsOf(o.Worker)}
	if cfg.Token != "" {
		t.metadata = append(t.metadata, "authorization", "Bearer "+cfg.Token)
	}
	if cfg.APIKey != "" {
		t.metadata = append(t.metadata, strings.ToLower(cmp.Or(cfg.APIKeyHeader, "X-API-Key")), cfg.APIKey)
	}
	t.conn, err = grpc.NewClient(at.Host, grpc.WithTransportCredentials(secure), grpc.WithStatsHandler(sending{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("open a connection: %w", err)
	}
	return t, nil
}

// Close closes the connection; calls under way fail.
func (t *Transport) Close() error { return t.conn.Close() }

// method is an rpc, and the operation of REST that it stands for.
type method struct {
	name    string
	verb    string
	path    []string
	in, out protoreflect.MessageType
}

// methodsOf are the rpcs of a daemon that stand for an operation each.
func methodsOf(worker bool) (all []method) {
	for name, operation := range transcode.Operations {
		if strings.HasPrefix(name, "/tasker.v1.Worker") != worker {
			continue
		}
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(name[1:], "/", ".")))
		rpc, ok := found.(protoreflect.MethodDescriptor)
		if err != nil || !ok || rpc.IsStreamingServer() {
			continue
		}
		in, err := protoregistry.GlobalTypes.FindMessageByName(rpc.Input().FullName())
		out, outErr := protoregistry.GlobalTypes.FindMessageByName(rpc.Output().FullName())
		if err != nil || outErr != nil { // never: the generated code has registered them
			continue
		}
		verb, path, _ := strings.Cut(operation, " ")
		all = append(all, method{name: name, verb: verb, path: strings.Split(strings.Trim(path, "/"), "/"), in: in, out: out})
	}
	return all
}

// find returns the rpc for a call, and the parameters in its path.
func (t *Transport) find(verb string, path []string) (*method, map[string]string) {
	for i := range t.methods {
		m := &t.methods[i]
		if m.verb != verb || len(m.path) != len(path) {
			continue
		}
		if parameters, ok := m.match(path); ok {
			return m, parameters
		}
	}
	return nil, nil
}

func (m *method) match(path []string) (map[string]string, bool) {
	parameters := map[string]string{}
	for i, segment := range m.path {
		if name, is := strings.CutPrefix(segment, "{"); is {
			name = strings.TrimSuffix(name, "}")
			if name == "uuid" {
				name = "task_uuid"
			}
			parameters[name] = path[i]
		} else if segment != path[i] {
			return nil, false
		}
	}
	return parameters, true
}

// Call implements [client.Transport].
func (t *Transport) Call(ctx context.Context, verb string, path []string, query url.Values, body []byte) ([]byte, error) {
	m, parameters := t.find(verb, path)
	if m == nil {
		return nil, notServed(verb, path, "tasker.v1 has no rpc for it")
	}
	a := &asked{verb: verb, path: path}
	if err := a.read(m, parameters, query, body); err != nil {
		return nil, err
	}
	if special, is := specials[m.name]; is {
		return special(ctx, t, a)
	}
	in, out := m.in.New().Interface(), m.out.New().Interface()
	if err := a.fill(in); err != nil {
		return nil, err
	}
	if err := t.invoke(ctx, m.name, in, out); err != nil {
		return nil, err
	}
	return answers[m.name].of(out)
}

// notServed is the error of a call that this transport does not have.
func notServed(verb string, path []string, why string) error {
	return fmt.Errorf("%w: %s; REST serves %s /%s", client.ErrNotServed, why, verb, strings.Join(path, "/"))
}

// invoke calls an rpc. Its error is that of a [client.Transport].
func (t *Transport) invoke(ctx context.Context, name string, in, out proto.Message) error {
	ctx, sent := t.prepared(ctx)
	var header, trailer metadata.MD
	err := t.conn.Invoke(ctx, name, in, out, grpc.Header(&header), grpc.Trailer(&trailer))
	if err == nil {
		return nil
	}
	return failureOf(ctx, err, metadata.Join(header, trailer), sent.Load())
}
