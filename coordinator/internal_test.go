package coordinator

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/signal"
)

// The sum of wakes does not depend on how they are split and merged.
func TestMergeLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const limit = 4
		var whole, first, second pending
		for range rapid.IntRange(1, 20).Draw(t, "wakes") {
			reason := rapid.SampledFrom(reasons[:]).Draw(t, "reason")
			topics := rapid.SliceOfN(rapid.SampledFrom([]signal.Topic{"a", "b", "c"}), 0, 2).Draw(t, "topics")
			payload := rapid.SampledFrom([]string{"", "1", "2", "3", "4", "5"}).Draw(t, "payload")
			part := &first
			if rapid.Bool().Draw(t, "second") {
				part = &second
			}
			for _, p := range []*pending{&whole, part} {
				p.add(reason, topics...)
				p.addPayload(payload, limit)
			}
		}
		first.merge(second, limit)
		want, got := whole.wake(), first.wake()
		if want.Reason != got.Reason || want.All != got.All || len(want.Topics) != len(got.Topics) {
			t.Fatalf("%+v, merged %+v", want, got)
		}
		for topic := range want.Topics {
			if !got.Has(topic) {
				t.Fatalf("topic %s is lost", topic)
			}
		}
		if len(got.Payloads) > limit || (!got.All && len(got.Payloads) != len(want.Payloads)) {
			t.Fatalf("payloads %v, merged %v", want.Payloads, got.Payloads)
		}
	})
}
