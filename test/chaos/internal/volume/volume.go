// Package volume makes small file systems in memory, to be filled up. They are mounted in
// a namespace of the suite ([Confined]): other processes do not see them, and they
// disappear with the last process of the suite, however it ends.
//
// Mounting needs root, or a kernel that allows user namespaces. Without either, Confined
// returns the reason.
//
// What may not enter: the stored data, and when a volume is full (rig).
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
	filler *os.File // nil: none
}

// Mount makes a volume of size bytes below base, which must exist. Any user with access
// to base may write to it. Only a confined program may call it: elsewhere the volume
// would outlive a killed program.
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

// fillerName is the file that uses up the room.
const fillerName = "filler"

// Fill uses up all remaining room. It may be called again, for room freed since.
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
			chunk = chunk[:len(chunk)/2] // part of it fitted
		default:
			return fmt.Errorf("fill up %s: %w", v.dir, err)
		}
	}
	return nil
}

// Free frees the room that Fill has used.
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

// Close removes the volume with its content. Open files stay usable.
func (v *Volume) Close() error {
	err := v.Free()
	if detach := syscall.Unmount(v.dir, syscall.MNT_DETACH); detach != nil {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", v.dir, detach))
	}
	return errors.Join(err, os.Remove(v.dir))
}
