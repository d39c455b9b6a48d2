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

	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// connection is one listening session. Its owner waits for notifications; Subscribe queues
// a command and interrupts the wait. pgx keeps a connection usable when a wait for a
// notification is cancelled, and keeps the notifications that arrive while a command runs.
type connection struct {
	*pgdial.Owner

	conn    *pgx.Conn // used by the owner only, once started
	timeout time.Duration

	mu        sync.Mutex
	commands  []*command
	wait      context.Context    // the owner's current wait, nil while it runs a command
	interrupt context.CancelFunc // ends wait

	topics topicset.Set // owned by the owner: the topics listened to
}

var _ signal.Connection = (*connection)(nil)

// maxCommands bounds the concurrently waiting Subscribe calls.
const maxCommands = 64

var errBusy = errors.New("notify: too many subscriptions wait for the connection")

// command asks the owner to replace the topics.
type command struct {
	topics []signal.Topic
	result chan error // buffered: the owner never waits for the caller
}

// prepareSQL keeps a server with idle_session_timeout from ending a listening session,
// which is idle by design. Servers before 14 do not have the setting.
const prepareSQL = `select set_config('idle_session_timeout', '0', false) from pg_settings where name = 'idle_session_timeout'`

// prepare runs before the owner starts.
func (c *connection) prepare(ctx context.Context, topics []signal.Topic) error {
	if err := c.exec(ctx, prepareSQL); err != nil {
		return fmt.Errorf("preparing the listener's session: %w", err)
	}
	return c.listen(ctx, topics)
}

func (c *connection) start() {
	c.Owner.Start("listening", c.run, func(err error) {
		c.refuse(err)
		pgdial.Close(c.conn.PgConn())
	})
}

// Subscribe implements signal.Connection. New topics are subscribed to before old ones
// are dropped, in one round trip. When ctx ends first, the topics may or may not be
// replaced.
func (c *connection) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := topicset.Validate(topics); err != nil {
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

// submit passes cmd to the owner and ends its wait.
func (c *connection) submit(cmd *command) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Life.Err() != nil {
		return signal.ErrClosed
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
func (c *connection) next() (*command, context.Context) {
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
		c.wait, c.interrupt = context.WithCancel(c.Life)
	}
	return nil, c.wait
}

// run is the owner's loop. It returns why it ended.
func (c *connection) run() error {
	for c.Life.Err() == nil {
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

func (c *connection) arrive(n *pgconn.Notification) {
	s := signal.Signal{Topic: signal.Topic(n.Channel), Payload: n.Payload}
	if s.Validate() == nil { // any session may NOTIFY any text
		c.Arrived.Put(s)
	}
}

// replace runs with a deadline of its own: a caller that gives up must not leave the
// session in an unknown state.
func (c *connection) replace(cmd *command) error {
	ctx, cancel := context.WithTimeout(c.Life, c.timeout)
	defer cancel()
	return c.listen(ctx, cmd.topics)
}

// listen changes the topics of the session in one implicit transaction: all or nothing.
func (c *connection) listen(ctx context.Context, topics []signal.Topic) error {
	wanted := topicset.Of(topics)
	var sql strings.Builder
	for t := range wanted {
		if !c.topics.Has(t) {
			sql.WriteString("LISTEN " + pgx.Identifier{string(t)}.Sanitize() + ";")
		}
	}
	for t := range c.topics {
		if !wanted.Has(t) {
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
func (c *connection) exec(ctx context.Context, sql string) error {
	_, err := c.conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// refuse rejects the commands that will not run any more. The owner calls it last;
// submit rejects later ones because life has ended.
func (c *connection) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.commands {
		cmd.result <- err
	}
	c.commands = nil
}
