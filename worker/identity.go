package worker

import (
	"sync/atomic"

	"github.com/google/uuid"
)

// identity is the worker's UUID in the fleet. It changes when the fleet considers the
// worker dead: its claims are lost, and it registers as a new worker.
type identity struct{ id atomic.Pointer[uuid.UUID] }

func newIdentity(id uuid.UUID) *identity {
	i := &identity{}
	i.id.Store(&id)
	return i
}

func (i *identity) get() uuid.UUID { return *i.id.Load() }

// renew makes a new UUID; it returns an error if the random source fails.
func (i *identity) renew() error {
	id, err := uuid.NewV7()
	if err == nil {
		i.id.Store(&id)
	}
	return err
}
