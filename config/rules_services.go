package config

import (
	"fmt"
	"net"
	"strings"

	"github.com/tasker-go/tasker/deploymode"
)

// sourceRules fit the modes of the event systems to the source of signals.
func sourceRules(v *values) {
	const source, listenerURL, prepared = "common.signals.event_source", "common.database.listener_url", "common.database.prepared_statements"
	var modes, listening []string
	disabled := 0
	systems := v.systemsInContext()
	for _, system := range systems {
		path := system + ".deployment_mode"
		modes = append(modes, path)
		mode := deploymode.Mode(v.str(path))
		switch {
		case mode == deploymode.Disabled:
			disabled++
		case mode.Listens():
			listening = append(listening, path)
		}
		pooledListener(v, path, mode, listenerURL, prepared)
	}
	if len(systems) == 0 {
		return
	}
	if disabled == len(systems) {
		v.warn(fmt.Sprintf("every event system is Disabled (%s): this daemon will do no work", joinAnd(modes)), modes...)
	} else if len(listening) == 0 && v.str(source) == "wal" {
		v.warn(fmt.Sprintf("%s has no use: no event system listens (%s)", v.said(source), joinAnd(modes)), append(modes, source)...)
	}
	if v.str(source) == "notify" && v.str("common.signals.wal.slot") != "" {
		v.warn(fmt.Sprintf("%s has no use with %s", v.said("common.signals.wal.slot"), v.said(source)), "common.signals.wal.slot", source)
	}
}

// pooledListener finds a listener that would go through a transaction pooler,
// where LISTEN and replication do not work.
func pooledListener(v *values, modePath string, mode deploymode.Mode, listenerURL, prepared string) {
	if !mode.Listens() || !v.off(prepared) || v.get(listenerURL) == nil || v.str(listenerURL) != "" {
		return
	}
	message := fmt.Sprintf("%s needs a direct connection, and %s speaks of a transaction pooler: set %s",
		v.said(modePath), v.said(prepared), listenerURL)
	if mode == deploymode.EventDrivenOnly {
		v.fail(message, modePath, prepared)
		return
	}
	v.warn(message, modePath, prepared)
}

// backendRules fit the chosen backends to their connections.
func backendRules(v *values) {
	const cache, backend, queues = "common.cache.enabled", "common.cache.backend", "common.queues.backend"
	if v.on(cache) {
		switch v.str(backend) {
		case "redis":
			v.needs("the cache with backend redis", backend, "common.cache.redis.url")
		case "memcached":
			v.needs("the cache with backend memcached", backend, "common.cache.memcached.url")
		}
	}
	const pgmq = "common.pgmq_database.enabled"
	switch v.str(queues) {
	case "rabbitmq":
		v.needs("the queue backend rabbitmq", queues, "common.queues.rabbitmq.url")
	case "pgmq":
		if v.off(pgmq) {
			v.fail(fmt.Sprintf("%s needs %s to be true", v.said(queues), v.said(pgmq)), queues, pgmq)
		}
	}
}

// hostRules warn of connections that may end at a standby.
func hostRules(v *values) {
	for _, path := range []string{"common.database.url", "common.database.listener_url"} {
		dsn := v.str(path)
		hosts := len(hostsOf(dsn))
		switch settingOf(dsn, "target_session_attrs") {
		case "read-write", "primary":
		default:
			if hosts > 1 {
				v.warn(fmt.Sprintf("%s names %d hosts without target_session_attrs=read-write: a daemon may settle on a standby, where nothing can be written",
					v.said(path), hosts), path)
			}
		}
	}
}

func serverRules(v *values, daemon string) {
	if grpc := daemon + ".grpc."; v.on(grpc+"enabled") && v.on(grpc+"tls_enabled") {
		v.needs(grpc+"tls_enabled", grpc+"tls_enabled", grpc+"tls_cert_path", grpc+"tls_key_path")
	}
}

// authRules make sure that what is protected can be entered.
func authRules(v *values, auth string) {
	keys, haveKeys := v.apiKeys(auth + "api_keys")
	if v.on(auth+"api_keys_enabled") && haveKeys && len(keys) == 0 {
		v.fail(fmt.Sprintf("%sapi_keys_enabled needs at least one [[%sapi_keys]]", auth, auth), auth+"api_keys_enabled", auth+"api_keys")
	}
	seen := map[string]int{}
	for i, k := range keys {
		secret, _ := k["key"].(string)
		if permissions, _ := k["permissions"].([]string); secret == "" || len(permissions) == 0 {
			v.fail(fmt.Sprintf("%sapi_keys[%d] needs key and permissions", auth, i), auth+"api_keys")
		}
		if first, double := seen[secret]; double && secret != "" {
			v.fail(fmt.Sprintf("%sapi_keys[%d] repeats the key of %sapi_keys[%d]", auth, i, auth, first), auth+"api_keys")
		}
		seen[secret] = i
	}
	if url := v.str(auth + "jwks_url"); strings.HasPrefix(url, "http://") && v.off(auth+"jwks_url_allow_http") {
		v.fail(fmt.Sprintf("%s uses plain HTTP; use https or set %sjwks_url_allow_http", v.said(auth+"jwks_url"), auth), auth+"jwks_url")
	}
	if !v.on(auth + "enabled") {
		return
	}
	if v.str(auth+"api_key") != "" && v.on(auth+"strict_validation") {
		v.warn(fmt.Sprintf("%sapi_key grants every permission, which strict validation refuses; use %sapi_keys", auth, auth), auth+"api_key")
	}
	withAPIKey := v.str(auth+"api_key") != "" || v.on(auth+"api_keys_enabled")
	if v.str(auth+"jwt_verification_method") == "jwks" {
		v.needs(auth+"jwt_verification_method jwks", auth+"jwt_verification_method", auth+"jwks_url")
	} else if v.str(auth+"jwt_public_key") == "" && v.str(auth+"jwt_public_key_path") == "" && !withAPIKey &&
		v.get(auth+"jwt_public_key") != nil && v.get(auth+"jwt_public_key_path") != nil {
		v.fail(fmt.Sprintf("%senabled needs a way in: %sjwt_public_key_path, %sjwt_public_key or %sapi_keys", auth, auth, auth, auth), auth+"enabled")
	}
}

func (v *values) apiKeys(path string) (keys []map[string]any, ok bool) {
	if e := v.get(path); e != nil {
		keys, ok = e.value.([]map[string]any)
	}
	return keys, ok
}

// addressRules keep two servers of one process from the same port.
func addressRules(v *values) {
	var servers []string
	for _, s := range []string{"orchestration.web", "orchestration.grpc", "worker.web", "worker.grpc"} {
		if v.on(s+".enabled") && v.str(s+".bind_address") != "" {
			servers = append(servers, s+".bind_address")
		}
	}
	for i, a := range servers {
		for _, b := range servers[i+1:] {
			if !sameAddress(v.str(a), v.str(b)) {
				continue
			}
			message := fmt.Sprintf("%s and %s are the same address", v.said(a), v.said(b))
			if strings.Split(a, ".")[0] == strings.Split(b, ".")[0] {
				v.fail(message, a, b)
			} else { // two daemons that may well run on different hosts
				v.warn(message, a, b)
			}
		}
	}
}

func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || anyHost(hostA) || anyHost(hostB)
}

func anyHost(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }

func clientRules(v *values) {
	const auth = "worker.orchestration_client.auth."
	switch v.str(auth + "type") {
	case "bearer":
		v.needs(auth+"type bearer", auth+"type", auth+"token")
	case "api_key":
		v.needs(auth+"type api_key", auth+"type", auth+"key", auth+"header_name")
	}
}
