package runtime

import "unsafe"

// Gives the host memory for the arguments of a call. The canonical ABI names it.
//
//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldSize, align, size uint32) unsafe.Pointer {
	memory := Allocate(&arguments, uintptr(size), uintptr(align))
	if oldSize > 0 {
		length := min(oldSize, size)
		copy(unsafe.Slice((*byte)(memory), length), unsafe.Slice((*byte)(old), length))
	}
	return memory
}
