package faultfs

import (
	"maps"
	"slices"
	"syscall"
	"time"
)

// node is a file or a directory. The disk's mu guards it.
type node struct {
	ino     uint64
	mode    uint32 // type and permissions
	mtime   time.Time
	parent  *node // and name: of the name that it was given last
	name    string
	links   int    // names that readers see
	lookups uint64 // how often the kernel was told of it, and has not forgotten it

	// A file has contents. A block belongs to now alone as long as it is dirty; else platter may have it too, and a write
	// makes a new one.
	now, platter content
	dirty        map[int]bool

	// A directory has names.
	names, kept map[string]*node
}

func (n *node) isDir() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

// add gives child a name in the directory.
func (n *node) add(name string, child *node) {
	n.names[name] = child
	n.mtime = time.Now()
	child.parent, child.name = n, name
	child.links++
}

// walk calls f for the nodes that readers can reach.
func (n *node) walk(seen map[*node]bool, f func(*node)) {
	if seen[n] {
		return
	}
	seen[n] = true
	f(n)
	for _, child := range n.names {
		child.walk(seen, f)
	}
}

// sync brings the node and all below it to the platter.
func (n *node) sync() {
	n.walk(map[*node]bool{}, func(n *node) {
		n.flush()
		n.keepNames()
	})
}

// cut leaves what is on the platter, of this node and those below it; see Disk.Cut.
func (n *node) cut(seen map[*node]bool, survives func() bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	n.links, n.lookups = 0, 0
	if !n.isDir() {
		for _, i := range slices.Sorted(maps.Keys(n.dirty)) {
			if survives() && int64(i)*BlockSize < n.now.size { // a truncation is no block
				n.platter.set(i, n.now.block(i))
				n.platter.size = max(n.platter.size, min(n.now.size, int64(i+1)*BlockSize))
			}
		}
		clear(n.dirty)
		n.now = content{size: n.platter.size, blocks: slices.Clone(n.platter.blocks)}
		return
	}
	if !maps.Equal(n.names, n.kept) && survives() {
		n.keepNames()
	}
	n.names = maps.Clone(n.kept)
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		child := n.names[name]
		child.cut(seen, survives)
		child.parent, child.name = n, name
		child.links++
	}
}

// keepNames brings a directory's names to the platter.
func (n *node) keepNames() { n.kept = maps.Clone(n.names) }

// flush brings a file's dirty blocks and its size to the platter.
func (n *node) flush() {
	n.platter.resize(n.now.size)
	for i := range n.dirty {
		n.platter.set(i, n.now.block(i))
	}
	clear(n.dirty)
}

func (n *node) write(data []byte, off int64) {
	n.mtime = time.Now()
	n.now.size = max(n.now.size, off+int64(len(data)))
	for len(data) > 0 {
		i, at := int(off/BlockSize), int(off%BlockSize)
		done := copy(n.own(i)[at:], data)
		data, off = data[done:], off+int64(done)
	}
}

// own is block i, made so that it can be changed.
func (n *node) own(i int) []byte {
	b := n.now.block(i)
	if b == nil || !n.dirty[i] {
		fresh := make([]byte, BlockSize)
		copy(fresh, b)
		b = fresh
		n.now.set(i, b)
		n.dirty[i] = true
	}
	return b
}

// truncate sets the size and returns how many blocks that gave back.
func (n *node) truncate(size int64) (freed int64) {
	n.mtime = time.Now()
	if tail := size % BlockSize; size < n.now.size && tail != 0 && n.now.block(int(size/BlockSize)) != nil {
		clear(n.own(int(size / BlockSize))[tail:])
	}
	before := n.now.allocated()
	for i := int((size + BlockSize - 1) / BlockSize); i < len(n.now.blocks); i++ {
		n.dirty[i] = true // if the file grows again, the platter's block must not come back
	}
	n.now.resize(size)
	return before - n.now.allocated()
}

// content is a sequence of bytes. A block that is nil, or beyond the last one, is all zeros.
type content struct {
	size   int64
	blocks [][]byte // each of BlockSize, zeros after size
}

func (c *content) block(i int) []byte {
	if i < len(c.blocks) {
		return c.blocks[i]
	}
	return nil
}

func (c *content) set(i int, b []byte) {
	if i >= len(c.blocks) {
		c.blocks = append(c.blocks, make([][]byte, i+1-len(c.blocks))...)
	}
	c.blocks[i] = b
}

// resize drops the blocks after size.
func (c *content) resize(size int64) {
	c.size = size
	if n := int((size + BlockSize - 1) / BlockSize); n < len(c.blocks) {
		clear(c.blocks[n:])
		c.blocks = c.blocks[:n]
	}
}

// allocated is the number of blocks that take space.
func (c *content) allocated() (n int64) {
	for _, b := range c.blocks {
		if b != nil {
			n++
		}
	}
	return n
}

// missing is how many blocks a write of n bytes at off would have to allocate.
func (c *content) missing(off, n int64) (count int64) {
	for i := off / BlockSize; i*BlockSize < off+n; i++ {
		if c.block(int(i)) == nil {
			count++
		}
	}
	return count
}

// read fills p from off on and returns how much of it the file has.
func (c *content) read(p []byte, off int64) int {
	p = p[:max(0, min(int64(len(p)), c.size-off))]
	for rest := p; len(rest) > 0; {
		i, at := int(off/BlockSize), int(off%BlockSize)
		n := min(BlockSize-at, len(rest))
		if b := c.block(i); b != nil {
			copy(rest[:n], b[at:])
		} else {
			clear(rest[:n])
		}
		rest, off = rest[n:], off+int64(n)
	}
	return len(p)
}
