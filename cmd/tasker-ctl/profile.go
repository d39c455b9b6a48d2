package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/tasker-go/tasker/client/profile"
	"github.com/tasker-go/tasker/config"
)

func (a *app) profiles() command {
	return command{
		use: "profile", short: "Name servers in a client configuration file, and check them",
		long: `Profiles name servers: where they are, and the credentials for them. They stand in
the file of --config, or in the first of the usual places that exists; see
tasker-ctl --help. Credentials are never shown.`,
		commands: []command{a.profileInit(), a.profileList(), a.profileAdd(), a.profileShow(), a.profileValidate(), a.profileCheck()},
	}
}

// profilePath is the file that is read, or the one to write.
func (a *app) profilePath(file profile.File) string {
	return cmp.Or(a.global.config, file.Path, filepath.Join(".config", "tasker.toml"))
}

// profileFile is the file that is read.
func (a *app) profileFile() (profile.File, error) {
	file, err := profile.Find(a.profileOptions())
	if err != nil {
		err = usageError{err}
	}
	return file, err
}

func (a *app) profileInit() command {
	var force bool
	return command{
		use: "init", short: "Write a client configuration file with a default profile",
		long: `Writes a client configuration file with the profile default: that of --config, or
.config/tasker.toml in the current folder.`,
		flags: opt(&force, "force", "replace a file that exists"),
		local: func(context.Context, []string) error {
			path, p := a.profilePath(profile.File{}), newProfile()
			p.Name = "default"
			about := "# The servers of Tasker's clients. The profile default is applied first, the one of -p over it. Credentials\n" +
				"# stand below [profile.NAME.orchestration] and .worker: auth = { token = \"…\" } or { key = \"…\", header_name = \"X-API-Key\" }\n\n"
			if err := writePrivate(path, []byte(about+p.table()), force); err != nil {
				return err
			}
			a.printf("wrote %s\n", path)
			return nil
		},
	}
}

func newProfile() shownProfile {
	return shownProfile{
		Transport:     "rest",
		Orchestration: shownEndpoint{URL: "http://localhost:8080"},
		Worker:        shownEndpoint{URL: "http://localhost:8081"},
	}
}

// shownProfile is a profile without its credentials.
type shownProfile struct {
	Name          string        `json:"name"`
	Description   string        `json:"description"`
	Namespaces    []string      `json:"namespaces"`
	Transport     string        `json:"transport"`
	Tools         []string      `json:"tools"`
	Orchestration shownEndpoint `json:"orchestration"`
	Worker        shownEndpoint `json:"worker"`
}

type shownEndpoint struct {
	URL         string `json:"url"`
	TimeoutMS   int64  `json:"timeout_ms"`
	MaxRetries  int    `json:"max_retries"`
	Credentials string `json:"credentials"` // their kind
}

// shownProfile is a profile as commands would use it; no name means the one in use.
func (a *app) shownProfile(name string) (shown shownProfile, err error) {
	for d, to := range map[daemon]*shownEndpoint{orchestrator: &shown.Orchestration, worker: &shown.Worker} {
		p, err := a.endpointOf(name, d)
		if err != nil {
			return shown, err
		}
		*to = shownEndpoint{redactedURL(p.BaseURL), p.Timeout.Milliseconds(), max(p.MaxRetries, 0), "none"}
		switch {
		case p.Token != "":
			to.Credentials = "token"
		case p.APIKey != "":
			to.Credentials = "api key"
		}
		shown.Name, shown.Description, shown.Transport = p.Name, p.Description, map[bool]string{false: "rest", true: "grpc"}[p.GRPC]
		shown.Namespaces, shown.Tools = append([]string{}, p.Namespaces...), append([]string{}, p.Tools...)
	}
	return shown, nil
}

func (a *app) profileResource() resource[shownProfile] {
	return resource[shownProfile]{app: a, noun: "profile", facts: func(p *shownProfile) facts {
		return facts{{"Profile", p.Name}, {"Description", p.Description}, {"Namespaces", p.Namespaces}, {"Transport", p.Transport}, {"Tools", p.Tools},
			{"Orchestrator", p.Orchestration.URL}, {"CREDENTIALS", p.Orchestration.Credentials},
			{"its credentials", p.Orchestration.Credentials}, {"Worker", p.Worker.URL}, {"its credentials", p.Worker.Credentials}}
	}}
}

// asWritten looks at the profiles of a file without the flags and variables that go
// over them.
func (a *app) asWritten(file profile.File) *app {
	bare := *a
	bare.env = func(string) (string, bool) { return "", false }
	bare.global.orchestrationURL, bare.global.workerURL, bare.global.timeout = "", "", 0
	bare.global.config = file.Path
	return &bare
}

func (a *app) profileList() command {
	return command{
		use: "list", lists: true, short: "List the profiles of the client configuration file",
		local: func(context.Context, []string) error {
			file, err := a.profileFile()
			if err != nil {
				return err
			}
			list := []shownProfile{}
			for _, name := range file.Names {
				p, err := a.asWritten(file).shownProfile(name)
				if err != nil {
					return fmt.Errorf("profile %s: %w", name, err)
				}
				list = append(list, p)
			}
			return a.emit(list, func() { a.profileResource().list(list) })
		},
	}
}

func (a *app) profileShow() command {
	return command{
		use: "show [PROFILE]", completes: a.completeProfiles, short: "Show the profile in use, with the flags and variables that go over it",
		local: func(_ context.Context, args []string) error {
			p, err := a.shownProfile(cmp.Or(strings.Join(args, ""), a.global.profile))
			if err != nil {
				return err
			}
			return a.emit(p, func() { a.profileResource().show(&p) })
		},
	}
}

var profileName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (a *app) profileAdd() command {
	p := newProfile()
	return command{
		use: "add NAME", short: "Add a profile to the client configuration file",
		long: `Adds a profile at the end of the client configuration file, whose other content
stays as it is; without a file it makes .config/tasker.toml. Write credentials into
the file yourself: on a command line others may see them.`,
		example: "  tasker-ctl profile add staging --orchestration-url https://tasker.staging.example",
		flags: all(
			opt(&p.Description, "description,d", "what the profile is for"),
			opt(&p.Transport, "transport", "rest or grpc, for clients that know both", among("rest", "grpc"), also("t")),
			opt(&p.Orchestration.URL, "orchestration-url", "`URL` of the orchestrator's REST API"),
			opt(&p.Worker.URL, "worker-url", "`URL` of the worker's REST API"),
			opt(&p.Tools, "tools", "tools of clients that offer some, such as a,b", withCommas),
		),
		check: func(args []string) error {
			p.Name = args[0]
			if !profileName.MatchString(p.Name) {
				return invalid("profile", p.Name, "letters, digits, _ and -")
			}
			return cmp.Or(checkURL(orchestrator, p.Orchestration.URL), checkURL(worker, p.Worker.URL))
		},
		local: func(context.Context, []string) error { return a.addProfile(&p) },
	}
}

// addProfile writes the file anew with one table more, once it is known to be
// read as before.
func (a *app) addProfile(p *shownProfile) error {
	file, err := a.profileFile()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	path := a.profilePath(file)
	if slices.Contains(file.Names, p.Name) {
		return coded{usagef("%s has a profile %s already", path, p.Name), exitConflict}
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the client configuration: %w", err)
	}
	whole := strings.TrimRight(string(text), "\n") + "\n\n" + p.table()
	whole = strings.TrimLeft(whole, "\n")
	if _, err := toml.Decode(whole, &map[string]any{}); err != nil {
		return usagef("%s takes no further table [profile.%s]", path, p.Name)
	}
	if err := writePrivate(path, []byte(whole), true); err != nil {
		return err
	}
	a.printf("added the profile %s to %s\n", p.Name, path)
	return nil
}

// table is the profile as TOML, whose basic strings are written as those of JSON.
func (p *shownProfile) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[profile.%s]\n", p.Name)
	if p.Description != "" {
		fmt.Fprintf(&b, "description = %s\n", quoted(p.Description))
	}
	fmt.Fprintf(&b, "transport = %s\n", quoted(p.Transport))
	if len(p.Tools) > 0 {
		fmt.Fprintf(&b, "tools = [%s]\n", strings.Join(namesOf(p.Tools, func(s *string) string { return quoted(*s) }), ", "))
	}
	fmt.Fprintf(&b, "\n[profile.%s.orchestration]\nbase_url = %s\n", p.Name, quoted(p.Orchestration.URL))
	fmt.Fprintf(&b, "\n[profile.%s.worker]\nbase_url = %s\n", p.Name, quoted(p.Worker.URL))
	return b.String()
}

func (a *app) profileValidate() command {
	return command{
		use: "validate", short: "Check the client configuration file and list everything that is wrong",
		local: func(context.Context, []string) error {
			file, err := a.profileFile()
			if err != nil {
				return err
			}
			if file.Path == "" {
				return hinted{usagef("there is no client configuration file"), "tasker-ctl profile init writes one"}
			}
			report := configReport{Problems: a.profileProblems(file), Warnings: []config.Problem{}}
			if open := a.openToOthers(file); open != "" {
				report.Warnings = append(report.Warnings, config.Problem{Position: config.Position{File: file.Path}, Message: open})
			}
			report.OK = len(report.Problems) == 0
			return a.verdict(report, report.OK, "", func() { a.showConfigReport(&report, false) })
		},
	}
}

// profileProblems are what keeps profiles from meaning what they should.
func (a *app) profileProblems(file profile.File) []config.Problem {
	problems := []config.Problem{}
	add := func(text string) {
		p := config.Problem{Position: config.Position{File: file.Path}, Message: text}
		if !slices.Contains(problems, p) {
			problems = append(problems, p)
		}
	}
	for _, key := range file.Unknown {
		add("unknown key " + key)
	}
	for _, name := range file.Names {
		for _, d := range []daemon{orchestrator, worker} {
			if _, err := a.asWritten(file).endpointOf(name, d); err != nil {
				add(fmt.Sprintf("profile %s: %v", name, err))
			}
		}
	}
	return problems
}

// openToOthers says whether others than the owner may read credentials in the file.
func (a *app) openToOthers(file profile.File) string {
	holds := slices.ContainsFunc(file.Names, func(name string) bool {
		p, err := a.asWritten(file).shownProfile(name)
		return err == nil && (p.Orchestration.Credentials != "none" || p.Worker.Credentials != "none")
	})
	info, err := os.Stat(file.Path)
	if !holds || err != nil || info.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("it holds credentials, and others may read it: want mode 0600, not %04o", info.Mode().Perm())
}

func (a *app) profileCheck() command {
	var every bool
	return command{
		use: "check [PROFILE]", completes: a.completeProfiles, short: "Check whether the daemons of a profile answer",
		long: `Checks whether the daemons of the profile in use answer, as other commands would
ask them: with the flags and variables that go over it. A PROFILE that is named,
and with --all every one, is checked as it is written. A worker is asked where a
profile names one. The exit code is that of tasker-ctl system health.`,
		flags: opt(&every, "all", "every profile of the file"),
		check: oneOrAll("PROFILE", &every),
		local: func(ctx context.Context, args []string) error {
			file, err := a.profileFile()
			if err != nil {
				return err
			}
			names, as := args, a.asWritten(file)
			switch {
			case every:
				names = file.Names
			case len(args) == 0:
				names, as = []string{a.global.profile}, a
			}
			var list []checkup
			for _, name := range names {
				of, err := as.profileCheckups(name)
				if err != nil {
					return err
				}
				list = append(list, of...)
			}
			a.closers = as.closers
			return a.health(ctx, list, 1)
		},
	}
}

// profileCheckups are the daemons that a profile names.
func (a *app) profileCheckups(name string) (list []checkup, err error) {
	for _, d := range []daemon{orchestrator, worker} {
		p, err := a.endpointOf(name, d)
		if err != nil {
			return nil, err
		}
		if d == worker && p.Usual && a.global.workerURL == "" {
			continue
		}
		c, err := a.clientOf(p, d)
		if err != nil {
			return nil, err
		}
		list = append(list, checkup{name: p.Name + " " + string(d), daemon: d, named: true, client: c})
	}
	return list, nil
}

// writePrivate writes a file as a whole that its owner alone may read. One that
// exists stays, unless it is to be replaced.
func writePrivate(path string, text []byte, replace bool) error {
	return writeWhole(path, text, 0o600, replace)
}

func writeWhole(path string, text []byte, mode fs.FileMode, replace bool) (err error) {
	defer func() {
		if err != nil && !isA[usageError](err) {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if target, err := filepath.EvalSymlinks(path); err == nil && replace {
		path = target
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".tasker-ctl-*") // only its owner may read it
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // it is gone where it was renamed
	_, err = file.Write(text)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if replace {
		return os.Rename(file.Name(), path)
	}
	if err = os.Link(file.Name(), path); errors.Is(err, fs.ErrExist) {
		return hinted{usagef("%s exists", path), "--force replaces it"}
	}
	return err
}
