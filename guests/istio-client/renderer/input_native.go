//go:build !wasip1

package renderer

import "os"

// Makes a text the standard input, from which upstream reads.
func setInput(text string) (done func()) {
	reader, writer, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	before := os.Stdin
	os.Stdin = reader
	go func() {
		// Fails only where nobody reads to the end any more.
		_, _ = writer.WriteString(text)
		_ = writer.Close()
	}()
	return func() {
		os.Stdin = before
		_ = reader.Close()
	}
}
