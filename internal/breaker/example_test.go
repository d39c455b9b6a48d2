package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/breaker"
)

func Example() {
	errAway := errors.New("the database does not answer")
	set, err := breaker.NewSet(breaker.Config{}, map[string]breaker.Settings{
		breaker.Web: {FailureThreshold: 2, SuccessThreshold: 2, Timeout: 30 * time.Second, Judge: func(err error) breaker.Verdict {
			if errors.Is(err, errAway) {
				return breaker.Failure
			}
			return breaker.Success
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		err := set.Breaker(breaker.Web).Do(context.Background(), func(context.Context) error { return errAway })
		var open *breaker.OpenError
		if errors.As(err, &open) {
			fmt.Println("503, Retry-After:", open.RetryAfter.Round(time.Second))
			continue
		}
		fmt.Println(err)
	}
	fmt.Println(set.Check().Message)
	// Output:
	// the database does not answer
	// the database does not answer
	// 503, Retry-After: 30s
	// web is open, 1 calls refused so far
}
