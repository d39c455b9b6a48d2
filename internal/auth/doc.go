// Package auth decides who may call what: it verifies the credentials of a request and
// says which permissions and namespaces they give.
//
// Its stories: authenticator.go verifies what a request carries, a token (token.go, with
// the keys of files or of a key set, jwks.go), an API key (apikey.go) or the cookie of a browser
// session (browsersession.go), and remembers good answers for a while (memo.go); principal.go is the answer, permission.go what it may do;
// failure.go is the refusal that REST and gRPC translate.
//
// What may not enter: HTTP and gRPC (internal/api/rest, internal/api/grpc), which route needs which
// permission (their tables), SQL (store), and the issuing of tokens.
package auth
