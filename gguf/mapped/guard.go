package mapped

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs read, which may access mapped pages. If another process has truncated
// the file, the memory fault becomes an error. Other panics are passed on.
func Guard(path string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = shrunk(path)
		default:
			panic(p)
		}
	}()
	return read()
}

// A ShrunkError reports a file that another process has truncated.
type ShrunkError struct{ Path string }

func (e *ShrunkError) Error() string {
	return fmt.Sprintf("%s: became shorter while it was read; open it again", e.Path)
}

func shrunk(path string) error { return &ShrunkError{path} }
