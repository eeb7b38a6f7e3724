package faultfs

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
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
	opts := &fuse.MountOptions{FsName: "faultfs", Name: "faultfs", MaxWrite: maxWrite, DisableXAttrs: true,
		DisableReadDirPlus: true, Options: []string{"default_permissions"},
		Logger: log.New(io.Discard, "", 0)} // what it logs are the requests that a dead mount leaves behind
	if err := m.serve(opts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	return m, nil
}

// serve mounts and starts the server: as root without help, else with fusermount.
func (m *Mount) serve(opts *fuse.MountOptions) error {
	at := m.dir
	direct := os.Geteuid() == 0
	var err error
	if direct {
		if at, err = mountDirect(m.dir); err != nil {
			return err
		}
	}
	if m.server, err = fuse.NewServer(m, at, opts); err != nil {
		if direct {
			err = errors.Join(err, detach(m.dir))
		}
		return err
	}
	go func() { // ends when the mount does; unmount waits for it
		defer close(m.served)
		m.server.Serve()
	}()
	err = m.server.WaitMount()
	if err == nil && direct {
		err = forbidPolling(m.dir)
	}
	if err != nil {
		return errors.Join(err, m.Close())
	}
	return nil
}

// maxWrite is the most that a request reads or writes, in bytes.
const maxWrite = 128 << 10

// mountDirect makes a mount for all users and returns the name that the library takes for its descriptor. The library's
// own way leaves the descriptor to every child: with one of them alive, the mount would not end with this process.
func mountDirect(dir string) (string, error) {
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open /dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other,default_permissions,max_read=%d", fd, syscall.S_IFDIR, maxWrite)
	if err := syscall.Mount("faultfs", dir, "fuse.faultfs", syscall.MS_NOSUID|syscall.MS_NODEV, data); err != nil {
		return "", errors.Join(fmt.Errorf("mount %s: %w", dir, err), syscall.Close(fd))
	}
	return fmt.Sprint("/dev/fd/", fd), nil
}

// forbidPolling has the server tell the kernel that files cannot be polled, which it then remembers. The library does so
// only for its own mounts: a file that this process opens would be polled by its only thread, with nobody to answer.
func forbidPolling(dir string) error {
	fd, err := syscall.Open(filepath.Join(dir, ".go-fuse-epoll-hack"), syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("forbid polling: %w", err)
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return syscall.Close(fd)
}

// Close detaches the mount, and waits until no process uses it any more. It may be called twice.
func (m *Mount) Close() error { return m.stop() }

func (m *Mount) unmount() error {
	if err := detach(m.dir); err != nil {
		return err
	}
	<-m.served
	return nil
}

// detach takes a mount away, and with it the hope of those who wait for its answers.
func detach(dir string) error {
	err := syscall.Unmount(dir, syscall.MNT_DETACH|syscall.MNT_FORCE)
	if errors.Is(err, syscall.EPERM) {
		err = exec.Command("fusermount3", "-u", "-z", dir).Run()
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
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
