package places_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/places"
)

// What is held follows from who holds what: no more than all, no more than its share by a
// principal, except a single request, and what is there is given.
func TestPlacesFollowTheirBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total, percent := rapid.Int64Range(1, 20).Draw(t, "total"), rapid.IntRange(0, 120).Draw(t, "percent")
		p := places.New("things", total, percent)
		type hold struct {
			*places.Held
			who string
		}
		var held []hold
		free := func() int64 {
			n := total
			for _, h := range held {
				n -= h.Number()
			}
			return n
		}
		own := func(who string) int64 { // of the share that is left
			n := p.Each(who)
			for _, h := range held {
				if h.who == who {
					n -= min(h.Number(), p.Each(who))
				}
			}
			return n
		}
		fits := func(who string, before, n int64, err error) {
			each := p.Each(who)
			switch needed := min(n, each) - min(before, each); {
			case n > before && who != "" && each < total && needed > own(who):
				var share *places.ShareError
				require.ErrorAs(t, err, &share)
				require.Equal(t, who, share.Principal)
			case n-before > free():
				require.ErrorIs(t, err, places.ErrFull)
			default:
				require.NoError(t, err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				require.GreaterOrEqual(t, free(), int64(0))
				for _, who := range []string{"", "a", "b"} {
					require.GreaterOrEqual(t, p.Each(who), int64(1))
				}
			},
			"take": func(t *rapid.T) {
				who, n := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "who"), rapid.Int64Range(0, total).Draw(t, "n")
				h, err := p.TryTake(who, n)
				fits(who, 0, n, err)
				if err == nil {
					require.Equal(t, n, h.Number())
					held = append(held, hold{h, who})
				}
			},
			"become": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				h, n := rapid.SampledFrom(held).Draw(t, "held"), rapid.Int64Range(0, total).Draw(t, "n")
				before := h.Number()
				if n > before {
					fitting := h.Become(n)
					after := h.Number()
					if fitting == nil {
						require.NoError(t, h.Become(before))
					} else {
						require.Equal(t, before, after)
					}
					fits(h.who, before, n, fitting)
					return
				}
				require.NoError(t, h.Become(n))
			},
			"leave": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "i")
				held[i].Leave()
				held = append(held[:i], held[i+1:]...)
			},
		})
	})
}

// Those of a principal who wait for its share hold up no other, and all come in.
func TestAPrincipalWaitsForItselfOnly(t *testing.T) {
	t.Parallel()
	p := places.New("things", 4, 50)
	require.Equal(t, int64(2), p.Each("a"))
	first, err := p.Take(t.Context(), "a", 1)
	require.NoError(t, err)
	second, err := p.Take(t.Context(), "a", 1)
	require.NoError(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Take(over, "a", 1)
	require.EqualError(t, err, `"a" uses its share of the things: 2 of 4`)
	waiters := pool.New().WithErrors()
	for range 20 {
		waiters.Go(func() error {
			h, err := p.Take(t.Context(), "a", 1)
			if err == nil {
				h.Leave()
			}
			return err
		})
	}
	for _, who := range []string{"b", "c"} {
		h, err := p.Take(t.Context(), who, 1)
		require.NoError(t, err)
		defer h.Leave()
	}
	_, err = p.TryTake("", 1)
	require.ErrorIs(t, err, places.ErrFull)
	first.Leave()
	second.Leave()
	require.NoError(t, waiters.Wait())
	large, err := p.TryTake("d", 2)
	require.NoError(t, err)
	large.Leave()
	none, err := places.New("nothing", 0, 50).TryTake("", 1)
	require.ErrorIs(t, err, places.ErrFull)
	require.Nil(t, none)
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const total, each = 10, 3
	p := places.New("things", total, 30)
	var all atomic.Int64
	var own [4]atomic.Int64
	work := pool.New().WithErrors()
	for i := range 40 {
		work.Go(func() error {
			mine := &own[i%len(own)]
			for n := range 200 {
				h, err := p.Take(t.Context(), strconv.Itoa(i%len(own)), int64(1+n%each))
				if err != nil {
					return err
				}
				if a, m := all.Add(h.Number()), mine.Add(h.Number()); a > total || m > each {
					t.Errorf("held %d of %d, by one %d of %d", a, total, m, each)
				}
				all.Add(-h.Number())
				mine.Add(-h.Number())
				h.Leave()
			}
			return nil
		})
	}
	require.NoError(t, work.Wait())
	h, err := p.TryTake("", total)
	require.NoError(t, err, "all have left")
	h.Leave()
}
