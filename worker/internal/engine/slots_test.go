package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/store"
)

// TestSlotsKeepAccount drives the slots through random histories and compares them with a
// model.
func TestSlotsKeepAccount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit, prefetch := rapid.IntRange(1, 4).Draw(t, "limit"), rapid.IntRange(0, 3).Draw(t, "prefetch")
		pending := rapid.IntRange(1, 6).Draw(t, "pending")
		m := &slotsModel{slots: newSlots(limit, prefetch, pending), running: map[*Execution]bool{}, reporting: map[*Execution]bool{},
			yielding: map[*Execution]bool{}, most: limit, largest: limit}
		defer m.slots.close(ErrShutdown)
		t.Repeat(map[string]func(*rapid.T){
			"claim":   m.claim,
			"end":     m.end,
			"yield":   m.yield,
			"saved":   m.saved,
			"look":    m.look,
			"timeout": m.timeout,
			"lose":    m.lose,
			"answer":  m.answer,
			"expire":  m.expire,
			"limit":   m.limit,
			"":        m.check,
		})
	})
}

type slotsModel struct {
	slots     *slots
	next      int64
	running   map[*Execution]bool // goroutines that have not ended
	reporting map[*Execution]bool
	yielding  map[*Execution]bool // their checkpoints are under way
	tokens    []*Execution        // everything ever claimed
	owed      bool                // a look was owed and not paid
	most      int                 // that may run: the limit, or more that ran when it fell
	largest   int                 // limit so far
}

func (m *slotsModel) follow(f follows) {
	for _, x := range f.begin {
		m.running[x] = true
	}
	if f.next != nil {
		m.running[f.next] = true
	}
	if f.look {
		m.owed = false
	}
}

func (m *slotsModel) claim(t *rapid.T) {
	room := m.slots.room()
	if m.owed = room == 0; m.owed {
		return
	}
	n := rapid.IntRange(0, room).Draw(t, "n")
	var list []*Execution
	for range n {
		m.next++
		x := newExecution(store.Claimed{TaskUUID: uuid.New(), Token: m.next}, time.Now().Add(time.Duration(m.next)*time.Hour))
		x.job = &job{limit: time.Duration(m.next) * time.Second}
		list, m.tokens = append(list, x), append(m.tokens, x)
	}
	m.follow(m.slots.add(list))
	if n == room {
		m.owed = !m.slots.owe()
	}
}

// pick chooses an element of a set reproducibly.
func (m *slotsModel) pick(t *rapid.T, set map[*Execution]bool) *Execution {
	var list []*Execution
	for _, x := range m.tokens {
		if set[x] {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(list).Draw(t, "x")
}

func (m *slotsModel) end(t *rapid.T) {
	x := m.pick(t, m.running)
	e := m.slots.end(x, rapid.SampledFrom([]Kind{Success, Failed}).Draw(t, "how"))
	if x.mine {
		if m.reporting[x] {
			t.Fatal("settled twice")
		}
		m.reporting[x] = true
	}
	delete(m.running, x)
	m.follow(e)
}

// yield ends a handler that wants to continue.
func (m *slotsModel) yield(t *rapid.T) {
	x := m.pick(t, m.running)
	e := m.slots.end(x, Yielded)
	if x.mine {
		m.yielding[x] = true
	}
	delete(m.running, x)
	m.follow(e)
	if e.look && rapid.Bool().Draw(t, "others first") {
		m.slots.letOthersFirst()
	}
}

// saved answers the checkpoint of a yielded execution.
func (m *slotsModel) saved(t *rapid.T) {
	x := m.pick(t, m.yielding)
	delete(m.yielding, x)
	switch rapid.IntRange(0, 3).Draw(t, "answer") {
	case 0:
		if !m.slots.endYield(x, phaseLost) || m.slots.endYield(x, phaseLost) {
			t.Fatal("given up never or twice")
		}
	case 1:
		if !m.slots.endYield(x, phaseReporting) {
			t.Fatal("it cannot fail")
		}
		m.reporting[x] = true
	default:
		next := newExecution(x.Claim, x.leaseEnd)
		next.describe(x.job)
		m.tokens = append(m.tokens, next)
		m.follow(m.slots.goOn(x, next))
		if len(m.slots.goOn(x, next).begin) > 0 {
			t.Fatal("it continued twice")
		}
	}
	m.follow(m.slots.done())
}

// look ends an awaited look.
func (m *slotsModel) look(*rapid.T) {
	if m.slots.awaited() {
		m.follow(m.slots.resume())
	}
	m.follow(m.slots.done())
}

func (m *slotsModel) timeout(t *rapid.T) {
	now := time.Now().Add(time.Duration(rapid.Int64Range(0, m.next).Draw(t, "seconds")) * time.Second)
	for _, x := range m.slots.overdue(now) {
		if m.reporting[x] || !m.running[x] {
			t.Fatal("reported for a second time, or without a permit")
		}
		m.reporting[x] = true
	}
}

func (m *slotsModel) lose(t *rapid.T) {
	if len(m.tokens) == 0 {
		t.Skip("none")
	}
	x := rapid.SampledFrom(m.tokens).Draw(t, "x")
	for _, lost := range m.slots.lose([]int64{x.Key.Token}) {
		if m.reporting[lost] {
			t.Fatal("an outcome being reported was given up")
		}
	}
	m.follow(m.slots.done())
}

func (m *slotsModel) limit(t *rapid.T) {
	limit := rapid.IntRange(0, 4).Draw(t, "new limit")
	m.largest = max(m.largest, limit)
	m.follow(m.slots.setLimit(limit))
	m.most = max(limit, len(m.slots.running))
}

func (m *slotsModel) expire(t *rapid.T) {
	_, next := m.slots.expire(time.Now().Add(time.Duration(rapid.Int64Range(0, m.next).Draw(t, "hours"))*time.Hour), 0)
	if next == 0 {
		t.Fatal("left an ended execution")
	}
	m.follow(m.slots.done())
}

func (m *slotsModel) answer(t *rapid.T) {
	x := m.pick(t, m.reporting)
	m.follow(m.slots.done(x))
	delete(m.reporting, x)
}

func (m *slotsModel) check(t *rapid.T) {
	u, s := m.slots.usage(), m.slots
	zombies := 0
	for x := range m.running {
		if x.zombie {
			zombies++
		}
	}
	got := fmt.Sprint(u.Running, u.Reporting, u.Yielding, u.Zombies)
	if want := fmt.Sprint(len(m.running), len(m.reporting), len(m.yielding), zombies); got != want {
		t.Fatalf("running, reporting, yielding, zombies: %s, want %s", got, want)
	}
	if u.Running > m.most || u.Running+u.Waiting+u.Yielding > 2*m.largest+s.prefetch {
		t.Fatalf("over the limit: %+v", u)
	}
	if len(s.waiting) > 0 && u.Running < s.limit {
		t.Fatalf("a claim waits beside a free permit: %+v", u)
	}
	if !s.awaited() && len(s.yielded) > 0 {
		t.Fatalf("yielded steps wait without a reason: %+v", u)
	}
	if len(s.running) != u.Running || len(s.held()) < u.Waiting+u.Reporting+u.Yielding {
		t.Fatalf("claims forgotten: %d held, %+v", len(s.held()), u)
	}
	if m.owed && s.roomLocked() > 0 && u.Waiting <= s.aheadLocked()/2 {
		t.Fatalf("there is room and the owed look was not requested: %+v", u)
	}
	m.most = max(s.limit, u.Running) // a permit beyond a smaller limit is not given again
}

// TestWhatIsHandedBackIsNotLost: a heartbeat may find the claim gone before the answer
// has come.
func TestWhatIsHandedBackIsNotLost(t *testing.T) {
	t.Parallel()
	s := newSlots(1, 2, 5)
	defer s.close(ErrShutdown)
	end := time.Now().Add(time.Minute)
	var tokens []int64
	for token := range int64(3) {
		s.add([]*Execution{newExecution(store.Claimed{Token: token}, end)})
		tokens = append(tokens, token)
	}
	list := s.drain()
	require.Len(t, list, 2, "the third runs")
	require.Len(t, s.hand(list), 2)
	lost, _ := s.expire(end.Add(time.Second), 0)
	require.Len(t, append(lost, s.lose(tokens)...), 1, "the running step")
	s.handed(list, false)
	require.Len(t, s.lose(tokens), 2)
}

func newExecution(c store.Claimed, leaseEnd time.Time) *Execution {
	return &Execution{Claim: c, Key: c.Key(), leaseEnd: leaseEnd}
}

// TestPhasesMoveAsDrawn: the comment of phase lists every transition that the code makes.
func TestPhasesMoveAsDrawn(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	made, drawn := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\.move\(x, phase(\w+), phase(\w+)\)`).FindAllSubmatch(src, -1) {
			made[strings.ToLower(string(m[1])+" "+string(m[2]))] = true
		}
		for _, m := range regexp.MustCompile(`\.endYield\(x, phase(\w+)\)`).FindAllSubmatch(src, -1) {
			made["yielding "+strings.ToLower(string(m[1]))] = true
		}
		for _, m := range regexp.MustCompile(`(?m)^//\t(\w+) +→ (.*)$`).FindAllSubmatch(src, -1) {
			for to := range strings.FieldsSeq(string(m[2])) {
				drawn[string(m[1])+" "+to] = true
			}
		}
	}
	require.Equal(t, drawn, made)
}
