package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/config"
)

// databaseOptions say which database a command works on itself, without asking
// a daemon.
type databaseOptions struct {
	app         *app
	databaseURL string
	configPath  string
}

func (o *databaseOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.databaseURL, "database-url", "", "`URL` of the database (default $DATABASE_URL)")
	cmd.Flags().StringVar(&o.configPath, "config-file", "", "daemon configuration `file` to take the database from")
}

// url finds the database. The built-in default of the configuration does not
// count: nothing is changed in a database that nobody named.
func (o *databaseOptions) url() (string, error) {
	loaded, url, err := o.find()
	if err != nil || url != "" {
		return url, err
	}
	return loaded.Common.Database.URL.Reveal(), nil
}

// directURL is url for what no pooler can do: of a configuration it takes the
// connection of the listeners.
func (o *databaseOptions) directURL() (string, error) {
	loaded, url, err := o.find()
	if err != nil || url != "" {
		return url, err
	}
	return loaded.Common.Database.ListenerDSN().Reveal(), nil
}

// find returns the URL that the command line or the environment names, or else
// a configuration that names one.
func (o *databaseOptions) find() (loaded *config.Loaded, url string, err error) {
	if url := firstOf(o.databaseURL, o.app.getenv("DATABASE_URL")); url != "" {
		return nil, url, nil
	}
	loaded, err = config.Load(config.Options{Context: config.ContextCommon, Path: o.configPath, LookupEnv: o.app.env})
	if err != nil {
		return nil, "", fmt.Errorf("find the database: %w", err)
	}
	if s, ok := loaded.Setting("common.database.url"); !ok || s.Default {
		return nil, "", hinted{usagef("no database is named"), "give --database-url, DATABASE_URL or a configuration"}
	}
	return loaded, "", nil
}
