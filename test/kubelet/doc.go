// Package kubelet runs rendered manifests with the real binaries, as a node of Kubernetes
// would: Jobs to their end, Deployments as pods with their environment, arguments, files and
// init containers, three kinds of probes, preStop and grace; it rolls them out with maxSurge
// and maxUnavailable, and plays the Service in front of them.
//
// A pod is a process with a loopback address of its own and a folder for its volumes: where
// the manifest says 0.0.0.0 or names a mounted file, the process gets that address and the
// path in that folder. Isolation, resources and schedules are not played.
//
// What may not enter: knowledge of Tasker; what runs is in the manifests. Its tests know it.
package kubelet
