package engine

import (
	"sync/atomic"

	"github.com/google/uuid"
)

// Identity is the worker's UUID in the fleet. It changes when the fleet considers the
// worker dead: its claims are lost, and it registers as a new worker.
type Identity struct{ id atomic.Pointer[uuid.UUID] }

// NewIdentity returns the identity of a worker that starts as id.
func NewIdentity(id uuid.UUID) *Identity {
	i := &Identity{}
	i.id.Store(&id)
	return i
}

// Get returns the present UUID.
func (i *Identity) Get() uuid.UUID { return *i.id.Load() }

// renew makes a new UUID; it returns an error if the random source fails.
func (i *Identity) renew() error {
	id, err := uuid.NewV7()
	if err == nil {
		i.id.Store(&id)
	}
	return err
}
