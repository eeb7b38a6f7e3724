// Package scenarios holds the scenario files that ship with the load generator. It only embeds them; they are
// read-only, and safe for concurrent use.
package scenarios

import "embed"

// FS has the *.yaml files at its root.
//
//go:embed *.yaml
var FS embed.FS
