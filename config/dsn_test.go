package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
)

func TestPostgresDSN(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://u:p@h:1/db?a=b":                 "postgres://u:p@h:1/db?a=b",
		" postgres://u@h/db\r\n":                    "postgres://u@h/db",
		"host=/var/run dbname=db\n":                 "host=/var/run dbname=db",
		"postgres://u@%2Fvar%2Frun:5432/db":         "postgres://u@/db?host=%2Fvar%2Frun&port=5432",
		"postgresql://%2fvar%2frun/db":              "postgresql:///db?host=%2Fvar%2Frun",
		"postgres://u:a%2Fb@%2Frun?sslmode=disable": "postgres://u:a%2Fb@?host=%2Frun&sslmode=disable",
		"postgres://u:a%2Fb@h/db":                   "postgres://u:a%2Fb@h/db",
		"postgres://u@%2Frun,[::1]:7,h/db":          "postgres://u@/db?host=%2Frun%2C%3A%3A1%2Ch&port=5432%2C7%2C5432",
		"postgres://u@%2Frun%zz/db":                 "postgres://u@%2Frun%zz/db",
		"redis://%2Frun":                            "redis://%2Frun",
		"":                                          "",
	} {
		require.Equal(t, want, config.PostgresDSN(text), text)
	}
	require.Equal(t, "redis://h", config.DSN("redis://h\n").Reveal())
}

// A line end is left out of every connection string, and a secret in the place of the name of its
// file is not shown.
func TestConnectionStringsOfFiles(t *testing.T) {
	t.Parallel()
	load := func(environment map[string]string) (*config.Loaded, error) {
		return config.Load(config.Options{Context: config.ContextCommon, LookupEnv: func(name string) (string, bool) {
			value, ok := environment[name]
			return value, ok
		}})
	}
	loaded, err := load(map[string]string{"DATABASE_URL": "postgres://u@%2Fvar%2Frun:5432/db\n", "REDIS_URL": "redis://h:6379/1\r\n"})
	require.NoError(t, err)
	require.Equal(t, "postgres://u@%2Fvar%2Frun:5432/db", loaded.Common.Database.URL.Reveal())
	require.Equal(t, "redis://h:6379/1", loaded.Common.Signals.Redis.URL.Reveal())
	_, err = load(map[string]string{"DATABASE_URL_FILE": "postgres://u:hidden@h/db"})
	require.ErrorContains(t, err, "reading the secret file")
	require.NotContains(t, err.Error(), "hidden")
}
