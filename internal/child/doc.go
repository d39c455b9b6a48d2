// Package child starts processes that do not outlive this one: where the
// kernel can (Linux), it signals them when this process has ended, however that
// came about.
//
// The kernel ties that signal to the thread that started the process, and the
// threads of a Go program come and go: one that was made for a locked goroutine
// ends with it. So a thread stays with each child until it has ended.
//
// What may not enter: knowledge of what the processes do, and how they are
// asked to end.
package child
