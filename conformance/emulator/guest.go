package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Files in the machine: this command, the program, its arguments and its environment; what is in the
// last two is ended by zero bytes.
const (
	initFile    = "init"
	programFile = "program"
	argsFile    = "arguments"
	envFile     = "environment"
)

// list is the contents of such a file, and parse reads it.
func list(items []string) []byte { return []byte(strings.Join(append(items, ""), "\x00")) }

func parse(file string) ([]string, error) {
	data, err := os.ReadFile("/" + file)
	items := strings.Split(string(data), "\x00")
	return items[:len(items)-1], err
}

// What the program prints stands between these in what the machine prints; its status follows.
const (
	begin = "emulator: begin\n"
	end   = "\nemulator: end "
)

// guest is the machine's first process: it runs the program.
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
		// -1 where it did not start or did not exit by itself.
		if status = program.ProcessState.ExitCode(); status < 0 {
			fmt.Println("emulator:", err)
			status = 2
		}
	}
	fmt.Printf("%s%d\n", end, status)
	// Linux ends the machine once its first process is gone.
	time.Sleep(time.Second) // until all is printed
	os.Exit(status)
}
