package faultfs

import (
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"
)

// BlockSize is the unit in which unflushed writes are kept and lost, in bytes: the kernel's page, half of PostgreSQL's.
const BlockSize = 4096

// Op is an operation that can be made to fail.
type Op string

// The operations.
const (
	Write Op = "write"
	Flush Op = "flush" // fsync, fdatasync, of files and of directories
)

// Outcome is what becomes of an operation.
type Outcome int

// The outcomes.
const (
	Good    Outcome = iota
	Fail            // EIO; a write leaves no trace, a flush forgets what it should have written
	Pretend         // a flush says that it succeeded and does nothing; for a write it is Good
)

// Disk is a file system with a platter. It outlives its mounts.
type Disk struct {
	uid, gid uint32 // own everything

	mu      sync.Mutex
	root    *node
	lastIno uint64
	limit   int64 // blocks
	used    int64 // blocks that readers see
	cuts    int   // mounts made before the last cut are dead
	decide  func(op Op, path string) Outcome
}

// New makes an empty disk of so many bytes, all of whose files belong to the user and group.
func New(uid, gid uint32, limit int64) *Disk {
	d := &Disk{uid: uid, gid: gid, limit: limit / BlockSize}
	d.root = d.newNode(syscall.S_IFDIR | 0o700)
	return d
}

// Load copies the files and directories of a file system into the disk's root, all flushed.
func (d *Disk) Load(from fs.FS) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	nodes := map[string]*node{".": d.root}
	err := fs.WalkDir(from, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		kind := uint32(syscall.S_IFREG)
		if e.IsDir() {
			kind = syscall.S_IFDIR
		}
		n, errno := d.create(nodes[path.Dir(name)], path.Base(name), kind|uint32(info.Mode().Perm()))
		if errno != 0 {
			return &fs.PathError{Op: "create", Path: name, Err: errno}
		}
		if nodes[name] = n; e.IsDir() {
			return nil
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		if errno := d.write(n, text, 0); errno != 0 {
			return &fs.PathError{Op: "write", Path: name, Err: errno}
		}
		return nil
	})
	d.root.sync()
	return err
}

// Used is the space that files take, in bytes.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used * BlockSize
}

// SetLimit changes the size of the disk, in bytes. Less than Used is a full disk: blocks that are there can be written.
func (d *Disk) SetLimit(limit int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = limit / BlockSize
}

// Interfere has decide say what becomes of every operation from now on; nil is Good for all. The path begins at the
// disk's root, without a slash. decide is called with the disk locked and must not call it.
func (d *Disk) Interfere(decide func(op Op, path string) Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decide = decide
}

// Cut is the power cut: at one moment, what was not flushed is forgotten, and all mounts answer EIO from now on. For each
// unflushed block, and for each directory with unflushed changes, survives is asked whether it got to the platter
// nevertheless; nil means that none did. Blocks are asked for in an order that depends on the disk's content only.
func (d *Disk) Cut(survives func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if survives == nil {
		survives = func() bool { return false }
	}
	d.cuts++
	d.used = 0
	// The links are counted anew from the names on the platter.
	d.root.cut(map[*node]bool{}, survives)
	d.root.walk(map[*node]bool{}, func(n *node) { d.used += n.now.allocated() })
}

// newNode makes a node that has no name yet. mu must be held, or the disk be new.
func (d *Disk) newNode(mode uint32) *node {
	d.lastIno++
	n := &node{ino: d.lastIno, mode: mode, mtime: time.Now()}
	if n.isDir() {
		n.names, n.kept = map[string]*node{}, map[string]*node{}
	} else {
		n.dirty = map[int]bool{}
	}
	return n
}

// outcome asks decide. mu must be held.
func (d *Disk) outcome(op Op, n *node) Outcome {
	if d.decide == nil {
		return Good
	}
	return d.decide(op, n.path())
}

// create adds a new node to a directory. mu must be held, as for all that follows.
func (d *Disk) create(dir *node, name string, mode uint32) (*node, syscall.Errno) {
	if dir.names[name] != nil {
		return nil, syscall.EEXIST
	}
	n := d.newNode(mode)
	dir.add(name, n)
	return n, 0
}

// link gives a file one more name.
func (d *Disk) link(n, dir *node, name string) syscall.Errno {
	switch {
	case n.isDir():
		return syscall.EPERM
	case dir.names[name] != nil:
		return syscall.EEXIST
	}
	dir.add(name, n)
	return 0
}

// remove takes a name away; wantDir is rmdir.
func (d *Disk) remove(dir *node, name string, wantDir bool) syscall.Errno {
	n := dir.names[name]
	switch {
	case n == nil:
		return syscall.ENOENT
	case wantDir && !n.isDir():
		return syscall.ENOTDIR
	case !wantDir && n.isDir():
		return syscall.EISDIR
	case len(n.names) > 0:
		return syscall.ENOTEMPTY
	}
	dir.mtime = time.Now()
	delete(dir.names, name)
	n.links--
	d.release(n)
	return 0
}

// rename moves a name, over another one if that is there.
func (d *Disk) rename(from *node, name string, to *node, newName string) syscall.Errno {
	n := from.names[name]
	old := to.names[newName]
	switch {
	case n == nil:
		return syscall.ENOENT
	case n == old:
		return 0 // two names of one file: POSIX leaves both
	case old != nil:
		if errno := d.remove(to, newName, n.isDir()); errno != 0 {
			return errno
		}
	}
	delete(from.names, name)
	from.mtime = time.Now()
	n.links--
	to.add(newName, n)
	return 0
}

// write changes a file's content, or says why not and leaves it alone.
func (d *Disk) write(n *node, data []byte, off int64) syscall.Errno {
	if d.outcome(Write, n) == Fail {
		return syscall.EIO
	}
	missing := n.now.missing(off, int64(len(data)))
	if missing > 0 && d.used+missing > d.limit {
		return syscall.ENOSPC
	}
	d.used += missing
	n.write(data, off)
	return 0
}

// truncate sets a file's size.
func (d *Disk) truncate(n *node, size int64) {
	d.used -= n.truncate(size)
}

// flush brings a file's content, or a directory's names, to the platter.
func (d *Disk) flush(n *node) syscall.Errno {
	switch d.outcome(Flush, n) {
	case Pretend:
		return 0
	case Fail:
		clear(n.dirty)
		return syscall.EIO
	}
	n.flush()
	n.keepNames()
	return 0
}

// release gives back the space of a file that has no name and that nobody has open.
func (d *Disk) release(n *node) {
	if n.links == 0 && n.lookups == 0 {
		d.used -= n.now.allocated()
		n.now = content{}
	}
}

// path is where the node has its newest name.
func (n *node) path() string {
	if n.parent == nil {
		return ""
	}
	return path.Join(n.parent.path(), n.name)
}
