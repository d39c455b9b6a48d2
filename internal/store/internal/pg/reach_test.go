package pg

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestWhatCountsAsAnOutage(t *testing.T) {
	t.Parallel()
	broke, refused := error(&connectionLost{errors.New("EOF")}), error(&pgconn.ConnectError{})
	for name, c := range map[string]struct {
		first, second error
		after         time.Duration // from the latest answer to the next
		outage        bool
	}{
		"a connection broke and the next one answers": {broke, nil, 100 * time.Millisecond, false},
		"an idle store finds its connection broken":   {broke, nil, 9 * time.Second, true},
		"no connection can be made":                   {refused, nil, 2 * time.Second, true},
		"broken, then refused":                        {broke, refused, time.Second, true},
		"no statement":                                {nil, nil, time.Hour, false},
		"nothing answers":                             {context.DeadlineExceeded, nil, 9 * time.Second, true},
		"a statement took too long":                   {&pgconn.PgError{Code: "57014"}, nil, 9 * time.Second, false},
		"the caller gave up":                          {context.Canceled, nil, 9 * time.Second, false},
		"a statement was rejected":                    {&pgconn.PgError{Code: "23505"}, nil, 9 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := time.Now()
			r := reach{since: opened, last: opened}
			for _, err := range []error{c.first, c.second} {
				if err != nil {
					r.note(err, opened.Add(c.after/2))
				}
			}
			back := opened.Add(c.after)
			r.note(nil, back)
			want := opened
			if c.outage {
				want = back
			}
			require.Equal(t, want, r.since)
			r.note(nil, back.Add(time.Hour))
			require.Equal(t, want, r.since, "it is recorded once")
		})
	}
}

func TestAnOutageLastsFromTheLatestAnswerToTheNext(t *testing.T) {
	t.Parallel()
	opened := time.Now()
	r := reach{since: opened, last: opened}
	outage := func() time.Duration {
		since, err := r.outage()
		require.Equal(t, since.IsZero(), err == nil)
		if since.IsZero() {
			return -1
		}
		return since.Sub(opened)
	}
	require.EqualValues(t, -1, outage(), "it answers")
	r.note(&pgconn.PgError{Code: "23505"}, opened.Add(time.Second))
	require.EqualValues(t, -1, outage(), "a rejected statement was answered")
	r.note(nil, opened.Add(2*time.Second))
	r.note(&pgconn.ConnectError{}, opened.Add(5*time.Second))
	r.note(&connectionLost{errors.New("EOF")}, opened.Add(9*time.Second))
	require.Equal(t, 2*time.Second, outage(), "since the answer, whichever failure was first")
	_, err := r.outage()
	require.EqualError(t, err, "EOF", "the latest one")
	r.note(context.Canceled, opened.Add(10*time.Second))
	require.Equal(t, 2*time.Second, outage(), "a caller that gave up is no answer")
	r.note(nil, opened.Add(11*time.Second))
	require.EqualValues(t, -1, outage(), "it is over")
}
