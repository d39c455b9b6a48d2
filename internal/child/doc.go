// Package child starts processes that do not outlive this one: where the kernel can
// (Linux), it signals them when this process has ended, for any reason.
//
// The kernel ties that signal to the thread that started the process, and threads of a Go
// program may end: a thread of a locked goroutine ends with it. So each child keeps a thread
// until it has ended.
//
// What may not enter: knowledge of the processes' work, and how they are stopped.
package child
