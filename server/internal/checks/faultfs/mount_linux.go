package faultfs

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Mount is a disk that is visible in a directory. It is the FUSE server's view of the disk: the kernel knows nodes by
// number, and directories that are being read by a handle.
type Mount struct {
	fuse.RawFileSystem // says ENOSYS to what a database does not need

	disk   *Disk
	cuts   int // the disk's, when it was mounted
	dir    string
	server *fuse.Server
	served chan struct{} // closed when the server has ended
	stop   func() error

	// The disk's mu guards these.
	nodes   map[uint64]*node
	reading map[uint64]listing
	handles uint64
}

// listing is a directory's content at the moment when it was opened.
type listing []fuse.DirEntry

// forever is how long the kernel may remember what it was told: all changes go through it.
const forever = 3600 // seconds

// Mount makes the disk visible at dir, an empty directory, until Close. A disk can be mounted again after a cut, so that
// the kernel's cache is empty. Processes that are started must not have their working directory below dir, nor their
// program: between fork and exec nobody could answer them. Errors: ErrNoFUSE.
func (d *Disk) Mount(dir string) (*Mount, error) {
	m := &Mount{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: d, dir: dir, served: make(chan struct{}),
		nodes: map[uint64]*node{}, reading: map[uint64]listing{}}
	m.stop = sync.OnceValue(m.unmount)
	d.mu.Lock()
	m.cuts = d.cuts
	m.nodes[fuse.FUSE_ROOT_ID] = d.root
	d.mu.Unlock()
	root := os.Geteuid() == 0
	opts := &fuse.MountOptions{FsName: "faultfs", Name: "faultfs", MaxWrite: 1 << 20, DisableXAttrs: true,
		DisableReadDirPlus: true, DirectMountStrict: root, AllowOther: root, Options: []string{"default_permissions"},
		Logger: log.New(io.Discard, "", 0)} // what it logs are the requests that a dead mount leaves behind
	if root { // no child may inherit the descriptor: the mount would not end with this process
		syscall.ForkLock.RLock()
	}
	var err error
	m.server, err = fuse.NewServer(m, dir, opts)
	if root {
		syscall.ForkLock.RUnlock()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	go func() { // ends when the mount does; unmount waits for it
		defer close(m.served)
		m.server.Serve()
	}()
	if err := m.server.WaitMount(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoFUSE, err), m.Close())
	}
	return m, nil
}

// Close detaches the mount, and waits until no process uses it any more. It may be called twice.
func (m *Mount) Close() error { return m.stop() }

func (m *Mount) unmount() error {
	err := syscall.Unmount(m.dir, syscall.MNT_DETACH)
	if errors.Is(err, syscall.EPERM) {
		err = exec.Command("fusermount3", "-u", "-z", m.dir).Run()
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", m.dir, err)
	}
	<-m.served
	return nil
}

// node is the node of a number; false means that the power was cut. The disk's mu must be held, as for all helpers.
func (m *Mount) node(id uint64) (*node, bool) {
	n := m.nodes[id]
	return n, n != nil && m.cuts == m.disk.cuts
}

// at runs f on a node of a number, with the disk locked.
func (m *Mount) at(id uint64, f func(n *node) syscall.Errno) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	n, ok := m.node(id)
	if !ok {
		return fuse.EIO
	}
	return fuse.Status(f(n))
}

// tell makes the node known to the kernel.
func (m *Mount) tell(n *node, out *fuse.EntryOut) {
	n.lookups++
	m.nodes[n.ino] = n
	out.NodeId, out.EntryValid, out.AttrValid = n.ino, forever, forever
	m.attr(n, &out.Attr)
}

func (m *Mount) attr(n *node, out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink, out.Size = n.ino, n.mode, uint32(n.links), uint64(n.now.size)
	if n.isDir() {
		out.Nlink = 2
	}
	out.Blksize, out.Blocks = BlockSize, (out.Size+511)/512
	out.Owner = fuse.Owner{Uid: m.disk.uid, Gid: m.disk.gid}
	out.SetTimes(&n.mtime, &n.mtime, &n.mtime)
}
