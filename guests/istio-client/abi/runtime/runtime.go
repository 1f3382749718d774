// Package runtime gives memory to the host and to generated bindings.
package runtime

import (
	"runtime"
	"unsafe"
)

// Holds the arguments of a call that is being made.
var arguments runtime.Pinner

// Allocate returns zeroed memory that stays where it is until the pinner lets it go. Its alignment
// is that of the largest value of WIT, 8 bytes. Nothing must be written to memory of size 0.
func Allocate(pinner *runtime.Pinner, size, align uintptr) unsafe.Pointer {
	if size == 0 {
		return unsafe.Add(unsafe.Pointer(nil), align)
	}
	words := make([]uint64, (size+7)/8)
	memory := unsafe.Pointer(unsafe.SliceData(words))
	pinner.Pin(memory)
	return memory
}

// Unpin lets the arguments of a call go, once Go values refer to them.
func Unpin() {
	arguments.Unpin()
}
