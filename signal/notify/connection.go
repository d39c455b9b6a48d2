package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/panics"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/internal/pgdial"
)

// Connection is one listening session. A goroutine owns the pgx connection: it waits
// for notifications and puts them into a bounded buffer, which Receive reads. The end
// of Receive's context therefore never touches the network. Subscribe queues a command
// and interrupts the wait; pgx keeps a connection usable when a wait for a notification
// is cancelled, and keeps the notifications that arrive while a command runs.
type Connection struct {
	conn      *pgx.Conn // used by the owner only, once started
	transport signal.Transport
	timeout   time.Duration
	arrived   *signal.Buffer

	life  context.Context // ends with Close
	end   context.CancelFunc
	done  chan struct{} // closed when the owner has ended
	owner conc.WaitGroup

	mu        sync.Mutex
	commands  []*command
	wait      context.Context    // the owner's current wait, nil while it runs a command
	interrupt context.CancelFunc // ends wait

	topics map[signal.Topic]struct{} // owned by the owner: the topics listened to
}

var _ signal.Connection = (*Connection)(nil)

// maxCommands bounds the concurrently waiting Subscribe calls.
const maxCommands = 64

var errBusy = errors.New("notify: too many subscriptions wait for the connection")

// command asks the owner to replace the topics.
type command struct {
	topics []signal.Topic
	result chan error // buffered: the owner never waits for the caller
}

func newConnection(conn *pgx.Conn, t signal.Transport, cfg Config) *Connection {
	// The lifetime of a connection differs from that of the context that connected it.
	life, end := context.WithCancel(context.Background())
	return &Connection{
		conn:      conn,
		transport: t,
		timeout:   cfg.CommandTimeout,
		arrived:   signal.NewBuffer(cfg.BufferLimit),
		life:      life,
		end:       end,
		done:      make(chan struct{}),
		topics:    make(map[signal.Topic]struct{}),
	}
}

// prepareSQL keeps a server with idle_session_timeout from ending a listening session,
// which is idle by design. Servers before 14 do not have the setting.
const prepareSQL = `select set_config('idle_session_timeout', '0', false) from pg_settings where name = 'idle_session_timeout'`

// prepare runs before the owner starts.
func (c *Connection) prepare(ctx context.Context, topics []signal.Topic) error {
	if err := c.exec(ctx, prepareSQL); err != nil {
		return fmt.Errorf("preparing the listener's session: %w", err)
	}
	return c.listen(ctx, topics)
}

func (c *Connection) start() {
	c.owner.Go(func() {
		defer close(c.done)
		var err error
		if r := panics.Try(func() { err = c.run() }); r != nil {
			err = fmt.Errorf("listening: %w", r.AsError())
		}
		c.end() // before the failure is visible: Subscribe is rejected from now on
		c.arrived.Fail(err)
		c.refuse(err)
		pgdial.Close(c.conn.PgConn())
	})
}

// Receive implements signal.Connection.
func (c *Connection) Receive(ctx context.Context) (signal.Signal, error) {
	return c.arrived.Take(ctx)
}

// Probe implements signal.Connection: s is sent over the transport of all signals, not
// over the listening connection.
func (c *Connection) Probe(ctx context.Context, s signal.Signal) error {
	if err := c.transport.Send(ctx, []signal.Signal{s}); err != nil {
		return fmt.Errorf("probing: %w", err)
	}
	return nil
}

// Subscribe implements signal.Connection. New topics are subscribed to before old ones
// are dropped, in one round trip. When ctx ends first, the topics may or may not be
// replaced.
func (c *Connection) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := signal.ValidateTopics(topics); err != nil {
		return err
	}
	cmd := &command{topics: topics, result: make(chan error, 1)}
	if err := c.submit(cmd); err != nil {
		return err
	}
	select {
	case err := <-cmd.result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("subscribing: %w", ctx.Err())
	}
}

// Close implements signal.Connection.
func (c *Connection) Close(ctx context.Context) error {
	c.end()
	c.arrived.Close()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the listener: %w", ctx.Err())
	}
}

// submit passes cmd to the owner and ends its wait.
func (c *Connection) submit(cmd *command) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.life.Done():
		return signal.ErrClosed
	case <-c.done:
		return signal.ErrClosed
	default:
	}
	if len(c.commands) >= maxCommands {
		return errBusy
	}
	c.commands = append(c.commands, cmd)
	if c.interrupt != nil {
		c.interrupt()
	}
	return nil
}

// next returns a command to run or, when there is none, the context of the wait. Both
// are decided under the lock that submit takes, so that every command either is found
// here or has a wait to interrupt.
func (c *Connection) next() (*command, context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.commands) > 0 {
		cmd := c.commands[0]
		c.commands = c.commands[1:]
		return cmd, nil
	}
	if c.wait == nil || c.wait.Err() != nil {
		if c.interrupt != nil {
			c.interrupt()
		}
		c.wait, c.interrupt = context.WithCancel(c.life)
	}
	return nil, c.wait
}

// run is the owner's loop. It returns why it ended.
func (c *Connection) run() error {
	for c.life.Err() == nil {
		cmd, wait := c.next()
		if cmd != nil {
			err := c.replace(cmd)
			cmd.result <- err
			if c.conn.IsClosed() {
				return err
			}
			continue
		}
		n, err := c.conn.WaitForNotification(wait)
		if n != nil {
			c.arrive(n)
		}
		if err != nil && (wait.Err() == nil || c.conn.IsClosed()) {
			return fmt.Errorf("waiting for a notification: %w", err)
		}
	}
	return signal.ErrClosed
}

func (c *Connection) arrive(n *pgconn.Notification) {
	s := signal.Signal{Topic: signal.Topic(n.Channel), Payload: n.Payload}
	if s.Validate() == nil { // any session may NOTIFY any text
		c.arrived.Put(s)
	}
}

// replace runs with a deadline of its own: a caller that gives up must not leave the
// session in an unknown state.
func (c *Connection) replace(cmd *command) error {
	ctx, cancel := context.WithTimeout(c.life, c.timeout)
	defer cancel()
	return c.listen(ctx, cmd.topics)
}

// listen changes the topics of the session in one implicit transaction: all or nothing.
func (c *Connection) listen(ctx context.Context, topics []signal.Topic) error {
	wanted := make(map[signal.Topic]struct{}, len(topics))
	var sql strings.Builder
	for _, t := range topics {
		_, twice := wanted[t]
		wanted[t] = struct{}{}
		if _, have := c.topics[t]; !have && !twice {
			sql.WriteString("LISTEN " + pgx.Identifier{string(t)}.Sanitize() + ";")
		}
	}
	for t := range c.topics {
		if _, keep := wanted[t]; !keep {
			sql.WriteString("UNLISTEN " + pgx.Identifier{string(t)}.Sanitize() + ";")
		}
	}
	if sql.Len() == 0 {
		return nil
	}
	if err := c.exec(ctx, sql.String()); err != nil {
		return fmt.Errorf("listening to %d topics: %w", len(topics), err)
	}
	c.topics = wanted
	return nil
}

// exec uses the simple protocol: several statements, one round trip, no prepared
// statement.
func (c *Connection) exec(ctx context.Context, sql string) error {
	_, err := c.conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// refuse rejects the commands that will not run any more. The owner calls it last;
// submit rejects later ones because life has ended.
func (c *Connection) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.commands {
		cmd.result <- err
	}
	c.commands = nil
}
