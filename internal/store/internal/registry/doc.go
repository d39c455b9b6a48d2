// Package registry keeps what tasks are made of: templates and their plans, the callables
// that their steps name, the namespaces with their pauses, and task types. Plans and
// callables do not change, and are cached.
//
// What may not enter: tasks.
package registry
