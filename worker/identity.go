package worker

import (
	"sync/atomic"

	"github.com/google/uuid"
)

// identity is under which UUID the worker is known to the fleet. It changes
// when the fleet has taken the worker for dead: what it held then is not its
// own any more, and it comes back as another one.
type identity struct{ id atomic.Pointer[uuid.UUID] }

func newIdentity(id uuid.UUID) *identity {
	i := &identity{}
	i.id.Store(&id)
	return i
}

func (i *identity) get() uuid.UUID { return *i.id.Load() }

// renew makes another UUID; it returns an error when there is no randomness.
func (i *identity) renew() error {
	id, err := uuid.NewV7()
	if err == nil {
		i.id.Store(&id)
	}
	return err
}
