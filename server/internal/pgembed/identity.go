package pgembed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// identity is the user that PostgreSQL's processes run as.
type identity struct {
	uid, gid int
	// drop is set when the processes must give up root for uid and gid.
	drop bool
}

// runAs returns the identity for this process's children: its own, or an
// unprivileged one when it is root. The user must have a passwd entry, since
// initdb looks itself up.
func runAs() (identity, error) {
	if os.Geteuid() != 0 {
		return identity{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"nobody", "daemon"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil && uid != 0 {
			return identity{uid: uid, gid: gid, drop: true}, nil
		}
	}
	return identity{}, fmt.Errorf("PostgreSQL refuses to run as root and there is no user nobody or daemon to run it as: start this as an ordinary user")
}

// command prepares a child that runs as id, in dir, in a session of its own:
// a terminal's Ctrl-C reaches this process only, which then ends its children
// in order.
func (id identity) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if id.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
	}
	return cmd
}

// own hands path to the identity, if it is not this process's own.
func (id identity) own(path string) error {
	if !id.drop {
		return nil
	}
	return os.Chown(path, id.uid, id.gid)
}

// canEnter reports whether id reaches dir, by trying: permissions of each
// parent, ACLs and mounts all count.
func (id identity) canEnter(ctx context.Context, dir string) bool {
	if !id.drop {
		return true
	}
	return id.command(ctx, "/", "sh", "-c", `cd -- "$1"`, "sh", dir).Run() == nil
}
