// Command model prints the capacity table of a load: five resources, their demand and budget, and which one runs out
// first. `model -help` lists the flags.
package main

import (
	"os"

	"imbench/model/internal/app"
)

// revision is stamped by the build.
var revision = "dev"

func main() {
	os.Exit(app.Run(app.Program{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr, Revision: revision}))
}
