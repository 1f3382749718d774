package renderer

import (
	"fmt"
	"strings"
)

// What upstream says while it renders: its logger.
type warnings struct {
	lines []string
}

func (w *warnings) add(text string) {
	w.lines = append(w.lines, strings.TrimRight(text, "\n"))
}

func (w *warnings) LogAndPrint(v ...any)                 { w.add(fmt.Sprint(v...)) }
func (w *warnings) LogAndError(v ...any)                 { w.add(fmt.Sprint(v...)) }
func (w *warnings) LogAndFatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (w *warnings) LogAndPrintf(format string, a ...any) { w.add(fmt.Sprintf(format, a...)) }
func (w *warnings) LogAndErrorf(format string, a ...any) { w.add(fmt.Sprintf(format, a...)) }
func (w *warnings) LogAndFatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (w *warnings) Print(s string)                       { w.add(s) }
func (w *warnings) PrintErr(s string)                    { w.add(s) }
