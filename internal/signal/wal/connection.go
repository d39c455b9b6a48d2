package wal

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

const (
	// writeTimeout bounds a status message to the server.
	writeTimeout = 5 * time.Second
	// closeTimeout bounds the end of the session.
	closeTimeout = 2 * time.Second
)

// connection is one replication stream. Its owner reads, and answers the server in time
// even without a Receive; signals of subscribed topics arrive.
type connection struct {
	*pgdial.Owner

	conn      *pgconn.PgConn // used by the owner only, once started
	server    querier
	temporary bool
	all       bool          // ignore the topics
	interval  time.Duration // between two status messages
	silence   time.Duration // after which the server is considered gone

	topics atomic.Pointer[topicset.Set]
	pos    *position
	seen   visibility
	xid    uint32 // of the transaction being received; owned by the owner
}

var _ signal.Connection = (*connection)(nil)

// Receive implements signal.Connection. With Config.Server it returns a signal only once
// the rows it is about are visible to all transactions.
func (c *connection) Receive(ctx context.Context) (signal.Signal, error) {
	s, err := c.Owner.Receive(ctx)
	if err == nil {
		c.seen.wait(ctx)
	}
	return s, err
}

// Subscribe implements signal.Connection. All signals arrive anyway; those of other
// topics are dropped here, so it takes effect at once.
func (c *connection) Subscribe(ctx context.Context, topics []signal.Topic) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := topicset.Validate(topics); err != nil {
		return err
	}
	if c.Life.Err() != nil {
		return signal.ErrClosed
	}
	c.setTopics(topics)
	return nil
}

func (c *connection) setTopics(topics []signal.Topic) {
	set := topicset.Of(topics)
	c.topics.Store(&set)
}

const walEndSQL = `select pg_current_wal_flush_lsn()::text`

// Probe implements signal.Connection: s goes through the WAL like other signals. With
// Config.Server it also refreshes LagBytes; a failure of that is no failure of the
// probe.
func (c *connection) Probe(ctx context.Context, s signal.Signal) error {
	if err := c.Owner.Probe(ctx, s); err != nil || c.server == nil {
		return err
	}
	var text string
	if c.server.QueryRow(ctx, walEndSQL).Scan(&text) == nil {
		if lsn, err := pglogrepl.ParseLSN(text); err == nil {
			raise(&c.pos.serverEnd, lsn)
		}
	}
	return nil
}

// LagBytes is the distance in bytes between the last known end of the server's WAL and
// the position received here. It is safe for concurrent use.
func (c *connection) LagBytes() int64 { return c.pos.lag() }

// run is the owner's loop. It returns why it ended.
func (c *connection) run() error {
	lastMessage := time.Now()
	for c.Life.Err() == nil {
		if err := c.sendStatus(); err != nil {
			return err
		}
		// One context serves all reads until the next status is due. pgconn
		// keeps the connection, and half a message, when a read times out.
		until, cancel := context.WithTimeout(c.Life, c.interval)
		last, err := c.readUntil(until, lastMessage)
		cancel()
		if err != nil {
			return err
		}
		lastMessage = last
		if quiet := time.Since(lastMessage); quiet > c.silence {
			return fmt.Errorf("reading the WAL: no word from the server for %s", quiet.Round(time.Second))
		}
	}
	return signal.ErrClosed
}

// readUntil reads until ctx ends or the server asks for a status, and returns the time
// of the server's last message.
func (c *connection) readUntil(ctx context.Context, lastMessage time.Time) (time.Time, error) {
	for {
		msg, err := c.conn.ReceiveMessage(ctx)
		if err != nil {
			if ctx.Err() != nil && !c.conn.IsClosed() {
				return lastMessage, nil
			}
			return lastMessage, fmt.Errorf("reading the WAL: %w", err)
		}
		lastMessage = time.Now()
		asked, err := c.handle(msg)
		if err != nil || asked {
			return lastMessage, err
		}
	}
}

// handle processes one message. asked means that the server wants a status now.
func (c *connection) handle(msg pgproto3.BackendMessage) (asked bool, err error) {
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

func (c *connection) handleData(data []byte) (asked bool, err error) {
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

// handleRecord handles messages and the begins and ends of transactions; it ignores
// changes of tables, which a publication with tables would add.
func (c *connection) handleRecord(data []byte) error {
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

func (c *connection) arrive(content []byte, mark uint64) {
	s, err := Decode(content)
	if err == nil && (c.all || c.topics.Load().Has(s.Topic)) { // any session may emit any message
		c.seen.arrived(c.xid) // before the signal: Receive must not overtake it
		c.Arrived.PutAt(s, mark)
	}
}

// sendStatus reports our position to the server and asks for a reply, so that a dead
// server is detected. Only signals returned by Receive are confirmed, so that a
// persistent slot sends the rest again. A temporary slot has no next reader, and a
// server that shuts down waits for the confirmation of everything: there, everything
// received is confirmed.
func (c *connection) sendStatus() error {
	oldest, waiting := c.Arrived.Oldest()
	confirmed := c.pos.confirmable(oldest, waiting && !c.temporary)
	if err := c.conn.Conn().SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("sending the standby status: %w", err)
	}
	err := pglogrepl.SendStandbyStatusUpdate(c.Life, c.conn, pglogrepl.StandbyStatusUpdate{
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

// terminate confirms for the last time, which a persistent slot keeps, ends the session and
// waits until the server has ended it too: only then is the slot free for the next reader.
func (c *connection) terminate(error) {
	defer pgdial.Close(c.conn)
	if c.conn.IsClosed() || c.sendStatus() != nil {
		return
	}
	c.conn.Frontend().Send(&pgproto3.Terminate{})
	if c.conn.Frontend().Flush() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for {
		if _, err := c.conn.ReceiveMessage(ctx); err != nil {
			return
		}
	}
}
