package wal

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/panics"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/internal/pgdial"
)

const (
	// writeTimeout bounds telling the server what was received.
	writeTimeout = 5 * time.Second
	// goodbyeTimeout bounds the end of the session.
	goodbyeTimeout = 2 * time.Second
)

// Connection is one replication stream. A goroutine owns it: it reads, answers
// the server in time also when nobody receives, and puts signals of subscribed
// topics into a bounded buffer, from which Receive takes. Ending the context of
// Receive therefore never touches the network.
type Connection struct {
	conn      *pgconn.PgConn // used by the owner only, once started
	transport signal.Transport
	server    Querier
	temporary bool
	all       bool          // topics do not matter
	interval  time.Duration // between two words to the server
	silence   time.Duration // after which the server is taken for gone

	topics  atomic.Pointer[signal.TopicSet]
	arrived *signal.Buffer
	pos     *position
	seen    visibility
	xid     uint32 // of the transaction being received; the owner's

	life  context.Context // ends with Close
	end   context.CancelFunc
	done  chan struct{} // closed when the owner has gone
	owner conc.WaitGroup
}

var _ signal.Connection = (*Connection)(nil)

func newConnection(conn *pgconn.PgConn, t signal.Transport, cfg Config, pos *position, interval time.Duration) *Connection {
	// The life of a connection is not that of the context that connected it.
	life, end := context.WithCancel(context.Background())
	return &Connection{
		conn:      conn,
		transport: t,
		server:    cfg.Server,
		temporary: cfg.Slot == "",
		all:       cfg.AllTopics,
		interval:  interval,
		silence:   cfg.SilenceTimeout,
		arrived:   signal.NewBuffer(cfg.BufferLimit),
		pos:       pos,
		seen:      visibility{server: cfg.Server},
		life:      life,
		end:       end,
		done:      make(chan struct{}),
	}
}

func (c *Connection) start() {
	c.owner.Go(func() {
		defer close(c.done)
		var err error
		if r := panics.Try(func() { err = c.run() }); r != nil {
			err = fmt.Errorf("reading the WAL: %w", r.AsError())
		}
		c.end() // before anybody learns of the failure: Subscribe refuses from now on
		c.arrived.Fail(err)
		c.goodbye()
	})
}

// Receive implements signal.Connection. With Config.Server a signal is handed
// out only when what it tells of is visible to everybody.
func (c *Connection) Receive(ctx context.Context) (signal.Signal, error) {
	s, err := c.arrived.Take(ctx)
	if err == nil {
		c.seen.wait(ctx)
	}
	return s, err
}

// Subscribe implements signal.Connection. Everything arrives anyway; what is
// not subscribed is left out on this side, so it takes effect at once.
func (c *Connection) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := signal.ValidateTopics(topics); err != nil {
		return err
	}
	if c.life.Err() != nil {
		return signal.ErrClosed
	}
	c.setTopics(topics)
	return nil
}

func (c *Connection) setTopics(topics []signal.Topic) {
	set := signal.NewTopicSet(topics)
	c.topics.Store(&set)
}

const walEndSQL = `select pg_current_wal_flush_lsn()::text`

// Probe implements signal.Connection: s goes through the WAL like the signals
// of others. With Config.Server it also refreshes what LagBytes knows; that
// this part fails is no failure of the probe.
func (c *Connection) Probe(ctx context.Context, s signal.Signal) error {
	if err := c.transport.Send(ctx, []signal.Signal{s}); err != nil {
		return fmt.Errorf("probing: %w", err)
	}
	if c.server == nil {
		return nil
	}
	var text string
	if c.server.QueryRow(ctx, walEndSQL).Scan(&text) == nil {
		if lsn, err := pglogrepl.ParseLSN(text); err == nil {
			raise(&c.pos.serverEnd, lsn)
		}
	}
	return nil
}

// LagBytes is how many bytes of WAL lie between the end of the server's WAL, as
// last heard of, and what this connection has received. It is safe at any time.
func (c *Connection) LagBytes() int64 { return c.pos.lag() }

// Close implements signal.Connection. When it returns nil, the server has let
// go of the slot, and a persistent one is confirmed up to the last signal that
// Receive has returned.
func (c *Connection) Close(ctx context.Context) error {
	c.end()
	defer c.arrived.Close() // not before the owner has seen what waits
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the replication connection: %w", ctx.Err())
	}
}

// run is the owner's loop. It returns why it ended.
func (c *Connection) run() error {
	heard := time.Now()
	for c.life.Err() == nil {
		if err := c.sendStatus(); err != nil {
			return err
		}
		// One context serves all reads until the next status is due. pgconn
		// keeps the connection, and half a message, when a read times out.
		until, cancel := context.WithTimeout(c.life, c.interval)
		last, err := c.readUntil(until, heard)
		cancel()
		if err != nil {
			return err
		}
		heard = last
		if quiet := time.Since(heard); quiet > c.silence {
			return fmt.Errorf("reading the WAL: no word from the server for %s", quiet.Round(time.Second))
		}
	}
	return signal.ErrClosed
}

// readUntil reads until ctx ends or the server asks for a status, and returns
// when it last heard from the server.
func (c *Connection) readUntil(ctx context.Context, heard time.Time) (time.Time, error) {
	for {
		msg, err := c.conn.ReceiveMessage(ctx)
		if err != nil {
			if ctx.Err() != nil && !c.conn.IsClosed() {
				return heard, nil
			}
			return heard, fmt.Errorf("reading the WAL: %w", err)
		}
		heard = time.Now()
		asked, err := c.handle(msg)
		if err != nil || asked {
			return heard, err
		}
	}
}

// handle takes one message in. asked means that the server wants a status now.
func (c *Connection) handle(msg pgproto3.BackendMessage) (asked bool, err error) {
	switch msg := msg.(type) {
	case *pgproto3.CopyData:
		return c.handleData(msg.Data)
	case *pgproto3.ErrorResponse:
		return false, fmt.Errorf("reading the WAL: %w", pgconn.ErrorResponseToPgError(msg))
	case *pgproto3.NoticeResponse, *pgproto3.ParameterStatus:
		return false, nil
	default: // CopyDone, CommandComplete: the server ends the stream
		return false, fmt.Errorf("reading the WAL: the server ended the stream (%T)", msg)
	}
}

func (c *Connection) handleData(data []byte) (asked bool, err error) {
	if len(data) == 0 {
		return false, nil
	}
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		alive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return false, fmt.Errorf("reading a keepalive: %w", err)
		}
		c.pos.keepalive(alive.ServerWALEnd)
		return alive.ReplyRequested, nil
	case pglogrepl.XLogDataByteID:
		record, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return false, fmt.Errorf("reading WAL data: %w", err)
		}
		return false, c.handleRecord(record.WALData)
	}
	return false, nil
}

// handleRecord looks at transactions' ends and messages; changes of tables,
// which a publication with tables would bring, are not ours.
func (c *Connection) handleRecord(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	switch pglogrepl.MessageType(data[0]) {
	case pglogrepl.MessageTypeBegin, pglogrepl.MessageTypeCommit, pglogrepl.MessageTypeMessage:
	default:
		return nil
	}
	record, err := pglogrepl.Parse(data)
	if err != nil {
		return fmt.Errorf("reading a record of the WAL: %w", err)
	}
	switch record := record.(type) {
	case *pglogrepl.BeginMessage:
		c.pos.begin()
		c.xid = record.Xid
	case *pglogrepl.CommitMessage:
		c.pos.commit(record.TransactionEndLSN)
		c.xid = 0
	case *pglogrepl.LogicalDecodingMessage:
		mark := c.pos.message(record.LSN, record.Transactional)
		if record.Prefix == Prefix {
			c.arrive(record.Content, mark)
		}
	}
	return nil
}

func (c *Connection) arrive(content []byte, mark uint64) {
	s, err := signal.Decode(content)
	if err == nil && (c.all || c.topics.Load().Has(s.Topic)) { // anybody may emit anything
		c.seen.arrived(c.xid) // before the signal: Receive must not overtake it
		c.arrived.PutAt(s, mark)
	}
}

// sendStatus tells the server how far we are and asks it for a word, so that a
// dead one is found out. Only what was handed out by Receive is confirmed, so
// that a persistent slot sends the rest again. A temporary slot has nobody to
// send it to again, and a server that shuts down waits for the confirmation of
// everything: there, what was received is confirmed.
func (c *Connection) sendStatus() error {
	oldest, waiting := c.arrived.Oldest()
	confirmed := c.pos.confirmable(oldest, waiting && !c.temporary)
	if err := c.conn.Conn().SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("sending the standby status: %w", err)
	}
	err := pglogrepl.SendStandbyStatusUpdate(c.life, c.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: max(confirmed, pglogrepl.LSN(c.pos.received.Load())),
		WALFlushPosition: confirmed,
		WALApplyPosition: confirmed,
		ReplyRequested:   true,
	})
	if err != nil {
		return fmt.Errorf("sending the standby status: %w", err)
	}
	return nil
}

// goodbye confirms for the last time, ends the session and waits until the
// server has ended it, too: only then is the slot free for the next one.
func (c *Connection) goodbye() {
	defer pgdial.Close(c.conn)
	if c.conn.IsClosed() || c.sendStatus() != nil {
		return
	}
	c.conn.Frontend().Send(&pgproto3.Terminate{})
	if c.conn.Frontend().Flush() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeTimeout)
	defer cancel()
	for {
		if _, err := c.conn.ReceiveMessage(ctx); err != nil {
			return
		}
	}
}
