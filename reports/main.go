// Command reports makes one offline HTML page with figures from a run directory and the capacity model.
// `reports -help` lists the flags.
package main

import (
	"os"

	"imbench/reports/internal/app"
)

// revision is stamped by the build.
var revision = "dev"

func main() {
	os.Exit(app.Run(app.Program{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr, Revision: revision}))
}
