package app

import (
	"fmt"
	"io"
	"net"
)

// report is what check-config says of a configuration in which nothing is wrong: what will be, soon.
func (c *config) report(stdout, stderr io.Writer) error {
	for _, w := range c.warnings {
		fmt.Fprintln(stderr, "server: warning:", w)
	}
	_, err := fmt.Fprintln(stdout, "the configuration is good")
	return err
}

// checkHost notes what keeps a listener from its host. It takes any free port there, because check-config is run beside
// a gateway that has the one it is to have.
func checkHost(f *flagSet, flagName, host string) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		f.badf("-%s %s: must be an address of this machine: %v", flagName, f.Lookup(flagName).Value, err)
		return
	}
	_ = l.Close() // nothing was accepted: there is nothing to lose
}
