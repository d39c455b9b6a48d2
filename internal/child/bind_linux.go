package child

import "syscall"

// bind makes the kernel send a signal when the thread that starts the process has ended.
func bind(attr *syscall.SysProcAttr, orphaned syscall.Signal) { attr.Pdeathsig = orphaned }
