package mapped

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs read, which may touch mapped pages, and turns the fault of a file
// that another process cut short into an error. All other panics pass.
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

// shrunk is the error of a file that another process cut short.
func shrunk(path string) error {
	return fmt.Errorf("%s: became shorter while it was read; open it again", path)
}
