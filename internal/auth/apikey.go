package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"time"
)

// KeyHash is what is kept of an API key: its SHA-256. Generated keys have 160 random bits,
// so that a slow hash would only slow down requests.
type KeyHash [sha256.Size]byte

// HashKey returns the hash of a key.
func HashKey(key string) KeyHash { return sha256.Sum256([]byte(key)) }

// hashPrefix marks a hash where a key may stand too.
const hashPrefix = "sha256:"

// ParseKey returns the hash of a key in a file: "sha256:" with 64 hexadecimal digits, or
// the key itself.
func ParseKey(text string) (hash KeyHash, err error) {
	digits, hashed := strings.CutPrefix(text, hashPrefix)
	if !hashed {
		return HashKey(text), nil
	}
	if bytes, err := hex.DecodeString(digits); err != nil || copy(hash[:], bytes) != len(hash) || len(bytes) > len(hash) {
		return hash, errors.New("invalid hash of an API key: want sha256: and 64 hexadecimal digits")
	}
	return hash, nil
}

// String returns the hash as ParseKey reads it.
func (h KeyHash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

const (
	// keyPrefix lets scanners of leaked secrets recognise a key.
	keyPrefix = "tsk_"
	// keyCheck is how many digits of a generated key are its checksum.
	keyCheck = 8
)

// NewKey returns a random API key. Its end is a checksum, by which a mistyped or invented
// key is recognised without the database.
func NewKey() string {
	body := keyPrefix + rand.Text()
	return body + checksum(body)
}

func checksum(body string) string {
	return fmt.Sprintf("%0*x", keyCheck, crc32.ChecksumIEEE([]byte(body)))
}

// generated reports whether a key may be one of NewKey.
func generated(key string) bool {
	n := len(key) - keyCheck
	return n > len(keyPrefix) && strings.HasPrefix(key, keyPrefix) && key[n:] == checksum(key[:n])
}

// APIKey is a key as it is kept.
type APIKey struct {
	// ID is its UUID in the database; "" for a key of a file.
	ID string
	// Name is the subject of its holder.
	Name        string
	Permissions Permissions
	// Namespaces are those its holder may act in; without an entry, or with AllNames: all.
	Namespaces []string
	// Expires is zero for a key without end.
	Expires time.Time
	Revoked bool
}

// KeyStore has the keys of the database.
type KeyStore interface {
	// APIKey returns the key with a hash and the database's time; nil if there is none.
	APIKey(ctx context.Context, hash KeyHash) (key *APIKey, now time.Time, err error)
}

// KeyOptions say which API keys are good.
type KeyOptions struct {
	// Configured are the keys of files.
	Configured map[KeyHash]APIKey
	// Stored has the others; nil: there are none.
	Stored KeyStore
}

// endless is longer than any answer is remembered.
const endless = time.Duration(math.MaxInt64)

// verify returns whom a key speaks for, and how long until it expires.
func (o *KeyOptions) verify(ctx context.Context, key string) (*Principal, time.Duration, error) {
	hash := HashKey(key)
	if k, ok := o.Configured[hash]; ok {
		return k.principal(), endless, nil
	}
	if o.Stored == nil || !generated(key) {
		return nil, 0, refuse(Invalid, nil, "invalid API key")
	}
	k, now, err := o.Stored.APIKey(ctx, hash)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("%w: read API key: %w", ErrUnavailable, err)
	case k == nil, k.Revoked:
		return nil, 0, refuse(Invalid, nil, "invalid API key")
	case k.Expires.IsZero():
		return k.principal(), endless, nil
	case !now.Before(k.Expires):
		return nil, 0, refuse(Expired, nil, "the API key has expired")
	}
	return k.principal(), k.Expires.Sub(now), nil
}

// principal is the holder of a key. A list with an empty name alone is one of none: whoever made the
// key has meant some.
func (k *APIKey) principal() *Principal {
	p := &Principal{Subject: k.Name, Method: ByKey, Permissions: k.Permissions, Key: k.ID, Expires: k.Expires}
	if len(k.Namespaces) > 0 {
		p.Namespaces = namespacesOf(k.Namespaces)
	}
	return p
}
