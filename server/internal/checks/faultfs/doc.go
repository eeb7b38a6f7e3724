// Package faultfs is a disk that fails as disks do: it forgets what was not flushed when the power is cut, it gets full,
// it answers with I/O errors, and it lies about having flushed.
//
// A Disk is a file system in memory, mounted through FUSE where the system has it. Every file has two contents: the one
// that readers see, and the one on the platter. What is written reaches the first; fsync, fdatasync and writes with
// O_SYNC or O_DSYNC bring a file's blocks and its size to the second. A directory has two lists of names likewise, and
// only an fsync of the directory makes a creation, rename or removal last. POSIX promises no more than that, and the
// usual file systems keep more: what survives here survives there. A cut can also let a part of the unflushed blocks
// survive, as if the kernel had happened to write them back, torn pages included.
//
// A flush that fails forgets the blocks that it should have written, as Linux does: readers still see them, later flushes
// pass over them, and after the next cut they are gone. Permissions and times are kept, but are not a matter of flushing.
//
// The methods of a Disk are safe for concurrent use. A mounted Disk has the goroutines of its FUSE server, which
// Mount.Close waits for. Memory is bounded: readers see at most the disk's limit, and further writes fail with ENOSPC;
// the platter's blocks that differ from those can take as much again, and so can files that are removed or shortened
// and whose removal is not flushed yet.
package faultfs
