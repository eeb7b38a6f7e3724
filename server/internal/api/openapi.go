package api

import (
	_ "embed"
	"net/http"
)

// openAPI describes the public listener (OpenAPI 3.1). It is written by hand; a test holds it against the handlers.
//
//go:embed openapi.json
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*") // it is no secret, and tools in browsers read it
	_, _ = w.Write(openAPI)                            // the client has gone: there is no one left to tell
}
