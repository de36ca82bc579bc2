package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Files in the machine: this command, the program, its arguments and its environment. Items of the
// last two end with a zero byte.
const (
	initFile    = "init"
	programFile = "program"
	argsFile    = "arguments"
	envFile     = "environment"
)

// list returns the contents of such a file, and parse reads it.
func list(items []string) []byte { return []byte(strings.Join(append(items, ""), "\x00")) }

func parse(file string) ([]string, error) {
	data, err := os.ReadFile("/" + file)
	items := strings.Split(string(data), "\x00")
	return items[:len(items)-1], err
}

// Markers around the output of the program in the output of the machine. The status follows the
// second one.
const (
	begin = "emulator: begin\n"
	end   = "\nemulator: end "
)

// guest runs the program. It is the machine's first process.
func guest() {
	args, err := parse(argsFile)
	if err != nil {
		fmt.Println("emulator:", err)
	}
	program := exec.Command("/"+programFile, args...)
	if program.Env, err = parse(envFile); err != nil {
		fmt.Println("emulator:", err)
	}
	program.Stdout, program.Stderr = os.Stdout, os.Stderr
	fmt.Print(begin)
	status := 0
	if err := program.Run(); err != nil {
		// -1 if it did not start or did not exit by itself.
		if status = program.ProcessState.ExitCode(); status < 0 {
			fmt.Println("emulator:", err)
			status = 2
		}
	}
	fmt.Printf("%s%d\n", end, status)
	// Linux ends the machine after its first process has ended.
	time.Sleep(time.Second) // until all output is printed
	os.Exit(status)
}
