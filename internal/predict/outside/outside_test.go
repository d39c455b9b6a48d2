package outside_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/predict"
	"github.com/tasker-go/tasker/internal/predict/outside"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked is a request as the predictor sees it.
type asked struct {
	Steps []struct {
		Namespace, Template, Step, Class string
		Features                         map[string]float64
	}
}

// start returns a client of an address; its breaker opens for ten seconds after three
// failures.
func start(t *testing.T, url string, adapt func(*outside.Config), through http.RoundTripper) *outside.Client {
	t.Helper()
	set, err := breaker.NewSet(breaker.Config{}, map[string]breaker.Settings{breaker.Predictor: {FailureThreshold: 3, SuccessThreshold: 1, Timeout: 10 * time.Second}})
	require.NoError(t, err)
	cfg := outside.Config{URL: url, Token: "key", Timeout: 200 * time.Millisecond, Batch: 50, Answers: 1000, Breaker: set.Breaker(breaker.Predictor)}
	if adapt != nil {
		adapt(&cfg)
	}
	c := outside.New(cfg)
	if through != nil {
		c.Through(through)
	}
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.WithoutCancel(t.Context()))) })
	return c
}

func rows(n float64) order.Question {
	return order.Question{Namespace: "shop", Template: "order", Step: "charge", Class: "acme", Features: []string{"rows"}, Values: []float64{n}}
}

// TestTheContract is that of docs/use/order.md: what is asked, with which headers, and that
// one request has many questions.
func TestTheContract(t *testing.T) {
	t.Parallel()
	got := make(chan asked, 10)
	var hold sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var a asked
		if json.Unmarshal(body, &a) != nil || r.Method != http.MethodPost || r.URL.Path != "/predict" || r.Header.Get("Authorization") != "Bearer key" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		got <- a
		hold.Lock()
		defer hold.Unlock()
		fmt.Fprint(w, `{"expected_ms":[`+strings.TrimSuffix(strings.Repeat("12.5,", len(a.Steps)-1)+"null", ",")+`]}`)
	}))
	defer s.Close()
	idle := outside.New(outside.Config{Batch: 5, Answers: 10})
	for i := range 7 {
		_, why := idle.Expect(rows(float64(10 * i)))
		require.Equal(t, i >= 5, why == order.MissingFull, why)
	}
	c := start(t, s.URL+"/predict", nil, nil)
	unknown := order.Question{Namespace: "shop", Template: "order", Step: "charge"}
	pgtest.Eventually(t, 10*time.Second, func() (bool, string) {
		_, why := c.Expect(unknown)
		return why == order.MissingUnknown, string(why)
	})
	first := <-got
	require.Equal(t, "shop order charge", first.Steps[0].Namespace+" "+first.Steps[0].Template+" "+first.Steps[0].Step)
	require.Nil(t, first.Steps[0].Features)
	hold.Lock() // a request under way, behind which questions gather
	c.Expect(rows(1))
	second := <-got
	for _, n := range []float64{10, 106, 110} {
		c.Expect(rows(n))
	}
	hold.Unlock()
	third := <-got
	require.Equal(t, "acme", second.Steps[0].Class)
	require.InDelta(t, 1, second.Steps[0].Features["rows"], 0)
	require.Len(t, third.Steps, 2, "106 and 110 are the same")
	pgtest.Eventually(t, 10*time.Second, func() (bool, string) {
		d, why := c.Expect(rows(10))
		return d == 12500*time.Microsecond, string(why)
	})
}

// script answers requests in place of a network.
type script func(ctx context.Context, a asked) (status int, body string)

func (s script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var a asked
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	status, text := s(r.Context(), a)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// byRows takes a millisecond for each row, changed by wrong.
func byRows(wrong func(ms float64) float64) script {
	return func(_ context.Context, a asked) (int, string) {
		list := make([]string, 0, len(a.Steps))
		for _, s := range a.Steps {
			list = append(list, fmt.Sprint(wrong(s.Features["rows"])))
		}
		return http.StatusOK, `{"expected_ms":[` + strings.Join(list, ",") + `]}`
	}
}

func right(ms float64) float64 { return ms }

// TestWhatIsNoAnswer: each way of being wrong has its reason, is asked again later, and after
// three in a row not for a while.
func TestWhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	say := func(status int, body string) script {
		return func(context.Context, asked) (int, string) { return status, body }
	}
	hang := func(ctx context.Context, _ asked) (int, string) { <-ctx.Done(); return 0, "" }
	for name, tt := range map[string]struct {
		script script
		want   order.Missing
		opens  bool
	}{
		"not a number": {say(http.StatusOK, `{"expected_ms":[NaN]}`), order.MissingInvalid, true},
		"negative":     {say(http.StatusOK, `{"expected_ms":[-1]}`), order.MissingInvalid, false},
		"a year":       {say(http.StatusOK, `{"expected_ms":[31536000000]}`), order.MissingInvalid, false},
		"a text":       {say(http.StatusOK, `{"expected_ms":["1"]}`), order.MissingInvalid, true},
		"too many":     {say(http.StatusOK, `{"expected_ms":[1,2]}`), order.MissingInvalid, true},
		"none":         {say(http.StatusOK, `{}`), order.MissingInvalid, true},
		"huge":         {say(http.StatusOK, `{"expected_ms":[`+strings.Repeat(" ", 1<<20)+`1]}`), order.MissingInvalid, true},
		"null":         {say(http.StatusOK, `{"expected_ms":[null]}`), order.MissingUnknown, false},
		"an error":     {say(http.StatusInternalServerError, `{"expected_ms":[1]}`), order.MissingFailed, true},
		"elsewhere":    {say(http.StatusTemporaryRedirect, ``), order.MissingFailed, true},
		"dead":         {say(0, ""), order.MissingFailed, true},
		"slow":         {hang, order.MissingLate, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var now atomic.Pointer[script]
				now.Store(&tt.script)
				var requests atomic.Int32
				c := start(t, "http://predictor/predict", nil, script(func(ctx context.Context, a asked) (int, string) {
					requests.Add(1)
					return (*now.Load())(ctx, a)
				}))
				expect := func() (time.Duration, order.Missing) {
					began := time.Now()
					d, why := c.Expect(rows(20))
					require.Zero(t, time.Since(began), "it never waits")
					return d, why
				}
				var seen []order.Missing
				for range 6 {
					_, why := expect()
					require.Equal(t, order.MissingAsked, why)
					time.Sleep(time.Second / 2)
					_, why = expect()
					seen = append(seen, why)
					time.Sleep(time.Second)
				}
				require.Equal(t, tt.want, seen[0])
				if tt.opens {
					require.Equal(t, []order.Missing{tt.want, tt.want, order.MissingRefused, order.MissingRefused, order.MissingRefused}, seen[1:])
					require.EqualValues(t, 3, requests.Load())
				} else {
					require.Equal(t, slices.Repeat([]order.Missing{tt.want}, 6), seen)
				}
				// It recovers.
				good := byRows(right)
				now.Store(&good)
				time.Sleep(12 * time.Second)
				expect()
				time.Sleep(time.Second / 2)
				d, why := expect()
				require.Empty(t, why)
				require.Equal(t, 20*time.Millisecond, d)
			})
		})
	}
}

// TestAnswersEnd: those of a predictor that is gone end when they are asked for anew, and
// while it is there they are without a gap.
func TestAnswersEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		c := start(t, "http://predictor", nil, script(func(ctx context.Context, a asked) (int, string) {
			if dead.Load() {
				return 0, ""
			}
			return byRows(right)(ctx, a)
		}))
		_, why := c.Expect(rows(20))
		require.Equal(t, order.MissingAsked, why)
		for range 6000 {
			time.Sleep(time.Second / 10)
			_, why := c.Expect(rows(20))
			require.Empty(t, why)
		}
		dead.Store(true)
		var lasted time.Duration
		for began := time.Now(); why == ""; lasted = time.Since(began) {
			time.Sleep(time.Second / 10)
			_, why = c.Expect(rows(20))
		}
		require.LessOrEqual(t, lasted, 6*time.Second)
	})
}

// TestWhatIsRememberedIsBounded by the configuration.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, "http://predictor", func(cfg *outside.Config) { cfg.Answers = 10 }, byRows(right))
		for i := range 100 {
			c.Expect(rows(float64(int(1) << (i % 40))))
			synctest.Wait()
		}
		known := 0
		for i := range 40 { // the latest first: what is not known is asked for, and displaces others
			if _, why := c.Expect(rows(float64(int(1) << ((99 - i) % 40)))); why == "" {
				known++
			}
		}
		require.Positive(t, known)
		require.LessOrEqual(t, known, 10)
	})
}

// TestWrongPredictorsAreNoticedWithinAMinute: of five executions a second, which a worker tells
// every three seconds, and an orchestrator learns from every five.
func TestWrongPredictorsAreNoticedWithinAMinute(t *testing.T) {
	t.Parallel()
	const perSecond = 5
	for name, wrong := range map[string]func(r *rand.Rand) func(ms float64) float64{
		"inverted": func(*rand.Rand) func(ms float64) float64 {
			return func(ms float64) float64 { return 1e6 / max(ms, 1) }
		},
		"random": func(r *rand.Rand) func(ms float64) float64 {
			return func(float64) float64 { return 1 + 1e4*r.Float64()*r.Float64() }
		},
	} {
		for seed := range uint64(50) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 1))
					var says atomic.Pointer[script]
					turn := func(how func(ms float64) float64) { next := byRows(how); says.Store(&next) }
					turn(right)
					c := start(t, "http://predictor", nil, script(func(ctx context.Context, a asked) (int, string) { return (*says.Load())(ctx, a) }))
					m := predict.New([]string{"rows"})
					type sample struct{ outside, took time.Duration }
					var told, learned []sample
					// until runs the line until the model trusts the predictor or not.
					until := func(trusted bool) time.Duration {
						since := time.Now()
						for tick := 1; ; tick++ {
							n := 10 * math.Exp(7*r.Float64())
							d, _ := c.Expect(rows(n))
							if d > 0 {
								told = append(told, sample{d, time.Duration(n * float64(time.Millisecond) * (0.8 + 0.4*r.Float64()))})
							}
							time.Sleep(time.Second / perSecond)
							if tick%(3*perSecond) == 0 { // a heartbeat
								learned, told = append(learned, told...), nil
							}
							if tick%(5*perSecond) == 0 { // the sweep
								for _, s := range learned {
									m.Outside.Add(time.Now(), s.outside, s.took)
								}
								learned = nil
								if m.Outside.Distrust != trusted && m.Outside.Verdict().N >= 16 {
									return time.Since(since)
								}
							}
							require.LessOrEqual(t, time.Since(since), time.Minute, m.Outside.Verdict())
						}
					}
					until(true)
					turn(wrong(rand.New(rand.NewPCG(seed, 2))))
					noticed := until(false)
					turn(right)
					t.Logf("noticed after %v, trusted again after %v", noticed, until(true))
				})
			})
		}
	}
}
