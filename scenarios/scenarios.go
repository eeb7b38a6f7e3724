// Package scenarios holds the scenario files that ship with the load generator. It only embeds them.
package scenarios

import "embed"

// FS has the *.yaml files at its root.
//
//go:embed *.yaml
var FS embed.FS
