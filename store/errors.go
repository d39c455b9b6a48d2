package store

import (
	"errors"
	"io"

	"github.com/jackc/pgx/v5/pgconn"
)

// redacted keeps an error's chain but no text that could hold a password.
type redacted struct {
	text string
	err  error
}

func (r redacted) Error() string { return r.text }
func (r redacted) Unwrap() error { return r.err }

// redact removes connection strings from the text of configuration errors;
// pgx quotes the whole string in them.
func redact(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return redacted{text: "the connection string cannot be read (its text is withheld: it may hold a password)", err: nil}
	}
	return err
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
