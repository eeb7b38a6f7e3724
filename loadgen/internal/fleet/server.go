package fleet

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// CheckURL says what is wrong with the address of a NATS server; the error names flag or variable as what.
func CheckURL(what, s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
		return fmt.Errorf("%s %q: want nats://[user:password@]host:4222, or tls://… for an encrypted connection", what, Redacted(s))
	}
	if u.Path != "" && u.Path != "/" {
		return fmt.Errorf("%s %q: leave the path %q out", what, Redacted(s), u.Path)
	}
	return nil
}

// Redacted is a URL without its secrets: a password, or a token in the place of the user.
func Redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(an address that cannot be read)"
	}
	if u.User != nil {
		if _, both := u.User.Password(); !both { // a lone user is a token
			u.User = url.UserPassword("xxxxx", "")
			return strings.Replace(u.String(), "xxxxx:@", "xxxxx@", 1)
		}
	}
	return u.Redacted()
}

// secret is random text.
func secret(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// embedded starts a server on the loopback for the processes of this machine, with a token of its own. It keeps nothing.
func embedded() (s *server.Server, url string, err error) {
	token := secret(16)
	s, err = server.NewServer(&server.Options{ServerName: "imbench", Host: "127.0.0.1", Port: server.RANDOM_PORT, Authorization: token,
		NoLog: true, NoSigs: true, MaxConn: 256, DisableShortFirstPing: true})
	if err != nil {
		return nil, "", fmt.Errorf("the embedded NATS server: %w", err)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, "", errors.New("the embedded NATS server did not start within 10 s")
	}
	return s, "nats://" + token + "@" + s.Addr().String(), nil
}

// BootID names what the machine has been through since it was started; processes with the same one share CLOCK_MONOTONIC. It is
// empty where the system does not tell.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
