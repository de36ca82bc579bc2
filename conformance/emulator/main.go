// Command emulator runs a program on an emulated processor with AVX-512 VNNI. Bochs boots Linux
// with the program as its only process. README.md lists the packages that must be installed. It
// imports nothing of this module.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

const usage = `emulator [flags] PROGRAM [ARGUMENT...]

Runs a static Linux program for amd64 on an emulated processor with AVX-512 VNNI, and ends with the
program's status. The program sees no files but its own and an empty /tmp.

Example:
  go build -o bin/emulator ./conformance/emulator
  CGO_ENABLED=0 go test -exec bin/emulator ./exec/cpu/isa

Flags:
`

func main() {
	if os.Args[0] == "/"+initFile {
		guest()
	}
	m := machine{out: os.Stdout}
	flag.StringVar(&m.kernel, "kernel", "", "Linux kernel (default the last of "+kernels+")")
	flag.StringVar(&m.bochs, "bochs", "", "another Bochs, built without its debugger (default Debian's)")
	flag.StringVar(&m.cpu, "cpu", "corei7_icelake_u", "processor, one of 'bochs -help cpu'")
	flag.DurationVar(&m.limit, "limit", 20*time.Minute, "time after which the machine is switched off")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	status, err := m.run(flag.Arg(0), flag.Args()[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "emulator:", err)
		os.Exit(2)
	}
	os.Exit(status)
}
