package store

// uuids are UUIDs on their way to the database. pgx would ask each uuid.UUID
// for its text and parse that again; bytes it sends as they are.
type uuids = [][16]byte
