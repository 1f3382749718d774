package renderer

import (
	"runtime"
	"unsafe"
)

// Makes a text the standard input, until it has been read. The component's adapter has it.
//
//go:wasmimport wasi_snapshot_preview1 stdin_set
func stdinSet(text unsafe.Pointer, length uint32)

// Makes a text the standard input, from which upstream reads, and keeps it in place until done.
func setInput(text string) (done func()) {
	var pinner runtime.Pinner
	if len(text) > 0 {
		pinner.Pin(unsafe.StringData(text))
	}
	stdinSet(unsafe.Pointer(unsafe.StringData(text)), uint32(len(text)))
	return func() {
		stdinSet(nil, 0)
		pinner.Unpin()
	}
}
