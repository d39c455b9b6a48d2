// Package volume makes small file systems in memory, to be filled up. They are
// mounted in a namespace of the suite's own ([Confined]): nobody else sees
// them, and they are gone with the last process of the suite, however it ends.
//
// Mounting takes root, or a kernel that lets a user have namespaces. Where
// neither is there, Confined says why.
//
// What may not enter: what is stored, and when a volume is full (rig).
package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Volume is a mounted file system. It is for one user at a time.
type Volume struct {
	dir    string
	filler *os.File // nil while there is none
}

// Mount makes a volume of size bytes below base, which must be there. Anybody
// may write to it who may pass through base. Only a program that is confined
// may call it: elsewhere the volume would outlive one that is killed.
func Mount(base string, size int64) (*Volume, error) {
	dir, err := os.MkdirTemp(base, "tasker-volume-")
	if err != nil {
		return nil, fmt.Errorf("make a mount point: %w", err)
	}
	options := fmt.Sprintf("size=%d,mode=1777", size)
	if err := syscall.Mount("tasker-volume", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, options); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a volume: %w", err), os.Remove(dir))
	}
	return &Volume{dir: dir}, nil
}

// Dir is where the volume is mounted.
func (v *Volume) Dir() string { return v.dir }

// fillerName is the file that takes up the room.
const fillerName = "filler"

// Fill takes up all the room that is left. It may be called again, for room
// that has come back since.
func (v *Volume) Fill() error {
	if v.filler == nil {
		f, err := os.OpenFile(filepath.Join(v.dir, fillerName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("make the filler: %w", err)
		}
		v.filler = f
	}
	for chunk := make([]byte, 1<<20); len(chunk) >= os.Getpagesize(); {
		_, err := v.filler.Write(chunk)
		switch {
		case err == nil:
		case errors.Is(err, syscall.ENOSPC):
			chunk = chunk[:len(chunk)/2] // what was left took up part of it
		default:
			return fmt.Errorf("fill up %s: %w", v.dir, err)
		}
	}
	return nil
}

// Free gives the room back that Fill has taken.
func (v *Volume) Free() error {
	if v.filler == nil {
		return nil
	}
	err := errors.Join(v.filler.Close(), os.Remove(v.filler.Name()))
	v.filler = nil
	if err != nil {
		return fmt.Errorf("remove the filler: %w", err)
	}
	return nil
}

// Close removes the volume with all that is on it. Who still has files open on
// it keeps them.
func (v *Volume) Close() error {
	err := v.Free()
	if detach := syscall.Unmount(v.dir, syscall.MNT_DETACH); detach != nil {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", v.dir, detach))
	}
	return errors.Join(err, os.Remove(v.dir))
}
