package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// callTimeout bounds one request.
const callTimeout = 60 * time.Second

// Wire is one keep-alive connection that posts JSON. It does the least that HTTP
// requires: on a small machine an ordinary client would cost as much as the measured
// server. It is not safe for concurrent use.
type Wire struct {
	conn net.Conn
	in   *bufio.Reader
	host string
	head string // of each request, whole lines
	out  []byte
}

// Server is the API of a daemon.
type Server struct {
	URL string
	// Header is a line with credentials for each request; "": none.
	Header string
}

// Dial connects to a server.
func Dial(ctx context.Context, server Server) (*Wire, error) {
	u, err := url.Parse(server.URL)
	if err != nil {
		return nil, fmt.Errorf("read the base URL: %w", err)
	}
	dial := (&net.Dialer{}).DialContext
	if u.Scheme == "https" {
		dial = (&tls.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", u.Host, err)
	}
	w := &Wire{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), host: u.Host}
	if server.Header != "" {
		w.head = "\r\n" + server.Header
	}
	return w, nil
}

// Close ends the connection.
func (w *Wire) Close() { _ = w.conn.Close() } // its error does not matter

// ReceiveLittle has the kernel keep only a few kilobytes that are not read yet; otherwise
// it may keep tens of megabytes.
func (w *Wire) ReceiveLittle() error {
	conn := w.conn
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return errors.New("the connection is not of TCP")
	}
	return tcp.SetReadBuffer(4 << 10)
}

// Post sends a body and returns the status and the body of the answer. After an error the
// connection is useless.
func (w *Wire) Post(path string, body []byte) (int, []byte, error) {
	return w.call("POST ", path, body)
}

// Put is Post with that method.
func (w *Wire) Put(path string, body []byte) (int, []byte, error) {
	return w.call("PUT ", path, body)
}

// Get returns the status and the body of an answer, as Post does.
func (w *Wire) Get(path string) (int, []byte, error) { return w.call("GET ", path, nil) }

func (w *Wire) call(method, path string, body []byte) (int, []byte, error) {
	if err := w.Send(method, path, body); err != nil {
		return 0, nil, err
	}
	status, answer, err := readAnswer(w.in)
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}
	return status, answer, nil
}

// Send sends a request without reading its answer. The method ends with a space.
func (w *Wire) Send(method, path string, body []byte) error {
	w.out = append(w.out[:0], method...)
	w.out = append(w.out, path...)
	w.out = append(w.out, " HTTP/1.1\r\nHost: "...)
	w.out = append(w.out, w.host...)
	w.out = append(w.out, w.head...)
	w.out = append(w.out, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	w.out = strconv.AppendInt(w.out, int64(len(body)), 10)
	w.out = append(w.out, "\r\n\r\n"...)
	w.out = append(w.out, body...)
	if err := w.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return fmt.Errorf("set the deadline: %w", err)
	}
	if _, err := w.conn.Write(w.out); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	return nil
}

func readAnswer(in *bufio.Reader) (status int, body []byte, err error) {
	reader := textproto.NewReader(in)
	line, err := reader.ReadLine()
	if err != nil {
		return 0, nil, err
	}
	_, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	if status, err = strconv.Atoi(code); err != nil {
		return 0, nil, fmt.Errorf("status line %q: %w", line, err)
	}
	header, err := reader.ReadMIMEHeader()
	if err != nil {
		return 0, nil, err
	}
	if header.Get("Transfer-Encoding") == "chunked" {
		if body, err = io.ReadAll(httputil.NewChunkedReader(in)); err != nil {
			return 0, nil, err
		}
		_, err = reader.ReadLine() // the empty one that ends the trailer
		return status, body, err
	}
	n, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil || n < 0 {
		return 0, nil, errors.New("the answer has no length")
	}
	body = make([]byte, n)
	_, err = io.ReadFull(in, body)
	return status, body, err
}
