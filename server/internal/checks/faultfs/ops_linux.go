package faultfs

import (
	"maps"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// The requests of the kernel, as fuse.RawFileSystem describes them.

func (m *Mount) String() string { return "faultfs" }

func (m *Mount) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return m.at(h.NodeId, func(dir *node) syscall.Errno {
		n := dir.names[name]
		if n == nil {
			return syscall.ENOENT
		}
		m.tell(n, out)
		return 0
	})
}

func (m *Mount) Forget(id, count uint64) {
	m.at(id, func(n *node) syscall.Errno {
		if n.lookups -= min(count, n.lookups); n.lookups == 0 && n != m.disk.root {
			delete(m.nodes, id)
			m.disk.release(n)
		}
		return 0
	})
}

func (m *Mount) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return m.at(in.NodeId, func(n *node) syscall.Errno {
		out.AttrValid = forever
		m.attr(n, &out.Attr)
		return 0
	})
}

func (m *Mount) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return m.at(in.NodeId, func(n *node) syscall.Errno {
		if mode, ok := in.GetMode(); ok {
			n.mode = n.mode&syscall.S_IFMT | mode
		}
		if size, ok := in.GetSize(); ok {
			m.disk.truncate(n, int64(size))
		}
		if t, ok := in.GetMTime(); ok {
			n.mtime = t
		}
		out.AttrValid = forever
		m.attr(n, &out.Attr)
		return 0
	})
}

func (m *Mount) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return m.at(in.NodeId, func(dir *node) syscall.Errno {
		n, errno := m.disk.create(dir, name, syscall.S_IFDIR|in.Mode&0o7777)
		if errno == 0 {
			m.tell(n, out)
		}
		return errno
	})
}

func (m *Mount) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return m.at(in.NodeId, func(dir *node) syscall.Errno {
		n, errno := m.disk.create(dir, name, syscall.S_IFREG|in.Mode&0o7777)
		if errno == 0 {
			m.tell(n, &out.EntryOut)
			out.OpenFlags = fuse.FOPEN_KEEP_CACHE
		}
		return errno
	})
}

func (m *Mount) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return m.at(in.NodeId, func(dir *node) syscall.Errno {
		n, ok := m.node(in.Oldnodeid)
		if !ok {
			return syscall.EIO
		}
		errno := m.disk.link(n, dir, name)
		if errno == 0 {
			m.tell(n, out)
		}
		return errno
	})
}

func (m *Mount) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return m.at(h.NodeId, func(dir *node) syscall.Errno { return m.disk.remove(dir, name, false) })
}

func (m *Mount) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return m.at(h.NodeId, func(dir *node) syscall.Errno { return m.disk.remove(dir, name, true) })
}

func (m *Mount) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	return m.at(in.NodeId, func(from *node) syscall.Errno {
		to, ok := m.node(in.Newdir)
		switch {
		case !ok:
			return syscall.EIO
		case in.Flags != 0: // exchange, and the like
			return syscall.EINVAL
		}
		return m.disk.rename(from, oldName, to, newName)
	})
}

// Open and Flush have nothing to do; the kernel asks once and saves itself the requests from then on.
func (m *Mount) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.ENOSYS }
func (m *Mount) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status              { return fuse.ENOSYS }

func (m *Mount) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	var n int
	status := m.at(in.NodeId, func(f *node) syscall.Errno {
		n = f.now.read(buf[:in.Size], int64(in.Offset))
		return 0
	})
	return fuse.ReadResultData(buf[:n]), status
}

// Write is what a write(2) becomes at once: the kernel's cache is written through. The flags of the file are those of
// the moment.
func (m *Mount) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	status := m.at(in.NodeId, func(n *node) syscall.Errno {
		errno := m.disk.write(n, data, int64(in.Offset))
		if errno == 0 && in.Flags&syscall.O_DSYNC != 0 { // O_SYNC contains it
			errno = m.disk.flush(n)
		}
		return errno
	})
	return uint32(len(data)), status
}

func (m *Mount) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS // Write is called then
}

func (m *Mount) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.at(in.NodeId, m.disk.flush)
}

func (m *Mount) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.Fsync(cancel, in)
}

func (m *Mount) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return m.at(in.NodeId, func(dir *node) syscall.Errno {
		list := listing{{Name: ".", Mode: syscall.S_IFDIR, Ino: dir.ino}, {Name: "..", Mode: syscall.S_IFDIR, Ino: dir.ino}}
		for _, name := range slices.Sorted(maps.Keys(dir.names)) {
			list = append(list, fuse.DirEntry{Name: name, Mode: dir.names[name].mode, Ino: dir.names[name].ino})
		}
		m.handles++
		out.Fh = m.handles
		m.reading[out.Fh] = list
		return 0
	})
}

func (m *Mount) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return m.at(in.NodeId, func(*node) syscall.Errno {
		list := m.reading[in.Fh]
		for i := int(in.Offset); i < len(list); i++ {
			e := list[i]
			e.Off = uint64(i) + 1
			if !out.AddDirEntry(e) {
				break
			}
		}
		return 0
	})
}

func (m *Mount) ReleaseDir(in *fuse.ReleaseIn) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	delete(m.reading, in.Fh)
}

func (m *Mount) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	out.Bsize, out.Frsize, out.NameLen = BlockSize, BlockSize, 255
	out.Blocks = uint64(m.disk.limit)
	out.Bfree = uint64(max(0, m.disk.limit-m.disk.used))
	out.Bavail = out.Bfree
	return fuse.OK
}
