package grpc

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// wireClient speaks HTTP/2 frame by frame, so that it can leave messages unfinished.
type wireClient struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	next   uint32
}

func dialWire(t *testing.T, address string) *wireClient {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	c := &wireClient{t, conn, http2.NewFramer(conn, conn), 1}
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	require.NoError(t, c.framer.WriteSettings())
	return c
}

// begin sends the metadata of an rpc and the first bytes of a message that does not end.
func (c *wireClient) begin(rpc, key string) (stream uint32) {
	c.t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", rpc}, {":authority", "test"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"x-api-key", key}} {
		require.NoError(c.t, encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	stream = c.next
	c.next += 2
	require.NoError(c.t, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}))
	head := make([]byte, 5+1000)
	binary.BigEndian.PutUint32(head[1:], 1<<19) // as many bytes are to come
	require.NoError(c.t, c.framer.WriteData(stream, false, head))
	return stream
}

// statuses reads until so many streams have ended, and returns their grpc-status.
func (c *wireClient) statuses(want int) map[uint32]string {
	c.t.Helper()
	ended := map[uint32]string{}
	for len(ended) < want {
		frame, err := c.framer.ReadFrame()
		require.NoError(c.t, err)
		if headers, ok := frame.(*http2.MetaHeadersFrame); ok {
			for _, f := range headers.Fields {
				if f.Name == "grpc-status" {
					ended[headers.StreamID] = f.Value
				}
			}
		}
	}
	return ended
}

// TestUnfinishedMessagesWithoutCredentialsAreNotRead: rpcs are refused by their metadata.
func TestUnfinishedMessagesWithoutCredentialsAreNotRead(t *testing.T) {
	t.Parallel()
	f := newFake(`{}`)
	s, _ := served(t, f)
	client := dialWire(t, s.Addr().String())
	const streams = 50
	for range streams {
		client.begin(taskerv1.TaskService_CreateTask_FullMethodName, "wrong")
	}
	for _, status := range client.statuses(streams) {
		require.Equal(t, "16", status, "UNAUTHENTICATED")
	}
	require.Empty(t, f.calls(), "no operation was called")
}

// TestAMessageHasTheTimeOfARequest: a client with good credentials, too, cannot have the server
// hold a message that does not end.
func TestAMessageHasTheTimeOfARequest(t *testing.T) {
	t.Parallel()
	f := newFake(`{}`)
	s, _ := served(t, f, func(c *Config) { c.RequestTimeout = 50 * time.Millisecond })
	client := dialWire(t, s.Addr().String())
	stream := client.begin(taskerv1.TaskService_CreateTask_FullMethodName, "good")
	require.NotEqual(t, "0", client.statuses(1)[stream])
	require.Empty(t, f.calls())
}
