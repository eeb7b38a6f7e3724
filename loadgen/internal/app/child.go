package app

import (
	"imbench/loadgen/internal/calibrate"
	"imbench/loadgen/internal/child"
	"imbench/loadgen/internal/netfault"
)

// Child turns this process into a helper of the generator if it was started as one, and then does not return. Call it first
// in main.
func Child() {
	child.Main(map[string]child.Program{netfault.Role: netfault.Serve, calibrate.Role: calibrate.Serve})
}
