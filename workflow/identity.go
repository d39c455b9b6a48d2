package workflow

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
)

// Identity is the hash that makes two submissions the same task: half of a SHA-256. It is
// kept for every task, mostly for ever; with 128 bits the odds of a collision among 10¹²
// tasks are 1 to 10¹⁴.
type Identity [sha256.Size / 2]byte

// ContextIdentity is the identity of a task without an idempotency key: the namespace, the
// name (not the version) and the canonical context.
func ContextIdentity(namespace, name string, context json.RawMessage) (Identity, error) {
	canonical, err := CanonicalJSON(context)
	if err != nil {
		return Identity{}, fmt.Errorf("canonicalise the context: %w", err)
	}
	return identity("context", namespace, name, canonical), nil
}

// KeyIdentity is the identity of a task with an idempotency key.
func KeyIdentity(namespace, name, key string) Identity {
	return identity("key", namespace, name, key)
}

// OwnIdentity is the identity of a task without duplicates. It lets a repeated attempt to
// create the same task find the result of the first one.
func OwnIdentity(namespace, name string, task [16]byte) Identity {
	return identity("task", namespace, name, task[:])
}

// identity hashes its parts with their lengths, so that no two lists of parts collide by
// moving text from one part to the next.
func identity[T string | []byte](kind, namespace, name string, last T) Identity {
	var room [256]byte
	b := room[:0]
	for _, part := range [...]string{kind, namespace, name} {
		b = append(strconv.AppendInt(b, int64(len(part)), 10), ':')
		b = append(b, part...)
	}
	b = append(strconv.AppendInt(b, int64(len(last)), 10), ':')
	hash := sha256.Sum256(append(b, last...))
	return Identity(hash[:])
}
