package faultfs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"
)

// plain is the model of a file: whole contents, copied at each flush.
type plain struct{ now, platter []byte }

// model is a directory of such files, and what a cut leaves of it.
type model struct{ names, kept map[string]*plain }

func (m *model) cut() {
	m.names = maps.Clone(m.kept)
	for _, f := range m.names {
		f.now = slices.Clone(f.platter)
	}
}

func (d *Disk) content(t interface{ Fatalf(string, ...any) }, name string) []byte {
	n := d.root.names[name]
	if n == nil {
		t.Fatalf("%s is not there", name)
	}
	b := bytes.Repeat([]byte{'?'}, int(n.now.size)+10)
	return b[:n.now.read(b, 0)]
}

func sized(b []byte, size int) []byte {
	if size <= len(b) {
		return b[:size:size]
	}
	return append(b[:len(b):len(b)], make([]byte, size-len(b))...)
}

// Random histories on a disk and on the model: readers see the same, and so they do after each power cut.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New(1, 1, 1<<30)
		m := &model{names: map[string]*plain{}, kept: map[string]*plain{}}
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		offset := rapid.SampledFrom([]int{0, 1, BlockSize - 1, BlockSize, 2*BlockSize + 100, 5 * BlockSize})
		change := func(f func(n *node, p *plain)) func(*rapid.T) {
			return func(t *rapid.T) {
				name := name.Draw(t, "name")
				if p := m.names[name]; p != nil {
					f(d.root.names[name], p)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				name := name.Draw(t, "name")
				_, errno := d.create(d.root, name, syscall.S_IFREG)
				if (errno == syscall.EEXIST) != (m.names[name] != nil) {
					t.Fatalf("create: %v", errno)
				}
				if errno == 0 {
					m.names[name] = &plain{}
				}
			},
			"write": change(func(n *node, p *plain) {
				data := bytes.Repeat([]byte{byte(rapid.IntRange(1, 255).Draw(t, "byte"))}, rapid.IntRange(1, 3*BlockSize).Draw(t, "length"))
				off := offset.Draw(t, "offset")
				if errno := d.write(n, data, int64(off)); errno != 0 {
					t.Fatal(errno)
				}
				p.now = slices.Clone(sized(p.now, max(len(p.now), off+len(data))))
				copy(p.now[off:], data)
			}),
			"truncate": change(func(n *node, p *plain) {
				size := offset.Draw(t, "size")
				d.truncate(n, int64(size))
				p.now = sized(p.now, size)
			}),
			"flush": change(func(n *node, p *plain) {
				d.flush(n)
				p.platter = slices.Clone(p.now)
			}),
			"flush the directory": func(*rapid.T) {
				d.flush(d.root)
				m.kept = maps.Clone(m.names)
			},
			"rename": func(t *rapid.T) {
				from, to := name.Draw(t, "from"), name.Draw(t, "to")
				errno := d.rename(d.root, from, d.root, to)
				if p := m.names[from]; p == nil != (errno == syscall.ENOENT) {
					t.Fatalf("rename: %v", errno)
				} else if p != nil && from != to {
					delete(m.names, from)
					m.names[to] = p
				}
			},
			"remove": func(t *rapid.T) {
				name := name.Draw(t, "name")
				if errno := d.remove(d.root, name, false); (errno == 0) != (m.names[name] != nil) {
					t.Fatalf("remove: %v", errno)
				}
				delete(m.names, name)
			},
			"power cut": func(*rapid.T) {
				d.Cut(nil)
				m.cut()
			},
			"": func(t *rapid.T) { compare(t, d, m) },
		})
	})
}

func compare(t *rapid.T, d *Disk, m *model) {
	if got, want := slices.Sorted(maps.Keys(d.root.names)), slices.Sorted(maps.Keys(m.names)); !slices.Equal(got, want) {
		t.Fatalf("names %v, want %v", got, want)
	}
	var used int64
	for name, p := range m.names {
		if got := d.content(t, name); !bytes.Equal(got, p.now) {
			t.Fatalf("%s has %d bytes, want %d", name, len(got), len(p.now))
		}
		used += d.root.names[name].now.allocated()
	}
	if d.used != used {
		t.Fatalf("used %d blocks, the files have %d", d.used, used)
	}
}

// file is a disk with one file, whose name is on the platter.
func file(t *testing.T, limit int64) (*Disk, *node) {
	t.Helper()
	d := New(1, 1, limit)
	n, errno := d.create(d.root, "f", syscall.S_IFREG)
	if errno != 0 {
		t.Fatal(errno)
	}
	d.root.sync()
	return d, n
}

func TestLoad(t *testing.T) {
	from := fstest.MapFS{"a/b/f": {Data: bytes.Repeat([]byte{7}, 3*BlockSize+1), Mode: 0o640}, "g": {Data: []byte("g"), Mode: 0o600}}
	d := New(1, 1, 5*BlockSize)
	if err := d.Load(from); err != nil {
		t.Fatal(err)
	}
	d.Cut(nil)
	n := d.root.names["a"].names["b"].names["f"]
	if n.mode != syscall.S_IFREG|0o640 || n.now.size != 3*BlockSize+1 || d.Used() != 5*BlockSize || string(d.content(t, "g")) != "g" {
		t.Errorf("f has mode %o and %d bytes, %d bytes are in use", n.mode, n.now.size, d.Used())
	}
	if err := New(1, 1, 4*BlockSize).Load(from); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a disk that is too small: %v", err)
	}
}

func TestFull(t *testing.T) {
	d, n := file(t, 2*BlockSize)
	two := bytes.Repeat([]byte{1}, 2*BlockSize)
	steps := []struct {
		what string
		do   func() syscall.Errno
		want syscall.Errno
	}{
		{"fills the disk", func() syscall.Errno { return d.write(n, two, 0) }, 0},
		{"one byte more", func() syscall.Errno { return d.write(n, two[:1], 2*BlockSize) }, syscall.ENOSPC},
		{"over what is there", func() syscall.Errno { return d.write(n, two, 0) }, 0},
		{"one byte more after truncation", func() syscall.Errno { d.truncate(n, BlockSize); return d.write(n, two[:1], 2*BlockSize) }, 0},
		{"on a larger disk", func() syscall.Errno { d.SetLimit(3 * BlockSize); return d.write(n, two, 0) }, 0},
		{"removed", func() syscall.Errno { return d.remove(d.root, "f", false) }, 0},
	}
	for _, s := range steps {
		if errno := s.do(); errno != s.want {
			t.Errorf("%s: %v, want %v", s.what, errno, s.want)
		}
	}
	if d.Used() != 0 {
		t.Errorf("%d bytes are in use", d.Used())
	}
}

func TestInterference(t *testing.T) {
	for _, c := range []struct {
		op       Op
		outcome  Outcome
		write    syscall.Errno
		flush    syscall.Errno
		now, cut string
	}{
		{Write, Good, 0, 0, "new", "new"},
		{Write, Fail, syscall.EIO, 0, "old", "old"},
		{Flush, Fail, 0, syscall.EIO, "new", "old"},
		{Flush, Pretend, 0, 0, "new", "old"},
	} {
		t.Run(fmt.Sprint(c.op, c.outcome), func(t *testing.T) {
			d, n := file(t, 1<<20)
			d.write(n, []byte("old"), 0)
			d.root.sync()
			var path string
			d.Interfere(func(op Op, p string) Outcome {
				if path = p; op == c.op {
					return c.outcome
				}
				return Good
			})
			if write, flush := d.write(n, []byte("new"), 0), d.flush(n); write != c.write || flush != c.flush {
				t.Errorf("write %v, flush %v", write, flush)
			}
			if got := string(d.content(t, "f")); got != c.now || path != "f" {
				t.Errorf("%s holds %q", path, got)
			}
			d.Interfere(nil)
			if c.outcome == Fail { // a later flush does not make up for one that failed
				d.flush(n)
			}
			d.Cut(nil)
			if got := string(d.content(t, "f")); got != c.cut {
				t.Errorf("after the cut it holds %q", got)
			}
		})
	}
}

// A cut that lets every second unflushed block survive tears what is larger than a block.
func TestTornByTheCut(t *testing.T) {
	d, n := file(t, 1<<20)
	d.write(n, bytes.Repeat([]byte{1}, 4*BlockSize), 0)
	d.root.sync()
	d.write(n, bytes.Repeat([]byte{2}, 6*BlockSize), 0)
	kept := false
	d.Cut(func() bool { kept = !kept; return kept })
	var got []byte
	for i := range 5 {
		got = append(got, d.content(t, "f")[i*BlockSize])
	}
	if n.now.size != 5*BlockSize || !bytes.Equal(got, []byte{2, 1, 2, 1, 2}) {
		t.Errorf("%d bytes, blocks %v", n.now.size, got)
	}
}

func TestNames(t *testing.T) {
	d, n := file(t, 1<<20)
	dir, _ := d.create(d.root, "dir", syscall.S_IFDIR)
	for _, s := range []struct {
		what      string
		got, want syscall.Errno
	}{
		{"link", d.link(n, dir, "g"), 0},
		{"link over a name", d.link(n, dir, "g"), syscall.EEXIST},
		{"link of a directory", d.link(dir, d.root, "h"), syscall.EPERM},
		{"rmdir of a file", d.remove(d.root, "f", true), syscall.ENOTDIR},
		{"unlink of a directory", d.remove(d.root, "dir", false), syscall.EISDIR},
		{"rmdir of a full one", d.remove(d.root, "dir", true), syscall.ENOTEMPTY},
		{"rename over a full directory", d.rename(d.root, "f", d.root, "dir"), syscall.EISDIR},
		{"rename to another name of the same", d.rename(d.root, "f", dir, "g"), 0},
		{"rename away", d.rename(dir, "g", d.root, "g"), 0},
		{"rmdir of an empty one", d.remove(d.root, "dir", true), 0},
	} {
		if s.got != s.want {
			t.Errorf("%s: %v, want %v", s.what, s.got, s.want)
		}
	}
	if n.links != 2 || n.path() != "g" {
		t.Errorf("%d links, path %s", n.links, n.path())
	}
	d.Cut(nil) // only f was ever flushed
	if n.links != 1 || n.path() != "f" || len(d.root.names) != 1 {
		t.Errorf("after the cut %d links, path %s, names %v", n.links, n.path(), d.root.names)
	}
}
