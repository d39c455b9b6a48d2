//go:build unix

package pgcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// sockets: a server has a Unix socket in a directory that is closed to other users.
const sockets = true

// startDetached starts the server so that it outlives us and leaves no zombie:
// a shell puts it in the background of a session of its own and ends.
func startDetached(ctx context.Context, c command) (*process, error) {
	args := append([]string{"-c", `"$0" "$@" </dev/null >&3 2>&3 3>&- & echo $!`, c.bin.Postgres()}, c.args...)
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Dir, cmd.Env = c.dir, cleanEnv()
	cmd.SysProcAttr = sysProcAttr(c.runAs, false)
	cmd.SysProcAttr.Setsid = true
	cmd.ExtraFiles = []*os.File{c.output}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return nil, fmt.Errorf("read the process id: %w", err)
	}
	return &process{pid: pid}, nil
}

// sysProcAttr describes how a program is started; apart puts it into a process
// group of its own.
func sysProcAttr(runAs *account, apart bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: runAs.credential(), Setpgid: apart}
}

// processAlive reports whether a process with this number exists and is no zombie.
func processAlive(pid int) bool {
	return numberTaken(pid) && !isZombie(pid)
}

// numberTaken reports whether a process has this number, which a zombie still has.
func numberTaken(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// kill sends a signal; a process that has ended meanwhile is no error.
func (p *process) kill(sig syscall.Signal) error {
	if err := syscall.Kill(p.pid, sig); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// cleanEnv is the environment of the server programs: without settings of libpq or
// PostgreSQL, and with messages in English, because some of them are recognised.
func cleanEnv() []string {
	env := []string{"LC_ALL=C"}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE" || name == "HOME" {
			continue
		}
		env = append(env, kv)
	}
	return env
}

// credential converts the account for the kernel; nil for our own.
func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: []uint32{a.gid}}
}
